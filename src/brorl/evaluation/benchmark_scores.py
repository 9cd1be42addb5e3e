"""The figures of one benchmark, from its scored groups."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from brorl.errors import DataError
from brorl.evaluation.answers import PART
from brorl.evaluation.scoring import interval_of, outcome_name
from brorl.evaluation.token_efficiency import token_efficiency
from brorl.group import Outcome, ScoredGroup
from brorl.theory.consensus import consensus_at_k
from brorl.theory.pass_at_k import pass_at_k

Figures = dict[str, Any]


def benchmark_figures(
    groups: Sequence[ScoredGroup],
    *,
    ks: Sequence[int] | None = None,
    caps: Sequence[int] = (),
    correct_threshold: float = 1.0,
) -> Figures:
    """What an evaluation reports of one benchmark; averages are over problems, intervals clustered by problem.

    Keys: ``problems``, ``unscored_problems``, ``samples_per_problem`` (fewest and most with a verdict), ``pass_at``
    (k -> interval), ``cons_at`` (k -> interval; None where responses hold no answer to vote on), ``mean_reward``,
    ``mean_tokens``, ``truncated_share``, ``outcomes`` (name -> responses), ``by_category`` (name -> problems, pass@1,
    mean reward), ``token_efficiency``, ``by_problem``.

    Args:
        ks: by default 1, 2, 4 ... and the fewest responses with a verdict.

    Raises:
        DataError: some k above the responses of a problem.
    """
    scored = [g for g in groups if g.scored_rollouts]
    n = np.array([g.scored_rollouts for g in scored], np.int64)
    c = np.array([g.successes(correct_threshold) for g in scored], np.int64)
    fewest = int(n.min()) if len(n) else 0
    chosen = sorted({*(1 << i for i in range(fewest.bit_length())), fewest} - {0}) if ks is None else sorted({1, *ks})
    if len(n) and max(chosen, default=0) > fewest:
        raise DataError(f"pass@{max(chosen)} needs as many responses to each problem, and one has {fewest}: lower --k")
    rewards = [_mean_reward(g) for g in scored]
    drawn = sum(g.group.rollouts for g in groups)
    cut = sum(int(g.group.end_counts[g.group.finish == 1].sum()) for g in groups)
    return {
        "problems": len(groups),
        "unscored_problems": len(groups) - len(scored),
        "samples_per_problem": {"fewest": fewest, "most": int(n.max()) if len(n) else 0},
        "pass_at": {str(k): interval_of(pass_at_k(n, c, k).tolist()) for k in chosen} if len(n) else {},
        "cons_at": _consensus(scored, chosen, correct_threshold),
        "mean_reward": interval_of(rewards) if rewards else None,
        "mean_tokens": interval_of([g.group.total_tokens / g.group.rollouts for g in groups]) if groups else None,
        "truncated_share": cut / drawn if drawn else None,
        "outcomes": _outcomes(groups),
        "by_category": _by_category(scored, correct_threshold),
        "token_efficiency": token_efficiency(groups, caps, correct_threshold),
        "by_problem": [_problem(g, correct_threshold) for g in groups],
    }


def _mean_reward(group: ScoredGroup) -> float:
    kept = group.scorable
    counts = group.group.end_counts[kept]
    return float(counts @ group.rewards[kept].astype(np.float64) / counts.sum())


def _outcomes(groups: Sequence[ScoredGroup]) -> dict[str, int]:
    counts: Counter[int] = Counter()
    for group in groups:
        for outcome, count in zip(group.outcomes.tolist(), group.group.end_counts.tolist(), strict=True):
            counts[outcome] += count
    return {outcome_name(outcome): counts[outcome] for outcome in Outcome}


def _consensus(groups: Sequence[ScoredGroup], ks: Sequence[int], threshold: float) -> Figures | None:
    if not groups or not all(PART in g.parts for g in groups):
        return None
    return {str(k): interval_of([_problem_consensus(g, k, threshold) for g in groups]) for k in ks}


def _problem_consensus(group: ScoredGroup, k: int, threshold: float) -> float:
    kept = group.scorable
    classes, counts = group.parts[PART][kept], group.group.end_counts[kept].astype(np.int64)
    right = group.rewards[kept] >= threshold
    names = np.unique(classes[~np.isnan(classes)])
    votes = np.array([counts[classes == name].sum() for name in names], np.int64)
    correct = np.array([bool(right[classes == name].any()) for name in names], np.bool_)
    silent = int(counts[np.isnan(classes)].sum())
    return consensus_at_k(votes, correct, k, silent=silent, key=(group.group.prompt.id,))


def _by_category(groups: Sequence[ScoredGroup], threshold: float) -> Figures:
    """Category -> problems, pass@1 and mean reward; empty where the problems have none."""
    found: dict[str, list[ScoredGroup]] = {}
    for group in groups:
        if "category" in group.group.prompt.meta:
            found.setdefault(str(group.group.prompt.meta["category"]), []).append(group)
    return {
        name: {
            "problems": len(members),
            "pass_at_1": interval_of([g.successes(threshold) / g.scored_rollouts for g in members]),
            "mean_reward": interval_of([_mean_reward(g) for g in members]),
        }
        for name, members in sorted(found.items())
    }


def _problem(group: ScoredGroup, threshold: float) -> Figures:
    drawn = group.group.rollouts
    return {
        "id": group.group.prompt.id,
        "samples": group.scored_rollouts,
        "correct": group.successes(threshold),
        "mean_reward": _mean_reward(group) if group.scored_rollouts else None,
        "mean_tokens": group.group.total_tokens / drawn,
        "truncated": int(group.group.end_counts[group.group.finish == 1].sum()),
    }
