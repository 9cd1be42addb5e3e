"""How a step's rollouts are divided over prompts: N each, or in rounds that stop where a full group would say nothing.

Sequential allocation looks at a prompt after each round. While all of its rollouts were wrong, or all right, the
posterior of its pass rate says how likely its full group is to hold both; below `stop_below` the prompt is given up and
its remaining rollouts go to fresh prompts. A prompt with a right and a wrong rollout always runs to its full N.

Only full groups are trained on. A group mean is a fair baseline for a number of rollouts fixed beforehand: a rule that
ends a group when it has seen enough, on its first success say, makes the baseline and the group's weight depend on the
outcome (E[c / n] = -p ln p / (1 - p), not p). Here every trained group has N rollouts; what remains is that groups with
few rights or few wrongs survive less often. Given how many of its N rollouts were right, the order in which they came
is uniform, so the chance of surviving is known; dividing by it makes the expected update that of uniform allocation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb, exp, lgamma

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """Rounds of one prompt and where they stop."""

    rounds: tuple[int, ...]
    """rollouts of each round; their sum is N"""
    hopeless_after: int | None = None
    """rollouts without a right one at which the prompt is given up"""
    saturated_after: int | None = None
    """rollouts without a wrong one at which it is"""
    corrected: bool = False
    """weigh a full group by one over its chance of having survived"""
    prior: tuple[float, float] = (1.0, 1.0)
    """right and wrong of the Beta prior of a pass rate"""

    @property
    def full(self) -> int:
        """N."""
        return sum(self.rounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What an allocation does to prompts of known pass rates, exactly."""

    rollouts: Array
    """f64[R], expected rollouts of a prompt"""
    stopped: Array
    """f64[R], chance of being given up"""
    missed: Array
    """f64[R], chance of being given up although the full group would have held both a right and a wrong rollout"""
    signal: Array
    """f64[R], chance that the full group holds both: 1 - p^N - (1 - p)^N"""


def uniform(rollouts: int) -> Allocation:
    """N rollouts for every prompt."""
    return Allocation(rounds=(rollouts,))


def sequential(
    rollouts: int,
    *,
    rounds: Sequence[int] = (32, 96, 384),
    stop_below: float = 0.2,
    prior_right: float = 0.1,
    prior_wrong: float = 0.1,
    corrected: bool = True,
) -> Allocation:
    """Rounds that stop where the full group has less than a chance of `stop_below` to carry signal.

    Args:
        rollouts: N.
        rounds: rollouts per round, N in all.
        stop_below: chance of signal below which a prompt is given up.
        prior_right: of the Beta prior; small values of both say that most prompts are nearly hopeless or solved.
        prior_wrong: see `prior_right`.
        corrected: weigh full groups by one over their chance of having survived, which makes the expected update that
            of uniform allocation; False leaves rare successes under-weighted.

    Raises:
        ValueError: rounds that are not N in all, or a rule that stops nothing.
    """
    sizes = tuple(int(size) for size in rounds)
    if min(sizes, default=0) < 1 or sum(sizes) != rollouts:
        raise ValueError(f"sequential: rounds {list(sizes)} must be positive and sum to {rollouts} rollouts per prompt")
    if len(sizes) < 2:
        raise ValueError("sequential: one round stops nothing; use at least two, or uniform")
    if not 0 < stop_below < 1 or prior_right <= 0 or prior_wrong <= 0:
        raise ValueError("sequential needs 0 < stop_below < 1 and prior_right, prior_wrong above 0")
    drawn = np.cumsum(sizes)[:-1].tolist()

    def first(right: float, wrong: float) -> int | None:
        """Rollouts, all of the kind counted in `wrong`, after which the other kind is given up."""
        return next((n for n in drawn if 1 - _all_alike(n, rollouts, right, wrong) < stop_below), None)

    hopeless, saturated = first(prior_right, prior_wrong), first(prior_wrong, prior_right)
    if hopeless is None and saturated is None:
        raise ValueError(
            f"sequential: stop_below {stop_below} stops no prompt after {drawn[-1]} of {rollouts} rollouts; raise it, "
            "or lower prior_right and prior_wrong"
        )
    return Allocation(
        rounds=sizes,
        hopeless_after=hopeless,
        saturated_after=saturated,
        corrected=corrected,
        prior=(prior_right, prior_wrong),
    )


ALLOCATIONS: dict[str, Callable[..., Allocation]] = {"uniform": uniform, "sequential": sequential}


def _all_alike(drawn: int, total: int, other: float, alike: float) -> float:
    """Chance that the rest of `total` rollouts is like the first `drawn`, all alike, under Beta(other, alike) before.

    E[q^(N - n) | q^n seen] = B(other, alike + N) / B(other, alike + n).
    """
    return exp(
        lgamma(alike + total) - lgamma(other + alike + total) - lgamma(alike + drawn) + lgamma(other + alike + drawn)
    )


def stops(allocation: Allocation, *, drawn: int, right: int, wrong: int) -> bool:
    """Whether a prompt is given up after `drawn` rollouts; those without a verdict are neither right nor wrong."""
    if drawn >= allocation.full:
        return False
    hopeless, saturated = allocation.hopeless_after, allocation.saturated_after
    return (hopeless is not None and right == 0 and drawn >= hopeless) or (
        saturated is not None and wrong == 0 and drawn >= saturated
    )


def signal_chance(allocation: Allocation, *, drawn: int, right: int) -> float:
    """Posterior chance that a prompt given up after `drawn` rollouts, all right or none, would have carried signal."""
    prior_right, prior_wrong = allocation.prior
    other, alike = (prior_wrong, prior_right) if right else (prior_right, prior_wrong)
    return 1 - _all_alike(drawn, allocation.full, other, alike)


def survival_weight(allocation: Allocation, *, right: int, wrong: int) -> float:
    """One over the chance that a full group with these outcomes was not given up on the way; 1 where nothing is.

    With c of N right, the first n hold none with probability C(N - c, n) / C(N, n), whatever the pass rate.

    Raises:
        ValueError: a group without a right or without a wrong rollout.
    """
    if right < 1 or wrong < 1:
        raise ValueError("a group without both a right and a wrong rollout has no weight: it is not trained on")
    if not allocation.corrected:
        return 1.0
    total, rules = allocation.full, ((right, allocation.hopeless_after), (wrong, allocation.saturated_after))
    ends = sorted((after, count) for count, after in rules if after is not None)
    lost = sum(comb(total - count, after) / comb(total, after) for after, count in ends)
    if len(ends) == 2:  # counted twice: rollouts without a verdict up to the earlier end, none of the other kind after
        (first, _), (last, count) = ends
        neither = comb(total - right - wrong, first) / comb(total, first)
        if neither:
            lost -= neither * comb(total - count - first, last - first) / comb(total - first, last - first)
    return 1 / (1 - lost)


def expectation(allocation: Allocation, rates: ArrayLike) -> Expectation:
    """What the allocation saves and misses at pass rates f64[R]; exact, since a prompt stops only while all alike."""
    p = np.asarray(rates, np.float64)
    total = allocation.full
    rollouts, stopped, missed = np.full_like(p, total), np.zeros_like(p), np.zeros_like(p)
    for q, after in ((1 - p, allocation.hopeless_after), (p, allocation.saturated_after)):
        if after is not None:
            rollouts -= q**after * (total - after)
            stopped += q**after
            missed += q**after - q**total
    return Expectation(rollouts=rollouts, stopped=stopped, missed=missed, signal=1 - p**total - (1 - p) ** total)
