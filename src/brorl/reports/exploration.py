"""A group as a picture: where its rollouts branch, how many go where, and which branches succeed.

Runs of nodes without a choice are one branch. Every distinct response is one leaf. Positions across the picture are in
rollouts, so a branch is as wide as the rollouts that pass through it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brorl.group import Decoder, Outcome, ScoredGroup

Counts = NDArray[np.int64]

SPREAD = 0.6
"""all gaps between branches together, in units of N"""
EXACT_DECODING = 600
"""tokens up to which a branch's text is the difference of two decoded prefixes; beyond, it is decoded alone"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploration:
    """B branches, parents first, siblings beside each other from most to least successful; branch 0 is the prompt."""

    parents: list[int]
    """-1 for the prompt"""
    counts: list[int]
    """rollouts through the branch"""
    correct: list[int]
    """of them correct"""
    depths: list[int]
    """response tokens before the branch"""
    lengths: list[int]
    """tokens of the branch"""
    texts: list[str]
    """as decoded: untrusted"""
    outcomes: list[str]
    """of a leaf, in lower case; empty for an inner branch, ``rest`` for folded leaves"""
    folded: list[int]
    """distinct responses that a ``rest`` leaf stands for, else 0"""
    centres: list[float]
    """position across the picture, in rollouts, from 0 to `height`"""
    height: float

    def as_json(self) -> dict[str, Any]:
        """For the page's script, with positions rounded to a tenth of a rollout."""
        return {
            "parents": self.parents,
            "counts": self.counts,
            "correct": self.correct,
            "depths": self.depths,
            "lengths": self.lengths,
            "outcomes": self.outcomes,
            "folded": self.folded,
            "centres": [round(centre, 1) for centre in self.centres],
            "height": round(self.height, 1),
        }


@dataclass(slots=True, kw_only=True)
class _Draft:
    """Branches while they are put together; arrays or lists of equal length."""

    parents: list[int]
    counts: list[int]
    correct: list[int]
    depths: list[int]
    lengths: list[int]
    texts: list[str]
    outcomes: list[str]
    folded: list[int]

    def add(self, **fields: Any) -> None:
        for name, value in fields.items():
            getattr(self, name).append(value)


def explore(
    scored: ScoredGroup, decoder: Decoder, *, correct_threshold: float = 1.0, max_leaves: int = 600
) -> Exploration:
    """The branches of one group.

    Args:
        decoder: a tokenizer.
        max_leaves: the commonest responses are drawn, a third of the places kept for correct ones; below each branch
            the others are folded into one leaf.
    """
    draft = _branches(scored, decoder, correct_threshold)
    if sum(bool(outcome) for outcome in draft.outcomes) > max_leaves:
        draft = _fold(draft, max_leaves)
    return _arranged(draft)


def _branches(scored: ScoredGroup, decoder: Decoder, threshold: float) -> _Draft:
    """Every branch and leaf in depth-first order, branch 0 the prompt."""
    group = scored.group
    ends_at = np.bincount(group.ends + 1, minlength=group.nodes + 1)[1:]
    children = np.bincount(group.parents + 1, minlength=group.nodes + 1)[1:]
    boundary = (children != 1) | (ends_at > 0)
    # Depth-first order keeps an unbranched run of nodes together: a branch is the slice from one start to the next.
    starts = np.flatnonzero((group.parents < 0) | boundary[group.parents]) if group.nodes else np.zeros(0, np.int64)
    branch_of = np.searchsorted(starts, np.arange(group.nodes), side="right")  # 1 + index: 0 is the prompt
    parents = np.where(group.parents[starts] < 0, 0, branch_of[group.parents[starts]]) if len(starts) else starts
    stops = np.append(starts, group.nodes)[1:]
    depths = group.depths().astype(np.int64)[starts]
    right = scored.scorable & (scored.rewards >= threshold)
    correct = np.zeros(len(starts) + 1, np.int64)
    np.add.at(correct, _branch_of_end(branch_of, group.ends), group.end_counts * right)
    for i in range(len(starts), 0, -1):
        correct[parents[i - 1]] += correct[i]
    draft = _Draft(
        parents=[-1, *parents.tolist()],
        counts=[group.rollouts, *group.counts[starts].tolist()],
        correct=correct.tolist(),
        depths=[0, *depths.tolist()],
        lengths=[0, *(stops - starts).tolist()],
        texts=["", *_texts(group.tokens, starts, stops, parents, depths, decoder)],
        outcomes=[""] * (len(starts) + 1),
        folded=[0] * (len(starts) + 1),
    )
    _add_leaves(draft, scored, right, _branch_of_end(branch_of, group.ends), children, ends_at)
    return draft


def _branch_of_end(branch_of: Counts, ends: NDArray[Any]) -> Counts:
    return np.append(branch_of, 0)[ends]  # the last entry, index -1, is the prompt


def _add_leaves(
    draft: _Draft, scored: ScoredGroup, right: NDArray[np.bool_], branches: Counts, children: Counts, ends_at: Counts
) -> None:
    """Give each response its leaf: its branch, or a branch of no length where others go on or end there too."""
    group = scored.group
    for k, (end, branch) in enumerate(zip(group.ends.tolist(), branches.tolist(), strict=True)):
        outcome = Outcome(int(scored.outcomes[k])).name.lower()
        if right[k]:
            outcome = "correct"  # by the recipe's threshold, which may count partial credit
        if end >= 0 and not children[end] and ends_at[end] == 1:
            draft.outcomes[branch] = outcome
            continue
        count = int(group.end_counts[k])
        draft.add(
            parents=branch,
            counts=count,
            correct=count * int(right[k]),
            depths=draft.depths[branch] + draft.lengths[branch],
            lengths=0,
            texts="",
            outcomes=outcome,
            folded=0,
        )


