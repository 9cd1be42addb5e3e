"""pass@k from counts: the unbiased estimator, the plug-in one, and intervals that are clustered by problem.

Letters: n scorable samples of a problem, c of them correct, k tries. Samples that could not be scored leave n; they
are no failures. Averages are over problems, never over pooled samples.
"""

from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from brorl.seeding import generator

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean over problems with a confidence interval clustered by problem."""

    value: float
    low: float
    high: float
    level: float
    """nominal coverage, such as 0.95"""
    problems: int
    """how many clusters stand behind it"""


def pass_at_k(n: ArrayLike, c: ArrayLike, k: ArrayLike, *, unscorable: ArrayLike = 0) -> Array:
    """Unbiased pass@k, 1 - C(n - c, k) / C(n, k), in float64, broadcast over n, c and k.

    Chen et al. 2021 (arXiv 2107.03374), eq. 1; BroRL section 1.5 in expectation. Relative error of the complement
    at most 2 min(c, k) units in the last place.

    Args:
        n: samples of each problem, the unscorable ones included.
        c: correct samples of each problem.
        k: tries, 1 <= k <= n - unscorable.
        unscorable: samples without a verdict; they are taken out of n.

    Raises:
        ValueError: k > n (there the usual code returns 1.0), k < 1, c outside 0..n, or numbers that are not whole.
    """
    totals, correct, tries = _whole_counts(n, c, k, unscorable)
    few, many = np.minimum(correct, tries), np.maximum(correct, tries)
    miss = np.ones(totals.shape, np.float64)
    # C(n-c, k) / C(n, k) = prod_{i < min(c, k)} (n - max(c, k) - i) / (n - i): one pass per factor, no overflow.
    for i in range(int(few.max(initial=0))):
        factor = np.clip((totals - many - i) / np.maximum(totals - i, 1), 0.0, None)
        miss = np.where(i < few, miss * factor, miss)
    return 1.0 - miss


def plug_in_pass_at_k(n: ArrayLike, c: ArrayLike, k: ArrayLike, *, unscorable: ArrayLike = 0) -> Array:
    """The plug-in estimate 1 - (1 - c/n)^k, biased low for k > 1; defined for k > n too.

    Raises:
        ValueError: as `pass_at_k`, except that k > n is allowed.
    """
    totals, correct, tries = _whole_counts(n, c, k, unscorable, extrapolate=True)
    return 1.0 - (1.0 - correct / totals) ** tries


def expected_pass_at_k(q: ArrayLike, k: ArrayLike) -> Array:
    """1 - (1 - q)^k for a known success probability q, accurate for tiny q (BroRL section 1.5).

    Raises:
        ValueError: q outside [0, 1] or k < 0.
    """
    probability, tries = np.asarray(q, np.float64), np.asarray(k, np.float64)
    if not bool(np.all((probability >= 0) & (probability <= 1))) or bool(np.any(tries < 0)):
        raise ValueError("success probabilities lie in [0, 1] and k is at least 0")
    with np.errstate(divide="ignore", invalid="ignore"):
        exponent = np.where(tries == 0, 0.0, tries * np.log1p(-probability))
    return -np.expm1(exponent)


def mean_pass_at_k(
    n: ArrayLike, c: ArrayLike, k: int, *, unscorable: ArrayLike = 0, level: float = 0.95, method: str = "bootstrap"
) -> Interval:
    """Mean unbiased pass@k over problems with an interval clustered by problem.

    Args:
        n, c, unscorable: one entry per problem.
        level: nominal coverage of the interval.
        method: "bootstrap" (percentile, resampling whole problems) or "normal".

    Raises:
        ValueError: as `pass_at_k`, or fewer than two problems.
    """
    return clustered_interval(pass_at_k(n, c, k, unscorable=unscorable), level=level, method=method)


def clustered_interval(
    values: ArrayLike, *, level: float = 0.95, method: str = "bootstrap", resamples: int = 4000, seed: int = 0
) -> Interval:
    """The mean of one value per problem (f64[P]) with an interval over resampled or normal problem means.

    Where all problems have the same value both intervals have no width; that says nothing about problems not seen.

    Raises:
        ValueError: fewer than two problems, values that are not finite, an unknown method, or a level outside (0, 1).
    """
    per_problem = np.asarray(values, np.float64)
    if per_problem.ndim != 1 or len(per_problem) < 2:
        raise ValueError("an interval clustered by problem needs one value for each of at least two problems")
    if not bool(np.isfinite(per_problem).all()):
        raise ValueError("a problem without a finite value (no scorable sample?) has no place in a mean: leave it out")
    if not 0 < level < 1:
        raise ValueError(f"the level of an interval lies between 0 and 1, not {level}")
    count, mean = len(per_problem), float(per_problem.mean())
    match method:
        case "bootstrap":
            means = _resampling_weights(count, resamples, seed) @ per_problem
            low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
        case "normal":
            reach = NormalDist().inv_cdf((1 + level) / 2) * float(per_problem.std(ddof=1)) / count**0.5
            low, high = mean - reach, mean + reach
        case _:
            raise ValueError(f'unknown interval method "{method}": choose "bootstrap" or "normal"')
    return Interval(value=mean, low=float(low), high=float(high), level=level, problems=count)


@lru_cache(maxsize=4)
def _resampling_weights(count: int, resamples: int, seed: int) -> Array:
    """f64[resamples, count], the share of each problem in each resample; one matrix serves all means over `count`."""
    rows = min(resamples, max(1000, 4_000_000 // count))  # 32 MB at most, for thousands of problems
    rng = generator(seed, "clustered_interval", count)
    return rng.multinomial(count, np.full(count, 1.0 / count), size=rows) / count


def _whole_counts(
    n: ArrayLike, c: ArrayLike, k: ArrayLike, unscorable: ArrayLike, *, extrapolate: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """n without the unscorable samples, c and k, broadcast to one shape and checked."""
    arrays = [np.asarray(values) for values in (n, c, k, unscorable)]
    for name, values in zip(("n", "c", "k", "unscorable"), arrays, strict=True):
        if not _is_whole(values):
            raise ValueError(f"{name} must be whole numbers of samples")
    total, correct, tries, lost = np.broadcast_arrays(*(values.astype(np.int64) for values in arrays))
    scorable = np.asarray(total - lost, np.int64)
    if bool(np.any(lost < 0)) or bool(np.any(correct < 0)) or bool(np.any(correct > scorable)):
        raise ValueError("correct samples must lie between 0 and the number of scorable samples")
    if bool(np.any(tries < 1)) or bool(np.any(scorable < 1)):
        raise ValueError("pass@k needs k >= 1 and at least one scorable sample of each problem")
    if not extrapolate and bool(np.any(tries > scorable)):
        worst = int(np.argmax(tries - scorable))
        raise ValueError(
            f"pass@k needs k <= n: k = {int(tries.flat[worst])} but only {int(scorable.flat[worst])} scorable samples; "
            "draw more samples or lower k"
        )
    return scorable, np.asarray(correct, np.int64), np.asarray(tries, np.int64)


def _is_whole(values: NDArray[Any]) -> bool:
    return values.dtype.kind in "iub" or (
        values.dtype.kind == "f" and bool(np.all(np.isfinite(values) & (values == np.floor(values))))
    )
