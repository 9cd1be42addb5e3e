"""Mathematics: the final answer of a response, compared strictly with the reference answer."""

import re

from brorl.errors import DataError
from brorl.group import Outcome, Prompt
from brorl.verifiers.mathematics.extraction import Extraction, Found, extract
from brorl.verifiers.mathematics.reading import Reading, read, same_reading
from brorl.verifiers.score import Score

_SHOWN = 300  # characters
_UNITLESS = ("number", "negate", "divide", "multiply", "add", "root", "power")  # what a declared unit is added to
_LONGEST = 4_000  # characters of an answer
_LONG = 120  # characters; longer references are worked solutions


def math(prompt: Prompt, response: str) -> Score:
    """1 if the final answer equals `prompt.answer`, else 0.

    The answer is found by the rule in `brorl.verifiers.mathematics.extraction`. ``meta["mode"]`` is ``strict`` (the
    default) or ``lenient``, which also accepts what math-verify accepts. ``meta["unit"]`` states the unit of a
    reference answer that has none: with ``%``, both 45 and 45 % are right.

    Raises:
        DataError: another mode.
    """
    golds = references(prompt)
    if not golds:
        return Score(outcome=Outcome.UNSCORABLE, reward=float("nan"), note="no reference answer")
    found = extract(response, prompt=prompt.text)
    score = _strict(golds, found)
    if score.outcome is not Outcome.CORRECT and _is_lenient(prompt):
        return _lenient(prompt, response, score)
    return score


def prepare(prompt: Prompt) -> None:
    """Reads the reference answer, and loads math-verify where the lenient mode needs it."""
    references(prompt)
    if _is_lenient(prompt):
        from brorl.verifiers import second_opinion

        second_opinion.prepare(prompt)


def references(prompt: Prompt) -> list[Reading]:
    """The readings of the reference answer that a response may equal; empty if there is nothing to compare with."""
    gold = _reference(prompt.answer)
    unit = str(prompt.meta.get("unit") or "").strip().replace("\\%", "%")
    if not gold.key or not unit or not any(tree.kind in _UNITLESS for tree in gold.trees):
        return [gold] if gold.key else []
    bare = prompt.answer.strip().strip("$")
    # Percentage points equal a bare number, and no number with another unit.
    phrases = ["percent", "percentage points"] if unit == "%" else [unit]
    readings = [read(f"{bare}\\text{{ {phrase}}}") for phrase in phrases]
    return [reading for reading in readings if reading.trees] or [gold]


def _reference(answer: str) -> Reading:
    """A reference answer as it stands, without its boxes, or the final answer of a worked solution."""
    if "\\boxed" not in answer and "\n" not in answer and len(answer) < _LONG:
        return read(answer)
    unboxed = read(re.sub(r"\\boxed\s*\{([^{}]*)\}", r"\1", answer))
    if unboxed.trees:
        return unboxed
    found = extract(answer)
    return read(found.text if found.found in (Found.BOX, Found.ANCHOR) else "" if "\\boxed" in answer else answer)


def _is_lenient(prompt: Prompt) -> bool:
    mode = prompt.meta.get("mode", "strict")
    if mode not in ("strict", "lenient"):
        raise DataError(f"prompt {prompt.id}: meta 'mode' is {mode!r}; math knows 'strict' and 'lenient'")
    return mode == "lenient"


def _strict(golds: list[Reading], found: Extraction) -> Score:
    if found.found is Found.OPEN_BOX:
        return Score(outcome=Outcome.TRUNCATED, reward=0.0, extracted=found.text[:_SHOWN], note=found.found.value)
    if found.found in (Found.OPEN_THINKING, Found.EMPTY) or not found.text:
        return Score(outcome=Outcome.NO_ANSWER, reward=0.0, note=found.found.value)
    if len(found.text) > _LONGEST:
        outcome = Outcome.NO_ANSWER if found.found is Found.WHOLE else Outcome.WRONG
        return Score(outcome=outcome, reward=0.0, extracted=found.text[:_SHOWN], note="too long for an answer")
    answer = read(found.text)
    correct = any(same_reading(gold, answer) for gold in golds)
    if found.found is Found.WHOLE and not correct and not answer.trees:
        return Score(outcome=Outcome.NO_ANSWER, reward=0.0, note="no box and no anchor")
    outcome = Outcome.CORRECT if correct else Outcome.WRONG
    return Score(outcome=outcome, reward=float(correct), extracted=found.text[:_SHOWN], note=found.found.value)


def _lenient(prompt: Prompt, response: str, strict: Score) -> Score:
    from brorl.verifiers.second_opinion import math_verify  # loads math-verify, which the strict mode does not need

    second = math_verify(prompt, response)
    return second if second.outcome is Outcome.CORRECT else strict
