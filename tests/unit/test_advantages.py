"""Advantage estimators at N = 512 and at the edges; the published values are in test_recipe_cases."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brorl.algorithms.advantages import ADVANTAGES, GroupRewards, estimate

BINARY = [0.0, 1.0]


def flat_group(rewards: list[float]) -> GroupRewards:
    """One distinct response per rollout."""
    values = np.array(rewards, np.float64)
    ones = np.ones(len(values), np.int64)
    return GroupRewards(rewards=values, counts=ones, lengths=ones * 5, correct=np.nan_to_num(values, nan=-1) >= 1)


def counted_group(rewards: list[float], counts: list[int]) -> GroupRewards:
    values = np.array(rewards, np.float64)
    return GroupRewards(
        rewards=values,
        counts=np.array(counts, np.int64),
        lengths=np.full(len(values), 5, np.int64),
        correct=np.nan_to_num(values, nan=-1) >= 1,
    )


@pytest.mark.parametrize("name", ADVANTAGES)
@given(st.lists(st.tuples(st.sampled_from([0.0, 0.25, 1.0, float("nan")]), st.integers(1, 40)), min_size=1, max_size=6))
def test_counts_equal_writing_rollouts_out(name: str, responses: list[tuple[float, int]]) -> None:
    counted = counted_group([r for r, _ in responses], [n for _, n in responses])
    flat = flat_group([r for r, n in responses for _ in range(n)])
    kwargs = {"k": 1} if name == "pass_at_k" else {}
    other = flat_group([0.0, 1.0, 1.0])
    [by_count, _] = ADVANTAGES[name]([counted, other], **kwargs)
    [by_rollout, _] = ADVANTAGES[name]([flat, other], **kwargs)
    np.testing.assert_allclose(np.repeat(by_count, counted.counts), by_rollout, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ADVANTAGES)
def test_one_success_in_512_is_finite_and_bounded(name: str) -> None:
    [advantage] = estimate(ADVANTAGES[name], [counted_group([1.0, 0.0], [1, 511])])
    assert np.isfinite(advantage).all()
    assert 0 < advantage[0] <= 512
    assert advantage[1] < 0


@pytest.mark.parametrize("name", ADVANTAGES)
@pytest.mark.parametrize("rewards", [[0.1] * 512, [0.7] * 1024, [1.0, 1.0, 1.0, 1.00001], [0.5], [float("nan")] * 8])
def test_constant_groups_get_exact_zeros(name: str, rewards: list[float]) -> None:
    [advantage] = estimate(ADVANTAGES[name], [flat_group(rewards)])
    assert (advantage == 0).all()


@pytest.mark.parametrize("name", ADVANTAGES)
@given(st.lists(st.sampled_from(BINARY), min_size=2, max_size=40), st.randoms(use_true_random=False))
def test_order_within_a_group_is_irrelevant(name: str, rewards: list[float], random: Any) -> None:
    order = list(range(len(rewards)))
    random.shuffle(order)
    kwargs = {"k": 2} if name == "pass_at_k" else {}
    [straight] = ADVANTAGES[name]([flat_group(rewards)], **kwargs)
    [shuffled] = ADVANTAGES[name]([flat_group([rewards[i] for i in order])], **kwargs)
    np.testing.assert_allclose(straight[order], shuffled, rtol=1e-12, atol=1e-12)


def test_unscorable_rows_leave_mean_and_denominator() -> None:
    [advantage] = estimate(ADVANTAGES["dr_grpo"], [flat_group([float("nan"), 0, 1, 0])])
    np.testing.assert_allclose(advantage, [0, -1 / 3, 2 / 3, -1 / 3])


def test_batch_scale_ignores_dead_groups_and_weighs_tokens() -> None:
    live, dead = counted_group([1.0, 0.0], [1, 3]), flat_group([0.0] * 50)
    [with_dead, zero] = estimate(ADVANTAGES["reinforce_pp_baseline"], [live, dead])
    [alone] = estimate(ADVANTAGES["reinforce_pp_baseline"], [live])
    np.testing.assert_array_equal(with_dead, alone)
    assert (zero == 0).all()
    long = GroupRewards(rewards=live.rewards, counts=live.counts, lengths=np.array([9, 1]), correct=live.correct)
    centred = np.array([0.75, -0.25])
    weights = live.counts * long.lengths
    mean = np.average(centred, weights=weights)
    expected = (centred - mean) / np.sqrt(np.average((centred - mean) ** 2, weights=weights))
    [advantage] = estimate(ADVANTAGES["reinforce_pp_baseline"], [long])
    np.testing.assert_allclose(advantage, expected)


def test_reward_coding_is_irrelevant_to_the_default() -> None:
    zero_one = estimate(
        ADVANTAGES["reinforce_pp_baseline"], [counted_group([1, 0], [3, 5]), counted_group([1, 0], [1, 9])]
    )
    plus_minus = estimate(
        ADVANTAGES["reinforce_pp_baseline"], [counted_group([1, -1], [3, 5]), counted_group([1, -1], [1, 9])]
    )
    for a, b in zip(zero_one, plus_minus, strict=True):
        np.testing.assert_allclose(a, b)


def test_pass_at_k_training_equals_enumeration_of_subsets() -> None:
    from itertools import combinations

    rewards, k = [1, 1, 0, 0, 0, 0], 3
    subsets = list(combinations(range(6), k))
    value = np.array([max(rewards[i] for i in s) for s in subsets], float)
    expected = np.array([np.mean([v for v, s in zip(value, subsets, strict=True) if i in s]) for i in range(6)])
    expected = (expected - value.mean()) / value.std()
    [advantage] = ADVANTAGES["pass_at_k"]([flat_group([float(r) for r in rewards])], k=k)
    np.testing.assert_allclose(advantage, expected)


def test_a_group_smaller_than_k_has_no_subset_to_learn_from() -> None:
    [small, large] = ADVANTAGES["pass_at_k"]([flat_group([float("nan"), 0, 1, 0]), flat_group([0, 0, 0, 1])], k=4)
    assert (small == 0).all()
    assert (large == 0).all()  # its only 4-subset holds a success


def test_bad_arguments_say_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="over must be"):
        ADVANTAGES["reinforce_pp_baseline"]([], over="steps")
    with pytest.raises(ValueError, match="ddof"):
        ADVANTAGES["grpo"]([], ddof=2)
    with pytest.raises(ValueError, match="at least 1"):
        ADVANTAGES["pass_at_k"]([flat_group([0.0, 1.0])], k=0)
    with pytest.raises(ValueError, match="negative"):
        ADVANTAGES["maxrl"]([flat_group([-1.0, 1.0])])
    with pytest.raises(ValueError, match="not finite for group 0"):
        estimate(lambda groups: [np.full(2, np.nan)], [flat_group([0.0, 1.0])])
    with pytest.raises(ValueError, match="out of bounds"):
        estimate(lambda groups: [np.array([1e6, 0.0])], [flat_group([0.0, 1.0])])
