"""Tries as rows: every node is owned once, and sees its ancestors and the prompt, nothing else."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from brorl.group import Prompt, RolloutGroup
from brorl.learner.tree import MicroBatch, cut, micro_batches, subtree_ends, visible

TOKENS = st.integers(0, 3)
ROWS = st.lists(st.lists(TOKENS, max_size=8), min_size=1, max_size=12)
GROUPS = st.lists(st.tuples(st.lists(TOKENS, min_size=1, max_size=5), ROWS), min_size=1, max_size=4)


def make(index: int, prompt: list[int], rows: list[list[int]]) -> RolloutGroup:
    return RolloutGroup.from_sequences(Prompt(id=str(index), text="", token_ids=np.array(prompt, np.int32)), rows)


def prefix(group: RolloutGroup, node: int) -> list[int]:
    """Prompt and response tokens up to and with `node`, by its parents; -1 is the prompt."""
    tokens: list[int] = []
    while node >= 0:
        tokens.append(int(group.tokens[node]))
        node = int(group.parents[node])
    return [*group.prompt.token_ids.tolist(), *tokens[::-1]]


def context_of(batch: MicroBatch, place: int, window: int | None = None) -> list[tuple[int, int]]:
    """(position, token) of everything the token at a row-major place sees, itself included."""
    row, column = divmod(place, batch.tokens.shape[1])
    seen = visible(torch.from_numpy(batch.last), torch.from_numpy(batch.positions), window)[row, column].numpy()
    return [(int(batch.positions[row, k]), int(batch.tokens[row, k])) for k in np.flatnonzero(seen)]


@settings(deadline=None)
@given(GROUPS, st.integers(1, 20), st.integers(1, 100))
def test_every_node_is_owned_once_and_predicted_from_its_prefix(
    raw: list[tuple[list[int], list[list[int]]]], max_nodes: int, max_tokens: int
) -> None:
    groups = [make(i, prompt, rows) for i, (prompt, rows) in enumerate(raw)]
    offsets = np.cumsum([0, *(group.nodes for group in groups)])
    owned: list[int] = []
    for batch in micro_batches(groups, max_nodes, max_tokens):
        owned.extend(batch.nodes.tolist())
        assert (np.diff(batch.parents) >= 0).all()
        assert len(np.unique(batch.sources)) == len(batch.sources) == batch.parents[-1] + 1
        for node, target, parent in zip(batch.nodes, batch.targets, batch.parents, strict=True):
            index = int(np.searchsorted(offsets, node, side="right")) - 1
            group, local = groups[index], int(node - offsets[index])
            assert target == group.tokens[local]
            before = prefix(group, int(group.parents[local]))
            assert context_of(batch, int(batch.sources[parent])) == list(enumerate(before))
            in_window = list(enumerate(before))[-3:]
            assert context_of(batch, int(batch.sources[parent]), window=3) == in_window
    assert sorted(owned) == list(range(offsets[-1]))


@settings(deadline=None)
@given(ROWS, st.integers(1, 20))
def test_pieces_keep_to_their_size(rows: list[list[int]], max_nodes: int) -> None:
    group = make(0, [1], rows)
    for piece in cut(0, group, max_nodes):
        assert len(piece.path) + len(piece.inner) <= max(max_nodes, len(piece.path) + 1)
        assert piece.inner.tolist() == [n for n in range(piece.start, piece.stop) if n in group.parents]


@settings(deadline=None)
@given(ROWS)
def test_subtrees_are_runs(rows: list[list[int]]) -> None:
    group = make(0, [1], rows)
    ends = subtree_ends(group.parents)
    for node in range(group.nodes):
        below = [i for i in range(group.nodes) if prefix(group, i)[: len(prefix(group, node))] == prefix(group, node)]
        assert below == list(range(node, ends[node]))


@settings(deadline=None)
@given(GROUPS, st.integers(1, 200))
def test_rows_are_padded_within_the_limit(raw: list[tuple[list[int], list[list[int]]]], max_tokens: int) -> None:
    groups = [make(i, prompt, rows) for i, (prompt, rows) in enumerate(raw)]
    for batch in micro_batches(groups, 16, max_tokens):
        assert batch.tokens.size <= max_tokens or len(batch.tokens) == 1


def test_lengths_decide_and_never_token_values() -> None:
    """The end-of-sequence token is trained even where it equals the pad, and stands in the prompt."""
    group = make(0, [0, 2], [[11, 12, 2], [11, 2]])
    (batch,) = micro_batches([group], 16, 16)
    assert sorted(batch.targets.tolist()) == [2, 2, 11, 12]


def test_a_prompt_without_tokens_is_refused() -> None:
    group = RolloutGroup.from_sequences(Prompt(id="empty", text=""), [[1]])
    with pytest.raises(ValueError, match="prompt empty has no tokens"):
        micro_batches([group], 16, 16)
