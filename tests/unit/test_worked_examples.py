"""The text that the bundled model is taught is right: every step of every working holds."""

import math
import re

import pytest
from worked_examples import LESSONS, examples, response

from brorl.tasks.reasoning_gym import is_held_out


def number(text: str) -> int:
    """A number written last digit first."""
    return int(text[::-1])


@pytest.fixture(scope="module")
def taught() -> list[tuple[str, str]]:
    return list(examples(LESSONS, 4000, 1, gradual=True))


def working_and_answer(text: str) -> tuple[str, str]:
    match = re.fullmatch(r"(.*)<answer>(.+)</answer>", text)
    assert match is not None
    return match[1], match[2]


def rows(taught: list[tuple[str, str]], word: str) -> list[tuple[str, str, str]]:
    found = [(question, *working_and_answer(text)) for question, text in taught if word in question]
    assert len(found) > 100
    return found


def test_running_totals_hold(taught: list[tuple[str, str]]) -> None:
    for question, working, answer in rows(taught, "arithmetic problem"):
        expression = question.split(": ")[1].removesuffix(" =").replace(" ", "")
        terms = re.findall(r"[+-]?\d+", expression)
        totals = [sum(int(term) for term in terms[: i + 1]) for i in range(len(terms))]
        steps = [f"{term}={str(total)[::-1]}" for term, total in zip(terms, totals, strict=True)]
        assert working == terms[0] + "".join(steps[1:])
        assert int(answer) == totals[-1]


def test_partial_products_add_up(taught: list[tuple[str, str]]) -> None:
    for question, working, answer in rows(taught, "multiplication"):
        left, right = map(int, re.findall(r"\d+", question))
        assert number(working.split("=")[-1]) == int(answer) == left * right
        for part in re.findall(r"(?:^|\+)(\d+)", working):
            assert number(part) % max(left, 1) == 0


def test_remainders_are_euclids(taught: list[tuple[str, str]]) -> None:
    for question, working, answer in rows(taught, "Greatest"):
        first, second = sorted(map(int, re.findall(r"\d+", question)))
        chain = [second, first, *map(int, working.split())]
        assert all(chain[i] == chain[i - 2] % chain[i - 1] for i in range(2, len(chain)))
        assert chain[-1] == 0
        assert int(answer) == chain[-2] == math.gcd(first, second)


def test_common_multiples_hold(taught: list[tuple[str, str]]) -> None:
    for question, working, answer in rows(taught, "Least"):
        numbers = list(map(int, re.findall(r"\d+", question)))
        match = re.fullmatch(r"(\d+) (\d+)\*(\d+)=(\d+)", working)
        assert match is not None
        assert int(match[1]) == math.gcd(*numbers)
        assert int(match[2]) * int(match[3]) == number(match[4]) == int(answer) == math.lcm(*numbers)


def test_words_are_spelled_and_turned(taught: list[tuple[str, str]]) -> None:
    for question, working, answer in rows(taught, "backward"):
        word = question.split(": ")[-1]
        assert working == " ".join(word)
        assert answer == word[::-1]


def test_no_held_out_question_is_taught(taught: list[tuple[str, str]]) -> None:
    assert not any(is_held_out(question) for question, _ in taught)


def test_a_gradual_course_begins_with_the_easy_lessons(taught: list[tuple[str, str]]) -> None:
    def terms(pairs: list[tuple[str, str]]) -> list[int]:
        return [len(re.findall(r"\d+", question)) for question, _ in pairs if "arithmetic problem" in question]

    assert max(terms(taught[:40])) <= 4
    assert max(terms(taught[-400:])) == 9


def test_the_examples_of_the_documentation() -> None:
    entry = {"metadata": {"expression": "57 + 87 - 70"}, "answer": "74"}
    assert response(entry, "chain_sum") == "57+87=441-70=47<answer>74</answer>"
    entry = {"metadata": {"expression": "23 * 47"}, "answer": "1081"}
    assert response(entry, "products") == "161+029=1801<answer>1081</answer>"
    entry = {"metadata": {"numbers": [641, 595]}, "answer": "1"}
    assert response(entry, "gcd") == "46 43 3 1 0<answer>1</answer>"
