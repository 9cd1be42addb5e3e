"""The open nodes of all tries in flight, and the record of the nodes that they leave behind."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brorl.engines.draws import Draws, child_hashes
from brorl.group import Finish, Prompt, RolloutGroup

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontier:
    """R open nodes at one depth, each with the rollouts that pass through it."""

    groups: Ints
    """i64[R]"""
    nodes: Ints
    """i64[R], the node's number in its group; -1 is the prompt"""
    counts: Ints
    """i64[R]"""
    hashes: NDArray[np.uint64]
    """u64[R], the node's name, for its draws"""
    paths: Ints
    """i64[R, depth + 1], the last prompt token and the tokens that lead to the node"""

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def length(self) -> int:
        """Tokens of a path, the last prompt token included."""
        return self.paths.shape[1]

    def take(self, rows: Ints) -> "Frontier":
        """The given rows, in the given order."""
        return Frontier(
            groups=self.groups[rows],
            nodes=self.nodes[rows],
            counts=self.counts[rows],
            hashes=self.hashes[rows],
            paths=self.paths[rows],
        )

    def children(self, draws: Draws, nodes: Ints, rows: NDArray[np.bool_]) -> "Frontier":
        """The drawn children for which `rows` holds, in the order of `draws`; `nodes` are their numbers."""
        parents, tokens = draws.rows[rows], draws.tokens[rows]
        return Frontier(
            groups=self.groups[parents],
            nodes=nodes[rows],
            counts=draws.counts[rows],
            hashes=child_hashes(self.hashes[parents], tokens),
            paths=np.concatenate([self.paths[parents], tokens[:, None]], axis=1),
        )


@dataclass(frozen=True, slots=True)
class Slots:
    """Where children keep their parents' keys and values, so that children fill slots 0 .. C - 1 with few copies."""

    order: Ints
    """i64[C], the child in each slot"""
    source: Ints
    """i64, the slots to copy from"""
    target: Ints
    """i64, the slots to copy to; disjoint from `source`"""

    @staticmethod
    def of(parents: Ints) -> "Slots":
        """Slots for children of the given parent slots (non-decreasing): a first child stays where its parent was."""
        size = len(parents)
        slots = np.full(size, -1, np.int64)
        stays = np.append(True, parents[1:] != parents[:-1])[:size] & (parents < size)
        slots[stays] = parents[stays]
        free = np.ones(size, np.bool_)
        free[parents[stays]] = False
        moved = np.flatnonzero(~stays)
        slots[moved] = np.flatnonzero(free)
        order = np.empty(size, np.int64)
        order[slots] = np.arange(size)
        return Slots(order, parents[moved], slots[moved])


@dataclass(slots=True)
class Record:
    """All nodes drawn so far of the groups in flight, as arrays with one entry per node, and the ends among them."""

    sizes: Ints
    """i64[groups], nodes so far: a node's number in its group counts up from 0, parents before children"""
    nodes: list[tuple[NDArray[Any], ...]] = field(default_factory=list)
    """(group, parent, token, count, logprob) arrays"""
    undrawn2: list[tuple[NDArray[Any], ...]] = field(default_factory=list)
    """(group, node, undrawn2) arrays"""
    ends: list[tuple[NDArray[Any], ...]] = field(default_factory=list)
    """(group, node, count, finish) arrays"""

    def add(self, frontier: Frontier, draws: Draws) -> Ints:
        """Record the children drawn at the frontier; returns their numbers."""
        groups = frontier.groups[draws.rows]
        order = np.argsort(groups, kind="stable")
        added = np.bincount(groups, minlength=len(self.sizes))
        first = self.sizes - (np.cumsum(added) - added)
        numbers = np.empty(len(groups), np.int64)
        numbers[order] = np.arange(len(groups)) + first[groups[order]]
        self.sizes += added
        self.nodes.append((groups, frontier.nodes[draws.rows], draws.tokens, draws.counts, draws.logprobs))
        self.undrawn2.append((frontier.groups, frontier.nodes, draws.undrawn2))
        return numbers

    def end(self, frontier: Frontier, draws: Draws, numbers: Ints, stopped: NDArray[np.bool_], over: NDArray[np.bool_]):
        """Record the drawn children that are `over` as ends, those that also `stopped` with a stop token as such."""
        finish = np.where(stopped[over], Finish.STOP, Finish.LENGTH).astype(np.uint8)
        self.ends.append((frontier.groups[draws.rows[over]], numbers[over], draws.counts[over], finish))

    def take(self, groups: Ints) -> dict[int, tuple[list[NDArray[Any]], ...]]:
        """Remove groups from the record; for each, its arrays of `nodes`, `undrawn2` and `ends` without the group."""
        chosen = np.zeros(len(self.sizes), np.bool_)
        chosen[groups] = True
        taken: list[list[list[NDArray[Any]]]] = []
        for entries in (self.nodes, self.undrawn2, self.ends):
            columns = [np.concatenate(column) for column in zip(*entries, strict=True)]
            leaving = chosen[columns[0]]
            entries[:] = [tuple(column[~leaving] for column in columns)]
            leavers = [column[leaving] for column in columns]
            order = np.argsort(leavers[0], kind="stable")
            bounds = np.searchsorted(leavers[0][order], groups[1:])
            taken.append([np.split(column[order], bounds) for column in leavers[1:]])
        return {
            group: tuple([column[i] for column in kind] for kind in taken) for i, group in enumerate(groups.tolist())
        }


def as_group(prompt: Prompt, policy_version: int, arrays: tuple[list[NDArray[Any]], ...]) -> RolloutGroup:
    """One group from its arrays in the record."""
    (parents, tokens, counts, logprobs), (nodes, values), (ends, end_counts, finish) = arrays
    undrawn2 = np.zeros(len(tokens) + 1, logprobs.dtype)
    undrawn2[nodes + 1] = values
    return RolloutGroup.from_nodes(
        prompt,
        policy_version=policy_version,
        tokens=tokens.astype(np.int32),
        parents=parents.astype(np.int32),
        counts=counts.astype(np.int32),
        logprobs=logprobs,
        undrawn2=undrawn2,
        ends=ends.astype(np.int32),
        end_counts=end_counts.astype(np.int32),
        finish=finish,
    )
