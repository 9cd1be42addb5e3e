"""Signal and noise of gradients from pairs, against vectors whose signal and noise are known."""

from math import sqrt

import numpy as np
import pytest

from brorl.theory.agreement import GradientPair, agreement, student_quantile


def pair_of(a: np.ndarray, b: np.ndarray) -> GradientPair:
    return GradientPair(first_square=float(a @ a), second_square=float(b @ b), product=float(a @ b))


def pairs(rng: np.random.Generator, *, signal: float, noise: float, count: int, size: int = 50) -> list[GradientPair]:
    """Each pair has a direction of its own; `noise` is the norm of the noise of one gradient."""
    found = []
    for _ in range(count):
        s = rng.normal(size=size)
        s *= signal / np.linalg.norm(s)
        first, second = (s + rng.normal(size=size) * noise / sqrt(size) for _ in range(2))
        found.append(pair_of(first, second))
    return found


def test_one_pair_by_hand() -> None:
    pair = pair_of(np.array([1.0, 0.0]), np.array([2.0, 2.0]))
    assert (pair.cosine, pair.norm_ratio) == pytest.approx((0.5**0.5, 8**-0.5))
    empty = pair_of(np.zeros(2), np.ones(2))
    assert (empty.cosine, empty.norm_ratio) == (None, None)


@pytest.mark.parametrize(("signal", "noise"), [(2.0, 1.0), (1.0, 1.0), (0.3, 1.0)])
def test_known_signal_and_noise_are_found(signal: float, noise: float) -> None:
    found = agreement(pairs(np.random.default_rng(1), signal=signal, noise=noise, count=4000))
    assert found.signal == pytest.approx(signal, rel=0.03)
    assert found.noise == pytest.approx(noise, rel=0.02)
    assert found.signal_to_noise is not None
    assert found.signal_to_noise.value == pytest.approx(signal / noise, rel=0.03)
    assert found.cosine is not None
    assert found.cosine.value == pytest.approx(signal**2 / (signal**2 + noise**2), rel=0.05)


def test_four_times_the_rollouts_double_it() -> None:
    few, many = (
        agreement(pairs(np.random.default_rng(2), signal=1.0, noise=2 / sqrt(n), count=3000)).signal_to_noise
        for n in (16, 64)
    )
    assert few is not None
    assert many is not None
    assert many.value / few.value == pytest.approx(2.0, rel=0.05)


def test_intervals_cover_the_truth_at_about_their_level() -> None:
    rng = np.random.default_rng(3)
    covered = {"cosine": 0, "ratio": 0}
    expected = agreement(pairs(rng, signal=1.0, noise=1.0, count=20_000))
    assert expected.cosine is not None
    for _ in range(300):
        found = agreement(pairs(rng, signal=1.0, noise=1.0, count=8))
        assert found.cosine is not None
        assert found.signal_to_noise is not None
        covered["cosine"] += found.cosine.low <= expected.cosine.value <= found.cosine.high
        covered["ratio"] += found.signal_to_noise.low <= 1.0 <= found.signal_to_noise.high
    assert 0.84 < covered["cosine"] / 300 < 0.96
    assert 0.84 < covered["ratio"] / 300 < 0.97


def test_noise_alone_is_no_signal() -> None:
    nothing = [agreement(pairs(np.random.default_rng(s), signal=0.0, noise=1.0, count=6)) for s in range(20)]
    assert sum(found.signal is None for found in nothing) > 4  # half of the mean products are negative
    low = [found.signal_to_noise.low for found in nothing if found.signal_to_noise is not None]
    assert sum(value == 0 for value in low) >= 16


def test_pairs_without_a_gradient_are_counted_and_not_averaged() -> None:
    sound = pairs(np.random.default_rng(4), signal=3.0, noise=1.0, count=3)
    found = agreement([*sound, pair_of(np.zeros(3), np.ones(3))])
    assert (found.pairs, found.without_gradient) == (4, 1)
    assert found.cosine is not None
    assert found.cosine.problems == 3
    empty = agreement([pair_of(np.zeros(2), np.zeros(2))] * 2)
    assert (empty.cosine, empty.signal, empty.noise, empty.signal_to_noise) == (None, None, 0.0, None)
    with pytest.raises(ValueError, match="at least two"):
        agreement(sound[:1])


def test_student_quantiles_of_the_tables() -> None:
    for degrees, value in [(1, 6.3138), (2, 2.9200), (7, 1.8946), (30, 1.6973), (500, 1.6479)]:
        assert student_quantile(0.95, degrees) == pytest.approx(value, rel=2e-4)
    with pytest.raises(ValueError, match="degrees of freedom"):
        student_quantile(0.95, 0)


def test_intervals_stay_within_what_is_possible() -> None:
    opposed = [pair_of(np.array([1.0, 0.0]), np.array([sign, 0.1])) for sign in (1.0, -1.0)]
    found = agreement(opposed)
    assert found.cosine is not None
    assert found.norm_ratio is not None
    assert (found.cosine.low, found.cosine.high) == (-1.0, 1.0)
    assert 0 <= found.norm_ratio.low <= found.norm_ratio.high <= 1
