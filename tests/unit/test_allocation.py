"""Sequential allocation: where it stops, what it saves and misses, and that training on its groups is not biased."""

from dataclasses import replace
from itertools import combinations, permutations
from math import comb, log
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brorl.algorithms.allocation import (
    Allocation,
    expectation,
    sequential,
    signal_chance,
    stops,
    survival_weight,
    uniform,
)
from brorl.seeding import generator

SMALL = sequential(32, rounds=(4, 12, 16), stop_below=0.3)


def survives(allocation: Allocation, outcomes: np.ndarray) -> bool:
    """Play a prompt's rollouts round by round."""
    ends = np.cumsum(allocation.rounds).tolist()
    return not any(
        stops(allocation, drawn=n, right=int(outcomes[:n].sum()), wrong=int((~outcomes[:n]).sum())) for n in ends
    )


def drawn_rollouts(allocation: Allocation, outcomes: np.ndarray) -> int:
    for n in np.cumsum(allocation.rounds).tolist():
        if stops(allocation, drawn=n, right=int(outcomes[:n].sum()), wrong=int((~outcomes[:n]).sum())):
            return n
    return allocation.full


def test_the_defaults_at_512() -> None:
    rule = sequential(512)
    assert rule.rounds == (32, 96, 384)
    # After 32 alike there is a chance of 24 % that the full group holds both, after 128 one of 13 %.
    assert signal_chance(rule, drawn=32, right=0) == pytest.approx(0.242, abs=2e-3)
    assert signal_chance(rule, drawn=128, right=128) == pytest.approx(0.129, abs=2e-3)
    assert (rule.hopeless_after, rule.saturated_after) == (128, 128)


@given(st.floats(0.05, 3), st.floats(0.05, 3), st.integers(1, 40), st.integers(1, 60))
def test_the_posterior_is_that_of_drawing_one_by_one(right: float, wrong: float, drawn: int, more: int) -> None:
    """Polya's urn: the next is wrong with probability (wrong + seen wrong) / all, again and again."""
    total = drawn + more
    rule = Allocation(rounds=(drawn, more), prior=(right, wrong))
    all_wrong = np.prod([(wrong + i) / (right + wrong + i) for i in range(drawn, total)])
    assert signal_chance(rule, drawn=drawn, right=0) == pytest.approx(1 - all_wrong)
    all_right = np.prod([(right + i) / (right + wrong + i) for i in range(drawn, total)])
    assert signal_chance(rule, drawn=drawn, right=drawn) == pytest.approx(1 - all_right)


@given(st.integers(1, 20), st.integers(1, 20))
def test_a_prompt_with_both_outcomes_is_never_given_up(right: int, wrong: int) -> None:
    assert not stops(SMALL, drawn=right + wrong, right=right, wrong=wrong)
    assert not stops(uniform(64), drawn=64, right=0, wrong=64)


@pytest.mark.parametrize("rate", [0.0, 0.003, 0.05, 0.5, 0.9, 0.995, 1.0])
def test_savings_and_misses_equal_simulation(rate: float) -> None:
    trials = 20_000
    outcomes = generator(0, "allocation", rate).random((trials, SMALL.full)) < rate
    drawn = np.array([drawn_rollouts(SMALL, row) for row in outcomes])
    stopped = drawn < SMALL.full
    mixed = outcomes.any(axis=1) & ~outcomes.all(axis=1)
    found = expectation(SMALL, [rate])
    noise = 4 / trials**0.5
    assert found.rollouts[0] == pytest.approx(drawn.mean(), abs=SMALL.full * noise)
    assert found.stopped[0] == pytest.approx(stopped.mean(), abs=noise)
    assert found.missed[0] == pytest.approx((stopped & mixed).mean(), abs=noise)
    assert found.signal[0] == pytest.approx(mixed.mean(), abs=noise)


def test_the_posterior_of_a_miss_is_calibrated_under_its_prior() -> None:
    """Rates drawn from the prior itself: of the prompts given up, the stated share would have carried signal."""
    rng = generator(0, "calibration")
    rates = rng.beta(*SMALL.prior, size=20_000)
    outcomes = rng.random((len(rates), SMALL.full)) < rates[:, None]
    stated, real = 0.0, 0
    for row in outcomes:
        n = drawn_rollouts(SMALL, row)
        if n < SMALL.full:
            stated += signal_chance(SMALL, drawn=n, right=int(row[:n].sum()))
            real += int(row.any() and not row.all())
    assert real == pytest.approx(stated, abs=4 * stated**0.5)
    assert real > 100


