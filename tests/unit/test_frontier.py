"""The bookkeeping of the trie sampler: slots, tiles, records."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from brorl.engines.draws import Draws
from brorl.engines.frontier import Frontier, Record, Slots, as_group
from brorl.engines.trie_attention import KeyValues, Tiles
from brorl.group import Finish, Prompt

parents_of_children = st.lists(st.integers(0, 30), max_size=60).map(sorted)


@given(parents_of_children)
def test_slots_hold_every_child_at_its_parents_values(parents: list[int]) -> None:
    cache = KeyValues(max(31, len(parents)), 1)
    values = torch.arange(31.0).reshape(31, 1, 1, 1)
    cache.write(0, slice(0, 31), 0, values, -values)
    slots = Slots.of(np.array(parents, np.int64))
    cache.copy_rows(slots.source, slots.target, 1)
    keys, minus = cache.layers[0]
    assert keys[: len(parents), 0, 0, 0].tolist() == [parents[child] for child in slots.order]
    assert torch.equal(minus[: len(parents)], -keys[: len(parents)])
    assert sorted(slots.order.tolist()) == list(range(len(parents)))
    assert not set(slots.source.tolist()) & set(slots.target.tolist())


def test_slots_copy_nothing_when_nothing_branches_or_ends() -> None:
    assert len(Slots.of(np.arange(9)).source) == 0
    assert Slots.of(np.array([0, 1, 1, 2])).target.tolist() == [3]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=80))
def test_a_tile_holds_rows_of_one_group(groups: list[int]) -> None:
    tiles = Tiles.of(np.array(groups), 10, torch.device("cpu"))
    rows = tiles.rows.view(-1, tiles.size)
    owners = torch.arange(10) if tiles.groups is None else tiles.groups
    assert len(owners) == len(rows)
    for row, group in enumerate(groups):
        place = int(tiles.places[row])
        assert tiles.rows[place] == row
        assert owners[place // tiles.size] == group
    assert rows.numel() <= 4 * len(groups) + 10 * tiles.size


def test_cache_grows_without_losing_what_it_holds() -> None:
    cache = KeyValues(2, 3)
    key = torch.randn(2, 1, 2, 4)
    cache.write(5, slice(0, 2), 0, key, 2 * key)
    cache.grow(4, 8, used_rows=2, used_length=2)
    step = torch.randn(4, 1, 1, 4)
    keys, values = cache.write(5, slice(0, 4), 2, step, step)
    assert keys.shape == (4, 1, 3, 4)
    assert torch.equal(keys[:2, :, :2], key)
    assert torch.equal(values[:2, :, :2], 2 * key)
    assert torch.equal(keys[:, :, 2:], step)
    assert cache.bytes_per_token() == 2 * 4 * 4


def test_record_numbers_nodes_by_group_and_gives_groups_back() -> None:
    record = Record(np.zeros(2, np.int64))
    frontier = Frontier(
        groups=np.array([1, 0]),
        nodes=np.array([-1, -1]),
        counts=np.array([3, 2]),
        hashes=np.array([5, 6], np.uint64),
        paths=np.array([[40], [50]]),
    )
    draws = Draws(
        rows=np.array([0, 0, 1]),
        tokens=np.array([7, 8, 7]),
        counts=np.array([1, 2, 2]),
        logprobs=np.array([-1.0, -0.5, -0.1]),
        undrawn2=np.array([0.25, 0.125]),
    )
    numbers = record.add(frontier, draws)
    assert numbers.tolist() == [0, 1, 0]
    stopped = np.array([True, False, False])
    record.end(frontier, draws, numbers, stopped, stopped)
    children = frontier.children(draws, numbers, ~stopped)
    assert children.paths.tolist() == [[40, 8], [50, 7]]
    assert children.groups.tolist() == [1, 0]
    assert len(set(children.hashes.tolist())) == 2
    more = Draws(
        rows=np.array([0, 1]),
        tokens=np.array([9, 9]),
        counts=np.array([2, 2]),
        logprobs=np.array([-2.0, -3.0]),
        undrawn2=np.array([0.5, 0.0]),
    )
    numbers = record.add(children, more)
    everything = np.ones(2, np.bool_)
    record.end(children, more, numbers, ~everything, everything)
    prompt = Prompt(id="a", text="")
    group = as_group(prompt, 4, record.take(np.array([1]))[1])
    assert group.policy_version == 4
    assert group.tokens.tolist() == [7, 8, 9]
    assert group.parents.tolist() == [-1, -1, 1]
    assert group.counts.tolist() == [1, 2, 2]
    assert group.logprobs is not None
    assert group.logprobs.tolist() == [-1.0, -0.5, -2.0]
    assert group.undrawn2 is not None
    assert group.undrawn2.tolist() == [0.25, 0, 0.5, 0]
    assert group.ends.tolist() == [0, 2]
    assert group.end_counts.tolist() == [1, 2]
    assert group.finish.tolist() == [Finish.STOP, Finish.LENGTH]
    other = as_group(prompt, 4, record.take(np.array([0]))[0])
    assert other.tokens.tolist() == [7, 9]
    assert other.rollouts == 2
