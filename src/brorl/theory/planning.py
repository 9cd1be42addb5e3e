"""From pilot pass rates to predictions at any N: a fit with mass at 0 and 1, and what it says of N rollouts a prompt.

The prior over a set's pass rates is a normal distribution of the log-odds plus a spike at 0 and one at 1, its four
parameters integrated out on a grid. A beta prior, the usual choice, ties the tail at small rates to the bulk and is
sure of itself where sixteen samples say nothing; the log-odds spread lets rates of 1e-1 and 1e-4 live in one set.
"""

from dataclasses import dataclass
from math import lgamma

import numpy as np
from numpy.typing import ArrayLike, NDArray

from brorl.seeding import generator
from brorl.theory.coverage import activity, tail_miss_probability
from brorl.theory.pass_at_k import Interval, expected_pass_at_k, pass_at_k

Array = NDArray[np.float64]

LOG_ODDS = np.linspace(-16.0, 8.0, 193)
CENTRES = np.linspace(-12.0, 6.0, 37)
SPREADS = np.geomspace(0.3, 4.0, 9)
# Weakly informative: the log-odds of a set spread by about 1.5 (0.7 to 3.3 within two standard deviations).
SPREAD_PRIOR: Array = -0.5 * (np.log(SPREADS / 1.5) / 0.4) ** 2
HOPELESS = np.array([0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1 - 1e-6])
SATURATED = np.array([0, 0.05, 0.2, 0.5, 0.8])


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRateFit:
    """What a pilot says of the pass rates of its problems: D posterior draws of their distribution."""

    rates: Array
    """f64[G], the pass rates considered, 0 and 1 included"""
    shares: Array
    """f64[D, G], share of the problems at each rate; one row is one way the set may really be"""
    problems: int
    samples: int
    """pilot samples of all problems together"""


def fit_pass_rates(n: ArrayLike, c: ArrayLike, *, draws: int = 2000, seed: int = 0) -> PassRateFit:
    """Fit the pass rates of a set of problems from a pilot.

    Args:
        n: int[P], scorable samples of each problem, at least 1.
        c: int[P], correct ones.
        draws: posterior draws D.
        seed: of the posterior draws.

    Raises:
        ValueError: no problem, or counts that are no counts.
    """
    pairs, times = _unique_pairs(n, c)
    spikes = np.array([(zero, one) for zero in HOPELESS for one in SATURATED if zero + one < 1])
    weight = 1.0 - spikes.sum(axis=1)
    density, log_prior = _densities()
    log_posterior = np.repeat(log_prior[:, None], len(spikes), axis=1)
    for (total, correct), count in zip(pairs, times, strict=True):
        log_posterior += count * np.log(_likelihood(density, spikes, weight, total, correct) + 1e-300)
    posterior = np.exp(log_posterior - log_posterior.max()).ravel()
    rng = generator(seed, "fit_pass_rates", len(times))
    shape, spike = np.unravel_index(
        rng.choice(len(posterior), draws, p=posterior / posterior.sum()), log_posterior.shape
    )
    tally = np.zeros((draws, len(LOG_ODDS) + 2))
    for (total, correct), count in zip(pairs, times, strict=True):
        inner = density[shape] * _binomial(total, correct) * weight[spike, None]
        ends = spikes[spike] * np.array([correct == 0, correct == total])
        joint = np.column_stack([ends[:, 0], inner, ends[:, 1]])
        joint /= joint.sum(axis=1, keepdims=True)
        tally += rng.multinomial(int(count), joint)
    return PassRateFit(
        rates=np.concatenate([[0.0], 1.0 / (1.0 + np.exp(-LOG_ODDS)), [1.0]]),
        shares=tally / tally[0].sum(),
        problems=int(times.sum()),
        samples=int((pairs[:, 0] * times).sum()),
    )


def predict(fit: PassRateFit, values: ArrayLike, *, level: float = 0.9) -> Interval:
    """The mean over the fit's problems of a quantity known as a function of the pass rate.

    Args:
        values: f64[G], the quantity at `fit.rates`.

    Returns:
        Posterior median (the estimate of least absolute error) and the central interval of the given level.
    """
    means = fit.shares @ np.asarray(values, np.float64)
    low, middle, high = np.quantile(means, [(1 - level) / 2, 0.5, (1 + level) / 2])
    return Interval(value=float(middle), low=float(low), high=float(high), level=level, problems=fit.problems)


def kept_share(fit: PassRateFit, rollouts: int, *, level: float = 0.9) -> Interval:
    """Predicted share of prompts whose group of N has both a right and a wrong rollout: E[1 - mu^N - (1 - mu)^N].

    Raises:
        ValueError: N < 2; a group of one is never kept.
    """
    if rollouts < 2:
        raise ValueError(f"the kept share needs N >= 2 rollouts, not {rollouts}")
    return predict(fit, activity(fit.rates, rollouts), level=level)


def pass_at_n(fit: PassRateFit, rollouts: int, *, level: float = 0.9) -> Interval:
    """Predicted pass@N, E[1 - (1 - mu)^N] (BroRL section 1.5)."""
    return predict(fit, expected_pass_at_k(fit.rates, rollouts), level=level)