def test_survival_is_the_share_of_orders_that_survive() -> None:
    rule = Allocation(rounds=(2, 2, 4), hopeless_after=4, saturated_after=2, corrected=True)
    for right in range(1, 8):
        orders = [np.isin(np.arange(8), chosen) for chosen in combinations(range(8), right)]
        share = np.mean([survives(rule, order) for order in orders])
        assert survival_weight(rule, right=right, wrong=8 - right) == pytest.approx(1 / share)
    assert survival_weight(uniform(8), right=1, wrong=7) == 1
    assert survival_weight(replace(rule, corrected=False), right=1, wrong=7) == 1
    with pytest.raises(ValueError, match="not trained on"):
        survival_weight(rule, right=0, wrong=8)


@pytest.mark.parametrize(("hopeless", "saturated"), [(2, 4), (4, 2), (2, 2), (4, None)])
@pytest.mark.parametrize("kinds", ["rwwwuu", "rwuuuu", "rrrwwu", "rwwwww"])
def test_survival_with_rollouts_that_have_no_verdict(hopeless: int, saturated: int | None, kinds: str) -> None:
    rule = Allocation(rounds=(2, 2, 2), hopeless_after=hopeless, saturated_after=saturated, corrected=True)

    def goes_on(order: tuple[str, ...]) -> bool:
        return not any(stops(rule, drawn=n, right=order[:n].count("r"), wrong=order[:n].count("w")) for n in (2, 4, 6))

    share = np.mean([goes_on(order) for order in permutations(kinds)])
    if share:
        weight = survival_weight(rule, right=kinds.count("r"), wrong=kinds.count("w"))
        assert weight == pytest.approx(1 / share)


def test_stopping_on_success_biases_a_group_baseline_and_full_groups_do_not() -> None:
    """A policy with p = sigmoid(theta): a group's gradient sum (r - mean r) s / n is m (1 - m), m its share of rights,
    and its expectation for a fixed number n is (n - 1) / n p (1 - p)."""
    rate, trials, n = 0.05, 200_000, SMALL.full
    truth = (n - 1) / n * rate * (1 - rate)
    outcomes = generator(1, "bias").random((trials, n)) < rate

    # Stop at the first success: the share of rights in a group, and with it the update, depends on when it stopped.
    first = np.where(outcomes.any(axis=1), outcomes.argmax(axis=1) + 1, n)
    share = outcomes.any(axis=1) / first
    eager = float((share * (1 - share)).mean())
    assert share.mean() == pytest.approx(-rate * log(rate) / (1 - rate), rel=0.05)
    assert eager > 1.5 * truth

    # Ours, full groups only: the weights bring back what giving up takes away.
    right = outcomes.sum(axis=1)
    share = right / n
    kept = np.array([survives(SMALL, row) for row in outcomes[:40_000]])
    gradient = (share * (1 - share))[:40_000] * kept
    weights = [survival_weight(SMALL, right=c, wrong=n - c) if 0 < c < n else 0.0 for c in range(n + 1)]
    corrected = gradient * np.take(weights, right[:40_000])
    noise = 4 * corrected.std() / 40_000**0.5
    assert corrected.mean() == pytest.approx(truth, abs=noise)
    assert gradient.mean() < truth - noise  # without the weights, what is missed is missing
    # The exact amount that is missing without them, by enumeration of the number of rights.
    chance = [comb(n, c) * rate**c * (1 - rate) ** (n - c) for c in range(n + 1)]
    exact = sum(chance[c] * c / n * (1 - c / n) / weights[c] for c in range(1, n))
    assert gradient.mean() == pytest.approx(exact, abs=noise)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"rounds": [32, 96]}, "sum to 512"),
        ({"rounds": [512]}, "one round stops nothing"),
        ({"rounds": []}, "sum to 512"),
        ({"stop_below": 1.5}, "stop_below"),
        ({"prior_right": 0.0}, "prior_right"),
        ({"stop_below": 0.01}, "stops no prompt after 128 of 512"),
    ],
)
def test_rules_that_make_no_sense(arguments: dict[str, float], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        sequential(512, **arguments)  # type: ignore[arg-type]


def test_the_table_in_the_documentation() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "recipe.md").read_text(encoding="utf-8")
    rules = (sequential(512), sequential(512, stop_below=0.3))
    rates = [0.0, 1e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.5]
    for i, rate in enumerate(rates):
        default, lower = (expectation(rule, rates) for rule in rules)
        cells = [f"{rate:g}", f"{default.signal[i]:.1%}"]
        for found in (default, lower):
            cells += [f"{found.rollouts[i]:.0f}", f"{found.missed[i]:.1%}"]
        assert "| " + " | ".join(cells) + " |" in page
