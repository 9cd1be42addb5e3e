"""What holds for every built-in verifier: the reference answer earns 1, nothing and junk 0, and it never raises."""

import json
import math
from typing import Any

import pytest

from brorl.evaluation.golds import gold_response
from brorl.group import Outcome, Prompt
from brorl.tasks.reasoning_gym import GymSource
from brorl.verifiers import DEADLINES, PREPARATIONS, VERIFIERS
from brorl.verifiers.pool import VerifierPool
from brorl.verifiers.score import Score
from sandbox_needed import require_sandbox

JUNK = (
    "", " \n\t", "\x00", "\ud800", "\U0001f642" * 200, "\u202e\u200b\ufeff", "e\u0301" * 500, "a" * 50_000, "(" * 5_000,
    "\\boxed{", "\\boxed{}", "\\boxed{A or B}", "\\boxed{1, 2, 3, 42}", "\\boxed{41} \\boxed{43}", "<answer>",
    "<answer></answer>", "<think>42", "</think>", "<answer>9**9**9**9</answer>", "\\boxed{9^{9^{9^{9}}}}",
    "```python\n", "```python\nimport os; os._exit(0)\n```", "Answer: A or B", "Answer: (A) (B)", "None", "nan",
    "the answer is not 42", "Answer: 42 or 43", "[[[[", '{"a": ', "\\frac" * 2_000, "{" * 3_000, "9" * 20_000,
)  # fmt: skip


def gym() -> Prompt:
    row = GymSource("chain_sum").row(0)
    return Prompt(
        id="gym", text=row.question, verifier="gym", answer=row.answer, meta=json.loads(json.dumps(dict(row.meta)))
    )


def prompt(verifier: str, answer: str, **meta: Any) -> Prompt:
    return Prompt(id=verifier, text="?", verifier=verifier, answer=answer, meta=meta)


def prompts() -> dict[str, tuple[Prompt, str]]:
    """A prompt for each verifier, and a right response."""
    asked = [
        prompt("choice", "C", choices=["w", "x", "y", "z"]),
        prompt("code", "def f(x):\n    return x + 1\n", test_list=["assert f(1) == 2"], time_limit=1),
        gym(),
        prompt("math", "42"),
        prompt("math_verify", "42"),
        prompt("numeric", "42"),
        prompt("text", "forty-two"),
        prompt("text", "forty-two", answer_format="whole"),
    ]
    right = {p.verifier: (p, gold_response(p) or "") for p in asked}
    right["instruction"] = (
        prompt("instruction", "", instruction_id_list=["keywords:existence"], kwargs=[{"keywords": ["forty-two"]}]),
        "It is forty-two.",
    )
    right["json_schema"] = (prompt("json_schema", '{"type": "object", "required": ["answer"]}'), '{"answer": 42}')
    right["regex"] = (prompt("regex", "for.y-?two"), "<answer>forty-two</answer>")
    return right


def verdict(score: Score) -> tuple[Any, ...]:
    return (score.outcome, score.reward, score.extracted, dict(score.parts), score.note)


def test_the_dictionaries_name_the_same_verifiers() -> None:
    assert set(prompts()) == set(VERIFIERS), "a new verifier needs a prompt here"
    assert set(PREPARATIONS) <= set(VERIFIERS)
    assert set(DEADLINES) <= set(VERIFIERS)


def test_the_second_opinion_is_graded_within_its_deadline() -> None:
    """math-verify pays for some junk ("the answer is not 42") and hangs on some: it never decides a strict verdict."""
    asked, right = prompts()["math_verify"]
    with VerifierPool(workers=2, deadline=2.0) as pool:
        futures = [pool.submit(asked, text) for text in (right, *JUNK)]
        outcomes = [future.result().outcome for future in futures]
    assert outcomes[0] is Outcome.CORRECT
    assert not {Outcome.ERROR, Outcome.UNSCORABLE} & set(outcomes)


@pytest.mark.parametrize("verifier", sorted(set(VERIFIERS) - {"math_verify"}))
def test_gold_is_one_and_junk_is_nothing(verifier: str) -> None:
    if verifier == "code":
        require_sandbox()
    asked, right = prompts()[verifier]
    twice: list[list[Score]] = []
    for _ in range(2):  # two pools: no verdict is remembered
        with VerifierPool(workers=2, deadline=20.0) as pool:
            futures = [pool.submit(asked, text) for text in (right, *JUNK)]
            twice.append([future.result() for future in futures])
    first, second = twice
    assert (first[0].outcome, first[0].reward) == (Outcome.CORRECT, 1.0), first[0]
    for junk, score in zip(JUNK, first[1:], strict=True):
        assert score.reward == 0.0, (junk[:40], score)
        assert score.outcome in (Outcome.WRONG, Outcome.NO_ANSWER, Outcome.TRUNCATED), (junk[:40], score)
        assert "makes the verifier fail" not in score.note, (junk[:40], score)
    assert [verdict(s) for s in first] == [verdict(s) for s in second]


@pytest.mark.parametrize("verifier", sorted(set(VERIFIERS) - {"gym"}))
def test_a_prompt_without_gold_is_unscorable(verifier: str) -> None:
    with VerifierPool(workers=1, deadline=20.0) as pool:
        empty = {"json_schema": "no schema", "regex": "("}
        score = pool.submit(prompt(verifier, empty.get(verifier, "")), "\\boxed{4} <answer>4</answer>").result()
    assert score.outcome is Outcome.UNSCORABLE, score
    assert math.isnan(score.reward)
