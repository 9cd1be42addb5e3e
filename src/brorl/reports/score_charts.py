"""Scores: against steps, samples, tokens and hours (the paper's Figure 1), by task (its Figure 4, Tables 3 to 5)."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from brorl.reports.plots import Chart, Trace, chart, line
from brorl.reports.reading import RunView
from brorl.storage import Tallies
from brorl.theory.pass_at_k import clustered_interval

AXES = {
    "steps": "training steps",
    "samples": "rollouts drawn, before filtering",
    "tokens": "response tokens",
    "hours": "hours of training",
}
MAX_TASKS = 24
"""panels of the small multiples; beyond that the commonest tasks are shown"""
SPANS = 12


def score_charts(views: Sequence[RunView]) -> list[Chart]:
    """A panel per evaluation set and k; every point knows its steps, samples, tokens and hours."""
    keys = dict.fromkeys(
        (scores["name"], k) for view in views for scores in view.evaluations for k in scores["pass_at"]
    )
    found: list[Chart] = []
    for name, k in keys:
        traces = [_score_line(view, i, name, k, len(views) > 1) for i, view in enumerate(views)]
        panel = chart(
            f"{name}, pass@{k}",
            [trace for trace in traces if trace["x"]],
            x=AXES["steps"],
            y=f"pass@{k}",
            note="95 % interval, clustered by prompt",
        )
        found.append({**panel, "axes": AXES})
    return found


def _score_line(view: RunView, index: int, name: str, k: str, legend: bool) -> Trace:
    rows = [s for s in view.evaluations if s["name"] == name and k in s["pass_at"]]
    values = [scores["pass_at"][k] for scores in rows]
    trace = line(
        [scores["step"] for scores in rows],
        [v["value"] for v in values],
        view.name,
        index,
        low=[v["low"] for v in values],
        high=[v["high"] for v in values],
        legend=legend,
    )
    where = {axis: view.spent(axis) for axis in AXES}
    # An evaluation at step s was made after s steps; records are there for all of them unless a file was lost.
    trace["meta"] = {axis: [float(v[min(s["step"], len(v) - 1)]) for s in rows] for axis, v in where.items()}
    return trace


def rollout_score_chart(views: Sequence[RunView]) -> list[Chart]:
    """The pass rate of each step's own rollouts: noisy, on new prompts each step, but always there."""
    traces = [
        line([r["step"] for r in view.records], [r.get("pass_at_1") for r in view.records], view.name, i,
             legend=len(views) > 1)
        for i, view in enumerate(views)
        if view.records
    ]  # fmt: skip
    if not traces:
        return []
    return [chart("rollouts of each step, pass@1", traces, y="pass@1", note="before dynamic sampling; other prompts "
                  "in each step, so it moves with them")]  # fmt: skip


def task_of(prompt_id: str) -> str:
    """The task that a prompt comes from: its id up to the first slash."""
    return prompt_id.split("/", 1)[0] if "/" in prompt_id else "all prompts"


def task_titles(names: Iterable[str]) -> dict[str, str]:
    """Task -> how it is shown: without the hash of its settings where no other task has the same name."""
    short = {name: re.sub(r"-[0-9a-f]{6}$", "", name) for name in names}
    uses = Counter(short.values())
    return {name: title if uses[title] == 1 else name for name, title in short.items()}


def task_charts(views: Sequence[RunView]) -> tuple[list[Chart], int]:
    """Pass rate of the training rollouts by task over spans of steps, and how many tasks are left out."""
    seen: dict[str, int] = {}
    # Tasks of the recipe and tasks of prompt ids have different names: one kind for all runs where they have it.
    recorded = all(record.get("tasks") for view in views for record in view.records)
    named = recorded and not all(view.visits for view in views)
    rates = [_rates_by_task(view, named or not view.visits) for view in views]
    for by_step in rates:
        for tasks in by_step.values():
            for name, values in tasks.items():
                seen[name] = seen.get(name, 0) + len(values)
    if len(seen) < 2:
        return [], 0
    names = sorted(seen, key=lambda name: -seen[name])[:MAX_TASKS]
    titles, courses = task_titles(seen), [_task_courses(by_step) for by_step in rates]
    panels: list[Chart] = []
    for name in sorted(names):
        traces = [
            line(*courses[i][name], view.name, i, legend=len(views) > 1)
            for i, view in enumerate(views)
            if name in courses[i]
        ]
        panel = chart(titles[name], traces, y="pass rate", yaxis={"range": [-0.02, 1.02]})
        panels.append({**panel, "small": True})
    return panels, len(seen) - len(names)


