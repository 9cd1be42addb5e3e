"""How much of a gradient is signal: two gradients from disjoint sets of rollouts, compared.

Both halves are s + noise with the same expected gradient s and independent noise, so their inner product estimates
|s|^2 without bias, and half the square of their difference the noise of one. Only three numbers of a pair are needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import pi, sqrt

import numpy as np
from numpy.typing import NDArray

from brorl.theory.pass_at_k import Interval

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientPair:
    """Inner products of two gradients a and b from disjoint sets of rollouts of the same prompts."""

    first_square: float
    """a . a"""
    second_square: float
    """b . b"""
    product: float
    """a . b"""

    @property
    def cosine(self) -> float | None:
        """None where one of them is zero: all rollouts right or all wrong give no gradient, which has no direction."""
        size = sqrt(self.first_square) * sqrt(self.second_square)
        return self.product / size if size > 0 else None

    @property
    def norm_ratio(self) -> float | None:
        """The smaller norm over the larger."""
        small, large = sorted((self.first_square, self.second_square))
        return sqrt(small / large) if small > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """What independent pairs of gradients at one N say; intervals are over pairs."""

    pairs: int
    without_gradient: int
    """pairs of which one gradient is zero; they have no cosine and no norm ratio"""
    cosine: Interval | None
    norm_ratio: Interval | None
    signal: float | None
    """|E g|; None where it cannot be told from 0: the mean inner product is not positive"""
    noise: float
    """sqrt(E |g - E g|^2)"""
    signal_to_noise: Interval | None
    """signal / noise, cut off at 0; None where there is no noise"""


def agreement(pairs: Sequence[GradientPair], *, level: float = 0.9) -> Agreement:
    """Signal, noise and their ratio from pairs whose prompts and rollouts are independent of each other's.

    Cosine and norm ratio: Student's interval of the mean. Signal-to-noise: delete-one jackknife of the squared ratio.

    Raises:
        ValueError: fewer than two pairs, or a level outside (0, 1).
    """
    if len(pairs) < 2:
        raise ValueError("an interval over pairs of gradients needs at least two of them")
    products = np.array([pair.product for pair in pairs])
    squares = np.array([(pair.first_square + pair.second_square) / 2 for pair in pairs])
    signal2, noise2 = float(products.mean()), float((squares - products).mean())
    cosines = [pair.cosine for pair in pairs if pair.cosine is not None]
    ratios = [pair.norm_ratio for pair in pairs if pair.norm_ratio is not None]
    return Agreement(
        pairs=len(pairs),
        without_gradient=len(pairs) - len(cosines),
        cosine=_interval(np.array(cosines), level, least=-1.0),
        norm_ratio=_interval(np.array(ratios), level, least=0.0),
        signal=sqrt(signal2) if signal2 > 0 else None,
        noise=sqrt(max(noise2, 0.0)),
        signal_to_noise=_ratio(products, squares - products, level) if noise2 > 0 else None,
    )


def mean_interval(values: Array, level: float) -> Interval | None:
    """The mean of f64[n] independent values with its t interval; None for fewer than two."""
    if len(values) < 2:
        return None
    mean = float(values.mean())
    reach = student_quantile((1 + level) / 2, len(values) - 1) * float(values.std(ddof=1)) / sqrt(len(values))
    return Interval(value=mean, low=mean - reach, high=mean + reach, level=level, problems=len(values))


def _interval(values: Array, level: float, *, least: float) -> Interval | None:
    """Of the mean, cut to what is possible: `least` to 1."""
    found = mean_interval(values, level)
    return found and replace(found, low=max(found.low, least), high=min(found.high, 1.0))


def _ratio(signal2: Array, noise2: Array, level: float) -> Interval:
    count = len(signal2)
    value = float(signal2.mean() / noise2.mean())
    left_out = (signal2.sum() - signal2) / (noise2.sum() - noise2)
    error = sqrt((count - 1) / count * float(((left_out - left_out.mean()) ** 2).sum()))
    reach = student_quantile((1 + level) / 2, count - 1) * error
    low, middle, high = (sqrt(max(v, 0.0)) for v in (value - reach, value, value + reach))
    return Interval(value=middle, low=low, high=high, level=level, problems=count)


@lru_cache(maxsize=64)
def student_quantile(probability: float, degrees: int) -> float:
    """The quantile of Student's t distribution: with t = sqrt(d) tan(a), the density of a is cos(a)^(d - 1).

    Raises:
        ValueError: a probability outside (0, 1), or no degree of freedom.
    """
    if not 0 < probability < 1 or degrees < 1:
        raise ValueError(
            f"a quantile needs a probability in (0, 1) and degrees of freedom, not {probability}, {degrees}"
        )
    angle = np.linspace(-pi / 2, pi / 2, 200_001)
    density = np.cos(angle) ** (degrees - 1)
    mass = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return float(sqrt(degrees) * np.tan(np.interp(probability, mass / mass[-1], angle)))
