"""The line of metrics.jsonl that a step leaves: its groups, its update, its time."""

from collections.abc import Mapping
from typing import Any

from brorl.algorithms.allocation import Allocation, signal_chance
from brorl.algorithms.selection import kept_share, retired
from brorl.collection import Collected
from brorl.config import Recipe
from brorl.group import Fate
from brorl.metrics import fate_counts, group_metrics, peak_memory_mib, task_metrics
from brorl.phases import Phases
from brorl.updating import shaping_metrics


def step_record(
    collected: Collected,
    recipe: Recipe,
    allocation: Allocation,
    figures: Mapping[str, Any],
    phases: Phases,
    *,
    step: int,
    policy_version: int,
    lr: float,
    solved: Mapping[str, int],
    reference_reset: str | None,
    saving_seconds: float,
) -> dict[str, Any]:
    """JSON values by name; `figures` are the update's own, `saving_seconds` those of the checkpoint before."""
    threshold = recipe.verification.correct_threshold
    drawn, selection = collected.drawn, collected.selection
    drawing = phases.seconds.get("sampling", 0.0) + phases.seconds.get("verification", 0.0)
    return {
        "step": step,
        "policy_version": policy_version,
        "lr": lr,
        "position": collected.position,
        "rounds": collected.rounds,
        "kept_share": kept_share(drawn, threshold),
        **group_metrics(drawn, threshold),
        "tasks": task_metrics(drawn, threshold),
        **fate_counts((*selection.trained, *selection.set_aside)),
        **shaping_metrics(selection.trained),
        **_retirement(collected, solved, recipe.selection.retire_after),
        **_allocation(collected, allocation, threshold),
        "reference_reset": reference_reset,
        **figures,
        "rollouts_per_second": sum(g.group.rollouts for g in drawn) / max(drawing, 1e-9),
        "peak_memory_mib": peak_memory_mib(),
        "seconds": {"checkpoint": saving_seconds, **phases.seconds, "total": phases.total + saving_seconds},
    }


def _retirement(collected: Collected, solved: Mapping[str, int], after: int | None) -> dict[str, Any]:
    """How many prompts are retired, and which of them are since this step; empty where prompts do not retire."""
    if after is None:
        return {}
    gone = retired(solved, after)
    drawn = {group.group.prompt.id for group in collected.drawn}
    return {"retired": len(gone), "newly_retired": sorted(gone & drawn)}


def _allocation(collected: Collected, allocation: Allocation, threshold: float) -> dict[str, Any]:
    """What giving prompts up saved, and how many groups with signal it is expected to have missed."""
    if len(allocation.rounds) == 1:
        return {}
    stopped = [group for group in collected.drawn if group.fate is Fate.STOPPED]
    chances = [signal_chance(allocation, drawn=g.group.rollouts, right=g.successes(threshold)) for g in stopped]
    return {
        "rollouts_saved": collected.saved,
        "prompts_from_savings": collected.prompts_from_savings,
        "missed_groups": float(sum(chances)),
    }
