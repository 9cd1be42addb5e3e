"""Two policies on the same problems: is the difference of their scores more than chance?

Letters: P problems; a and b, f64[P], a score of each problem under either policy. A problem is one observation, however
many samples stand behind its score: samples of one problem are not independent of each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mpmath  # pyright: ignore[reportMissingTypeStubs]
import numpy as np
from numpy.typing import ArrayLike, NDArray

from brorl.seeding import generator

Array = NDArray[np.float64]

_MP: Any = mpmath
_EXACT = 14  # differing problems up to which all 2^P sign changes are tried
_DRAWS = 20_000
_BLOCK = 4_000_000  # signs held at once


@dataclass(frozen=True, slots=True, kw_only=True)
class TTest:
    """A paired t-test."""

    t: float
    degrees: int
    p_two_sided: float
    p_one_sided: float
    """that b is not above a"""


def permutation_p(differences: ArrayLike, *, draws: int = _DRAWS, seed: int = 0) -> float:
    """Two-sided p of a paired permutation test of the mean of b - a (f64[P]).

    Under "no difference" a problem's two scores could as well be exchanged, so every change of signs is as likely as
    what was seen. All of them are tried where at most 14 problems differ; else `draws` random ones and the observed one
    (Phipson and Smyth 2010, eq. 2), which keeps the error rate at or below the level.

    Raises:
        ValueError: no problem, or values that are not finite.
    """
    values = _finite(differences)
    moved = values[values != 0]
    if not len(moved):
        return 1.0
    observed = abs(float(moved.sum())) * (1 - 1e-9)  # rates are multiples of 1/n: ties are common, and sums round
    if len(moved) <= _EXACT:
        numbers = np.arange(2 ** len(moved), dtype=np.int64)[:, None]
        bits = np.right_shift(numbers, np.arange(len(moved), dtype=np.int64)) & 1
        return float((np.abs((1.0 - 2 * bits) @ moved) >= observed).mean())
    rng = generator(seed, "permutation", len(moved))
    extreme, left = 0, draws
    while left:
        rows = min(left, max(1, _BLOCK // len(moved)))
        signs = rng.integers(0, 2, size=(rows, len(moved)), dtype=np.int8)
        extreme += int((np.abs((1.0 - 2 * signs) @ moved) >= observed).sum())
        left -= rows
    return (extreme + 1) / (draws + 1)


def paired_t(differences: ArrayLike) -> TTest | None:
    """The paired t-test of b - a (f64[P]), as in BroRL (paper.md 4.6); None where all differences are equal.

    It takes problems for independent and their mean difference for normal; problems of one benchmark, made alike, are
    less independent than that.

    Raises:
        ValueError: fewer than two problems, or values that are not finite.
    """
    values = _finite(differences)
    if len(values) < 2:
        raise ValueError("a paired t-test needs at least two problems")
    spread = float(values.std(ddof=1))
    if spread < 1e-15:
        return None
    degrees = len(values) - 1
    t = float(values.mean()) / (spread / len(values) ** 0.5)
    tail = student_tail(abs(t), degrees)
    return TTest(t=t, degrees=degrees, p_two_sided=2 * tail, p_one_sided=tail if t > 0 else 1 - tail)


def student_tail(t: float, degrees: int) -> float:
    """P(T >= t) of Student's t distribution, t >= 0: I_x(degrees / 2, 1 / 2) / 2 with x = degrees / (degrees + t^2)."""
    x = _MP.mpf(degrees) / (degrees + _MP.mpf(t) ** 2)
    return float(_MP.betainc(_MP.mpf(degrees) / 2, 0.5, 0, x, regularized=True) / 2)


def holm(p_values: Sequence[float]) -> list[float]:
    """p values of several comparisons, adjusted so that the chance of any false one stays at the level (Holm 1979)."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [1.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def lost_by_chance(correct: ArrayLike, samples: ArrayLike, later_samples: ArrayLike) -> float:
    """How many solved problems would show no right answer among `later_samples` new ones, had nothing changed.

    Sum over problems with a right answer of (1 - c/n)^m: the plug-in estimate, which is low, as c/n of a problem that
    happened to be solved is high.
    """
    c, n, m = np.broadcast_arrays(*(np.asarray(v, np.float64) for v in (correct, samples, later_samples)))
    return float(((1 - c / n) ** m)[c > 0].sum())


def _finite(values: ArrayLike) -> Array:
    array = np.asarray(values, np.float64)
    if array.ndim != 1 or not len(array) or not bool(np.isfinite(array).all()):
        raise ValueError("a paired test needs one finite difference for each of at least one problem")
    return array
