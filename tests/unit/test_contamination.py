"""Contamination: shared n-grams are found, each with its partner; boilerplate is not; and it takes seconds."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brorl.seeding import generator
from brorl.tasks.contamination import BOILERPLATE, OverlapIndex
from brorl.tasks.rows import TaskRow

PROBLEM = "A train leaves the station at noon and travels north at sixty miles an hour until it meets another train"


def rows(*questions: str, prefix: str = "r") -> list[TaskRow]:
    return [TaskRow(id=f"{prefix}{i}", question=q) for i, q in enumerate(questions)]


def found(evaluation: list[str], training: list[str], ngram: int = 13) -> dict[str, tuple[str, str]]:
    index = OverlapIndex({"test": rows(*evaluation, prefix="e")}, ngram)
    return {o.id: (o.matched_id, o.shared) for o in index.find(rows(*training))}


def test_thirteen_words_in_a_row() -> None:
    shared = "leaves the station at noon and travels north at sixty miles an hour"
    got = found(
        ["something else entirely", PROBLEM],
        ["Yesterday, a bus LEAVES the station -- at noon, and travels north at sixty miles an hour; why?"],
    )
    assert got == {"r0": ("e1", shared)}
    assert not found([PROBLEM], [shared.rpartition(" ")[0]]), "twelve words are not enough"


def test_n_grams_do_not_cross_prompts() -> None:
    halves = PROBLEM.split()
    assert not found([PROBLEM], [" ".join(halves[:10]), " ".join(halves[10:])])


def test_short_prompts_are_compared_whole() -> None:
    got = found(["What is 2 + 3?", "Name a colour"], ["what is  2 + 3?", "What is 2 - 3?", "Name a colour now"])
    assert got == {"r0": ("e0", "what is 2 + 3?")}, "operators count where the whole text is compared"


def test_conversations_are_compared_by_what_the_user_says() -> None:
    system = {"role": "system", "content": PROBLEM}
    asked = TaskRow(id="t", messages=(system, {"role": "user", "content": "Other words"}))
    index = OverlapIndex({"test": rows(PROBLEM)}, 13)
    assert not index.find([asked])
    asked = TaskRow(id="t", messages=(system, {"role": "user", "content": PROBLEM + "!"}))
    assert [o.id for o in index.find([asked])] == ["t"]


def test_a_common_instruction_is_no_evidence() -> None:
    instruction = "Please reason step by step and put your final answer within a box at the very end"
    evaluation = [f"{name} wonders. {instruction}" for name in "abcdefghijklmnop"]
    training = [f"{name} asks. {instruction}" for name in ("x", "y")]
    assert not found(evaluation, training), "in many evaluation prompts"
    many = [f"{number} asks. {instruction}" for number in range(BOILERPLATE + 1)]
    assert not found(evaluation[:1], many), "in many training prompts"
    assert len(found(evaluation[:1], many[:-1])) == BOILERPLATE
    assert len(found(evaluation[:1], many[:1] * 50)) == 50, "copies of one prompt are one text"


def test_each_prompt_is_listed_once_with_the_first_match() -> None:
    index = OverlapIndex({"a": rows(PROBLEM, prefix="a"), "b": rows(PROBLEM + " again", prefix="b")}, 13)
    (overlap,) = index.find(rows("Oh. " + PROBLEM))
    assert (overlap.matched_set, overlap.matched_id) == ("a", "a0")


def test_the_fingerprint_is_of_sets_and_length() -> None:
    one, other = OverlapIndex({"a": rows("x")}, 13), OverlapIndex({"a": rows("y")}, 13)
    assert one.fingerprint == OverlapIndex({"a": rows("x")}, 13).fingerprint
    assert len({one.fingerprint, other.fingerprint, OverlapIndex({"a": rows("x")}, 8).fingerprint}) == 3


@given(
    evaluation=st.lists(st.lists(st.sampled_from("abc"), max_size=9), max_size=6),
    training=st.lists(st.lists(st.sampled_from("abcd"), max_size=9), max_size=6),
)
def test_equals_comparing_all_pairs(evaluation: list[list[str]], training: list[list[str]]) -> None:
    """No n-gram is common here: six prompts a side are below the bound."""
    n = 3

    def grams(words: list[str]) -> set[tuple[str, ...]]:
        return {tuple(words[i : i + n]) for i in range(len(words) - n + 1)}

    expected = {
        f"r{i}"
        for i, words in enumerate(training)
        if any(words == other or grams(words) & grams(other) for other in evaluation)
    }
    assert set(found([" ".join(w) for w in evaluation], [" ".join(w) for w in training], n)) == expected


def test_no_evaluation_prompts() -> None:
    assert OverlapIndex({}, 13).find(rows(PROBLEM)) == []
    assert OverlapIndex({"a": rows("x")}, 13).find([]) == []


@pytest.mark.slow
def test_a_hundred_thousand_prompts_take_seconds() -> None:
    words = [f"w{i}" for i in range(20_000)]
    random = generator("contamination-speed")
    texts = [" ".join(words[i] for i in random.integers(0, len(words), 80)) for _ in range(100_000)]
    index = OverlapIndex({"test": rows(*texts[:2000], prefix="e")}, 13)
    training = rows(*(f"so {text}" for text in texts[1000:]))
    started = time.process_time()
    got = index.find(training)
    assert [o.id for o in got] == [f"r{i}" for i in range(1000)]
    assert time.process_time() - started < 30  # about 6 CPU seconds; a bound for busy machines