def _texts(
    tokens: NDArray[Any], starts: Counts, stops: Counts, parents: Counts, depths: Counts, decoder: Decoder
) -> list[str]:
    """What each branch adds to the text before it: many tokenizers decode a token differently at the start."""
    whole: list[tuple[list[int], str]] = [([], "")]
    texts: list[str] = []
    for start, stop, parent, depth in zip(
        starts.tolist(), stops.tolist(), parents.tolist(), depths.tolist(), strict=True
    ):
        ids = tokens[start:stop].tolist()
        if depth + len(ids) > EXACT_DECODING:
            before: tuple[list[int], str] = ([], "")
        else:
            before = whole[parent]
        path = before[0] + ids
        text = str(decoder.decode(path, skip_special_tokens=True))
        shared = before[1].rstrip("\ufffd")  # a character whose bytes end in this branch
        texts.append(text[len(shared) :] if text.startswith(shared) else text[len(before[1]) :])
        whole.append((path, text) if len(path) <= EXACT_DECODING else ([], ""))
    return texts


def _fold(draft: _Draft, max_leaves: int) -> _Draft:
    """Keep the commonest leaves and the branches that lead to them; what hangs elsewhere becomes a rest per branch."""
    leaves = [i for i, outcome in enumerate(draft.outcomes) if outcome]
    size = len(draft.parents)
    kept = [False] * size
    kept[0] = True
    leaves.sort(key=lambda i: (-draft.counts[i], i))
    successes = [leaf for leaf in leaves if draft.correct[leaf]][: -(-max_leaves // 3)]  # rare ones are the point
    for leaf in list(dict.fromkeys([*successes, *leaves]))[:max_leaves]:
        branch = leaf
        while branch >= 0 and not kept[branch]:
            kept[branch] = True
            branch = draft.parents[branch]
    responses = _leaves_below(draft)
    place, result = {-1: -1}, _Draft(**{name: [] for name in _Draft.__slots__})
    for i in range(size):
        if kept[i]:
            place[i] = len(result.parents)
            fields = {name: getattr(draft, name)[i] for name in _Draft.__slots__}
            result.add(**{**fields, "parents": place[draft.parents[i]]})
    rests: dict[int, int] = {}
    for i in range(size):
        parent = draft.parents[i]
        if kept[i] or not kept[parent]:
            continue
        if parent not in rests:
            rests[parent] = len(result.parents)
            depth = draft.depths[i]
            result.add(parents=place[parent], counts=0, correct=0, depths=depth, lengths=0, texts="", outcomes="rest",
                       folded=0)  # fmt: skip
        rest = rests[parent]
        result.counts[rest] += draft.counts[i]
        result.correct[rest] += draft.correct[i]
        result.folded[rest] += responses[i]
    return result


def _leaves_below(draft: _Draft) -> list[int]:
    found = [int(bool(outcome)) for outcome in draft.outcomes]
    for i in range(len(found) - 1, 0, -1):
        found[draft.parents[i]] += found[i]
    return found


def _arranged(draft: _Draft) -> Exploration:
    """Order siblings by success and give every branch its place across the picture."""
    size = len(draft.parents)
    children: list[list[int]] = [[] for _ in range(size)]
    for i in range(1, size):
        children[draft.parents[i]].append(i)
    for siblings in children:
        siblings.sort(key=lambda i: (-draft.correct[i] / max(draft.counts[i], 1), -draft.counts[i], i))
    order = _preorder(children)
    leaves = sum(bool(outcome) for outcome in draft.outcomes)
    gap = SPREAD * draft.counts[0] / max(leaves - 1, 1)
    bands = [0.0] * size
    for i in reversed(order):
        inside = sum(bands[c] for c in children[i]) + gap * max(len(children[i]) - 1, 0)
        bands[i] = max(float(draft.counts[i]), inside)
    tops, centres = [0.0] * size, [0.0] * size
    for i in order:
        inside = sum(bands[c] for c in children[i]) + gap * max(len(children[i]) - 1, 0)
        top = tops[i] + (bands[i] - inside) / 2
        for child in children[i]:
            tops[child] = top
            top += bands[child] + gap
    for i in reversed(order):
        below = children[i]
        weight = sum(draft.counts[c] for c in below)
        # A branch lies at the middle of the rollouts it leads to, so that ribbons bend as little as they can.
        centre = sum(centres[c] * draft.counts[c] for c in below) / weight if weight else tops[i] + bands[i] / 2
        half = draft.counts[i] / 2
        centres[i] = min(max(centre, tops[i] + half), tops[i] + bands[i] - half)
    place = {branch: position for position, branch in enumerate(order)}
    return Exploration(
        parents=[-1 if i == 0 else place[draft.parents[i]] for i in order],
        counts=[draft.counts[i] for i in order],
        correct=[draft.correct[i] for i in order],
        depths=[draft.depths[i] for i in order],
        lengths=[draft.lengths[i] for i in order],
        texts=[draft.texts[i] for i in order],
        outcomes=[draft.outcomes[i] for i in order],
        folded=[draft.folded[i] for i in order],
        centres=[centres[i] for i in order],
        height=bands[0],
    )


def _preorder(children: Sequence[Sequence[int]]) -> list[int]:
    order: list[int] = []
    stack = [0]
    while stack:
        branch = stack.pop()
        order.append(branch)
        stack.extend(reversed(children[branch]))
    return order
