"""The exploration tree: branches conserve rollouts, leaves are distinct responses, a terminal shows it safely."""

from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from brorl.group import Finish, Outcome, Prompt, RolloutGroup, ScoredGroup
from brorl.reports.exploration import Exploration, explore
from brorl.reports.tree_terminal import tree_lines


class Letters:
    """Token 1 is a, 2 is b ...; 0 is left out, as a stop token is."""

    def decode(self, token_ids: Any, /, *, skip_special_tokens: bool = True) -> str:
        return "".join(chr(96 + token) for token in token_ids if token)


def scored(sequences: list[list[int]], right: set[tuple[int, ...]], finish: list[int] | None = None) -> ScoredGroup:
    group = RolloutGroup.from_sequences(
        Prompt(id="p", text="which?\x1b[31m", answer="ab"), sequences, finish=finish or [Finish.STOP] * len(sequences)
    )
    correct = np.array([tuple(ids.tolist()) in right for ids in group.responses()])
    outcomes = np.where(correct, Outcome.CORRECT, Outcome.WRONG).astype(np.uint8)
    return ScoredGroup(group=group, rewards=correct.astype(np.float32), outcomes=outcomes)


def children(tree: Exploration, branch: int) -> list[int]:
    return [i for i, parent in enumerate(tree.parents) if parent == branch]


def test_a_known_tree() -> None:
    rows = [[1, 2, 3, 0]] * 5 + [[1, 2, 4, 0]] * 2 + [[2, 0]] * 3
    tree = explore(scored(rows, {(1, 2, 3, 0)}), Letters())
    assert tree.parents == [-1, 0, 1, 1, 0]
    assert tree.texts == ["", "ab", "c", "d", "b"]
    assert tree.counts == [10, 7, 5, 2, 3]
    assert tree.correct == [5, 5, 5, 0, 0]
    assert tree.outcomes == ["", "", "correct", "wrong", "wrong"]
    assert (tree.depths, tree.lengths) == ([0, 0, 2, 2, 0], [0, 2, 2, 2, 2])


def test_a_response_that_others_continue_and_two_endings_have_leaves_of_their_own() -> None:
    rows = [[1], [1], [1, 2], [], [3], [3]]
    tree = explore(scored(rows, {(1,)}, [0, 0, 0, 0, 0, 1]), Letters())
    leaves = [(tree.texts[i], tree.counts[i]) for i, outcome in enumerate(tree.outcomes) if outcome]
    assert sorted(leaves) == [("", 1), ("", 1), ("", 1), ("", 2), ("b", 1)]


sequences = st.lists(st.lists(st.integers(1, 3), max_size=6), min_size=1, max_size=40)


@settings(max_examples=60, deadline=None)
@given(rows=sequences, data=st.data(), limit=st.integers(1, 12))
def test_rollouts_are_conserved_and_ribbons_do_not_overlap(rows: list[list[int]], data: Any, limit: int) -> None:
    distinct = sorted({tuple(row) for row in rows})
    right = set(data.draw(st.lists(st.sampled_from(distinct), unique=True)))
    group = scored(rows, right)
    full = explore(group, Letters())
    folded = explore(group, Letters(), max_leaves=limit)
    leaves = [i for i, outcome in enumerate(full.outcomes) if outcome]
    assert len(leaves) == group.group.distinct
    for tree in (full, folded):
        assert tree.counts[0] == len(rows)
        assert tree.correct[0] == sum(tuple(row) in right for row in rows)
        for i, outcome in enumerate(tree.outcomes):
            below = children(tree, i)
            assert bool(outcome) != bool(below)
            if below:
                assert sum(tree.counts[c] for c in below) == tree.counts[i]
                assert sum(tree.correct[c] for c in below) == tree.correct[i]
                edges = [(tree.centres[c] - tree.counts[c] / 2, tree.centres[c] + tree.counts[c] / 2) for c in below]
                assert all(a[1] <= b[0] + 1e-9 for a, b in pairwise(edges))
                shares = [tree.correct[c] / tree.counts[c] for c in below]
                assert shares == sorted(shares, reverse=True)
            assert tree.counts[i] / 2 - 1e-9 <= tree.centres[i] <= tree.height - tree.counts[i] / 2 + 1e-9
    drawn = sum(outcome not in ("", "rest") for outcome in folded.outcomes)
    assert drawn == min(limit, group.group.distinct)
    assert drawn + sum(folded.folded) == group.group.distinct


def test_rare_successes_survive_folding() -> None:
    rows = [[2, i] for i in range(1, 12) for _ in range(9)] + [[1, 5]]
    tree = explore(scored(rows, {(1, 5)}), Letters(), max_leaves=3)
    assert "correct" in tree.outcomes
    assert max(tree.folded) == 9


def test_a_character_of_several_tokens_is_whole_where_it_ends() -> None:
    class Bytes:
        def decode(self, token_ids: Any, /, *, skip_special_tokens: bool = True) -> str:
            return bytes(token_ids).decode("utf-8", errors="replace")

    accent = list("é".encode())
    rows = [[97, *accent, 98], [97, accent[0], 0xAA]]
    tree = explore(scored(rows, set()), Bytes())
    assert sorted(tree.texts) == ["", "a\ufffd", "éb", "ê"]


def test_terminal_lines_are_bounded_and_carry_no_control_characters() -> None:
    class Hostile:
        def decode(self, token_ids: Any, /, *, skip_special_tokens: bool = True) -> str:
            return "".join("\x1b[31m\u202e\x07<b>[red]" + chr(96 + t) * 30 for t in token_ids)

    group = scored([[1, 2, 3]] * 4 + [[1, 2, 4], [1, 5]], {(1, 5)})
    for width in (24, 60, 200):
        lines = list(tree_lines(group, explore(group, Hostile()), width=width))
        assert all(line.cell_len <= width for line in lines)
        assert all(character.isprintable() for line in lines for character in line.plain)
    assert "␛[31m⟨U+202E⟩␇<b>[red]" in lines[3].plain
