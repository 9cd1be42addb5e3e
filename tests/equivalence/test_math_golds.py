"""No reference answer of the real data sets is refused: each equals itself, and its worked solution's answer."""

import pytest

from brorl.group import Outcome, Prompt
from brorl.verifiers.math import math
from shared_data import shared_rows

SMALL = (
    "gsm8k_test", "math500", "math_test", "aime24", "aimo_aime", "amc23", "gaokao2023en", "minerva_math",
    "olympiadbench_math_en", "svamp", "deepscaler_aime",
)  # fmt: skip
LARGE = ("gsm8k_train", "math_train")


def with_another_digit(answer: str) -> str:
    """The answer with its last digit one higher (the first of a decimal), or with one added where it has no digit."""
    digits = [i for i, character in enumerate(answer) if character.isdigit()]
    if not digits:
        return answer + "+1"
    at = digits[0 if "." in answer else -1]
    return f"{answer[:at]}{(int(answer[at]) + 1) % 10}{answer[at + 1 :]}"


def check_golds(name: str) -> None:
    for row in shared_rows(f"data/{name}.jsonl"):
        prompt = Prompt(id=row["id"], text="", answer=row["answer"], meta={"unit": row.get("unit")})
        assert math(prompt, rf"So it is \boxed{{{row['answer']}}}.").outcome is Outcome.CORRECT, row
        if "boxed" in row.get("solution", ""):
            assert math(prompt, row["solution"]).outcome is Outcome.CORRECT, row
        changed = with_another_digit(row["answer"])
        assert math(prompt, rf"\boxed{{{changed}}}").outcome is Outcome.WRONG, (row, changed)


@pytest.mark.parametrize("name", SMALL)
def test_golds(name: str) -> None:
    check_golds(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_golds_of_training_sets(name: str) -> None:
    check_golds(name)