def tail_miss(fit: PassRateFit, rollouts: int, *, rare_share: float = 0.1, level: float = 0.9) -> Interval:
    """Predicted probability that a kept group misses a mode with `rare_share` of its correct mass (F-GRPO)."""
    return predict(fit, tail_miss_probability(rare_share * fit.rates, fit.rates, rollouts), level=level)


def signal_to_noise(fit: PassRateFit, rollouts: int, *, level: float = 0.9) -> Interval:
    """Predicted mean over prompts of sqrt((N - 1) mu (1 - mu)), the signal-to-noise ratio of one group's gradient.

    For the group-mean estimator (1/N) sum (r_i - mean r) s_i, whose mean is (N - 1)/N mu (1 - mu) d and whose noise
    has variance sigma^2 (N - 1)/N^2 mu (1 - mu). The unit is d / sigma: the distance of the mean scores s of right and
    wrong rollouts over the spread of s within them.
    """
    return predict(fit, np.sqrt((rollouts - 1) * fit.rates * (1 - fit.rates)), level=level)


def measured_kept_share(n: ArrayLike, c: ArrayLike, rollouts: int) -> Array:
    """f64[P], the unbiased estimate of 1 - mu^N - (1 - mu)^N of each problem from n >= N samples.

    Raises:
        ValueError: N above a problem's samples.
    """
    total, correct = np.asarray(n), np.asarray(c)
    return pass_at_k(total, correct, rollouts) + pass_at_k(total, total - correct, rollouts) - 1.0


def beta_binomial_kept_share(n: ArrayLike, c: ArrayLike, rollouts: int) -> float:
    """The kept share that a plain beta-binomial maximum-likelihood fit predicts; for comparison only.

    Raises:
        ValueError: no problem, or counts that are no counts.
    """
    pairs, times = _unique_pairs(n, c)
    alpha, beta = (
        grid.ravel() for grid in np.meshgrid(np.geomspace(1e-3, 1e2, 80), np.geomspace(1e-2, 1e6, 80), indexing="ij")
    )
    prior = _log_beta(alpha, beta)
    log_likelihood = np.zeros(len(alpha))
    for (total, correct), count in zip(pairs, times, strict=True):
        log_likelihood += count * (_log_beta(alpha + correct, beta + (total - correct)) - prior)
    best = int(log_likelihood.argmax())
    a, b, norm = alpha[best], beta[best], prior[best]
    all_right, all_wrong = _log_beta(a + rollouts, b) - norm, _log_beta(a, b + rollouts) - norm
    return float(1.0 - np.exp(all_right) - np.exp(all_wrong))


def _unique_pairs(n: ArrayLike, c: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    total, correct = np.broadcast_arrays(np.asarray(n), np.asarray(c))
    if total.ndim != 1 or len(total) == 0:
        raise ValueError("a fit needs the counts of at least one problem")
    if total.dtype.kind not in "iu" or correct.dtype.kind not in "iu":
        raise ValueError("samples and correct samples must be whole numbers")
    if bool(np.any(total < 1)) or bool(np.any(correct < 0)) or bool(np.any(correct > total)):
        raise ValueError("each problem needs at least one sample, and 0 <= correct <= samples")
    pairs, times = np.unique(np.stack([total, correct], axis=1).astype(np.int64), axis=0, return_counts=True)
    return pairs, times.astype(np.int64)


def _densities() -> tuple[Array, Array]:
    """Discrete log-odds densities f64[T, G'] of every centre and spread, and their log prior f64[T]."""
    standard = (LOG_ODDS - CENTRES[:, None, None]) / SPREADS[:, None]
    density = np.exp(-0.5 * standard**2).reshape(-1, len(LOG_ODDS))
    return density / density.sum(axis=1, keepdims=True), np.tile(SPREAD_PRIOR, len(CENTRES))


def _binomial(total: int, correct: int) -> Array:
    """f64[G'], mu^c (1 - mu)^(n - c) on the log-odds grid, scaled to a maximum of 1 over [0, 1]."""
    log_right, log_wrong = -np.log1p(np.exp(-LOG_ODDS)), -np.log1p(np.exp(LOG_ODDS))
    rate = correct / total
    peak = (correct * np.log(rate) if correct else 0.0) + ((total - correct) * np.log(1 - rate) if rate < 1 else 0.0)
    return np.exp(correct * log_right + (total - correct) * log_wrong - peak)


def _likelihood(density: Array, spikes: Array, weight: Array, total: int, correct: int) -> Array:
    inner = (density @ _binomial(total, correct))[:, None] * weight
    return inner + spikes @ np.array([float(correct == 0), float(correct == total)])


def _log_beta(a: ArrayLike, b: ArrayLike) -> Array:
    log_gamma = np.vectorize(lgamma, otypes=[np.float64])
    return log_gamma(a) + log_gamma(b) - log_gamma(np.asarray(a) + np.asarray(b))