def _rates_by_task(view: RunView, named: bool) -> dict[int, dict[str, list[float]]]:
    """Step -> task -> pass rates of its groups; with `named` those of the metrics, by task of the recipe."""
    if named:
        records = {record["step"]: record.get("tasks", {}) for record in view.records}
        return {
            step: {name: [f["pass_at_1"]] * f["groups"] for name, f in tasks.items() if np.isfinite(f["pass_at_1"])}
            for step, tasks in records.items()
        }
    found: dict[int, dict[str, list[float]]] = {}
    for step, tallies in view.visits.items():
        tasks = found.setdefault(step, {})
        for prompt_id, rate in pass_rates(tallies).items():
            tasks.setdefault(task_of(prompt_id), []).append(rate)
    return found


def _task_courses(
    by_step: Mapping[int, Mapping[str, list[float]]],
) -> dict[str, tuple[list[float], list[float | None]]]:
    """Task -> (middle step, mean pass rate) of each span of steps in which it was drawn."""
    courses: dict[str, tuple[list[float], list[float | None]]] = {}
    steps = np.array(sorted(by_step))
    for span in np.array_split(steps, min(SPANS, len(steps))) if len(steps) else []:
        rates: dict[str, list[float]] = {}
        for step in span.tolist():
            for name, values in by_step[step].items():
                rates.setdefault(name, []).extend(values)
        for name, values in rates.items():
            x, y = courses.setdefault(name, ([], []))
            x.append(float(span.mean()))
            y.append(float(np.mean(values)))
    return courses


def pass_rates(tallies: Tallies) -> dict[str, float]:
    """Prompt -> share of its scored rollouts that are correct; prompts without a verdict are left out."""
    rows = zip(tallies.prompt_ids, tallies.scored.tolist(), tallies.correct.tolist(), strict=True)
    return {prompt: correct / scored for prompt, scored, correct in rows if scored}


def task_table(view: RunView) -> list[dict[str, Any]]:
    """Pass@1 by evaluation set and task before and after, for tasks with prompts in both.

    Keys: ``set``, ``task``, ``prompts``, ``before``, ``after``, ``difference`` (an interval over prompts; None for a
    single prompt).
    """
    return [row for name in dict.fromkeys(name for name, _ in view.evaluated) for row in _task_rows(view, name)]


def _task_rows(view: RunView, name: str) -> Iterator[dict[str, Any]]:
    steps = sorted(step for found, step in view.evaluated if found == name)
    before, after = pass_rates(view.evaluated[name, steps[0]]), pass_rates(view.evaluated[name, steps[-1]])
    tasks: dict[str, list[str]] = {}
    for prompt in before:
        if prompt in after:
            tasks.setdefault(task_of(prompt), []).append(prompt)
    titles = task_titles(tasks)
    for task, prompts in sorted(tasks.items()):
        change = np.array([after[p] - before[p] for p in prompts])
        found = clustered_interval(change) if len(prompts) > 1 and len(steps) > 1 else None
        yield {
            "set": name,
            "task": titles[task],
            "prompts": len(prompts),
            "before": float(np.mean([before[p] for p in prompts])),
            "after": float(np.mean([after[p] for p in prompts])) if len(steps) > 1 else None,
            "difference": None if found is None else {"value": found.value, "low": found.low, "high": found.high},
        }
