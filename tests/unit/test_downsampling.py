"""PODS: the max-variance subset on counts against brute force, and fair draws within one reward."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brorl.algorithms.downsampling import downsample, max_variance_counts
from brorl.seeding import generator

LEVELS = st.lists(st.tuples(st.integers(-20, 20), st.integers(1, 4)), min_size=1, max_size=5, unique_by=lambda x: x[0])


@given(LEVELS, st.data())
def test_no_subset_varies_more(levels: list[tuple[int, int]], data: st.DataObject) -> None:
    levels = sorted(levels)[:4]
    rewards = np.array([r / 8 for r, _ in levels])
    counts = np.array([n for _, n in levels])
    flat = np.repeat(rewards, counts)
    size = data.draw(st.integers(1, len(flat)))
    kept = max_variance_counts(rewards, counts, size)
    assert kept.sum() == size
    assert (kept >= 0).all()
    assert (kept <= counts).all()
    best = max(np.var(subset) for subset in combinations(flat.tolist(), size))
    assert np.var(np.repeat(rewards, kept)) == pytest.approx(best, abs=1e-9)


@given(st.lists(st.floats(-3, 3).map(lambda x: round(x, 3)), min_size=2, max_size=60), st.data())
def test_equals_the_search_over_every_split(rewards: list[float], data: st.DataObject) -> None:
    """The paper's O(N) search: the i lowest and m - i highest, for every i."""
    levels, counts = np.unique(np.array(rewards), return_counts=True)
    size = data.draw(st.integers(1, len(rewards)))
    ordered = np.sort(rewards)
    splits = [np.append(ordered[:i], ordered[len(ordered) - (size - i) :]) for i in range(size + 1)]
    kept = max_variance_counts(levels, counts, size)
    assert np.var(np.repeat(levels, kept)) == pytest.approx(max(map(np.var, splits)), abs=1e-9)


def test_right_and_wrong_are_halved_where_there_are_enough() -> None:
    rewards = np.array([0.0, 1.0])
    assert max_variance_counts(rewards, np.array([500, 12]), 16).tolist() == [8, 8]
    assert max_variance_counts(rewards, np.array([500, 12]), 15).tolist() == [7, 8]
    assert max_variance_counts(rewards, np.array([511, 1]), 16).tolist() == [15, 1]
    with pytest.raises(ValueError, match="cannot keep 0 of 512"):
        max_variance_counts(rewards, np.array([511, 1]), 0)


def test_rollouts_of_one_reward_are_taken_alike() -> None:
    """Each wrong rollout is kept with the same probability, whichever response it is."""
    rewards = np.array([0.0, 1.0, 0.0, np.nan, 0.0])
    counts = np.array([40, 4, 30, 9, 10])
    kept = np.array([downsample(rewards, counts, 8, generator(0, "draw", i)) for i in range(2000)])
    assert (kept.sum(axis=1) == 8).all()
    assert (kept[:, 1] == 4).all()
    assert (kept[:, 3] == 0).all()
    share = kept[:, [0, 2, 4]].mean(axis=0) / counts[[0, 2, 4]]
    np.testing.assert_allclose(share, 4 / 80, rtol=0.1)


def test_a_small_group_is_kept_whole_without_what_has_no_verdict() -> None:
    kept = downsample(np.array([0.0, np.nan, 1.0]), np.array([3, 5, 2]), 5, generator(0))
    assert kept.tolist() == [3, 0, 2]
