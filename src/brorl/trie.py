"""The arrays of a prefix trie: built from sorted sequences, brought into canonical order, measured by depth."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]


class TrieBuilder:
    """Adds sequences in sorted order: each shares a prefix with the one before it, and only the rest is new."""

    def __init__(self) -> None:
        self.previous: Ints = np.zeros(0, np.int32)
        self.path: list[int] = []
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.counts: list[int] = []
        self.sums: list[float] = []
        self.ends: list[tuple[int, int]] = []
        self.end_counts: list[int] = []

    def add(self, row: Ints, finish: int, values: NDArray[np.float64] | None) -> None:
        shared = min(len(row), len(self.previous))
        differs = np.flatnonzero(row[:shared] != self.previous[:shared])
        shared = int(differs[0]) if len(differs) else shared
        del self.path[shared:]
        for token in row[shared:].tolist():
            self.parents.append(self.path[-1] if self.path else -1)
            self.path.append(len(self.tokens))
            self.tokens.append(token)
            self.counts.append(0)
            self.sums.append(0.0)
        for depth, node in enumerate(self.path):
            self.counts[node] += 1
            if values is not None:
                self.sums[node] += float(values[depth])
        end = (self.path[-1] if self.path else -1, finish)
        if self.ends and self.ends[-1] == end:
            self.end_counts[-1] += 1
        else:
            self.ends.append(end)
            self.end_counts.append(1)
        self.previous = row

    def logprobs(self) -> NDArray[np.float32]:
        """f32[M], averaged over the sequences that hold each node."""
        return (np.array(self.sums) / np.maximum(np.array(self.counts, np.int32), 1)).astype(np.float32)


def depths_of(parents: NDArray[Any]) -> Ints:
    """Depth of each node, by doubling the jump towards the root: log2(depth) passes over arrays, no loop over nodes."""
    size = len(parents)
    jump = np.append(np.where(parents >= 0, parents, size), size)  # the last entry stands for the prompt
    depth = (jump < size).astype(np.int32)
    while (jump < size).any():
        depth = depth + depth[jump]
        jump = jump[jump]
    return depth[:size]


def depth_first_positions(tokens: NDArray[Any], parents: NDArray[Any]) -> Ints:
    """Where each node goes when nodes are visited depth first, children by token id; computed level by level."""
    size = len(tokens)
    depth = depths_of(parents)
    order = np.lexsort((tokens, parents, depth))
    levels = np.split(order, np.flatnonzero(np.diff(depth[order])) + 1) if size else []
    subtree = np.ones(size + 1, np.int64)  # the last entry stands for the prompt
    for level in reversed(levels):
        np.add.at(subtree, parents[level], subtree[level])
    position = np.full(size + 1, -1, np.int64)
    for level in levels:
        before = np.cumsum(subtree[level]) - subtree[level]
        first_sibling = np.flatnonzero(np.append(True, np.diff(parents[level]) != 0))
        siblings = np.diff(np.append(first_sibling, len(level)))
        position[level] = position[parents[level]] + 1 + before - np.repeat(before[first_sibling], siblings)
    return position[:size].astype(np.int32)
