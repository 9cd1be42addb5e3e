"""Every reference answer, graded as if it were a response: one that fails would train the wrong thing."""

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from brorl.errors import DataError, RunError
from brorl.evaluation.scoring import outcome_name
from brorl.group import Outcome, Prompt
from brorl.tasks.rows import TaskRow
from brorl.verifiers.mathematics.extraction import Found, extract
from brorl.verifiers.mathematics.reading import read
from brorl.verifiers.pool import VerifierPool
from brorl.verifiers.score import Score

_FORMS = {
    "choice": "Answer: {}",
    "code": "````python\n{}\n````",
}
_ANSWER_FORMS = {"tag": "<answer>{}</answer>", "anchor": "Answer: {}"}
_EXTRACTING = ("gym", "numeric", "text")
_WITHOUT_GOLD = ("instruction", "json_schema", "regex")
_MOST_ERRORS = 0.05  # share of the gradings
_NAMED = 5
_WORKED = 120  # characters; longer references are worked solutions


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedGold:
    """A reference answer that its verifier does not accept."""

    prompt: Prompt
    response: str
    score: Score

    @property
    def reason(self) -> str:
        """The outcome, and the verifier's own words where it has some."""
        return ": ".join(filter(None, [outcome_name(self.score.outcome), self.score.note]))

    def as_json(self) -> dict[str, Any]:
        """An entry of the audit's summary."""
        return {"id": self.prompt.id, "answer": self.prompt.answer, "response": self.response, "reason": self.reason}


def gold_response(prompt: Prompt) -> str | None:
    """A response that gives the reference answer in the form that its verifier reads; None where there is none to give.

    A user's own verifier gets the bare answer.
    """
    if not prompt.answer or prompt.verifier in _WITHOUT_GOLD:
        return None
    if prompt.verifier == "code" and prompt.answer.lstrip().startswith(("{", "[")):
        return None  # tests, not a program
    if prompt.verifier in _EXTRACTING:
        return _ANSWER_FORMS.get(prompt.meta.get("answer_format", "tag"), "{}").format(prompt.answer)
    if prompt.verifier in ("math", "math_verify"):
        return _boxed(prompt.answer)
    return _FORMS.get(prompt.verifier, "{}").format(prompt.answer)


def _boxed(answer: str) -> str:
    """In one box, with boxes of its own opened; a worked solution stands as it is."""
    if len(answer) >= _WORKED and extract(answer).found in (Found.BOX, Found.ANCHOR):
        return answer
    opened = re.sub(r"\\boxed\s*\{([^{}]*)\}", r"\1", answer)
    return answer if opened != answer and not read(opened).trees else f"\\boxed{{{opened}}}"


def refused_golds(pool: VerifierPool, prompts: Sequence[Prompt]) -> tuple[int, list[RefusedGold]]:
    """Grade each prompt's reference answer, once a prompt: how many had one, and those that were not found correct."""
    distinct = {(p.id, p.answer): p for p in prompts}.values()
    pending = [(p, text, pool.submit(p, text)) for p in distinct if (text := gold_response(p)) is not None]
    graded = [(prompt, text, future.result()) for prompt, text, future in pending]
    refused = [
        RefusedGold(prompt=prompt, response=text, score=score)
        for prompt, text, score in graded
        if score.outcome is not Outcome.CORRECT
    ]
    return len(graded), refused


class RefusedGoldWarning(UserWarning):
    """Rows are left out, because no response to them could be rewarded."""


def accepted_rows(pool: VerifierPool, name: str, rows: Sequence[TaskRow]) -> list[TaskRow]:
    """The rows whose reference answer their own verifier accepts; the others are left out with a warning.

    A row without a reference answer (tests, instructions, a pattern) is graded on an empty response, and left out where
    it cannot be scored. Rows with a user's own verifier are kept: only it knows what a right response looks like.

    Args:
        name: what the rows are called in messages.

    Raises:
        DataError: every row is refused.
        RunError: more than 5 % of the gradings fail, and not by the answer.
    """
    prompts = [Prompt(id=r.id, text=r.question, verifier=r.verifier, answer=r.answer, meta=r.meta) for r in rows]
    golds = [gold_response(prompt) for prompt in prompts]
    pending = [
        None if ":" in prompt.verifier else pool.submit(prompt, gold or "")
        for prompt, gold in zip(prompts, golds, strict=True)
    ]
    scores = [None if future is None else future.result() for future in pending]
    errors = [score for score in scores if score is not None and score.outcome is Outcome.ERROR]
    if len(errors) > _MOST_ERRORS * len(rows):
        raise RunError(f"{name}: {len(errors)} of {len(rows)} reference answers cannot be graded: {errors[0].note}")
    refused = [
        RefusedGold(prompt=prompt, response=gold or "", score=score)
        for prompt, gold, score in zip(prompts, golds, scores, strict=True)
        if score is not None and _is_refused(gold, score)
    ]
    if refused:
        shown = "; ".join(f"{gold.prompt.id}: {gold.prompt.answer[:80]!r} ({gold.reason})" for gold in refused[:_NAMED])
        more = f"; and {len(refused) - _NAMED} more" if len(refused) > _NAMED else ""
        message = f"{name}: {len(refused)} of {len(rows)} rows are refused by their own verifier: {shown}{more}."
        if len(refused) == len(rows):
            raise DataError(f"{message} Name another verifier, its settings (meta) or the answer's column (columns)")
        warnings.warn(f"{message} They are left out, for no response could be right", RefusedGoldWarning, stacklevel=2)
    out = {gold.prompt.id for gold in refused}
    return [row for row in rows if row.id not in out]


def _is_refused(gold: str | None, score: Score) -> bool:
    """Errors are nobody's fault, and the next grading of the row may succeed."""
    wanted = score.outcome is Outcome.CORRECT if gold is not None else score.outcome is not Outcome.UNSCORABLE
    return not wanted and score.outcome is not Outcome.ERROR
