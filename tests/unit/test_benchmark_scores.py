"""The figures of an evaluation: pass@k, cons@k, token efficiency, on groups whose figures are known by hand."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brorl.errors import DataError
from brorl.evaluation.answers import PART, answer_classes
from brorl.evaluation.benchmark_scores import benchmark_figures
from brorl.evaluation.token_efficiency import token_efficiency
from brorl.group import Finish, Outcome, Prompt, RolloutGroup, ScoredGroup
from brorl.theory.consensus import consensus_at_k
from brorl.verifiers.score import Score


def group(
    lengths: Sequence[int], correct: Sequence[bool], *, cut: Sequence[int] = (), name: str = "p", **meta: object
) -> ScoredGroup:
    """Responses that differ in their first token, with these lengths; those in `cut` reached the limit."""
    rows = [[10 + i] * length for i, length in enumerate(lengths)]
    finish = [Finish.LENGTH if i in cut else Finish.STOP for i in range(len(rows))]
    drawn = RolloutGroup.from_sequences(Prompt(id=name, text="", meta=meta), rows, finish=finish)
    outcomes = [
        Outcome.TRUNCATED if i in cut else Outcome.CORRECT if ok else Outcome.WRONG for i, ok in enumerate(correct)
    ]
    return ScoredGroup(
        group=drawn,
        rewards=np.array(correct, np.float32),
        outcomes=np.array(outcomes, np.uint8),
    )


def test_caps_are_what_a_lower_limit_would_have_given() -> None:
    groups = [
        group([2, 6, 10], [True, True, False], name="a"),
        group([4, 8, 12], [False, True, False], cut=[2], name="b"),
    ]
    found = token_efficiency(groups, [6, 1])
    drawn, six, one = found["caps"]
    assert (drawn["cap"], drawn["score"]["value"], drawn["mean_tokens"]["value"]) == (None, pytest.approx(0.5), 7.0)
    assert drawn["tokens_per_correct"] == pytest.approx(42 / 3)
    assert drawn["score_per_1k_tokens"] == pytest.approx(1000 * 0.5 / 7)
    assert drawn["truncated_share"] == pytest.approx(1 / 6)
    assert (six["score"]["value"], six["mean_tokens"]["value"]) == (pytest.approx(1 / 3), pytest.approx((14 + 16) / 6))
    assert six["tokens_per_correct"] == pytest.approx(30 / 2)
    assert six["truncated_share"] == pytest.approx(3 / 6)
    assert (one["score"]["value"], one["tokens_per_correct"], one["truncated_share"]) == (0.0, None, 1.0)
    assert found["lengths"]["correct"] == pytest.approx(16 / 3)
    assert found["lengths"]["incorrect"] == pytest.approx(26 / 3)
    assert found["lengths"]["incorrect_minus_correct"]["value"] == pytest.approx((6 + 0) / 2)


def test_figures_of_two_problems() -> None:
    figures = benchmark_figures(
        [group([1, 2], [True, False], name="a", category="x"), group([3, 3], [False, False], name="b", category="y")]
    )
    assert figures["pass_at"]["1"]["value"] == pytest.approx(0.25)
    assert figures["pass_at"]["2"]["value"] == pytest.approx(0.5)
    assert figures["mean_tokens"]["value"] == pytest.approx(2.25)
    assert figures["outcomes"]["correct"] == 1
    assert figures["by_category"]["x"]["pass_at_1"]["value"] == 0.5
    assert [(p["id"], p["samples"], p["correct"]) for p in figures["by_problem"]] == [("a", 2, 1), ("b", 2, 0)]
    assert figures["cons_at"] is None
    with pytest.raises(DataError, match="pass@4"):
        benchmark_figures([group([1, 2], [True, False])], ks=[4])


def test_unscorable_samples_leave_the_number_of_samples() -> None:
    lost = group([1, 1, 1, 1], [True, False, False, False])
    lost.outcomes[2:] = Outcome.UNSCORABLE
    lost.rewards[2:] = np.nan
    assert benchmark_figures([lost])["pass_at"]["1"]["value"] == 0.5


def test_consensus_by_enumeration() -> None:
    """cons@3 of 2 right, 3 wrong (two ways) and 1 silent sample, over all sets of 3 with ties broken evenly."""
    counts, correct = np.array([2, 2, 1]), np.array([True, False, False])
    samples = [0, 0, 1, 1, 2, None]

    def majority(chosen: tuple[int | None, ...]) -> float:
        votes = [sum(c == answer for c in chosen) for answer in range(3)]
        leaders = [a for a in range(3) if votes[a] == max(votes)] if max(votes) else []
        return sum(bool(correct[a]) for a in leaders) / len(leaders) if leaders else 0.0

    exact = np.mean([majority(c) for c in itertools.combinations(samples, 3)])
    assert consensus_at_k(counts, correct, 3, silent=1, key=("p",)) == pytest.approx(float(exact), abs=0.03)
    assert consensus_at_k(counts, correct, 6, silent=1) == 0.5
    assert consensus_at_k(np.array([], np.int64), np.array([], np.bool_), 2, silent=2) == 0.0
    with pytest.raises(ValueError, match="k = 7, n = 6"):
        consensus_at_k(counts, correct, 7, silent=1)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.integers(0, 3), st.data())
def test_consensus_of_one_is_the_share_of_right_answers(counts: list[int], silent: int, data: st.DataObject) -> None:
    n = sum(counts) + silent
    if n == 0:
        return
    correct = np.array(data.draw(st.lists(st.booleans(), min_size=len(counts), max_size=len(counts))))
    share = float(np.array(counts) @ correct) / n
    assert consensus_at_k(np.array(counts), correct, 1, silent=silent) == pytest.approx(share, abs=0.06)


def scores(*answers: tuple[Outcome, str]) -> list[Score]:
    return [Score(outcome=o, reward=float(o is Outcome.CORRECT), extracted=text) for o, text in answers]


def test_answers_that_the_verifier_takes_for_one_are_one_class() -> None:
    found = scores(
        (Outcome.CORRECT, "1/2"), (Outcome.WRONG, "0.25"), (Outcome.CORRECT, "0.5"), (Outcome.WRONG, "1/4"),
        (Outcome.NO_ANSWER, ""), (Outcome.WRONG, "\\text{unknown}"), (Outcome.TRUNCATED, ""),
    )  # fmt: skip
    classes = answer_classes(Prompt(id="p", text="", verifier="math"), found)
    assert classes is not None
    assert np.array_equal(classes, [0, 1, 0, 1, np.nan, 2, np.nan], equal_nan=True)


def test_different_right_answers_of_a_puzzle_do_not_vote_together() -> None:
    found = scores((Outcome.CORRECT, "3 + 4"), (Outcome.CORRECT, "4 +  3"), (Outcome.CORRECT, "4 + 3"))
    classes = answer_classes(Prompt(id="p", text="", verifier="gym"), found)
    assert classes is not None
    assert classes.tolist() == [0, 1, 1]
    assert answer_classes(Prompt(id="p", text="", verifier="code"), found) is None


def test_consensus_of_groups() -> None:
    voted = group([1, 1, 1], [True, True, False])
    voted = ScoredGroup(
        group=voted.group, rewards=voted.rewards, outcomes=voted.outcomes, parts={PART: np.array([0, 0, 1], np.float32)}
    )
    figures = benchmark_figures([voted], ks=[1, 3])
    assert figures["cons_at"]["3"]["value"] == 1.0
    assert figures["cons_at"]["1"]["value"] == pytest.approx(2 / 3, abs=0.05)
