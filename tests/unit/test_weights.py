"""Token weights and their sums on the edges, and the handed cases on denominators."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brorl.algorithms.weights import AGGREGATIONS, edge_weights, token_weights
from brorl.group import Prompt, RolloutGroup

ROWS = st.lists(st.lists(st.integers(0, 2), max_size=6), min_size=1, max_size=10)


def make(rows: list[list[int]]) -> RolloutGroup:
    return RolloutGroup.from_sequences(Prompt(id="p", text="", token_ids=np.array([1], np.int32)), rows)


def total(groups: list[RolloutGroup], weights: list[np.ndarray]) -> float:
    return sum(float((g.end_counts * g.lengths() * w).sum()) for g, w in zip(groups, weights, strict=True))


def test_truncated_tokens_leave_the_denominator() -> None:
    """30 tokens of which 5 are truncated and masked: the mean is over 25."""
    group = make([[1] * 10, [2] * 15, [3] * 5])
    keep = np.array([True, True, False])
    (weights,) = token_weights([group], "token_mean", keep=[keep])
    assert weights.tolist() == [1 / 25, 1 / 25, 0]


def test_lengths_2_and_100_weigh_by_token() -> None:
    groups = [make([[1, 2]]), make([[3] * 100])]
    assert [w.tolist() for w in token_weights(groups, "token_mean")] == [[1 / 102], [1 / 102]]
    assert [w.tolist() for w in token_weights(groups, "sequence_mean")] == [[1 / 2 / 2], [1 / 2 / 100]]
    assert [w.tolist() for w in token_weights(groups, "constant", max_new_tokens=128)] == [[1 / 256], [1 / 256]]


def test_prompt_mean_counts_the_groups_that_are_trained_on() -> None:
    groups = [make([[1, 2], [1, 3]]), make([[1, 1, 1, 1]]), make([[2]])]
    keep = [np.array([True, True]), np.array([True]), np.array([False])]
    weights = token_weights(groups, "prompt_mean", keep=keep)
    assert [w.tolist() for w in weights] == [[1 / 8, 1 / 8], [1 / 8], [0]]


@settings(deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=4), st.sampled_from(sorted(set(AGGREGATIONS) - {"constant"})))
def test_means_sum_to_one(rows: list[list[list[int]]], aggregation: str) -> None:
    groups = [make(r) for r in rows]
    weights = token_weights(groups, aggregation)
    expected = 1.0 if any(g.nodes for g in groups) else 0.0
    assert total(groups, weights) == pytest.approx(expected)


def test_an_update_with_nothing_kept_has_no_weight() -> None:
    group = make([[1, 2]])
    for aggregation in AGGREGATIONS:
        (weights,) = token_weights([group], aggregation, keep=[np.array([False])], max_new_tokens=4)
        assert weights.tolist() == [0]


@settings(deadline=None)
@given(ROWS, st.integers(0, 2**32 - 1))
def test_edges_sum_the_responses_through_them(rows: list[list[int]], seed: int) -> None:
    group = make(rows)
    rng = np.random.default_rng(seed)
    advantages, weights = rng.normal(size=group.distinct), rng.random(group.distinct)
    edges = edge_weights(group, advantages, weights)
    share = group.end_counts * weights
    paths = [set(path.tolist()) for path in group.paths()]
    for node in range(group.nodes):
        through = np.array([node in path for path in paths])
        assert edges.positive[node] == pytest.approx((share * np.maximum(advantages, 0))[through].sum())
        assert edges.negative[node] == pytest.approx((share * np.minimum(advantages, 0))[through].sum())
        assert edges.total[node] == pytest.approx(share[through].sum())


def test_an_unscorable_response_is_not_read() -> None:
    """Rewards [NaN, 0, 1, 0]: the NaN row has no weight, and its advantage is no number."""
    group = make([[1, 1], [1, 2], [1, 3], [1, 2]])
    keep = np.array([False, True, True])
    (weights,) = token_weights([group], "token_mean", keep=[keep])
    edges = edge_weights(group, np.array([np.nan, -1 / 3, 2 / 3]), weights)
    assert edges.total.tolist() == pytest.approx([1 / 2, 0, 1 / 3, 1 / 6])
    assert edges.positive.tolist() == pytest.approx([1 / 9, 0, 0, 1 / 9])
    assert edges.negative.tolist() == pytest.approx([-1 / 9, 0, -1 / 9, 0])


def test_what_does_not_fit_is_refused() -> None:
    group = make([[1], [2]])
    ones = np.ones(2)
    with pytest.raises(ValueError, match="unknown aggregation 'mean'; there are token_mean"):
        token_weights([group], "mean")
    with pytest.raises(ValueError, match="max_new_tokens"):
        token_weights([group], "constant")
    with pytest.raises(ValueError, match="2 distinct responses need"):
        edge_weights(group, np.ones(3), ones)
    with pytest.raises(ValueError, match="no finite advantage"):
        edge_weights(group, np.array([np.nan, 1.0]), ones)
