"""Coverage of N draws: formulas against enumeration, the distribution-free bound, targets."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brorl.theory.coverage import (
    activity,
    expected_undrawn_mass,
    expected_undrawn_second_moment,
    miss_probability,
    rollouts_to_cover,
    rollouts_to_hit,
    tail_miss_probability,
    undrawn_second_moment_bound,
)

P = np.array([0.4, 0.3, 0.2, 0.1])


def enumerate_draws(n: int) -> list[tuple[float, np.ndarray]]:
    """Every sequence of n draws from P with its probability."""
    return [(float(np.prod(P[list(draw)])), np.array(draw)) for draw in product(range(len(P)), repeat=n)]


def test_moments_by_enumeration() -> None:
    for n in (1, 2, 5):
        draws = enumerate_draws(n)
        undrawn = [np.setdiff1d(np.arange(4), d) for _, d in draws]
        weights = np.array([w for w, _ in draws])
        second = weights @ [float((P[u] ** 2).sum()) for u in undrawn]
        mass = weights @ [float(P[u].sum()) for u in undrawn]
        assert float(expected_undrawn_second_moment(P, n)) == pytest.approx(second, abs=1e-14)
        assert float(expected_undrawn_mass(P, n)) == pytest.approx(mass, abs=1e-14)


def test_activity_and_tail_miss_by_enumeration() -> None:
    correct, rare = np.array([True, False, True, True]), 3
    for n in (2, 5):
        kept = missed = 0.0
        for weight, draw in enumerate_draws(n):
            mixed = 0 < correct[draw].sum() < n
            kept += weight * mixed
            missed += weight * (mixed and rare not in draw)
        mu = P[correct].sum()
        assert float(activity(mu, n)) == pytest.approx(kept, abs=1e-14)
        assert float(tail_miss_probability(P[rare], mu, n)) == pytest.approx(missed, abs=1e-14)


def test_published_activity_values() -> None:
    assert activity([0.01, 0.001, 1e-4], [[16], [512]]) == pytest.approx(
        np.array([[0.149, 0.016, 0.0016], [0.994, 0.401, 0.050]]), abs=6e-4
    )


def test_tail_miss_is_not_monotone_in_n() -> None:
    values = tail_miss_probability(0.01, 0.3, [2, 16, 4096])
    assert values[1] > values[0]
    assert values[1] > values[2]


@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=30), st.integers(1, 10_000))
def test_bound_holds_and_moment_falls(weights: list[float], n: int) -> None:
    p = np.array(weights) / np.sum(weights)
    moment = float(expected_undrawn_second_moment(p, n))
    assert moment <= float(undrawn_second_moment_bound(n)) + 1e-15
    assert float(expected_undrawn_second_moment(p, n + 1)) <= moment


def test_bound_is_nearly_reached() -> None:
    n = 1000
    p = np.full(n, 1 / n)
    assert float(expected_undrawn_second_moment(p, n)) == pytest.approx(float(undrawn_second_moment_bound(n)), rel=1e-3)


def test_tiny_probabilities_and_huge_n() -> None:
    assert float(miss_probability(1e-18, 10**18)) == pytest.approx(np.exp(-1), rel=1e-12)
    assert float(activity(1e-18, 512)) == pytest.approx(512e-18, rel=1e-9)
    assert float(activity(0.5, 1)) == 0.0


@given(st.floats(1e-6, 1.0), st.floats(1e-6, 0.9))
def test_rollouts_to_hit_is_the_smallest(p: float, epsilon: float) -> None:
    n = rollouts_to_hit(p, epsilon)
    assert float(miss_probability(p, n)) <= epsilon * (1 + 1e-7)
    assert n == 1 or float(miss_probability(p, n - 1)) > epsilon * (1 - 1e-7)


def test_rollouts_to_cover_is_the_smallest() -> None:
    p = np.array([0.5, 0.3, 0.15, 0.04, 0.01])
    for epsilon in (0.1, 1e-3, 1e-6):
        n = rollouts_to_cover(p, epsilon)
        assert float(expected_undrawn_second_moment(p, n)) <= epsilon
        assert float(expected_undrawn_second_moment(p, n - 1)) > epsilon
        assert n <= np.ceil(1 / (np.e * epsilon))
    assert rollouts_to_cover(p, 1.0) == 0


def test_refusals() -> None:
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        miss_probability(1.2, 4)
    with pytest.raises(ValueError, match="negative"):
        miss_probability(0.2, -1)
    with pytest.raises(ValueError, match="N >= 1"):
        undrawn_second_moment_bound(0)
    with pytest.raises(ValueError, match="tau must not exceed mu"):
        tail_miss_probability(0.5, 0.4, 8)
    with pytest.raises(ValueError, match="epsilon must be positive"):
        rollouts_to_cover(P, 0.0)
    with pytest.raises(ValueError, match="0 < p"):
        rollouts_to_hit(0.0, 0.1)
