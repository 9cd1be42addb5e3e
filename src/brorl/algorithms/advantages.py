"""Advantage estimators: how much better than its group each distinct response did.

Every estimator is a plain function from the rewards of the step's groups to one advantage per distinct response,
computed in float64 from counts, so that 512 copies of one response cost what one costs. Rewards that are NaN
(unscorable) are left out of every mean and get advantage 0. A group whose rewards lie within `CONSTANT` of each other
gets zeros before any arithmetic: a test on the spread is exact where a test on a small standard deviation is not.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

CONSTANT = 1e-4
"""rewards closer than this are one reward"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRewards:
    """What an estimator sees of one group."""

    rewards: Array
    """f64[K], shaped; NaN is left out"""
    counts: NDArray[np.int64]
    """i64[K], rollouts that gave each distinct response"""
    lengths: NDArray[np.int64]
    """i64[K], tokens of each distinct response"""
    correct: NDArray[np.bool_]
    """bool[K], unshaped reward at or above the correctness threshold; the estimators built on success counts use it"""

    @property
    def scored(self) -> NDArray[np.bool_]:
        return ~np.isnan(self.rewards)

    @property
    def constant(self) -> bool:
        """Nothing to learn from: fewer than two scored rollouts, or one reward."""
        rewards = self.rewards[self.scored]
        return int(self.counts[self.scored].sum()) < 2 or float(rewards.max() - rewards.min()) <= CONSTANT


Estimator = Callable[[Sequence[GroupRewards]], list[Array]]


def _centred(group: GroupRewards) -> Array:
    """r - mean(r) over the scored rollouts; zeros for a constant group and for unscored responses."""
    if group.constant:
        return np.zeros(len(group.rewards))
    scored = group.scored
    mean = float(np.average(group.rewards[scored], weights=group.counts[scored]))
    return np.where(scored, group.rewards - mean, 0.0)


def reinforce_pp_baseline(groups: Sequence[GroupRewards], *, over: str = "tokens") -> list[Array]:
    """REINFORCE++-baseline, the ProRLv2 and BroRL default: minus the group mean, then minus the batch mean and over the
    batch standard deviation (population, variance floor 1e-8).

    Args:
        over: "tokens" weighs each rollout by its length in the batch statistics (NeMo RL's ProRLv2), "samples" weighs
            rollouts equally (OpenRLHF's).

    Source: ProRL v2 post; paper notes 3.2.
    """
    if over not in ("tokens", "samples"):
        raise ValueError(f"reinforce_pp_baseline: over must be 'tokens' or 'samples', not {over!r}")
    centred = [_centred(group) for group in groups]
    live = [not group.constant for group in groups]
    weights = [
        group.counts * group.scored * (np.maximum(group.lengths, 1) if over == "tokens" else 1) * alive
        for group, alive in zip(groups, live, strict=True)
    ]
    values, weight = np.concatenate(centred), np.concatenate(weights).astype(np.float64)
    if not weight.sum():
        return centred
    mean = float(np.average(values, weights=weight))
    variance = float(np.average((values - mean) ** 2, weights=weight))
    scale = max(variance, 1e-8) ** 0.5
    return [
        np.where(group.scored, (value - mean) / scale, 0.0) if alive else value
        for group, value, alive in zip(groups, centred, live, strict=True)
    ]


def grpo(groups: Sequence[GroupRewards], *, ddof: int = 1) -> list[Array]:
    """GRPO: (r - group mean) / group standard deviation. At one success in 512 the winner gets +22.6.

    Args:
        ddof: 1 for the unbiased deviation (torch's default, used by the public trainers), 0 for the population's.

    Source: DeepSeekMath, arXiv 2402.03300.
    """
    if ddof not in (0, 1):
        raise ValueError(f"grpo: ddof must be 0 or 1, not {ddof}")
    return [_over_deviation(group, ddof) for group in groups]


def _over_deviation(group: GroupRewards, ddof: int) -> Array:
    centred = _centred(group)
    if group.constant:
        return centred
    weight = group.counts * group.scored
    return centred / (float((weight * centred**2).sum()) / (int(weight.sum()) - ddof)) ** 0.5


