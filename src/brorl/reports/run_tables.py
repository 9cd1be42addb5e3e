"""The report's tables: what a run was, cost and reached (the paper's Tables 1 to 5, with a run's own figures)."""

from collections.abc import Sequence
from statistics import mean
from typing import Any

from brorl.recipe_file import differences
from brorl.reports.reading import RunView
from brorl.reports.score_charts import task_table
from brorl.reports.untrusted import visible

Table = dict[str, Any]
ABSENT = "-"


def lead_of(views: Sequence[RunView]) -> str:
    """One sentence: what lies here."""
    damaged = [line for view in views for line in view.unreadable]
    steps = sum(len(view.records) for view in views)
    runs = "1 run" if len(views) == 1 else f"{len(views)} runs"
    text = f"{runs}, {steps:,} steps."
    return f"{text} Not readable and left out: {visible('; '.join(damaged[:3]))}." if damaged else text


def run_facts(view: RunView) -> list[tuple[str, str]]:
    """What a run was, as label and value."""
    rollouts = view.recipe.rollouts
    facts = [
        ("steps", f"{len(view.records):,} of {view.recipe.steps:,}"),
        ("rollouts per prompt", f"{rollouts.per_prompt:,}"),
        ("prompts per step", f"{rollouts.prompts_per_step:,}"),
        ("rollouts drawn", _large(view.spent("samples")[-1])),
        ("response tokens", _large(view.spent("tokens")[-1])),
        ("training time", _duration(view.spent("hours")[-1])),
    ]
    for name in dict.fromkeys(scores["name"] for scores in view.evaluations):
        rows = [scores for scores in view.evaluations if scores["name"] == name]
        for k in rows[0]["pass_at"]:
            values = [row["pass_at"][k]["value"] for row in (rows[0], rows[-1]) if k in row["pass_at"]]
            facts.append((f"{name} pass@{k}", " → ".join(f"{v:.3f}" for v in dict.fromkeys(values))))
    return facts


def run_table(views: Sequence[RunView]) -> Table:
    """A row per run and evaluated step: what it had cost by then, and what it scored (Tables 1 and 2)."""
    sets = list(dict.fromkeys((s["name"], k) for view in views for s in view.evaluations for k in s["pass_at"]))
    head = ["run", "N x prompts", "step", "rollouts", "tokens", "hours", "kept share", "rollouts/s"]
    rows: list[list[str]] = []
    for view in views:
        steps = sorted({scores["step"] for scores in view.evaluations})
        for step in [*steps[:1], *steps[1:][-8:]]:  # the start, and the newest ones of a long run
            scored = {s["name"]: s["pass_at"] for s in view.evaluations if s["step"] == step}
            cells = [_score(scored.get(name, {}).get(k)) for name, k in sets]
            size = f"{view.recipe.rollouts.per_prompt:,} x {view.recipe.rollouts.prompts_per_step:,}"
            rows.append([view.name, size, f"{step:,}", *_cost(view, step), *cells])
    if len(views) == 1:  # its name stands above
        head, rows = head[1:], [row[1:] for row in rows]
    return {"head": [*head, *(f"{name} pass@{k}" for name, k in sets)], "rows": rows}


def _cost(view: RunView, step: int) -> list[str]:
    at = min(step, len(view.records))
    spent = [view.spent(name)[at] for name in ("samples", "tokens", "hours")]
    done = view.records[:at]
    return [
        _large(spent[0]),
        _large(spent[1]),
        _hours(spent[2]),
        _mean([r["kept_share"] for r in done if "kept_share" in r], "{:.1%}"),
        _mean([r["rollouts_per_second"] for r in done if "rollouts_per_second" in r], "{:,.0f}"),
    ]


def task_tables(views: Sequence[RunView]) -> list[Table]:
    """Pass@1 by task before and after, a table per run and evaluation set (Tables 3, 4 and 5)."""
    found: list[Table] = []
    for view in views:
        rows = task_table(view)
        for name in dict.fromkeys(row["set"] for row in rows):
            chosen = [row for row in rows if row["set"] == name]
            if len(chosen) < 2:
                continue
            of = f"{view.name}: " if len(views) > 1 else ""
            found.append(
                {
                    "title": f"{of}{name} pass@1 by task",
                    "head": ["task", "prompts", "before", "after", "difference (95 %)"],
                    "rows": [
                        [visible(row["task"]), f"{row['prompts']:,}", f"{row['before']:.3f}", _or_absent(row["after"]),
                         _difference(row["difference"])]
                        for row in chosen
                    ],
                }
            )  # fmt: skip
    return found


def recipe_rows(views: Sequence[RunView]) -> list[dict[str, Any]]:
    """Every setting of the runs' recipes, and what they ran on: ``key``, ``cells`` (one per run), ``differs``."""
    first = views[0].recipe
    changed = {key for view in views[1:] for key in differences(first, view.recipe)}
    settings = [_settings(view) for view in views]
    keys = list(dict.fromkeys(key for each in settings for key in each))
    recipes = [
        {"key": key, "cells": [visible(each.get(key, ABSENT)) for each in settings], "differs": key in changed}
        for key in keys
    ]
    return [*recipes, *_environment(views)]


def _settings(view: RunView) -> dict[str, str]:
    found: dict[str, str] = {}

    def walk(value: Any, key: str) -> None:
        if isinstance(value, dict) and value:
            for name, inner in value.items():
                walk(inner, f"{key}.{name}" if key else str(name))
        else:
            found[key] = str(value)

    walk(view.recipe.model_dump(mode="json"), "")
    return found


def _environment(views: Sequence[RunView]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for key in ("created", "updated", "command", "commit", "host", "platform", "cpus", "python", "versions"):
        values = [view.info.get(key) for view in views]
        cells = [
            " ".join(map(str, v)) if isinstance(v, list)
            else ", ".join(f"{name} {number}" for name, number in v.items()) if isinstance(v, dict)
            else ABSENT if v is None else str(v)
            for v in values
        ]  # fmt: skip
        rows.append({"key": key, "cells": [visible(cell) for cell in cells], "differs": False})
    return rows


def _score(value: dict[str, float] | None) -> str:
    return ABSENT if value is None else f"{value['value']:.3f} ({value['low']:.2f} to {value['high']:.2f})"


def _difference(value: dict[str, float] | None) -> str:
    return ABSENT if value is None else f"{value['value']:+.3f} ({value['low']:+.3f} to {value['high']:+.3f})"


def _or_absent(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.3f}"


def _mean(values: Sequence[float], form: str) -> str:
    return form.format(mean(values)) if values else ABSENT


def _large(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            return f"{value / (1e3 if unit == 'k' else size):.3g} {unit}"
    return f"{value:,.0f}"


def _hours(hours: float) -> str:
    return f"{hours:.3g}"


def _duration(hours: float) -> str:
    return f"{hours:.1f} h" if hours >= 1 else f"{hours * 60:.1f} min"
