"""One prompt and its N rollouts are one object: a prefix trie.

Letters, everywhere the same: P prompts per step, N rollouts per prompt, K distinct responses, M trie nodes,
V vocabulary size, L prompt length in tokens.

The arrays of a group are kept in one canonical order: nodes depth first, the children of a node by token id; ends by
(node, finish). Two groups with the same rollouts therefore have equal arrays, and a node's subtree is a
contiguous slice. Writing groups to disk is `brorl.storage`; sampling them is `brorl.engines`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from brorl.trie import Ints, TrieBuilder, depth_first_positions, depths_of

Floats = NDArray[np.floating[Any]]


class Finish(IntEnum):
    """Why a rollout ended: it produced a stop token, or it reached the length limit."""

    STOP = 0
    LENGTH = 1


class Outcome(IntEnum):
    """What a verifier says of one response. UNSCORABLE and ERROR are left out of every baseline and pass rate."""

    CORRECT = 0
    PARTIAL = 1
    WRONG = 2
    NO_ANSWER = 3
    TRUNCATED = 4
    UNSCORABLE = 5
    ERROR = 6


class Fate(StrEnum):
    """What became of a group in its step."""

    TRAINED = "trained"
    CONSTANT = "constant"  # all rollouts right or all wrong: no learning signal
    SURPLUS = "surplus"  # usable, but the step was full
    STOPPED = "stopped"  # given up before its full N: not independent draws, so in no statistic about N
    STALE = "stale"  # sampled by an older policy than the step accepts


class Decoder(Protocol):
    """The one thing asked of a tokenizer here."""

    def decode(self, token_ids: Any, /, *, skip_special_tokens: bool = ...) -> Any: ...


def _no_tokens() -> Ints:
    return np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One question, as the policy sees it and as its verifier judges it."""

    id: str
    text: str
    """The rendered prompt, chat template applied: exactly what `token_ids` encode."""
    token_ids: Ints = field(default_factory=_no_tokens)
    """i32[L]"""
    verifier: str = "text"
    """A name in `brorl.verifiers.VERIFIERS`, or ``package.module:function``."""
    answer: str = ""
    """The reference answer, in the verifier's own format."""
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Whatever else the verifier needs (tests, task entry, instruction list) and columns for reports; JSON values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutGroup:
    """N rollouts of one prompt under one policy, as a trie of M nodes.

    Example: responses ``[5, 6]`` three times and ``[5, 7]`` once give ``tokens [5, 6, 7]``, ``parents [-1, 0, 0]``,
    ``counts [4, 3, 1]``, ``ends [1, 2]``, ``end_counts [3, 1]``.
    """

    prompt: Prompt
    policy_version: int
    tokens: Ints
    """i32[M]"""
    parents: Ints
    """i32[M], ``parents[i] < i``; -1 is the last prompt token"""
    counts: Ints
    """i32[M], rollouts that pass through the node"""
    logprobs: Floats | None
    """[M], log p(token | prefix) under the sampling policy at the sampling temperature; None if not recorded"""
    undrawn2: Floats | None
    """[M+1], sum of p(a | node)^2 over the tokens not drawn there; entry 0 is the prompt, entry i+1 is node i"""
    ends: Ints
    """i32[K], the node where a distinct response ends; -1 is the empty response"""
    end_counts: Ints
    """i32[K], how many of the N rollouts are this response"""
    finish: NDArray[np.uint8]
    """u8[K], a `Finish` each"""

    @property
    def rollouts(self) -> int:
        """N, the number of rollouts."""
        return int(self.end_counts.sum())

    @property
    def distinct(self) -> int:
        """K, the number of distinct responses."""
        return len(self.ends)

    @property
    def nodes(self) -> int:
        """M, the number of distinct prefixes."""
        return len(self.tokens)

    @property
    def total_tokens(self) -> int:
        """Tokens of the N rollouts written out flat."""
        return int(self.counts.sum())

    @property
    def unique_ratio(self) -> float:
        """Distinct-node share: M over the flat token count; 1.0 where nothing is shared, and for empty responses."""
        return self.nodes / self.total_tokens if self.total_tokens else 1.0

    def depths(self) -> Ints:
        """i32[M], 0 for the first response token."""
        return depths_of(self.parents)

    def lengths(self) -> Ints:
        """i32[K], tokens of each distinct response (the stop token included)."""
        depths = self.depths()
        return (
            np.where(self.ends >= 0, depths[self.ends] + 1, 0).astype(np.int32)
            if self.nodes
            else np.zeros(self.distinct, np.int32)
        )

    def paths(self) -> Iterator[Ints]:
        """The node indices of each distinct response, root first, in the order of `ends`."""
        parents = self.parents.tolist()
        for end in self.ends.tolist():
            path: list[int] = []
            while end >= 0:
                path.append(end)
                end = parents[end]
            yield np.array(path[::-1], np.int32)

    def responses(self) -> Iterator[Ints]:
        """The token ids of each distinct response, in the order of `ends`."""
        for path in self.paths():
            yield self.tokens[path]

    def texts(self, tokenizer: Decoder) -> list[str]:
        """The K distinct responses as text, special tokens left out."""
        return [str(tokenizer.decode(ids.tolist(), skip_special_tokens=True)) for ids in self.responses()]

    def response_logprobs(self) -> NDArray[np.float64]:
        """f64[K], log-probability of each distinct response.

        Raises:
            ValueError: the group holds no log-probabilities.
        """
        if self.logprobs is None:
            raise ValueError(f"prompt {self.prompt.id}: these rollouts carry no log-probabilities")
        logprobs = self.logprobs.astype(np.float64)
        return np.array([logprobs[path].sum() for path in self.paths()], np.float64)

    @staticmethod
    def from_sequences(
        prompt: Prompt,
        sequences: Iterable[Sequence[int] | NDArray[np.integer[Any]]],
        *,
        finish: Iterable[int] | None = None,
        logprobs: Iterable[Sequence[float] | Floats] | None = None,
        policy_version: int = 0,
    ) -> "RolloutGroup":
        """Build the trie of N flat responses (any N from 1 up, repeats welcome).

        Args:
            sequences: N token-id sequences, stop token included.
            finish: N `Finish` values; all STOP by default.
            logprobs: per-token log-probabilities, aligned with `sequences`. Copies of one prefix that differ (engines
                that are not deterministic) are averaged over the rollouts that hold them.

        Raises:
            ValueError: no sequence at all, or lists of different lengths.
        """
        rows = [_as_tokens(prompt, s) for s in sequences]
        finishes = [int(Finish.STOP)] * len(rows) if finish is None else [int(f) for f in finish]
        values = None if logprobs is None else [np.asarray(v, np.float64) for v in logprobs]
        _check_rows(prompt, rows, finishes, values)
        # Big-endian bytes compare like the token sequences themselves, so sorting them is sorting depth first.
        order = sorted(range(len(rows)), key=lambda i: (rows[i].astype(">i4").tobytes(), finishes[i]))
        builder = TrieBuilder()
        for i in order:
            builder.add(rows[i], finishes[i], None if values is None else values[i])
        return RolloutGroup(
            prompt=prompt,
            policy_version=policy_version,
            tokens=np.array(builder.tokens, np.int32),
            parents=np.array(builder.parents, np.int32),
            counts=np.array(builder.counts, np.int32),
            logprobs=None if values is None else builder.logprobs(),
            undrawn2=None,
            ends=np.array([end for end, _ in builder.ends], np.int32),
            end_counts=np.array(builder.end_counts, np.int32),
            finish=np.array([finish for _, finish in builder.ends], np.uint8),
        )

    @staticmethod
    def from_nodes(
        prompt: Prompt,
        *,
        policy_version: int,
        tokens: Ints,
        parents: Ints,
        counts: Ints,
        logprobs: Floats | None,
        undrawn2: Floats | None,
        ends: Ints,
        end_counts: Ints,
        finish: NDArray[np.uint8],
    ) -> "RolloutGroup":
        """Bring nodes in any parent-before-child order into canonical order (the constructor for engines)."""
        position = depth_first_positions(np.asarray(tokens), np.asarray(parents))
        node_order = np.argsort(position)
        remap = np.append(position, -1).astype(np.int32)  # remap[-1] == -1: the prompt stays the prompt
        new_ends = remap[ends]
        end_order = np.lexsort((finish, new_ends))
        return RolloutGroup(
            prompt=prompt,
            policy_version=policy_version,
            tokens=np.asarray(tokens, np.int32)[node_order],
            parents=remap[np.asarray(parents)[node_order]],
            counts=np.asarray(counts, np.int32)[node_order],
            logprobs=None if logprobs is None else logprobs[node_order],
            undrawn2=None if undrawn2 is None else np.concatenate([undrawn2[:1], undrawn2[1:][node_order]]),
            ends=new_ends[end_order],
            end_counts=np.asarray(end_counts, np.int32)[end_order],
            finish=np.asarray(finish, np.uint8)[end_order],
        )

    def subsample(self, size: int, rng: np.random.Generator) -> "RolloutGroup":
        """`size` of the N rollouts without replacement (hypergeometric on the counts).

        `undrawn2` gains p^2 of every child that is lost, so it stays what it is by definition.

        Raises:
            ValueError: `size` is not in 1..N.
        """
        if not 1 <= size <= self.rollouts:
            raise ValueError(f"cannot take {size} of {self.rollouts} rollouts")
        taken = rng.multivariate_hypergeometric(self.end_counts.astype(np.int64), size, method="marginals")
        return self.take(taken.astype(np.int32))

    def take(self, end_counts: Ints) -> "RolloutGroup":
        """The group in which response k has `end_counts[k]` of its rollouts; responses left with none disappear."""
        counts = np.zeros(self.nodes, np.int64)
        np.add.at(counts, self.ends[self.ends >= 0], end_counts[self.ends >= 0])
        parents = self.parents.tolist()
        for i in range(self.nodes - 1, -1, -1):
            if parents[i] >= 0:
                counts[parents[i]] += counts[i]
        kept = counts > 0
        remap = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1).astype(np.int32)
        undrawn2 = None
        if self.undrawn2 is not None and self.logprobs is not None:
            undrawn2 = self.undrawn2.copy()
            np.add.at(undrawn2, self.parents[~kept] + 1, np.exp(2 * self.logprobs[~kept]))
            undrawn2 = np.concatenate([undrawn2[:1], undrawn2[1:][kept]])
        present = end_counts > 0
        return replace(
            self,
            tokens=self.tokens[kept],
            parents=remap[self.parents[kept]],
            counts=counts[kept].astype(np.int32),
            logprobs=None if self.logprobs is None else self.logprobs[kept],
            undrawn2=undrawn2,
            ends=remap[self.ends[present]],
            end_counts=end_counts[present],
            finish=self.finish[present],
        )


