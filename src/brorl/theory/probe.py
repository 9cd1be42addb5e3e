"""What an update really did, measured on groups whose log-probabilities were computed again under the new policy.

Exact on what a group drew. The change of the whole correct mass is estimated only from rollouts that were *not* used
in the update: on the training rollouts themselves importance weighting is wrong by orders of magnitude, because the
update raised exactly the right ones among them.
"""

from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brorl.group import RolloutGroup, ScoredGroup

Array = NDArray[np.float64]
NodeLogprobs = NDArray[np.floating[Any]]

MIN_EFFECTIVE_SAMPLES = 10.0
MIN_EFFECTIVE_SHARE = 1 / 3
"""Effective samples over rollouts."""
MAX_UNSEEN_WEIGHT = 1.5
"""Above this mean importance weight of the undrawn responses, intervals were seen to cover too rarely."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnChange:
    """Exact changes over the responses that a group drew."""

    p_pos: float
    """change of the mass of drawn correct responses"""
    p_neg: float
    """change of the mass of drawn wrong responses"""
    unseen_mass: float
    """change of the mass of everything not drawn"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MassChange:
    """Estimated change of the success probability Q_pos between two policies."""

    value: float
    low: float | None
    """None where the rollouts say nothing of the error: all right or all wrong, or a change too large to be weighted"""
    high: float | None
    level: float
    effective_samples: float
    unseen_weight: float
    """exact mean importance weight of the responses not drawn: new over old unseen mass. Far above 1, mass moved to
    where no rollout looked, which the effective sample size cannot see"""
    rollouts: int
    declined: str | None
    """why there is no interval"""


def drawn_change(scored: ScoredGroup, logprobs: NodeLogprobs, *, correct_threshold: float = 1.0) -> DrawnChange:
    """Exact change of drawn masses from the sampling policy to the one that gave `logprobs`.

    Args:
        scored: the group, with its own log-probabilities.
        logprobs: f[M], log p(token | prefix) of each node now.

    Raises:
        ValueError: no log-probabilities in the group, or not one per node.
    """
    before, after = _both(scored.group, logprobs)
    change = np.exp(after) - np.exp(before)
    correct = scored.scorable & (scored.rewards >= correct_threshold)
    return DrawnChange(
        p_pos=float(change[correct].sum()),
        p_neg=float(change[scored.scorable & ~correct].sum()),
        unseen_mass=-float(change.sum()),
    )


def correct_mass_change(
    held_out: ScoredGroup, logprobs: NodeLogprobs, *, level: float = 0.9, correct_threshold: float = 1.0
) -> MassChange:
    """Change of Q_pos by self-normalised importance weighting of rollouts that were not used in the update.

    The interval is normal with the delta method on the paired difference, so that the common noise of "before" and
    "after" cancels.

    Args:
        held_out: rollouts of the old policy that the update never saw.
        logprobs: f[M], log p(token | prefix) of each node under the new policy.

    Raises:
        ValueError: no log-probabilities in the group, not one per node, or fewer than two scorable rollouts.
    """
    before, after = _both(held_out.group, logprobs)
    counts = np.where(held_out.scorable, held_out.group.end_counts, 0).astype(np.float64)
    rollouts = float(counts.sum())
    if rollouts < 2:
        raise ValueError(f"prompt {held_out.group.prompt.id}: a probe needs at least two scorable rollouts")
    correct = (held_out.scorable & (held_out.rewards >= correct_threshold)).astype(np.float64)
    log_ratio = after - before
    weights = np.exp(log_ratio - log_ratio[counts > 0].max()) * (counts > 0)
    total = float(counts @ weights)
    q_before, q_after = float(counts @ correct) / rollouts, float(counts @ (weights * correct)) / total
    influence = weights / (total / rollouts) * (correct - q_after) - (correct - q_before)
    error = float(np.sqrt(counts @ influence**2 / (rollouts * (rollouts - 1))))
    effective = total**2 / float(counts @ weights**2)
    unseen_weight = _unseen_weight(before, after)
    value = q_after - q_before
    reach = NormalDist().inv_cdf((1 + level) / 2) * error
    declined = _why_declined(q_before, effective, rollouts, unseen_weight)
    return MassChange(
        value=value,
        low=None if declined else value - reach,
        high=None if declined else value + reach,
        level=level,
        effective_samples=effective,
        unseen_weight=unseen_weight,
        rollouts=int(rollouts),
        declined=declined,
    )


