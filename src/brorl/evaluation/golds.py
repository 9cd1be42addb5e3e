"""Every reference answer, graded as if it were a response: one that fails would train the wrong thing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from brorl.evaluation.scoring import outcome_name
from brorl.group import Outcome, Prompt
from brorl.verifiers.pool import VerifierPool
from brorl.verifiers.score import Score

_FORMS = {
    "math": "\\boxed{{{}}}",
    "math_verify": "\\boxed{{{}}}",
    "choice": "Answer: {}",
    "code": "````python\n{}\n````",
}
_ANSWER_FORMS = {"tag": "<answer>{}</answer>", "anchor": "Answer: {}"}
_EXTRACTING = ("gym", "numeric", "text")
_WITHOUT_GOLD = ("instruction", "json_schema", "regex")


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
    if prompt.verifier in _EXTRACTING:
        return _ANSWER_FORMS.get(prompt.meta.get("answer_format", "tag"), "{}").format(prompt.answer)
    return _FORMS.get(prompt.verifier, "{}").format(prompt.answer)


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