def _as_tokens(prompt: Prompt, sequence: Sequence[int] | NDArray[np.integer[Any]]) -> Ints:
    wide = np.asarray(sequence, np.int64)
    if wide.ndim != 1 or (len(wide) and not 0 <= wide.min() <= wide.max() < 2**31):
        raise ValueError(f"prompt {prompt.id}: a response is a list of token ids from 0 to 2**31 - 1")
    return wide.astype(np.int32)


def _check_rows(prompt: Prompt, rows: list[Ints], finish: list[int], values: list[NDArray[np.float64]] | None) -> None:
    if not rows:
        raise ValueError(f"prompt {prompt.id}: a group needs at least one rollout")
    if len(finish) != len(rows) or (values is not None and len(values) != len(rows)):
        raise ValueError(f"prompt {prompt.id}: {len(rows)} sequences need as many finish and log-probability entries")
    if values is not None and any(len(v) != len(r) for v, r in zip(values, rows, strict=True)):
        raise ValueError(f"prompt {prompt.id}: one log-probability per token is needed")


def merge(first: RolloutGroup, second: RolloutGroup) -> RolloutGroup:
    """All rollouts of two groups of one prompt in one trie. Associative and commutative.

    Log-probabilities of shared nodes are averaged by count; `undrawn2` takes the minimum, which is still an upper bound
    and is reached when one group drew all that the other drew.

    Raises:
        ValueError: different prompts, or different policy versions (a node has one log-probability).
    """
    if first.prompt.id != second.prompt.id or not np.array_equal(first.prompt.token_ids, second.prompt.token_ids):
        raise ValueError(f"cannot merge rollouts of prompt {first.prompt.id} with those of {second.prompt.id}")
    if first.policy_version != second.policy_version:
        raise ValueError(
            f"prompt {first.prompt.id}: cannot merge rollouts of two policy versions, "
            f"{first.policy_version} and {second.policy_version}"
        )
    into_first, fresh = _match(first, second)
    remap = into_first.copy()
    remap[fresh] = first.nodes + np.arange(len(fresh))
    remap = np.append(remap, -1).astype(np.int32)
    shared = np.flatnonzero(into_first >= 0)
    counts = np.concatenate([first.counts, second.counts[fresh]])
    counts[into_first[shared]] += second.counts[shared]
    all_ends: dict[tuple[int, int], int] = {}
    for end, finish, count in [
        *zip(first.ends.tolist(), first.finish.tolist(), first.end_counts.tolist(), strict=True),
        *zip(remap[second.ends].tolist(), second.finish.tolist(), second.end_counts.tolist(), strict=True),
    ]:
        all_ends[end, finish] = all_ends.get((end, finish), 0) + count
    return RolloutGroup.from_nodes(
        first.prompt,
        policy_version=first.policy_version,
        tokens=np.concatenate([first.tokens, second.tokens[fresh]]),
        parents=np.concatenate([first.parents, remap[second.parents[fresh]]]),
        counts=counts,
        logprobs=_merged_logprobs(first, second, into_first, fresh),
        undrawn2=_merged_undrawn2(first, second, into_first, fresh),
        ends=np.array([end for end, _ in all_ends], np.int32),
        end_counts=np.array(list(all_ends.values()), np.int32),
        finish=np.array([finish for _, finish in all_ends], np.uint8),
    )


