"""Evaluations and benchmarks as terminal tables."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

Figures = Mapping[str, Any]


def evaluation_report(results: Figures) -> Iterator[RenderableType]:
    """The results of `brorl eval`: scores, outcomes, categories, token efficiency."""
    yield _scores(results["benchmarks"])
    for name, found in results["benchmarks"].items():
        for reason, count in found["left_out"].items():
            yield f"{name}: {count} rows of the data left out: {escape(reason)}"
        if found["unscored_problems"]:
            yield f"{name}: {found['unscored_problems']} problems without a scorable response are in no score"
    if len(results["benchmarks"]) > 1:
        yield f"mean score over benchmarks: {results['average']:.4f}"
    yield _outcomes(results["benchmarks"])
    for name, found in results["benchmarks"].items():
        if len(found["by_category"]) > 1:
            yield _categories(name, found["by_category"])
    yield from efficiency_report({name: found["token_efficiency"] for name, found in results["benchmarks"].items()})


def _scores(benchmarks: Figures) -> Table:
    table = Table(title="scores (95 % intervals, clustered by problem)", title_justify="left")
    for column in ("benchmark", "problems", "score", "value", "interval"):
        side = "left" if column in ("benchmark", "score") else "right"
        table.add_column(column, justify=side, no_wrap=True)
    for name, found in benchmarks.items():
        rows = {f"pass@{k}": value for k, value in found["pass_at"].items()}
        rows |= {f"cons@{k}": value for k, value in (found["cons_at"] or {}).items() if int(k) > 2}
        if found["score"] == "reward":
            rows = {"mean reward": found["mean_reward"], **rows}
        head = (escape(name), f"{found['problems']} x {found['samples_per_problem']['most']}")
        for title, value in rows.items():
            table.add_row(*head, title, *interval_cells(value))
            head = ("", "")
    return table


def interval_cells(value: Figures | None, form: str = ".4f") -> tuple[str, str]:
    """The value, and its interval, as two cells; dashes for what cannot be measured."""
    if value is None:
        return "-", "-"
    interval = "-" if value["low"] is None else f"{value['low']:{form}} to {value['high']:{form}}"
    return f"{value['value']:{form}}", interval


def _outcomes(benchmarks: Figures) -> Table:
    names = [
        n for n in next(iter(benchmarks.values()))["outcomes"] if any(b["outcomes"][n] for b in benchmarks.values())
    ]
    table = Table(title="outcomes, share of the responses", title_justify="left")
    table.add_column("benchmark")
    for name in (*names, "cut at the limit"):
        table.add_column(name, justify="right")
    for name, found in benchmarks.items():
        total = max(sum(found["outcomes"].values()), 1)
        shares = [f"{found['outcomes'][n] / total:.1%}" for n in names]
        table.add_row(name, *shares, f"{found['truncated_share'] or 0:.1%}")
    return table


def _categories(benchmark: str, categories: Figures) -> Table:
    table = Table(title=f"{benchmark} by category", title_justify="left")
    for column in ("category", "problems", "pass@1", "interval", "mean reward"):
        table.add_column(column, justify="left" if column == "category" else "right")
    for name, found in categories.items():
        reward = interval_cells(found["mean_reward"])[0]
        table.add_row(escape(name), str(found["problems"]), *interval_cells(found["pass_at_1"]), reward)
    return table


def efficiency_report(entries: Mapping[str, Figures]) -> Iterator[RenderableType]:
    """Token efficiency, a row for each entry (a benchmark, or a benchmark of an evaluation) and cap; then the lengths
    of right and wrong responses."""
    table = Table(title="token efficiency", title_justify="left")
    table.add_column("", overflow="fold")
    for column in ("cap", "score", "mean\ntokens", "score\nper 1k", "tokens\nper right", "cut"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, found in entries.items():
        for row in found["caps"]:
            whole = row["cap"] is None
            table.add_row(
                escape(name) if whole else "",
                "none" if whole else str(row["cap"]),
                f"{row['score']['value']:.4f}",
                f"{row['mean_tokens']['value']:.1f}",
                _number(row["score_per_1k_tokens"], ".3f"),
                _number(row["tokens_per_correct"], ".1f"),
                f"{row['truncated_share']:.1%}",
            )
    yield table
    for name, found in entries.items():
        lengths = found["lengths"]
        if lengths and lengths["incorrect_minus_correct"]:
            gap, interval = interval_cells(lengths["incorrect_minus_correct"], "+.1f")
            yield (
                f"{escape(name)}: right responses have {_number(lengths['correct'], '.1f')} tokens, wrong ones "
                f"{_number(lengths['incorrect'], '.1f')}; within a problem wrong ones {gap} ({interval})"
            )


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else f"{value:{form}}"


def benchmark_list(benchmarks: Mapping[str, Any]) -> Iterator[str]:
    """All benchmarks that `brorl eval` knows, by name -> definition, two lines each."""
    for name, found in benchmarks.items():
        size = f"{found.problems:,} problems" if found.problems else "generated"
        yield f"[bold]{name}[/] {found.title}: {size}, verifier {found.verifier}, score {found.score}, v{found.version}"
        sampling = f"{found.per_prompt} x T {found.temperature:g}, top-p {found.top_p:g}, {found.max_tokens:,} tokens"
        yield escape(f"    {sampling}; columns: {found.columns}; data: {found.source}; licence: {found.licence}")
