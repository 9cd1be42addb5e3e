"""Tries as rows for a transformer: which token stands where, at which position, and which may see which.

A group's nodes stand depth first, so a node's subtree is a contiguous run, and "q may attend to k" is
``k <= q < last[k]``: one integer per token describes the whole ancestors-only mask. A large trie is cut into runs of
the depth-first order. The ancestors of a run's first node, repeated in front of it, make the piece connected: every
other node of the run has its ancestors in the run or on that path. The repeated nodes carry gradient, and no loss of
their own. Leaves are predicted and predict nothing: they take no place in a row, which spares 10 to 30 % of the
tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from brorl.group import RolloutGroup

I64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A connected part of one trie: the nodes ``start .. stop`` that it owns, behind the repeated path to them."""

    group: int
    path: I64
    """ancestors of node `start`, root first; owned by an earlier piece"""
    start: int
    stop: int
    inner: I64
    """the owned nodes that have children, ascending"""
    prompt_length: int

    @property
    def length(self) -> int:
        """Tokens of its row, prompt included."""
        return self.prompt_length + len(self.path) + len(self.inner)


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """B pieces as rows of T tokens, shorter ones padded at the end, and the n nodes they own."""

    tokens: I64
    """i64[B, T]"""
    positions: I64
    """i64[B, T], prompt length + depth"""
    last: I64
    """i64[B, T], token k is seen by itself and by q with k <= q < last[k]"""
    nodes: I64
    """i64[n], owned nodes, numbered through all groups"""
    targets: I64
    """i64[n], their tokens, ordered by `parents`"""
    sources: I64
    """i64[S], row-major places in [B, T] of the distinct parents, whose hidden states predict the owned nodes"""
    parents: I64
    """i64[n], the parent of each owned node as an index into `sources`, ascending"""
    groups: tuple[int, ...]
    """the group of each row"""


def subtree_ends(parents: NDArray[np.integer[Any]]) -> I64:
    """i64[M], one past the last node of each subtree; nodes in depth-first order."""
    ends = np.arange(1, len(parents) + 1)
    ends_list = ends.tolist()
    parent_list = parents.tolist()
    for node in range(len(parents) - 1, -1, -1):
        parent = parent_list[node]
        if parent >= 0 and ends_list[node] > ends_list[parent]:
            ends_list[parent] = ends_list[node]
    return np.array(ends_list, np.int64)


def cut(index: int, group: RolloutGroup, max_nodes: int, *, start: int = 0, end: int | None = None) -> Iterator[Piece]:
    """Cut a trie, or its nodes `start .. end`, into pieces of at most `max_nodes` nodes that have children, repeated
    path included.

    A piece owns one node at least, so a path of `max_nodes` or more makes a longer piece.

    Raises:
        ValueError: a prompt without tokens (nothing predicts the first response token), or `max_nodes` below 1.
    """
    if not len(group.prompt.token_ids):
        raise ValueError(f"prompt {group.prompt.id} has no tokens: a response needs at least one token before it")
    if max_nodes < 1:
        raise ValueError(f"max_nodes must be 1 or more, got {max_nodes}")
    parents = group.parents
    inner = np.unique(parents[parents >= 0]).astype(np.int64)
    end = group.nodes if end is None else end
    while start < end:
        path: list[int] = []
        node = int(parents[start])
        while node >= 0:
            path.append(node)
            node = int(parents[node])
        first = int(np.searchsorted(inner, start))
        over = first + max(0, max_nodes - len(path))
        stop = min(end, max(start + 1, int(inner[over]) if over < len(inner) else group.nodes))
        yield Piece(
            group=index,
            path=np.array(path[::-1], np.int64),
            start=start,
            stop=stop,
            inner=inner[first : np.searchsorted(inner, stop)],
            prompt_length=len(group.prompt.token_ids),
        )
        start = stop


