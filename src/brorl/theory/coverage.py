"""What N draws leave out: undrawn mass and second moment, missed modes, and the N that reaches a target.

Probabilities stand on the last axis, of all actions or of some (the correct ones, say), so they need not sum to 1; N
broadcasts against the leading axes. Powers (1 - p)^N are taken as
exp(N log1p(-p)), exact for tiny p and huge N.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def miss_probability(p: ArrayLike, n: ArrayLike) -> Array:
    """(1 - p)^N, the probability that N independent draws miss an event of probability p.

    Raises:
        ValueError: p outside [0, 1] or N < 0.
    """
    probability, draws = np.asarray(p, np.float64), np.asarray(n, np.float64)
    if not bool(np.all((probability >= 0) & (probability <= 1))):
        raise ValueError("probabilities lie in [0, 1]")
    if bool(np.any(draws < 0)):
        raise ValueError("the number of draws cannot be negative")
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(draws == 0, 1.0, np.exp(draws * np.log1p(-probability)))


def expected_undrawn_second_moment(p: ArrayLike, n: ArrayLike) -> Array:
    """E[U_2] = sum p^2 (1 - p)^N over the last axis of p (BroRL Lemma 2); strictly decreasing in N where 0 < p < 1.

    Raises:
        ValueError: as `miss_probability`.
    """
    probability = np.asarray(p, np.float64)
    missed = miss_probability(probability, np.asarray(n)[..., None])
    return (probability * probability * missed).sum(axis=-1)


def undrawn_second_moment_bound(n: ArrayLike) -> Array:
    """1 / (e N): E[U_2] under *any* distribution is at most max_p p (1 - p)^N, which is below it (BroRL section 1.4).

    Raises:
        ValueError: N < 1.
    """
    draws = np.asarray(n, np.float64)
    if bool(np.any(draws < 1)):
        raise ValueError("the bound needs N >= 1")
    return 1.0 / (math.e * draws)


def expected_undrawn_mass(p: ArrayLike, n: ArrayLike) -> Array:
    """sum p (1 - p)^N over the last axis: the mass that N draws are expected to leave unseen.

    Raises:
        ValueError: as `miss_probability`.
    """
    probability = np.asarray(p, np.float64)
    return (probability * miss_probability(probability, np.asarray(n)[..., None])).sum(axis=-1)


def activity(mu: ArrayLike, n: ArrayLike) -> Array:
    """1 - mu^N - (1 - mu)^N: a group of N at success rate mu has both a right and a wrong rollout, so it is kept.

    Raises:
        ValueError: as `miss_probability`.
    """
    rate = np.asarray(mu, np.float64)
    # The two complements are added so that tiny rates do not cancel: 1 - (1 - mu)^N is taken by expm1.
    with np.errstate(divide="ignore", invalid="ignore"):
        some_right = np.where(np.asarray(n) == 0, 0.0, -np.expm1(np.asarray(n) * np.log1p(-rate)))
    return np.clip(some_right - miss_probability(1.0 - rate, n), 0.0, 1.0)


def tail_miss_probability(tau: ArrayLike, mu: ArrayLike, n: ArrayLike) -> Array:
    """(1 - tau)^N - (mu - tau)^N - (1 - mu)^N: a group is kept, yet misses a correct mode of mass tau.

    Not monotone in N: small groups are not kept, large ones miss nothing (F-GRPO, arXiv 2602.06717).

    Args:
        tau: mass of the rare correct mode, 0 <= tau <= mu.
        mu: mass of all correct responses.

    Raises:
        ValueError: tau > mu, or as `miss_probability`.
    """
    rare, rate = np.asarray(tau, np.float64), np.asarray(mu, np.float64)
    if bool(np.any(rare > rate)):
        raise ValueError("the rare mode is part of the correct mass: tau must not exceed mu")
    all_common_right = miss_probability(1.0 - (rate - rare), n)
    return np.clip(miss_probability(rare, n) - all_common_right - miss_probability(rate, n), 0.0, 1.0)


def rollouts_to_hit(p: float, epsilon: float) -> int:
    """The smallest N that misses an event of probability p with probability at most epsilon.

    Raises:
        ValueError: p outside (0, 1] or epsilon outside (0, 1).
    """
    if not 0 < p <= 1 or not 0 < epsilon < 1:
        raise ValueError("the target needs 0 < p <= 1 and 0 < epsilon < 1")
    if p == 1:
        return 1
    return max(1, math.ceil(math.log(epsilon) / math.log1p(-p) - 1e-9))


def rollouts_to_cover(p: ArrayLike, epsilon: float, *, limit: int = 1 << 40) -> int:
    """The smallest N with E[U_2] <= epsilon for one distribution p (f64[V]); at most ceil(1 / (e epsilon)).

    Raises:
        ValueError: epsilon <= 0, bad probabilities, or no N up to `limit` reaches it.
    """
    if epsilon <= 0:
        raise ValueError("epsilon must be positive: no finite N brings the undrawn second moment to 0")
    low, high = 0, 1
    while float(expected_undrawn_second_moment(p, high)) > epsilon:
        low, high = high, 2 * high
        if high > limit:
            raise ValueError(f"no N up to {limit} brings the undrawn second moment to {epsilon:g}")
    if float(expected_undrawn_second_moment(p, 0)) <= epsilon:
        return 0
    while high - low > 1:
        middle = (low + high) // 2
        below = float(expected_undrawn_second_moment(p, middle)) <= epsilon
        low, high = (low, middle) if below else (middle, high)
    return high
