"""The multiple-choice verifier: anchored answers first, letters on their own, never a letter inside a word."""

import math

import pytest

from brorl.group import Outcome, Prompt
from brorl.verifiers.choice import choice
from shared_data import cases, shared_rows

OPTIONS = ["a red ball", "9 cm", "Vitamin C", "none of these"]


def graded(answer: str, response: str, choices: list[str] | None = None, **meta: object) -> Outcome:
    options = OPTIONS if choices is None else choices
    score = choice(Prompt(id="p", text="", answer=answer, meta={"choices": options, **meta}), response)
    assert score.reward == float(score.outcome is Outcome.CORRECT) or score.outcome is Outcome.UNSCORABLE
    return score.outcome


def test_every_handed_case() -> None:
    rows = cases("mcq")
    assert len(rows) == 12
    for row in rows:
        gold, _, last = row["gold"].partition(" (labels A-")
        count = "ABCDEFGHIJ".index(last[0]) + 1 if last else 4
        outcome = graded(gold, row["input"], [f"option number {i}" for i in range(count)])
        assert (outcome is Outcome.CORRECT) == (row["expect"] == "correct"), row


@pytest.mark.parametrize(
    "response",
    [
        "C",
        "c",
        "(C)",
        "C.",
        "**C**",
        r"\boxed{C}",
        r"\boxed{\text{(C)}}",
        "$C$",
        "C) Vitamin C",
        "C. Vitamin C",
        "Answer: C",
        "Answer: (C)",
        "**Answer:** C",
        "answer: c",
        "The correct answer is C.",
        "The answer is option C",
        "The answer is (C) Vitamin C.",
        "Final answer: **C**",
        "A is wrong. B is incorrect. So it must be C",
        "Options A and B are wrong, D is false, so C.",
        "I pick C",
        "<answer>C</answer>",
        "#### C",
        "Vitamin C",
        "Answer: Vitamin C",
        "<think>A? B?</think>C",
        "Answer: A\nNo. Answer: C",
        "A. a red ball is not it.\nAnswer: C",
    ],
)
def test_chooses_c(response: str) -> None:
    assert graded("C", response) is Outcome.CORRECT


@pytest.mark.parametrize(
    ("response", "outcome"),
    [
        ("A", Outcome.WRONG),
        ("Answer: A", Outcome.WRONG),
        ("Answer: C or D", Outcome.WRONG),
        ("Answer: C, D", Outcome.WRONG),
        ("Answer: E", Outcome.WRONG),
        ("The answer is A and C", Outcome.WRONG),
        ("Both C and D", Outcome.NO_ANSWER),
        ("A or C", Outcome.NO_ANSWER),
        ("Cats and dogs", Outcome.NO_ANSWER),
        ("It's a Classic question, I think", Outcome.NO_ANSWER),
        ("the speed of light is c", Outcome.NO_ANSWER),
        ("", Outcome.NO_ANSWER),
        ("<think>C", Outcome.NO_ANSWER),
        (r"\boxed{C", Outcome.TRUNCATED),
        (r"\boxed{}", Outcome.NO_ANSWER),
        ("Answer: a tough one", Outcome.NO_ANSWER),
        ("C is wrong", Outcome.NO_ANSWER),
    ],
)
def test_does_not_choose_c(response: str, outcome: Outcome) -> None:
    assert graded("C", response) is outcome


def test_options_are_lettered_in_order_whatever_their_labels() -> None:
    assert graded("3", "Answer: C", labels=["1", "2", "3", "4"]) is Outcome.CORRECT
    assert graded("3", "Answer: 3", labels=["1", "2", "3", "4"]) is Outcome.CORRECT
    assert graded("3", "Answer: B", labels=["1", "2", "3", "4"]) is Outcome.WRONG
    assert graded("3", "Answer: C") is Outcome.CORRECT
    assert graded("9 cm", "Answer: B") is Outcome.CORRECT


def test_the_number_of_options_bounds_the_letters() -> None:
    ten = [f"option number {i}" for i in range(10)]
    assert graded("I", "I", ten) is Outcome.CORRECT
    assert graded("J", "Answer: J", ten) is Outcome.CORRECT
    assert graded("B", "I think it is B", ten) is Outcome.CORRECT


@pytest.mark.parametrize("gold", ["", "E", "Z", "7", "a blue ball"])
def test_a_reference_that_is_no_option_is_unscorable(gold: str) -> None:
    score = choice(Prompt(id="p", text="", answer=gold, meta={"choices": OPTIONS}), "A")
    assert score.outcome is Outcome.UNSCORABLE
    assert math.isnan(score.reward)


