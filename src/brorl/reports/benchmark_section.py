"""Evaluations of `brorl eval` in the report: scores, categories, score against length (the paper's Tables 1 to 5)."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from brorl.errors import DataError
from brorl.reports.plots import Chart, chart, line
from brorl.reports.untrusted import visible

Table = dict[str, Any]
Benchmarks = Mapping[str, Mapping[str, Any]]
RESULTS = "results.json"
ABSENT = "-"


def benchmark_section(paths: Sequence[Path]) -> tuple[list[Table], list[Chart]]:
    """Tables of scores, of token efficiency and of categories, and a chart of score against tokens per benchmark.

    Args:
        paths: directories that `brorl eval` made.

    Raises:
        DataError: a directory without finished results, or with results that cannot be read as such.
    """
    found: dict[str, Benchmarks] = {}
    for path in paths:
        name = path.resolve().name
        found[visible(str(path) if name in found else name)] = _results(path)
    if not found:
        return [], []
    names = list(dict.fromkeys(name for benchmarks in found.values() for name in benchmarks))
    tables = [_scores(found), _efficiency(found), *(_categories(found, name) for name in names)]
    return [table for table in tables if table["rows"]], [_against_tokens(found, name) for name in names]


def _results(path: Path) -> Benchmarks:
    """The benchmarks of one evaluation; what the section shows of them is looked at here, so that later none fails."""
    try:
        benchmarks = json.loads((path / RESULTS).read_text(encoding="utf-8"))["benchmarks"]
        one = {path.name: benchmarks}
        for table in (_scores, _efficiency):
            table(one)
        for name in benchmarks:
            _categories(one, name)
            _against_tokens(one, name)
        return benchmarks
    except FileNotFoundError as error:
        raise DataError(
            f"{path}: no finished evaluation: --evals takes directories of brorl eval; give that command again to "
            "finish one"
        ) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path / RESULTS}: not readable as results of brorl eval ({error!r})") from error


def _scores(found: Mapping[str, Benchmarks]) -> Table:
    rows: list[list[str]] = []
    for label, benchmarks in found.items():
        for name, figures in benchmarks.items():
            ks, cons = list(figures["pass_at"]), [k for k in figures["cons_at"] or {} if int(k) > 2]
            last, most = (ks[-1] if len(ks) > 1 else None), (cons[-1] if cons else None)
            rows.append(
                [
                    label,
                    visible(name),
                    f"{figures['problems']:,} x {figures['samples_per_problem']['most']:,}",
                    _interval(figures["pass_at"]["1"]),
                    f"@{last}: {_interval(figures['pass_at'][last])}" if last else ABSENT,
                    f"@{most}: {_interval(figures['cons_at'][most])}" if most else ABSENT,
                    _interval(figures["mean_reward"]),
                    f"{figures['truncated_share'] or 0:.1%}",
                ]
            )
    head = ["evaluation", "benchmark", "problems", "pass@1 (95 %)", "pass@k", "cons@k", "mean reward", "truncated"]
    return {"title": "Benchmarks", "head": head, "rows": rows}


def _efficiency(found: Mapping[str, Benchmarks]) -> Table:
    rows: list[list[str]] = []
    for label, benchmarks in found.items():
        for name, figures in benchmarks.items():
            lengths = figures["token_efficiency"]["lengths"] or {"correct": None, "incorrect": None}
            for row in figures["token_efficiency"]["caps"]:
                whole = row["cap"] is None
                sides = [_number(lengths[side], ",.1f") if whole else "" for side in ("correct", "incorrect")]
                rows.append(
                    [
                        label,
                        visible(name),
                        "as drawn" if whole else f"{row['cap']:,}",
                        f"{row['score']['value']:.3f}",
                        f"{row['mean_tokens']['value']:,.1f}",
                        _number(row["score_per_1k_tokens"], ",.3f"),
                        _number(row["tokens_per_correct"], ",.1f"),
                        *sides,
                    ]
                )
    head = ["evaluation", "benchmark", "cap", "pass@1", "mean tokens", "per 1k tokens", "tokens per correct",
            "length if correct", "if incorrect"]  # fmt: skip
    return {"title": "Token efficiency", "head": head, "rows": rows}


def _categories(found: Mapping[str, Benchmarks], name: str) -> Table:
    """Mean reward by category, a column per evaluation (Table 5); no rows for a benchmark of one category."""
    having = {label: benchmarks[name]["by_category"] for label, benchmarks in found.items() if name in benchmarks}
    categories = sorted({category for by_category in having.values() for category in by_category})
    rows = [
        [
            visible(c),
            *(_interval(having[label][c]["mean_reward"]) if c in having[label] else ABSENT for label in having),
        ]
        for c in categories
    ]
    title = f"{visible(name)}: mean reward by category"
    return {"title": title, "head": ["category", *having], "rows": rows if len(categories) > 1 else []}


def _against_tokens(found: Mapping[str, Benchmarks], name: str) -> Chart:
    """Score against mean tokens, a line of caps per evaluation: higher at the same tokens is better, not longer."""
    traces: list[dict[str, Any]] = []
    for index, (label, benchmarks) in enumerate(found.items()):
        rows = benchmarks[name]["token_efficiency"]["caps"] if name in benchmarks else []
        rows = sorted(rows, key=lambda row: row["mean_tokens"]["value"])
        scores = [row["score"] for row in rows]
        if rows:
            traces.append(
                line([row["mean_tokens"]["value"] for row in rows], [score["value"] for score in scores], label, index,
                     low=[score["low"] for score in scores], high=[score["high"] for score in scores])
            )  # fmt: skip
    return chart(
        f"{visible(name)}: score against length",
        traces,
        x="mean tokens of a response",
        y="pass@1",
        note="a line joins the caps of one evaluation; 95 % interval, clustered by problem",
    )


def _interval(value: Mapping[str, Any] | None) -> str:
    if value is None:
        return ABSENT
    return f"{value['value']:.3f}" + ("" if value["low"] is None else f" ({value['low']:.2f} to {value['high']:.2f})")


def _number(value: float | None, form: str) -> str:
    return ABSENT if value is None else f"{value:{form}}"