def micro_batches(
    groups: Sequence[RolloutGroup], max_nodes: int, max_tokens: int, *, part: tuple[int, int] = (0, 1)
) -> list[MicroBatch]:
    """Every node of every group exactly once as owned, in rows of similar length, the largest first.

    Args:
        groups: tries in canonical order.
        max_nodes: nodes per piece.
        max_tokens: tokens per micro-batch, padding included; one row is always allowed.
        part: (r, R), own the r-th of R equal runs of all nodes only; a group may be cut between two of them.
    """
    offsets = np.cumsum([0, *(group.nodes for group in groups)])
    first_node, end_node = (int(offsets[-1]) * bound // part[1] for bound in (part[0], part[0] + 1))
    pieces: list[Piece] = []
    for index, group in enumerate(groups):
        start, end = np.clip([first_node - offsets[index], end_node - offsets[index]], 0, group.nodes).tolist()
        pieces += cut(index, group, max_nodes, start=start, end=end)
    pieces.sort(key=lambda piece: (-piece.length, piece.group, piece.start))
    ends = [subtree_ends(group.parents) for group in groups]
    depths = [group.depths() for group in groups]
    batches: list[MicroBatch] = []
    first = 0
    while first < len(pieces):
        longest, stop = pieces[first].length, first + 1
        most = first + max(1, max_tokens // longest)
        # Much shorter rows go into a batch of their own: padding costs as much as tokens.
        while stop < min(most, len(pieces)) and 4 * pieces[stop].length >= 3 * longest:
            stop += 1
        batches.append(_pack(pieces[first:stop], groups, offsets, ends, depths))
        first = stop
    return batches


def empty_batch() -> MicroBatch:
    """One row that owns no node: a forward and a backward pass of nothing, for a rank that has nothing left to do."""
    place, none = np.zeros((1, 1), np.int64), np.zeros(0, np.int64)
    return MicroBatch(
        tokens=place, positions=place, last=place + 1, nodes=none, targets=none, sources=none, parents=none, groups=()
    )


def _pack(
    pieces: Sequence[Piece],
    groups: Sequence[RolloutGroup],
    offsets: I64,
    ends: Sequence[I64],
    depths: Sequence[NDArray[np.int32]],
) -> MicroBatch:
    width = max(piece.length for piece in pieces)
    tokens = np.zeros((len(pieces), width), np.int64)
    positions = np.zeros((len(pieces), width), np.int64)
    last = np.tile(np.arange(1, width + 1), (len(pieces), 1))  # a pad sees itself alone, and nothing sees a pad
    nodes: list[I64] = []
    places: list[I64] = []
    targets: list[I64] = []
    for row, piece in enumerate(pieces):
        group, prompt = groups[piece.group], piece.prompt_length
        own = np.arange(piece.start, piece.stop)
        here = np.concatenate([piece.path, piece.inner])
        tokens[row, : piece.length] = np.concatenate([group.prompt.token_ids, group.tokens[here]])
        positions[row, : piece.length] = np.concatenate([np.arange(prompt), prompt + depths[piece.group][here]])
        last[row, :prompt] = piece.length
        run = prompt + len(piece.path)  # where the run begins in the row
        last[row, prompt : piece.length] = run + np.searchsorted(piece.inner, ends[piece.group][here])
        parents = group.parents[own].astype(np.int64)
        # A parent outside the run is on the path, at its depth; -1 is the last prompt token.
        on_path = prompt + np.where(parents >= 0, depths[piece.group][parents], -1)
        in_run = run + np.searchsorted(piece.inner, parents)
        places.append(row * width + np.where(parents >= piece.start, in_run, on_path))
        nodes.append(offsets[piece.group] + own)
        targets.append(group.tokens[own].astype(np.int64))
    place = np.concatenate(places)
    order = np.argsort(place, kind="stable")
    sources, parent_of = np.unique(place[order], return_inverse=True)
    return MicroBatch(
        tokens=tokens,
        positions=positions,
        last=last,
        nodes=np.concatenate(nodes)[order],
        targets=np.concatenate(targets)[order],
        sources=sources,
        parents=parent_of,
        groups=tuple(piece.group for piece in pieces),
    )


def on_device(array: I64, device: torch.device) -> Tensor:
    """The array on the device; to a GPU from pinned memory, so that the copy runs beside what is computed there."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def visible(last: Tensor, positions: Tensor, window: int | None = None) -> Tensor:
    """bool[B, T, T], whether query q (second axis) sees key k (third): ancestors and itself only.

    Args:
        last: i64[B, T] of a `MicroBatch`.
        positions: i64[B, T]; a sliding window counts these, not places in the row.
        window: how many positions back a query sees, itself included.
    """
    place = torch.arange(last.shape[1], device=last.device)
    seen = (place[None, None, :] <= place[None, :, None]) & (place[None, :, None] < last[:, None, :])
    if window is not None:
        seen &= positions[:, :, None] - positions[:, None, :] < window
    return seen


def additive_mask(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """[B, 1, T, T], 0 where seen and the lowest finite number elsewhere."""
    mask = torch.zeros(seen.shape, dtype=dtype, device=seen.device)
    return mask.masked_fill_(~seen, torch.finfo(dtype).min).unsqueeze(1)