@pytest.mark.parametrize("name", ["arc_challenge_dev", "arc_challenge_test", "mmlu_stem_mcq"])
def test_every_reference_of_real_data(name: str) -> None:
    for row in shared_rows(f"data/{name}.jsonl"):
        labels = row.get("labels") or list("ABCD")
        letter = "ABCDE"[labels.index(row["answer"])]
        meta = {"choices": row["choices"], "labels": labels}
        prompt = Prompt(id=row["id"], text="", answer=row["answer"], meta=meta)
        for response in (letter, f"Answer: {letter}", rf"So \boxed{{{letter}}}.", f"The answer is ({letter})."):
            assert choice(prompt, response).outcome is Outcome.CORRECT, (row["id"], response)
        text = row["choices"][labels.index(row["answer"])]
        for form in ("{}. {}", "Answer: {}. {}", "Answer: ({}) {}, because it is so.", "Answer: {}) {}. This follows."):
            assert choice(prompt, form.format(letter, text)).outcome is Outcome.CORRECT, (row["id"], form)
        other = "BA"[letter == "B"]
        assert choice(prompt, f"Answer: {other}").outcome is Outcome.WRONG, row["id"]


@pytest.mark.parametrize(
    "response",
    [
        "Answer: not B", "Answer: neither B", "Answer: anything but B", "Answer: B is wrong", "Answer: B C",
        "Answer: (B) (C)", "Answer: B; C", "Answer: B | C", "Answer: B to D", "Answer: B \u2013 D", "Answer: B maybe C",
        "Answer: B, possibly C", "\\boxed{A or B}", "\\boxed{B, C}", "\\boxed{BC}", "B\nC",
    ],
)  # fmt: skip
def test_denied_and_listed_letters_earn_nothing(response: str) -> None:
    asked = Prompt(id="p", text="", answer="B", meta={"choices": ["w", "x", "y", "z"]})
    assert choice(asked, response).reward == 0.0


PLUMS = ["red apple", "green pear", "blue plum", "both A and B"]


@pytest.mark.parametrize(
    "response",
    [
        "Answer: B. C. D.", "Answer: B? C", "Answer: B? C?", "B. C. D.", "B? C", "b. c. d.", "Answer: b? c",
        "Answer: B vs C", "Answer: B. No, C", "Answer: B. Wait, C", "Answer: B. Actually, C.", "Answer: B. Option C",
        "Answer: B. Alternatively C", "Answer: B or perhaps C", "Answer: B. If not, C.", "Answer: B. Second guess: C",
        "Answer: B 90% C 10%", "Answer: B.C.D", "Answer: B ... C", "Answer: B \u2014 C", "Answer: B unless C",
        "Answer: B also C", "\\boxed{B. C. D.}", "\\boxed{B \\lor C}", "\\boxed{B \\cup C}", "Answer: Not B",
        "Answer: B. blue plum", "Answer: B or blue plum", "Answer: B. green pear C. blue plum",
        "A. red apple B. green pear C. blue plum", "Answer: A. red apple B. green pear",
    ],
)  # fmt: skip
def test_another_letter_or_option_beside_the_answer_earns_nothing(response: str) -> None:
    for gold in "ABC":
        assert graded(gold, response, PLUMS) in (Outcome.NO_ANSWER, Outcome.WRONG), gold


@pytest.mark.parametrize(
    "response",
    [
        "Answer: B. green pear", "Answer: B. Because C is wrong", "Answer: B because A and C are excluded",
        "Answer: B. The others (A, C, D) fail", "Answer: B rather than C", "Answer: B, not C.", "Answer: B. C is wrong",
        "Answer: B. C and D are not possible.", "Answer: B. A is too large.", "Answer: B. A plum is not green.",
        "Answer: B. The distance between A and C.", "Answer: B (green pear)", "\\boxed{\\text{B. green pear}}",
        "The answer is B. Option A is a tempting distractor.", "Answer: B. Green pear. Not C.",
    ],
)  # fmt: skip
def test_an_explanation_beside_the_answer_takes_nothing_away(response: str) -> None:
    assert graded("B", response, PLUMS) is Outcome.CORRECT


def test_options_that_name_letters_or_begin_with_a_sign() -> None:
    assert graded("D", "Answer: D. both A and B", PLUMS) is Outcome.CORRECT
    assert graded("A", "A. -19", ["-19", "-10", "19", "10"]) is Outcome.CORRECT
    assert graded("C", "Answer: C. -19", ["-19", "-10", "19", "10"]) is Outcome.NO_ANSWER
