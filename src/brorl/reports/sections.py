"""Which charts stand in which section of the report, and what a section says where a run has nothing to show."""

from collections.abc import Sequence
from typing import Any

from brorl.reports.breadth_charts import breadth_charts
from brorl.reports.health_charts import health_charts
from brorl.reports.plots import Chart
from brorl.reports.reading import RunView
from brorl.reports.score_charts import AXES, rollout_score_chart, score_charts, task_charts

Section = dict[str, Any]


def chart_sections(views: Sequence[RunView], benchmarks: Sequence[Chart] = ()) -> tuple[list[Section], list[Chart]]:
    """The sections Scores, Breadth and Health, that of `benchmarks` if there are any, and all their charts; a section's
    charts know their index."""
    charts: list[Chart] = []
    scores = score_charts(views)
    tasks, left_out = task_charts(views)
    sections = [
        {
            "id": "scores",
            "title": "Scores",
            "lead": "Pass@k of the evaluations, before, during and after training: against steps, rollouts, tokens or "
            "hours of training.",
            "axes": {key: label for key, label in AXES.items() if scores},
            "missing": _missing_scores(views),
            "groups": [
                panel_group(charts, [*scores, *rollout_score_chart(views)]),
                panel_group(charts, tasks, title="By task", small=True, note=_task_note(left_out)),
            ],
        },
        {
            "id": "breadth",
            "title": "Breadth",
            "lead": "What hundreds of rollouts per prompt buy: groups with a signal, coverage of what the policy could "
            "say, and whether the mass of correct answers grows.",
            "axes": {},
            "missing": _missing_breadth(views),
            "groups": [panel_group(charts, breadth_charts(views))],
        },
        {
            "id": "health",
            "title": "Health",
            "lead": "Exploration, step sizes, responses, time and memory.",
            "axes": {},
            "missing": "" if any(v.records for v in views) else "No step is done yet: the first one brings figures.",
            "groups": [panel_group(charts, health_charts(views))],
        },
    ]
    if benchmarks:
        measured = {
            "id": "benchmarks",
            "title": "Benchmarks",
            "lead": "Evaluations of brorl eval: scores, their cost in tokens, and whether quality grows with length.",
            "axes": {},
            "missing": "",
            "groups": [panel_group(charts, benchmarks)],
        }
        sections.insert(1, measured)
    for section in sections:
        section["groups"] = [group for group in section["groups"] if group["charts"]]
    return sections, charts


def panel_group(
    charts: list[Chart], panels: Sequence[Chart], *, title: str = "", note: str = "", small: bool = False
) -> dict[str, Any]:
    """Panels that stand together; they are added to `charts`, and know their index there."""
    placed = []
    for panel in panels:
        placed.append({"index": len(charts), "title": panel["title"], "note": panel["note"], "alt": _spoken(panel)})
        charts.append(panel)
    return {"title": title, "note": note, "small": small, "charts": placed}


def _spoken(panel: Chart) -> str:
    """The chart in words, for those who cannot see it: each line's first and last value."""
    parts: list[str] = [panel["title"]]
    for trace in panel["data"]:
        if trace["type"] == "heatmap":
            continue
        values = [v for v in trace["y"] if v is not None]
        if values:
            name = f"{trace['name']}: " if trace["name"] else ""
            parts.append(f"{name}from {values[0]:.3g} to {values[-1]:.3g} in {len(values)} points")
    return "; ".join(parts)


def _task_note(left_out: int) -> str:
    more = f" The {left_out} rarest tasks are left out." if left_out else ""
    return f"Pass rate of the training rollouts, each task on its own prompts.{more}"


def _missing_scores(views: Sequence[RunView]) -> str:
    without = [view.name for view in views if not view.evaluations]
    if not without:
        return ""
    return (
        f"Without evaluations: {', '.join(without)}. They are made before the first step and at the end, and during "
        "the run with evaluation.every in the recipe; evaluation.heldout_prompts and training_prompts above 0."
    )


def _missing_breadth(views: Sequence[RunView]) -> str:
    parts: list[str] = []
    unprobed = [view.name for view in views if not any("probe" in record for record in view.records)]
    if unprobed:
        parts.append(
            f"No measured updates (ΔQ_pos, retained mass): {', '.join(unprobed)}. Set probe.every in the recipe, such "
            "as 10."
        )
    for view in views:
        if view.given_up:
            parts.append(
                f"{view.name}: {view.given_up:,} groups that sequential allocation gave up early stay out of the "
                "figures against N, which hold for the other prompts only."
            )
    flat = [view.name for view in views if not view.curve]
    if flat:
        parts.append(f"Nothing against N: {', '.join(flat)}. It needs the groups of two prompts or more.")
    elif not any(point.certified_share for view in views for point in view.curve):
        parts.append(
            "Unseen mass and certified share are not measurable here: the responses drawn hold a negligible share of "
            "the probability, as long answers do, or no log-probabilities are stored."
        )
    return " ".join(parts)
