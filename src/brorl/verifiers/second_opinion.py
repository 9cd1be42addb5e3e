"""math-verify as a second grader: for the audit, and for the lenient mode of `brorl.verifiers.math`.

It may hang on a power tower, its own timeouts need signals and derive from BaseException, and it accepts partial
parses; so it runs in the pool's worker processes only, with its timeouts off and the pool's deadline on, and never
decides a strict verdict.
"""

import logging
import math
import sys

from brorl.group import Outcome, Prompt
from brorl.verifiers.pool import VerifierPool
from brorl.verifiers.score import Score

_DEADLINE = 10.0  # seconds, for a call outside a pool


def math_verify(prompt: Prompt, response: str) -> Score:
    """1 if math-verify finds the response's answer (after any thinking block) equal to `prompt.answer`, else 0.

    Outside a pool's worker it opens a pool for this one call, which costs about a second.
    """
    if not prompt.answer.strip():
        return Score(outcome=Outcome.UNSCORABLE, reward=math.nan, note="no reference answer")
    if not _in_worker():
        with VerifierPool(workers=1, deadline=_DEADLINE) as pool:
            return pool.submit(_named(prompt), response).result()
    text = response.rpartition("</think>")[2]
    if "<think>" in text:
        return Score(outcome=Outcome.NO_ANSWER, reward=0.0, note="the thinking block is not closed")
    return _compare(prompt.answer, text)


def prepare(prompt: Prompt) -> None:
    """Loads math-verify, so that the deadline of the first response does not pay for it."""
    del prompt
    import math_verify  # noqa: F401 - a second of imports, wanted in workers only


def _compare(answer: str, text: str) -> Score:
    import math_verify
    from math_verify.errors import TimeoutException

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    marked = any(mark in answer for mark in ("$", "\\boxed", "\\(", "\\["))
    try:
        gold = math_verify.parse(answer if marked else f"${answer}$", parsing_timeout=0)
        found = math_verify.parse(text, parsing_timeout=0)
        correct = bool(gold) and bool(found) and math_verify.verify(gold, found, timeout_seconds=None)
    except TimeoutException:  # derives from BaseException
        return Score(outcome=Outcome.WRONG, reward=0.0, note="math-verify timed out")
    if not gold:
        return Score(outcome=Outcome.UNSCORABLE, reward=math.nan, note="math-verify cannot read the reference answer")
    # The last member is the text; printing the parsed object can hang.
    extracted = found[-1] if found and isinstance(found[-1], str) else ""
    outcome = Outcome.CORRECT if correct else Outcome.WRONG if found else Outcome.NO_ANSWER
    return Score(outcome=outcome, reward=float(correct), extracted=extracted, note="math-verify")


def _named(prompt: Prompt) -> Prompt:
    return Prompt(id=prompt.id, text=prompt.text, verifier="math_verify", answer=prompt.answer, meta=prompt.meta)


def _in_worker() -> bool:
    """Whether this process was started by the pool (see `brorl.verifiers.process`)."""
    return any("brorl.verifiers.worker" in argument for argument in sys.orig_argv)
