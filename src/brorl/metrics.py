"""The numbers of one step, from its groups: a flat mapping, one line of metrics.jsonl."""

import resource
import sys
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from brorl.group import Fate, Finish, Outcome, ScoredGroup

TASK = "recipe_task"
"""the key of a prompt's meta that names the task of the recipe it comes from"""


def group_metrics(groups: Sequence[ScoredGroup], correct_threshold: float = 1.0) -> dict[str, float]:
    """Figures of everything a step drew, whatever became of it.

    `distinct_node_share` is trie nodes over flat tokens: the share of the work that N rollouts really cost.
    `pass_at_1` averages over prompts, unscorable rollouts left out.
    """
    if not groups:
        return {}
    rollouts = sum(g.group.rollouts for g in groups)
    tokens = sum(g.group.total_tokens for g in groups)
    nodes = sum(g.group.nodes for g in groups)
    cut = sum(int(g.group.end_counts[g.group.finish == Finish.LENGTH].sum()) for g in groups)
    rates = [g.successes(correct_threshold) / g.scored_rollouts for g in groups if g.scored_rollouts]
    return {
        "groups": len(groups),
        "rollouts": rollouts,
        "tokens": tokens,
        "nodes": nodes,
        "distinct_node_share": nodes / tokens if tokens else 1.0,
        "distinct_response_share": sum(g.group.distinct for g in groups) / rollouts,
        "mean_length": tokens / rollouts,
        "truncated_share": cut / rollouts,
        "pass_at_1": float(np.mean(rates)) if rates else float("nan"),
        **{f"outcome_{outcome.name.lower()}": _share(groups, outcome) for outcome in Outcome},
    }


def task_metrics(groups: Sequence[ScoredGroup], correct_threshold: float = 1.0) -> dict[str, dict[str, Any]]:
    """The figures of each task of the recipe, for everything a step drew.

    `kept_share` is the share of its rollouts in groups that are neither all right nor all wrong; `outcomes` counts
    rollouts.
    """
    tasks: dict[str, list[ScoredGroup]] = {}
    for group in groups:
        tasks.setdefault(str(group.group.prompt.meta.get(TASK, "")), []).append(group)
    return {name: _one_task(tasks[name], correct_threshold) for name in sorted(tasks)}


def _one_task(groups: Sequence[ScoredGroup], correct_threshold: float) -> dict[str, Any]:
    rates = [g.successes(correct_threshold) / g.scored_rollouts for g in groups if g.scored_rollouts]
    counted = {o.name.lower(): sum(int(g.group.end_counts[g.outcomes == o].sum()) for g in groups) for o in Outcome}
    kept = sum(g.group.rollouts for g in groups if 0 < g.successes(correct_threshold) < g.scored_rollouts)
    return {
        "groups": len(groups),
        "kept_share": kept / sum(g.group.rollouts for g in groups),
        "pass_at_1": float(np.mean(rates)) if rates else float("nan"),
        "outcomes": {name: count for name, count in counted.items() if count},
    }


def fate_counts(groups: Sequence[ScoredGroup]) -> dict[str, int]:
    """Groups per fate."""
    return {f"fate_{fate.value}": sum(g.fate is fate for g in groups) for fate in Fate}


def _share(groups: Sequence[ScoredGroup], outcome: Outcome) -> float:
    counted = sum(int(g.group.end_counts[g.outcomes == outcome].sum()) for g in groups)
    return counted / sum(g.group.rollouts for g in groups)


def flatten(record: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers of a record under dotted names: ``{"seconds": {"total": 2}}`` is ``{"seconds.total": 2}``.

    Texts, lists (the single prompts of a probe) and figures that are absent are left out; NaN stays.
    """
    found: dict[str, float] = {}
    for key, value in record.items():
        if isinstance(value, Mapping):
            found |= flatten(cast(Mapping[str, Any], value), f"{prefix}{key}.")
        elif isinstance(value, bool | int | float):
            found[prefix + key] = value
    return found


def peak_memory_mib() -> float:
    """The most memory this process ever held, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)  # bytes there, KiB elsewhere


def error_share(groups: Sequence[ScoredGroup]) -> float:
    """Share of the rollouts that could not be scored: infrastructure errors and unscorable reference answers."""
    return _share(groups, Outcome.ERROR) + _share(groups, Outcome.UNSCORABLE) if groups else 0.0
