"""The fit of pilot pass rates: known truths, calibration, real counts, refusals."""

import json
from collections import defaultdict
from functools import cache
from math import sqrt

import numpy as np
import pytest

from brorl.seeding import generator
from brorl.theory.pass_at_k import Interval
from brorl.theory.planning import (
    beta_binomial_kept_share,
    fit_pass_rates,
    kept_share,
    measured_kept_share,
    pass_at_n,
    predict,
    signal_to_noise,
    tail_miss,
)
from shared_data import shared


def test_shares_are_a_distribution() -> None:
    fit = fit_pass_rates([16, 16, 8], [0, 16, 3], draws=300)
    assert fit.shares.shape == (300, len(fit.rates))
    assert fit.shares.sum(axis=1) == pytest.approx(np.ones(300))
    assert (fit.problems, fit.samples) == (3, 40)
    assert (fit.rates[0], fit.rates[-1]) == (0.0, 1.0)
    assert (np.diff(fit.rates) > 0).all()


def test_many_samples_pin_the_rates() -> None:
    c = np.array([10, 500, 2000, 9990])
    fit = fit_pass_rates(np.full(4, 10_000), c)
    mean_rate = predict(fit, fit.rates)
    assert mean_rate.value == pytest.approx(float((c / 10_000).mean()), abs=0.02)
    assert mean_rate.high - mean_rate.low < 0.05
    assert kept_share(fit, 16).value == pytest.approx(
        float(measured_kept_share(np.full(4, 10_000), c, 16).mean()), abs=0.02
    )


def test_intervals_cover_sets_from_the_prior_family() -> None:
    """Sets with known rates: half hopeless, half log-odds normal; a 90 % interval covers about nine in ten."""
    rng = np.random.default_rng(0)
    hits = 0
    for trial in range(50):
        log_odds = rng.normal(rng.uniform(-7, 1), 1.5, 60)
        rates = np.where(rng.random(60) < 0.3, 0.0, 1 / (1 + np.exp(-log_odds)))
        truth = float((1 - rates**256 - (1 - rates) ** 256).mean())
        interval = kept_share(fit_pass_rates(np.full(60, 16), rng.binomial(16, rates), draws=300, seed=trial), 256)
        hits += interval.low <= truth <= interval.high
    assert 0.8 <= hits / 50 <= 0.99


def test_predictions_move_with_n_as_they_must() -> None:
    rng = np.random.default_rng(1)
    fit = fit_pass_rates(np.full(80, 16), rng.binomial(16, rng.beta(0.4, 2, 80)), draws=500)
    sizes = [4, 16, 64, 256, 1024]
    kept = [kept_share(fit, n).value for n in sizes]
    solved = [pass_at_n(fit, n).value for n in sizes]
    signal = [signal_to_noise(fit, n).value for n in sizes]
    assert kept == sorted(kept)
    assert solved == sorted(solved)
    assert all(k <= s for k, s in zip(kept, solved, strict=True))
    assert signal[1] / signal[0] == pytest.approx(sqrt(15 / 3))
    assert tail_miss(fit, 1024).value < tail_miss(fit, 16).value


def test_signal_to_noise_is_that_of_the_group_mean_estimator() -> None:
    rng = np.random.default_rng(2)
    n, mu, distance, spread = 16, 0.3, 0.05, 1.0
    rewards = (rng.random((200_000, n)) < mu).astype(float)
    scores = distance * rewards + rng.normal(0, spread, rewards.shape)
    estimates = ((rewards - rewards.mean(axis=1, keepdims=True)) * scores).mean(axis=1)
    expected = sqrt((n - 1) * mu * (1 - mu)) * distance / spread
    assert estimates.mean() / estimates.std() == pytest.approx(expected, rel=0.05)


def test_measured_kept_share_is_unbiased() -> None:
    rng = np.random.default_rng(3)
    c = rng.binomial(64, 0.05, 200_000)
    assert float(measured_kept_share(np.full(len(c), 64), c, 16).mean()) == pytest.approx(1 - 0.95**16, abs=2e-3)


def test_same_pilot_same_prediction() -> None:
    first, second = (kept_share(fit_pass_rates([16] * 20, [0] * 15 + [1] * 5), 512) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("n", "c", "message"),
    [([], [], "at least one problem"), ([4], [5], "correct <= samples"), ([0], [0], "at least one sample"),
     ([4.0], [1.5], "whole numbers")],
)  # fmt: skip
def test_refuses_bad_counts(n: list[int], c: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_pass_rates(np.array(n, dtype=None if n else int), np.array(c, dtype=None if c else int))


def test_refuses_a_group_of_one() -> None:
    with pytest.raises(ValueError, match="N >= 2"):
        kept_share(fit_pass_rates([4], [1], draws=10), 1)


def real_sets() -> dict[tuple[str, str], np.ndarray]:
    """(samples, correct) rows of each (benchmark, model) with at least 50 problems sampled at least 1,000 times."""
    sets: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for line in shared("data/outputs_monkeys_counts.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["num_samples"] >= 1000:
            sets[row["benchmark"], row["model"]].append((row["num_samples"], row["num_correct"]))
    return {key: np.array(rows) for key, rows in sets.items() if len(rows) >= 50}


@cache
def predictions(drawn: tuple[int, ...]) -> tuple[Interval, float]:
    """Ours and the plain beta-binomial's prediction at 512; many pilots have equal counts."""
    sixteen = [16] * len(drawn)
    ours = kept_share(fit_pass_rates(sixteen, drawn, draws=600), 512)
    return ours, beta_binomial_kept_share(sixteen, drawn, 512)


@pytest.mark.parametrize("pilots", [1, pytest.param(6, marks=pytest.mark.slow)])
def test_predicts_the_kept_share_of_real_sets_at_512(pilots: int) -> None:
    ours, plain, covered = [], [], []
    sets = real_sets()
    assert len(sets) == 124
    for (benchmark, model), counts in sets.items():
        n, c = counts.T
        truth = float(measured_kept_share(n, c, 512).mean())
        for pilot in range(pilots):
            drawn = generator("pilot", benchmark, model, pilot).hypergeometric(c, n - c, 16)
            prediction, beta_binomial = predictions(tuple(sorted(drawn.tolist())))
            ours.append(abs(prediction.value - truth))
            plain.append(abs(beta_binomial - truth))
            covered.append(prediction.low <= truth <= prediction.high)
    assert np.mean(ours) < 0.8 * np.mean(plain)
    assert np.mean(ours) < 0.07
    assert 0.85 <= np.mean(covered) <= 0.97
