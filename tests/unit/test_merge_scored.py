"""Scored rounds of one prompt in one group: what was drawn, and its verdicts, as if drawn at once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brorl.group import Finish, Outcome, Prompt, RolloutGroup, ScoredGroup
from brorl.verifiers.grading import merge_scored

ROWS = st.lists(
    st.tuples(st.lists(st.integers(1, 3), max_size=3), st.sampled_from(list(Finish))), min_size=1, max_size=8
)


def scored(rows: list[tuple[list[int], Finish]], *, unscorable: bool = False) -> ScoredGroup:
    """Rewards follow from the response alone."""
    group = RolloutGroup.from_sequences(Prompt(id="p", text=""), [r for r, _ in rows], finish=[f for _, f in rows])
    sums = np.array([ids.sum() for ids in group.responses()], np.float32) + 10 * group.finish
    return ScoredGroup(
        group=group,
        rewards=np.full(group.distinct, np.nan, np.float32) if unscorable else sums,
        outcomes=np.full(group.distinct, Outcome.ERROR if unscorable else Outcome.WRONG, np.uint8),
        parts={"length": group.lengths().astype(np.float32)},
    )


@given(ROWS, ROWS)
def test_equals_grading_all_at_once(
    first: list[tuple[list[int], Finish]], second: list[tuple[list[int], Finish]]
) -> None:
    merged, whole = merge_scored(scored(first), scored(second)), scored([*first, *second])
    np.testing.assert_array_equal(merged.group.tokens, whole.group.tokens)
    np.testing.assert_array_equal(merged.group.end_counts, whole.group.end_counts)
    np.testing.assert_array_equal(merged.rewards, whole.rewards)
    np.testing.assert_array_equal(merged.parts["length"], whole.parts["length"])


def test_a_verdict_replaces_a_missing_one() -> None:
    rows = [([1, 2], Finish.STOP)]
    for a, b in ((scored(rows, unscorable=True), scored(rows)), (scored(rows), scored(rows, unscorable=True))):
        merged = merge_scored(a, b)
        assert merged.scorable.all()
        assert merged.rewards[0] == pytest.approx(3)