def _match(first: RolloutGroup, second: RolloutGroup) -> tuple[Ints, Ints]:
    """For each node of `second`, its index in `first` or -1; and the nodes of `second` that `first` lacks."""
    children = {key: i for i, key in enumerate(zip(first.parents.tolist(), first.tokens.tolist(), strict=True))}
    found = np.full(second.nodes, -1, np.int32)
    for i, (parent, token) in enumerate(zip(second.parents.tolist(), second.tokens.tolist(), strict=True)):
        if parent < 0 or found[parent] >= 0:
            found[i] = children.get((-1 if parent < 0 else int(found[parent]), token), -1)
    return found, np.flatnonzero(found < 0).astype(np.int32)


def _merged_logprobs(first: RolloutGroup, second: RolloutGroup, into_first: Ints, fresh: Ints) -> Floats | None:
    if first.logprobs is None or second.logprobs is None:
        return None
    logprobs = np.concatenate([first.logprobs, second.logprobs[fresh]])
    shared = np.flatnonzero(into_first >= 0)
    target = into_first[shared]
    weight = second.counts[shared] / (first.counts[target] + second.counts[shared])
    # Written as a correction so that equal values stay equal to the last bit.
    logprobs[target] += weight * (second.logprobs[shared] - first.logprobs[target])
    return logprobs


