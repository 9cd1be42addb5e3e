"""Comparisons of evaluations as terminal tables, and token efficiency as a figure."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from brorl.reports.evaluation import efficiency_report, interval_cells

Figures = Mapping[str, Any]

_MARKS = ("circle", "square", "diamond", "cross", "triangle-up", "x", "star", "hexagon")


def comparison_report(figures: Figures, *, listed: int = 10) -> Iterator[RenderableType]:
    """What `brorl compare` prints: differences with their tests, problems won, lost and gained, token efficiency."""
    several = len(figures["comparisons"]) > 1
    for comparison in figures["comparisons"]:
        yield f"[bold]{escape(comparison['other'])}[/] against [bold]{escape(comparison['base'])}[/]"
        yield _differences(comparison, several)
        yield _t_tests(comparison, figures["t_test_assumes"])
        for name, found in comparison["benchmarks"].items():
            yield from _problems(name, found, listed)
    entries = {
        f"{label}: {name}": found for label, e in figures["token_efficiency"].items() for name, found in e.items()
    }
    yield from efficiency_report(entries)


def _differences(comparison: Figures, several: bool) -> Table:
    table = Table(title="difference, paired by problem (95 % intervals, clustered by problem)", title_justify="left")
    for column in ("score", "base", "other", "change", "interval", "p"):
        table.add_column(column, justify="left" if column == "score" else "right", no_wrap=True)
    for name, found in comparison["benchmarks"].items():
        reward = {"mean reward": found} if found["score"] == "reward" else {}
        rows = reward | {f"pass@{k}": side for k, side in found["pass_at"].items()} | {"tokens": found["mean_tokens"]}
        headline = "mean reward" if reward else "pass@1"
        table.add_row(f"[bold]{escape(name)}[/]", "", "", "", f"{found['problems']} problems")
        for title, side in rows.items():
            form = ".1f" if title == "tokens" else ".4f"
            value, interval = interval_cells(side["difference"], f"+{form}")
            p = _p(found["permutation_p_holm" if several else "permutation_p"]) if title == headline else ""
            base, other = (f"{side[key]['value']:{form}}" for key in ("base", "other"))
            table.add_row(f"  {title}", base, other, value, interval, p)
    if "pooled" in comparison:
        value, interval = interval_cells(comparison["pooled"]["difference"], "+.4f")
        table.add_row("[bold]all[/]", "", "", "", f"{comparison['pooled']['problems']} problems")
        table.add_row("  score", "", "", value, interval, _p(comparison["pooled"]["permutation_p"]))
    table.caption = "p: paired permutation test, two-sided" + (", adjusted for several comparisons" * several)
    return table


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 1e-3 else f"{value:.0e}"


def _t_tests(comparison: Figures, assumes: str) -> str:
    rows = {**comparison["benchmarks"], **({"all problems": comparison["pooled"]} if "pooled" in comparison else {})}
    told = [
        f"{escape(name)}: t({test['degrees']}) = {test['t']:.2f}, p = {_p(test['p_two_sided'])}, "
        f"one-sided {_p(test['p_one_sided'])}"
        for name, found in rows.items()
        if (test := found["t_test"]) is not None
    ]
    return f"the paper's paired t-test (it assumes that {assumes}): " + ("; ".join(told) or "no difference to test")


def _problems(name: str, found: Figures, listed: int) -> Iterator[str]:
    wins, losses = found["wins"], found["losses"]
    yield f"{escape(name)}: {len(wins)} problems better, {len(losses)} worse, {found['ties']} equal"
    for title, rows in (("better", wins), ("worse", losses)):
        if rows and listed:
            shown = ", ".join(f"{row['id']} {row['base']:.2f} to {row['other']:.2f}" for row in rows[:listed])
            more = f" and {len(rows) - listed} more" if len(rows) > listed else ""
            yield f"  {title}: {escape(shown)}{more}"
    for title, says in (("lost", "right answers went to none"), ("gained", "right answers where there was none")):
        side = found[title]
        ids = ", ".join(side["problems"][:listed]) + (" ..." if len(side["problems"]) > listed else "")
        yield (
            f"  {title} ({says}): {len(side['problems'])}, {side['expected_by_chance']:.1f} expected by chance"
            + (f": {escape(ids)}" if ids and listed else "")
        )
    if found["retained"] is not None:
        kept = found["retained"]
        yield (f"  distinct right responses: {kept['base']} of the base, {kept['other']} now, {kept['both']} in both")


def write_token_figure(path: Path, efficiency: Mapping[str, Mapping[str, Figures]]) -> None:
    """Score against mean tokens, a point for each evaluation (label -> benchmark -> figures) and cap, as one HTML file.

    A line joins the caps of one evaluation; where quality does not depend on length, another point is higher at the
    same tokens, or as high with fewer.
    """
    names = list(dict.fromkeys(name for found in efficiency.values() for name in found))
    figure = go.Figure()
    for at, (label, found) in enumerate(efficiency.items()):
        for name in names:
            rows = found[name]["caps"] if name in found else []
            title = label if len(names) == 1 else f"{label}, {name}"
            figure.add_trace(_trace(rows, title, _MARKS[at % len(_MARKS)]))
    figure.update_layout(
        template="simple_white", width=900, height=560, xaxis_title="mean tokens of a response",
        yaxis_title="score (95 % interval)", title="Score against length", legend_orientation="h", legend_y=-0.2,
    )  # fmt: skip
    figure.write_html(path, include_plotlyjs=True)


def _trace(rows: Sequence[Figures], title: str, mark: str) -> go.Scatter:
    rows = sorted(rows, key=lambda row: row["mean_tokens"]["value"])
    scores = [row["score"] for row in rows]
    known = [score if score["low"] is not None else {**score, "low": score["value"], "high": score["value"]}
             for score in scores]  # fmt: skip
    return go.Scatter(
        x=[row["mean_tokens"]["value"] for row in rows],
        y=[score["value"] for score in scores],
        error_y={
            "type": "data", "symmetric": False, "thickness": 1,
            "array": [score["high"] - score["value"] for score in known],
            "arrayminus": [score["value"] - score["low"] for score in known],
        },
        text=["as drawn" if row["cap"] is None else f"cap {row['cap']}" for row in rows],
        mode="lines+markers",
        marker_symbol=mark,
        marker_size=10,
        name=title,
    )  # fmt: skip
