"""The prompt stream: shares hold, epochs are complete, a position is all the state there is."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brorl.errors import RecipeError
from brorl.tasks.files import RowsSource
from brorl.tasks.mixture import PromptStream
from brorl.tasks.reasoning_gym import GymSource
from brorl.tasks.rows import TaskRow

WEIGHTS = st.lists(st.floats(0.05, 20), min_size=1, max_size=5)


def source(name: str, size: int) -> RowsSource:
    return RowsSource(name, [TaskRow(id=f"{name}{i}", question=f"{name} {i}", answer="1") for i in range(size)])


@settings(deadline=None, max_examples=60)
@given(weights=WEIGHTS, seed=st.integers(0, 2**32), positions=st.integers(1, 400))
def test_shares_hold_at_every_position(weights: list[float], seed: int, positions: int) -> None:
    stream = PromptStream([source(str(i), 3) for i in range(len(weights))], weights=weights, seed=seed)
    seen = [0] * len(weights)
    for position in range(positions):
        assert stream.counts(position) == seen
        which, before = stream.locate(position)
        assert before == seen[which], "a source's rows come in order, none left out"
        seen[which] += 1
        for count, weight in zip(seen, weights, strict=True):
            assert abs(count - (position + 1) * weight / sum(weights)) <= len(weights)


@settings(deadline=None, max_examples=60)
@given(sizes=st.lists(st.integers(1, 12), min_size=1, max_size=4), seed=st.integers(0, 2**32))
def test_every_row_once_per_epoch(sizes: list[int], seed: int) -> None:
    stream = PromptStream([source(f"s{i}-", size) for i, size in enumerate(sizes)], seed=seed)
    taken: list[list[str]] = [[] for _ in sizes]
    for position in range(40 * len(sizes)):
        which, _ = stream.locate(position)
        taken[which].append(stream.at(position).id)
    for size, ids in zip(sizes, taken, strict=True):
        for start in range(0, len(ids) - size + 1, size):
            assert set(Counter(ids[start : start + size]).values()) == {1}


@settings(deadline=None, max_examples=60)
@given(
    parts=st.lists(st.tuples(st.integers(1, 6), st.floats(0.1, 8)), min_size=1, max_size=4),
    start=st.integers(0, 300),
)
def test_a_span_holds_every_row(parts: list[tuple[int, float]], start: int) -> None:
    sources = [source(f"s{i}-", size) for i, (size, _) in enumerate(parts)]
    stream = PromptStream(sources, weights=[weight for _, weight in parts])
    assert stream.span is not None
    seen = {stream.at(position).id for position in range(start, start + stream.span)}
    assert len(seen) == sum(size for size, _ in parts)
    assert PromptStream([*sources, GymSource("chain_sum")]).span is None


def test_a_position_is_the_whole_state() -> None:
    def make() -> PromptStream:
        return PromptStream([source("a", 7), GymSource("chain_sum"), source("b", 5)], weights=[3, 2, 1], seed=5)

    straight = [make().at(p) for p in range(60)]
    resumed = make()
    assert [resumed.at(p) for p in reversed(range(60))][::-1] == straight
    assert make().fingerprint == make().fingerprint


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    one = PromptStream([source("a", 50)], seed=1)
    first, second = ([one.at(p).id for p in range(start, start + 50)] for start in (0, 50))
    other = [PromptStream([source("a", 50)], seed=2).at(p).id for p in range(50)]
    assert sorted(first) == sorted(second) == sorted(other)
    assert len({tuple(first), tuple(second), tuple(other)}) == 3


def test_an_endless_source_is_read_on_and_on() -> None:
    stream = PromptStream([GymSource("gcd"), source("a", 2)])
    ids = [stream.at(p).id for p in range(100) if stream.locate(p)[0] == 0]
    assert len(ids) == len(set(ids)) == 50


def test_the_fingerprint_follows_the_content() -> None:
    base = PromptStream([source("a", 3), source("b", 3)]).fingerprint
    assert PromptStream([source("a", 3), source("b", 4)]).fingerprint != base
    assert PromptStream([source("a", 3), source("b", 3)], weights=[1, 2]).fingerprint != base
    assert PromptStream([source("a", 3), source("b", 3)], seed=1).fingerprint != base


@pytest.mark.parametrize("weights", [[], [1.0], [1.0, 0.0], [1.0, -1.0], [1.0, float("nan")], [1.0, float("inf")]])
def test_weights_that_make_no_sense_are_refused(weights: list[float]) -> None:
    with pytest.raises(RecipeError, match="weight"):
        PromptStream([source("a", 1), source("b", 1)], weights=weights)
    with pytest.raises(RecipeError, match="at least one source"):
        PromptStream([])


def test_there_is_no_position_before_the_first() -> None:
    with pytest.raises(IndexError, match="-1"):
        PromptStream([source("a", 1)]).at(-1)
