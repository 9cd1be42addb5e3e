"""Which responses to a problem give the same answer, as its verifier sees answers; what cons@k counts."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from brorl.group import Outcome, Prompt
from brorl.verifiers.mathematics.reading import read, same_reading
from brorl.verifiers.score import Score

PART = "answer"
"""The name of the part of a `ScoredGroup` that holds the class of each response's answer; NaN: it gives none."""


def _same_mathematics(first: str, second: str) -> bool:
    return same_reading(read(first), read(second))


def _same_text(first: str, second: str) -> bool:
    return first.split() == second.split()


SAME_ANSWER: dict[str, Callable[[str, str], bool]] = {
    "choice": _same_text,
    "gym": _same_text,
    "math": _same_mathematics,
    "math_verify": _same_mathematics,
    "numeric": _same_mathematics,
    "text": _same_text,
}
"""Verifiers whose responses end in an answer that can be voted on, and when two answers are one."""

_ONE_RIGHT_ANSWER = ("choice", "math", "math_verify", "numeric", "text")


def answer_classes(prompt: Prompt, scores: Sequence[Score]) -> NDArray[np.float32] | None:
    """f32[K], the number of each response's class of equal answers; NaN where it gives no answer.

    Correct answers are one class where a problem has one right answer, for the verifier found them equal to it. None
    for verifiers whose responses hold no answer to vote on, such as programs.
    """
    same = SAME_ANSWER.get(prompt.verifier)
    if same is None:
        return None
    named: list[tuple[str, bool]] = []
    classes = np.full(len(scores), np.nan, np.float32)
    for at, score in enumerate(scores):
        if score.outcome not in (Outcome.CORRECT, Outcome.PARTIAL, Outcome.WRONG) or not score.extracted:
            continue
        right = score.outcome is Outcome.CORRECT
        merged = right and prompt.verifier in _ONE_RIGHT_ANSWER
        found = next(
            (i for i, (text, ok) in enumerate(named) if ok == right and (merged or same(text, score.extracted))), None
        )
        if found is None:
            named.append((score.extracted, right))
            found = len(named) - 1
        classes[at] = found
    return classes
