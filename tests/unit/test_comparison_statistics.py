"""Paired tests on scores whose truth is known: error rate without a difference, power with one, values by hand."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brorl.seeding import generator
from brorl.theory.comparison import holm, lost_by_chance, paired_t, permutation_p, student_tail
from brorl.theory.pass_at_k import clustered_interval


def differences(key: int, *, problems: int, samples: int, shift: float = 0.0) -> np.ndarray:
    """b - a of two policies with the same uneven pass rates, b's raised by `shift`."""
    rng = generator("comparison", key)
    rates = rng.beta(0.5, 0.7, problems)
    a = rng.binomial(samples, rates) / samples
    return rng.binomial(samples, np.clip(rates + shift, 0, 1)) / samples - a


def test_false_positives_are_one_in_twenty() -> None:
    """800 comparisons without a difference: about 5 % below 0.05, about 95 % of the intervals around 0."""
    found = [differences(i, problems=60, samples=16) for i in range(800)]
    permuted = np.array([permutation_p(d, draws=499) for d in found])
    student = np.array([test.p_two_sided for d in found if (test := paired_t(d))])
    covered = [(i := clustered_interval(d, resamples=1000)).low <= 0 <= i.high for d in found]
    # Three standard errors of a share of 800 are 0.023.
    assert 0.027 <= (permuted < 0.05).mean() <= 0.073
    assert 0.027 <= (student < 0.05).mean() <= 0.073
    assert 0.92 <= np.mean(covered) <= 0.98
    assert abs((permuted < 0.5).mean() - 0.5) < 0.06


def test_power() -> None:
    raised = [differences(i, problems=120, samples=32, shift=0.06) for i in range(100)]
    assert np.mean([permutation_p(d, draws=499) < 0.05 for d in raised]) > 0.9
    assert np.mean([clustered_interval(d, resamples=1000).low > 0 for d in raised]) > 0.9
    few = [differences(i, problems=10, samples=4, shift=0.02) for i in range(100)]
    assert np.mean([permutation_p(d, draws=499) < 0.05 for d in few]) < 0.25


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=7))
def test_exact_permutations(values: list[int]) -> None:
    signs = itertools.product((1, -1), repeat=len(values))
    extreme = [abs(np.dot(s, values)) >= abs(sum(values)) for s in signs]
    assert permutation_p(values) == pytest.approx(np.mean(extreme))


def test_random_permutations_approach_the_exact_ones() -> None:
    values = generator("permutations").normal(0.4, 1.0, 14)
    exact = permutation_p(values)
    doubled = permutation_p(np.concatenate([values, [1e-9, 1e-9]]), draws=40_000)  # one more than is tried exactly
    assert doubled == pytest.approx(exact, abs=0.005)
    assert permutation_p(np.zeros(5)) == 1.0


@pytest.mark.parametrize(
    ("t", "degrees", "p"), [(0.0, 3, 0.5), (2.353363, 3, 0.05), (1.959964, 10**9, 0.025), (12.706205, 1, 0.025)]
)
def test_student_tables(t: float, degrees: int, p: float) -> None:
    assert student_tail(t, degrees) == pytest.approx(p, rel=1e-5)


def test_the_papers_t_test() -> None:
    """t = 4.84 over more than 10,000 items: one-tailed p = 6.5e-7 (paper.md 4.6)."""
    assert student_tail(4.84, 10_000) == pytest.approx(6.5e-7, rel=0.02)
    values = np.array([0.2, 0.0, 0.4, -0.1, 0.5])
    test = paired_t(values)
    assert test is not None
    assert test.t == pytest.approx(0.2 / (values.std(ddof=1) / 5**0.5))
    assert (test.degrees, test.p_two_sided) == (4, pytest.approx(2 * test.p_one_sided))
    assert paired_t(np.full(4, 0.1)) is None
    lower = paired_t(-values)
    assert lower is not None
    assert lower.p_one_sided == pytest.approx(1 - test.p_one_sided)


@settings(max_examples=50)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holm(values: list[float]) -> None:
    adjusted = holm(values)
    assert all(a >= p for a, p in zip(adjusted, values, strict=True))
    assert max(adjusted) <= 1
    assert min(adjusted) == pytest.approx(min(1.0, len(values) * min(values)))
    order = np.argsort(values, kind="stable")
    assert (np.diff(np.array(adjusted)[order]) >= 0).all()


def test_holm_by_hand() -> None:
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])


def test_losses_by_chance() -> None:
    assert lost_by_chance([1, 8, 0], [8, 8, 8], [8, 8, 8]) == pytest.approx((7 / 8) ** 8)
    for bad in ([], [np.nan], [[1.0]]):
        with pytest.raises(ValueError, match="paired test"):
            permutation_p(bad)
    with pytest.raises(ValueError, match="two problems"):
        paired_t([0.1])
