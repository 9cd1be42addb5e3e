"""Mathematics: the final answer of a response, compared strictly with the reference answer."""

from brorl.group import Outcome, Prompt
from brorl.verifiers.mathematics.extraction import Extraction, Found, extract, last_box
from brorl.verifiers.mathematics.reading import Reading, read, same_reading
from brorl.verifiers.score import Score

_SHOWN = 300


def math(prompt: Prompt, response: str) -> Score:
    """1 if the final answer equals `prompt.answer`, else 0.

    The answer is found by the rule in `brorl.verifiers.mathematics.extraction`. ``meta["mode"]`` is ``strict`` (default)
    or ``lenient``, which also accepts what math-verify accepts (run it in the pool only). ``meta["unit"]`` states the
    unit of an answer without one: with ``%``, both 45 and 45 % are right.
    """
    golds = references(prompt)
    if not golds:
        return Score(outcome=Outcome.UNSCORABLE, reward=float("nan"), note="no reference answer")
    found = extract(response, prompt=prompt.text)
    score = _strict(golds, found)
    if score.outcome is not Outcome.CORRECT and prompt.meta.get("mode", "strict") == "lenient":
        return _lenient(prompt, response, score)
    return score


def references(prompt: Prompt) -> list[Reading]:
    """The readings of the reference answer; empty if there is nothing to compare with."""
    answer = prompt.answer
    if "\\boxed" in answer and ((box := last_box(answer)) is None or box.found is not Found.BOX):
        return []
    gold = read(answer)
    if not gold.key:
        return []
    unit = str(prompt.meta.get("unit") or "").strip()
    return [gold, read(f"{answer.strip().strip('$')} \\text{{{unit}}}" if unit not in ("%", "\\%") else f"{answer}\\%")] if unit else [gold]  # fmt: skip


def _strict(golds: list[Reading], found: Extraction) -> Score:
    if found.found is Found.OPEN_BOX:
        return Score(outcome=Outcome.TRUNCATED, reward=0.0, extracted=found.text[:_SHOWN], note=found.found.value)
    if found.found in (Found.OPEN_THINKING, Found.EMPTY) or not found.text:
        return Score(outcome=Outcome.NO_ANSWER, reward=0.0, note=found.found.value)
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
