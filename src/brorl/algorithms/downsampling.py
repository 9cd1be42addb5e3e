"""Down-sampling: train on the part of a group whose rewards vary most (PODS, arXiv 2504.13818).

The subset of m rewards with the largest variance consists of the i lowest and the m - i highest for some i. On counts
the search is over runs in which both borders stay within one reward level: there the variance is a concave parabola in
i, so its ends and its vertex suffice, and the search costs O(K log K) whatever N is.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Counts = NDArray[np.int64]


def max_variance_counts(rewards: Array, counts: Counts, size: int) -> Counts:
    """i64[D], how many rollouts of each reward level the max-variance subset of `size` rollouts holds.

    Ties go to the subset with more high rewards.

    Args:
        rewards: f64[D], distinct and increasing.
        counts: i64[D], rollouts at each level.
        size: m.

    Raises:
        ValueError: m is not within 1 to the number of rollouts.
    """
    total = int(counts.sum())
    if not 1 <= size <= total:
        raise ValueError(f"cannot keep {size} of {total} rollouts")
    values = rewards - rewards.mean()  # sums of squares cancel less
    low_ends, high_ends = np.cumsum(counts), np.cumsum(counts[::-1])
    # Break points are where the border below or the border above changes level.
    breaks = np.unique(np.clip(np.concatenate([[0, size], low_ends, size - high_ends]), 0, size))
    lowest = np.unique(np.concatenate([breaks, _vertices(values, counts, breaks, size)]))
    first, second = _moments(values, counts, lowest, size)
    variances = second - first**2
    tie = 1e-12 * float(values[-1] - values[0]) ** 2
    best = int(lowest[np.argmax(variances >= variances.max() - tie)])
    low = np.diff(np.minimum(low_ends, best), prepend=0)
    high = np.diff(np.minimum(high_ends, size - best), prepend=0)[::-1]
    return low + high


def _moments(values: Array, counts: Counts, lowest: Counts, size: int) -> tuple[Array, Array]:
    """Mean and mean square of the `lowest` lowest and ``size - lowest`` highest rollouts, for each of many `lowest`."""

    def mean(of: Array) -> Array:
        below = np.interp(lowest, np.append(0, np.cumsum(counts)), np.append(0.0, np.cumsum(counts * of)))
        down, reverse = counts[::-1], of[::-1]
        above = np.interp(size - lowest, np.append(0, np.cumsum(down)), np.append(0.0, np.cumsum(down * reverse)))
        return (below + above) / size

    return mean(values), mean(values**2)


def _vertices(values: Array, counts: Counts, breaks: Counts, size: int) -> Counts:
    """The whole numbers beside the top of each parabola, within its run."""
    starts, stops = breaks[:-1], breaks[1:]
    last = len(values) - 1
    a = values[np.minimum(np.searchsorted(np.cumsum(counts), starts, side="right"), last)]  # the next low rollout
    going = np.searchsorted(np.cumsum(counts[::-1]), size - starts - 1, side="right")
    b = values[::-1][np.minimum(going, last)]  # the high rollout that makes room for it
    first, _ = _moments(values, counts, starts, size)
    # After j steps the variance is var_0 + j (a^2 - b^2) / m - (2 mean j (a - b) m + j^2 (a - b)^2) / m^2.
    fall = np.where(a == b, 1.0, a - b)
    top = starts + size * ((a + b) / 2 - first) / fall
    return np.clip(np.concatenate([np.floor(top), np.ceil(top)]), np.tile(starts, 2), np.tile(stops, 2)).astype(
        np.int64
    )


def downsample(rewards: Array, counts: Counts, size: int, rng: np.random.Generator) -> Counts:
    """i64[K], how many rollouts of each distinct response are trained on.

    How many of each reward are kept is `max_variance_counts`; which rollouts of one reward is drawn without
    replacement, since any fixed order would favour some answers. Responses with reward NaN are left out; a group with
    no more than `size` scored rollouts is kept whole.

    Args:
        rewards: f64[K], shaped.
        counts: i64[K].
        size: m.
        rng: for the draw within a reward.
    """
    scored = ~np.isnan(rewards)
    kept = np.where(scored, counts, 0)
    if kept.sum() <= size:
        return kept
    levels, level_of = np.unique(rewards[scored], return_inverse=True)
    per_level = np.bincount(level_of, weights=counts[scored]).astype(np.int64)
    wanted = max_variance_counts(levels, per_level, size)
    members = np.flatnonzero(scored)
    for level, number in enumerate(wanted.tolist()):
        inside = members[level_of == level]
        kept[inside] = rng.multivariate_hypergeometric(counts[inside], number, method="marginals")
    return kept