def _merged_undrawn2(first: RolloutGroup, second: RolloutGroup, into_first: Ints, fresh: Ints) -> Floats | None:
    if first.undrawn2 is None or second.undrawn2 is None:
        return None
    merged = np.concatenate([first.undrawn2, second.undrawn2[1:][fresh]])
    shared = np.flatnonzero(into_first >= 0)
    target = np.append(0, into_first[shared] + 1)
    merged[target] = np.minimum(merged[target], second.undrawn2[np.append(0, shared + 1)])
    return merged


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredGroup:
    """A group after verification: one reward and one outcome per distinct response."""

    group: RolloutGroup
    rewards: NDArray[np.float32]
    """f32[K], unshaped; NaN where the outcome is UNSCORABLE or ERROR"""
    outcomes: NDArray[np.uint8]
    """u8[K], an `Outcome` each"""
    parts: Mapping[str, NDArray[np.float32]] = field(default_factory=dict[str, NDArray[np.float32]])
    """named f32[K] components, such as a length reward"""
    fate: Fate = Fate.TRAINED

    @property
    def scorable(self) -> NDArray[np.bool_]:
        """bool[K], the responses that count for baselines and pass rates."""
        return ~np.isin(self.outcomes, (Outcome.UNSCORABLE, Outcome.ERROR))

    def successes(self, correct_threshold: float = 1.0) -> int:
        """How many of the N rollouts are correct: unshaped reward at or above the threshold."""
        correct = self.scorable & (self.rewards >= correct_threshold)
        return int(self.group.end_counts[correct].sum())

    @property
    def scored_rollouts(self) -> int:
        """N less the unscorable rollouts."""
        return int(self.group.end_counts[self.scorable].sum())