def mean_mass_change(changes: list[MassChange]) -> MassChange:
    """The mean change over probe prompts; prompts whose own error is unknown are left out of it.

    Raises:
        ValueError: no prompt with a known error, or intervals of different levels.
    """
    known = [(c.value, c.high - c.value, c) for c in changes if c.high is not None]
    if not known:
        raise ValueError("no probe prompt has an interval: draw more rollouts of it, or probe prompts of middling rate")
    levels = {c.level for _, _, c in known}
    if len(levels) > 1:
        raise ValueError(f"intervals of different levels cannot be averaged: {sorted(levels)}")
    value = float(np.mean([v for v, _, _ in known]))
    reach = float(np.sqrt(sum(r * r for _, r, _ in known))) / len(known)
    return MassChange(
        value=value,
        low=value - reach,
        high=value + reach,
        level=levels.pop(),
        effective_samples=float(sum(c.effective_samples for _, _, c in known)),
        unseen_weight=max(c.unseen_weight for _, _, c in known),
        rollouts=sum(c.rollouts for _, _, c in known),
        declined=None,
    )


def answer_bank(scored: ScoredGroup, *, correct_threshold: float = 1.0) -> RolloutGroup | None:
    """The distinct correct responses of the starting policy as a trie to be scored again later; None without any."""
    correct = scored.scorable & (scored.rewards >= correct_threshold)
    return scored.group.take(np.where(correct, scored.group.end_counts, 0).astype(np.int32)) if correct.any() else None


def retained_mass(bank: RolloutGroup, logprobs: NodeLogprobs) -> float:
    """1 - sum max(0, p_0 - p_t) / sum p_0 over the bank's answers (F-GRPO, arXiv 2602.06717); in [0, 1].

    Taken relative to the likeliest answer, so that it stands for long answers of negligible probability too.

    Raises:
        ValueError: no log-probabilities in the bank, or not one per node.
    """
    start, now = _both(bank, logprobs)
    shift = start.max()
    weight = np.exp(start - shift)
    # p_t / p_0 above 1 counts as 1, so a huge ratio never overflows.
    return float((weight * np.exp(np.minimum(now - start, 0.0))).sum() / weight.sum())


def _why_declined(q_before: float, effective: float, rollouts: float, unseen_weight: float) -> str | None:
    if q_before in (0.0, 1.0):
        return "every rollout is right" if q_before else "no rollout is right"
    if effective < max(MIN_EFFECTIVE_SAMPLES, MIN_EFFECTIVE_SHARE * rollouts):
        return "too few effective samples"
    if unseen_weight > MAX_UNSEEN_WEIGHT:
        return "mass moved to responses that were not drawn"
    return None


def _unseen_weight(before: Array, after: Array) -> float:
    """New over old mass of everything not drawn; 1 where both are lost in rounding."""
    old, new = 1.0 - float(np.exp(before).sum()), 1.0 - float(np.exp(after).sum())
    return max(new, 0.0) / old if max(old, new) > 1e-3 and old > 0 else 1.0


def _both(group: RolloutGroup, logprobs: NodeLogprobs) -> tuple[Array, Array]:
    if len(logprobs) != group.nodes:
        raise ValueError(f"prompt {group.prompt.id}: {len(logprobs)} log-probabilities for {group.nodes} nodes")
    return group.response_logprobs(), replace(group, logprobs=np.asarray(logprobs, np.float64)).response_logprobs()
