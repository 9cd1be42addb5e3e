"""The handed cases of area code, each as a grading; those about a whole system have a test of their own below."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from brorl.group import Outcome, Prompt
from brorl.verifiers import sandbox
from brorl.verifiers.code import verify_code
from brorl.verifiers.pool import VerifierPool
from brorl.verifiers.sandbox import launch
from brorl.verifiers.score import Score
from sandbox_needed import require_sandbox
from shared_data import cases

RIGHT, WRONG = (Outcome.CORRECT,), (Outcome.WRONG, Outcome.NO_ANSWER, Outcome.TRUNCATED)
EXPECTED = {
    "correct": RIGHT,
    "incorrect": WRONG,
    "timeout-safe incorrect": WRONG,
    "unscorable": (Outcome.UNSCORABLE,),
    "error": (Outcome.ERROR,),
    "holds": RIGHT,
}
SLOW_PROGRAM = "import time\ntime.sleep(0.2)\nprint(1)"


@pytest.fixture(autouse=True)
def _sandbox() -> None:
    require_sandbox()


def grade(response: str, **meta: Any) -> Score:
    return verify_code(Prompt(id="case", text="", meta={"time_limit": 1, **meta}), response)


def fenced(source: str) -> str:
    return f"```python\n{source}\n```"


def stdout_tests(gold: str) -> dict[str, Any]:
    """Tests from a gold such as ``stdout 2``, ``stdin '3 4' -> 7`` or ``stdout '3\\n4'``."""
    if gold == "stdout = 1 followed by 5000 zeros":
        return {"outputs": ["1" + "0" * 5000]}
    if gold.startswith("stdin "):
        given, _, expected = gold.removeprefix("stdin ").partition(" -> ")
        return {"inputs": [given.strip("'")], "outputs": [expected]}
    return {"outputs": [gold.removeprefix("stdout ").strip("'").replace("\\n", "\n")]}


def call_tests(gold: str) -> dict[str, Any]:
    return {
        "add(2,3)==5": {"test_list": ["assert add(2, 3) == 5"]},
        "assert solve(2)==4 (exit code is the verdict)": {"test_list": ["assert solve(2) == 4"]},
        "solve(3)==[1,2]": {"test_list": ["assert solve(3) == [1, 2]"]},
        "[[1,2]]": {"fn_name": "solve", "inputs": [[0]], "outputs": [[[1, 2]]]},
        "1000000": {"fn_name": "f", "inputs": [[0]], "outputs": [1000000]},
    }[gold]


def grade_case(row: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Score:
    given, gold = row["input"], row["gold"]
    if isinstance(given, str):
        if given == "solution passes 3 of 10 tests":
            numbers = [str(i) for i in range(10)]
            meta = {"inputs": numbers, "outputs": numbers, "reward": "all"}
            return grade(fenced("x = int(input())\nprint(x if x < 3 else -1)"), **meta)
        tests = stdout_tests(gold) if gold.startswith("std") else call_tests(gold)
        return grade(given if "```" in given else fenced(given), **tests)
    if "prefill" in given:
        return grade(given["response"], prefill=given["prefill"], **call_tests(gold))
    if "per_test_codes" in given:  # as here, programs that end by a signal
        return grade(fenced("import os\nos.abort()"), outputs=["1"] * 3)
    scenario = given["scenario"]
    if "zero cases" in scenario:
        return grade(fenced("print(1)"), input_output='{"inputs": [], "outputs": []}')
    if "503" in scenario:
        launch.isolation.cache_clear()
        monkeypatch.setenv("PATH", str(tmp_path))
        (tmp_path / "bwrap").write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / "bwrap").chmod(0o755)
        return grade(fenced("print(1)"), outputs=["1"])
    assert scenario.startswith("960 right answers")
    return grade_in_pool(rollouts=40, deadline=8.0)


def grade_in_pool(rollouts: int, deadline: float) -> Score:
    """All of them at once; together they take longer than the deadline. The worst score."""
    prompt = Prompt(id="crowd", text="", verifier="code", meta={"outputs": ["1"]})
    with VerifierPool(workers=2, deadline=deadline) as pool:
        futures = [pool.submit(prompt, fenced(f"{SLOW_PROGRAM}  # {i}")) for i in range(rollouts)]
        scores = [future.result() for future in futures]
        assert pool.counters().graded == rollouts
    return min(scores, key=lambda score: score.reward)


@pytest.mark.parametrize("number", range(24))
def test_case(number: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    row = cases("code")[number]
    try:
        score = grade_case(row, monkeypatch, tmp_path)
    finally:
        launch.isolation.cache_clear()
    assert score.outcome in EXPECTED[row["expect"]], (json.dumps(row), score)
    assert math.isnan(score.reward) == (score.outcome in (Outcome.UNSCORABLE, Outcome.ERROR))
    assert score.reward in (0.0, 1.0) or math.isnan(score.reward)
    if row["expect"] in ("correct", "holds"):
        assert score.note == sandbox.STRONG


def test_there_are_24_cases() -> None:
    assert len(cases("code")) == 24


def test_a_float_before_an_integer_does_not_loosen_it() -> None:
    """The scenario of the case about a raised tolerance, with the float test before the integer one."""
    meta = {"fn_name": "f", "inputs": [[0], [1]], "outputs": [0.5, 1000000]}
    assert grade(fenced("def f(n): return 0.5 if n == 0 else 1000000.05"), **meta).outcome is Outcome.WRONG
    assert grade(fenced("def f(n): return 0.5 if n == 0 else 1000000"), **meta).outcome is Outcome.CORRECT


@pytest.mark.slow
def test_960_right_answers_at_once() -> None:
    assert grade_in_pool(rollouts=960, deadline=5.0).outcome is Outcome.CORRECT