def dr_grpo(groups: Sequence[GroupRewards]) -> list[Array]:
    """Dr. GRPO: r - group mean, no division. Source: arXiv 2503.20783."""
    return [_centred(group) for group in groups]


def rloo(groups: Sequence[GroupRewards]) -> list[Array]:
    """RLOO: r minus the mean of the other rollouts, which is N / (N - 1) times r - mean. Source: arXiv 2402.14740."""
    return [_centred(g) * (n / (n - 1) if (n := int(g.counts[g.scored].sum())) > 1 else 0.0) for g in groups]


def pass_at_k(groups: Sequence[GroupRewards], *, k: int = 4) -> list[Array]:
    """Pass@k training: over all k-subsets that hold a rollout, how often one succeeds, standardised in the group.

    With c successes of N, the group's mean m = 1 - C(N-c, k)/C(N, k) and deviation s = sqrt(m (1 - m)), a success gets
    (1 - m) / s and a failure (1 - m - C(N-c-1, k-1)/C(N-1, k-1)) / s. Source: arXiv 2508.10751.

    A group with fewer than k scored rollouts has no k-subset and gets zeros.

    Raises:
        ValueError: k is less than 1.
    """
    if k < 1:
        raise ValueError(f"pass_at_k: k must be at least 1, not {k}")
    return [_pass_at_k(group, k) for group in groups]


def _pass_at_k(group: GroupRewards, k: int) -> Array:
    scored = group.scored
    n = int(group.counts[scored].sum())
    correct = group.correct & scored
    successes = int(group.counts[correct].sum())
    if successes in (0, n) or k > n:
        return np.zeros(len(group.rewards))
    fail = comb(n - successes, k) / comb(n, k)
    if fail == 0.0:
        return np.zeros(len(group.rewards))  # every subset holds a success: nothing to tell apart
    deviation = (fail * (1 - fail)) ** 0.5
    fail_with_me = comb(n - successes - 1, k - 1) / comb(n - 1, k - 1)
    return np.where(correct, fail, np.where(scored, fail - fail_with_me, 0.0)) / deviation


def maxrl(groups: Sequence[GroupRewards]) -> list[Array]:
    """MaxRL: (r - mean) / mean, whose expectation climbs the first N terms of log p = -sum_k (1 - p)^k / k.

    A success among N gets up to N - 1. Defined for rewards that are not negative. Source: arXiv 2602.02710.
    """
    return [_over_mean(group) for group in groups]


def _over_mean(group: GroupRewards) -> Array:
    if group.constant:
        return np.zeros(len(group.rewards))
    scored = group.scored
    if float(group.rewards[scored].min()) < 0:
        raise ValueError("maxrl: rewards must not be negative (turn shaping off, or choose another estimator)")
    return _centred(group) / float(np.average(group.rewards[scored], weights=group.counts[scored]))


ADVANTAGES: dict[str, Callable[..., list[Array]]] = {
    "reinforce_pp_baseline": reinforce_pp_baseline,
    "grpo": grpo,
    "dr_grpo": dr_grpo,
    "rloo": rloo,
    "pass_at_k": pass_at_k,
    "maxrl": maxrl,
}


def estimate(estimator: Estimator, groups: Sequence[GroupRewards]) -> list[Array]:
    """Run an estimator and hold it to its promises: finite, one value per response, and within a bound.

    A value standardised over the step is at most the square root of the tokens it was standardised over, and MaxRL's
    is below N, so nothing sound exceeds the step's token count (or twice the reward spread, where nothing is divided).

    Raises:
        ValueError: the estimator broke one of them; the message says for which group.
    """
    advantages = estimator(groups)
    spread = max([float(np.ptp(g.rewards[g.scored])) for g in groups if g.scored.any()], default=0.0)
    tokens = sum(int((g.counts * np.maximum(g.lengths, 1)).sum()) for g in groups)
    for index, (group, advantage) in enumerate(zip(groups, advantages, strict=True)):
        if advantage.shape != group.rewards.shape or not np.isfinite(advantage).all():
            raise ValueError(f"the advantage estimator gave a value that is not finite for group {index}")
        if np.abs(advantage).max(initial=0.0) > max(float(tokens), 2 * spread):
            raise ValueError(
                f"the advantage estimator gave {np.abs(advantage).max():.3g} for group {index}: out of bounds"
            )
    return advantages
