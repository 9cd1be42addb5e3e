"""pass@k: exact rational values, the handed cases, unbiasedness by enumeration, intervals."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brorl.theory.pass_at_k import (
    clustered_interval,
    expected_pass_at_k,
    mean_pass_at_k,
    pass_at_k,
    plug_in_pass_at_k,
)
from shared_data import cases


def exact(n: int, c: int, k: int) -> Fraction:
    return 1 - Fraction(comb(n - c, k), comb(n, k))


@given(st.integers(1, 700).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_equals_the_rational_value(ncks: tuple[int, int, int]) -> None:
    value = float(pass_at_k(*ncks))
    assert value == pytest.approx(float(exact(*ncks)), abs=2e-13)
    assert 0.0 <= value <= 1.0


def test_handed_cases() -> None:
    for case in cases("passk"):
        data, expect = case["input"], case["expect"]
        if "problems" in data:
            n, c = (np.array([p[key] for p in data["problems"]]) for key in "nc")
            assert mean_pass_at_k(n, c, data["k"]).value == pytest.approx(expect, abs=1e-6)
        elif "repeats" in data:
            # All repeats count: the mean changes with the last of the 64.
            n = data["repeats"]
            correct = np.arange(n) % 2 == 0
            assert float(pass_at_k(n, correct.sum(), 1)) == correct.mean()
            correct[n - 1] = True
            assert float(pass_at_k(n, correct.sum(), 1)) == correct.mean()
        elif str(expect).startswith("error"):
            with pytest.raises(ValueError, match="k <= n"):
                pass_at_k(data["n"], data["c"], data["k"])
        else:
            value = pass_at_k(data["n"], data["c"], data["k"], unscorable=data.get("unscorable", 0))
            assert float(value) == pytest.approx(expect, abs=1e-6)


def test_is_unbiased_where_the_plug_in_is_not() -> None:
    n, k, q = 12, 5, 0.2
    c = np.arange(n + 1)
    weight = np.array([comb(n, int(i)) * q**i * (1 - q) ** (n - i) for i in c])
    assert weight @ pass_at_k(n, c, k) == pytest.approx(1 - (1 - q) ** k, abs=1e-14)
    assert weight @ plug_in_pass_at_k(n, c, k) < 1 - (1 - q) ** k - 0.01


def test_broadcasts_and_stays_exact_on_large_counts() -> None:
    n = np.array([1_000_000, 1_000_000, 2_000])
    values = pass_at_k(n, np.array([[0], [1], [900]]), 512)
    assert values.shape == (3, 3)
    assert values.dtype == np.float64
    assert (values[0] == 0).all()
    assert values[1, 0] == pytest.approx(512 / 1_000_000, rel=1e-10)
    assert values[2, 2] == pytest.approx(float(exact(2_000, 900, 512)), abs=1e-13)


@pytest.mark.parametrize(
    ("n", "c", "k", "message"),
    [
        (4, 5, 1, "between 0 and"),
        (4, -1, 1, "between 0 and"),
        (4, 1, 0, "k >= 1"),
        (0, 0, 1, "at least one scorable"),
        (4.5, 1, 1, "whole numbers"),
        (float("inf"), 1, 1, "whole numbers"),
        (float("nan"), 1, 1, "whole numbers"),
        ([4, 16], 1, 8, "only 4 scorable"),
    ],
)
def test_refuses_bad_counts(n: object, c: int, k: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pass_at_k(n, c, k)  # pyright: ignore[reportArgumentType]


def test_unscorable_samples_do_not_allow_a_larger_k() -> None:
    with pytest.raises(ValueError, match="only 6 scorable"):
        pass_at_k(8, 3, 7, unscorable=2)


def test_expected_pass_at_k_keeps_tiny_probabilities() -> None:
    assert float(expected_pass_at_k(1e-20, 512)) == pytest.approx(512e-20, rel=1e-12)
    assert float(expected_pass_at_k(1.0, 4)) == 1.0
    assert float(expected_pass_at_k(1.0, 0)) == 0.0
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        expected_pass_at_k(1.5, 4)


@pytest.mark.parametrize("method", ["bootstrap", "normal"])
def test_interval_is_clustered_by_problem(method: str) -> None:
    # 40 problems whose 512 samples agree perfectly: the information is 40 problems, not 20,480 samples.
    n, c = np.full(40, 512), np.repeat([0, 512], 20)
    interval = mean_pass_at_k(n, c, 1, method=method)
    assert interval.value == 0.5
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * 0.5 / 40**0.5, rel=0.12)
    assert interval.problems == 40


@pytest.mark.parametrize("method", ["bootstrap", "normal"])
def test_interval_covers_at_about_its_level(method: str) -> None:
    rng = np.random.default_rng(5)
    hits = 0
    for trial in range(300):
        rates = rng.beta(0.5, 1.0, 60)
        interval = clustered_interval(
            pass_at_k(16, rng.binomial(16, rates), 4), level=0.9, method=method, resamples=500, seed=trial
        )
        # E[pass@4] = 1 - E[(1-q)^4] with q ~ Beta(1/2, 1), so 1 - q has moments B(1 + 4, .5) / B(1, .5).
        truth = 1 - np.prod([(1 + i) / (1.5 + i) for i in range(4)])
        hits += interval.low <= truth <= interval.high
    assert 0.85 <= hits / 300 <= 0.94


def test_interval_refusals() -> None:
    with pytest.raises(ValueError, match="at least two problems"):
        clustered_interval([0.5])
    with pytest.raises(ValueError, match="finite"):
        clustered_interval([0.5, float("nan")])
    with pytest.raises(ValueError, match="unknown interval method"):
        clustered_interval([0.5, 0.6], method="exact")
    with pytest.raises(ValueError, match="between 0 and 1"):
        clustered_interval([0.5, 0.6], level=95)
