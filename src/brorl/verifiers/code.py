"""Code: does the program in a response pass the tests?

Programs run only in the sandbox (docs/sandbox.md); tests and expected values are in another process than the program,
which sees no more than its input. Where tests need one process, or `meta["in_process"]` asks for it, the note says so.
"""

import json
import math
import secrets
from dataclasses import asdict
from typing import Any

from brorl.group import Outcome, Prompt
from brorl.verifiers.code_stdout import TOLERANCE, same_output
from brorl.verifiers.code_tests import FunctionTests, NoTests, StdoutTests, positive, read_tests
from brorl.verifiers.code_text import Program, continued, find_program
from brorl.verifiers.sandbox import (
    Ended,
    Limits,
    RunResult,
    SandboxUnavailable,
    isolation,
    run_judged,
    run_python,
    run_together,
    warm_up,
)
from brorl.verifiers.score import Score

REWARDS = ("all", "share")
_PATIENCE = 3  # runs of one program that may hit a limit; the tests after them count as failed


def verify_code(prompt: Prompt, response: str) -> Score:
    """Run the program in `response` against the prompt's tests (see `brorl.verifiers.code_tests` for the formats).

    `meta` may also hold: ``reward`` (``all``, the default: every test must pass; ``share``: the share that passes),
    ``time_limit`` (CPU seconds a run), ``memory_limit`` (MiB), ``tolerance``, ``prefill`` (the start of the answer that
    the policy did not write), ``in_process``. A sandbox that cannot be started is an ERROR, whatever the response.
    """
    try:
        tests = read_tests(prompt)
        setting = prompt.meta.get("reward")
        mode = setting if isinstance(setting, str) else "all"  # a data file may hold recorded rewards in this column
        if mode not in REWARDS:
            raise NoTests(f"meta reward is {mode!r}; known: {', '.join(REWARDS)}")
    except NoTests as reason:
        return Score(outcome=Outcome.UNSCORABLE, reward=math.nan, note=str(reason))
    program = find_program(response, prefill=str(prompt.meta.get("prefill") or ""))
    if program.missing is not None:
        return Score(outcome=program.missing, reward=0.0)
    limits = _limits(prompt)
    try:
        if isinstance(tests, StdoutTests):
            return _run_stdout(tests, program, mode, limits, positive(prompt.meta.get("tolerance"), TOLERANCE))
        return _run_functions(tests, program, mode, limits, in_process=bool(prompt.meta.get("in_process")))
    except SandboxUnavailable as reason:
        return Score(outcome=Outcome.ERROR, reward=math.nan, note=str(reason))


def prepare(prompt: Prompt) -> None:
    """Start the sandboxes of this process, so that no response pays for it.

    Raises:
        SandboxUnavailable: they do not start here.
    """
    warm_up()


def _limits(prompt: Prompt) -> Limits:
    # No task may hold a grader for long; and Python itself needs some address space.
    cpu = math.ceil(min(positive(prompt.meta.get("time_limit"), Limits().cpu_seconds), 30))
    mib = int(min(max(positive(prompt.meta.get("memory_limit"), Limits().memory_mb), 256), 4096))
    return Limits(cpu_seconds=cpu, wall_seconds=8.0 * cpu + 10.0, memory_mb=mib)


def _run_stdout(tests: StdoutTests, program: Program, mode: str, limits: Limits, tolerance: float) -> Score:
    passed, over_limit, why = 0, 0, ""
    for number, (given, expected) in enumerate(zip(tests.inputs, tests.outputs, strict=True), 1):
        result = run_python(program.source, given, limits)
        failure = _failure(result, expected, tolerance)
        passed += not failure
        if failure:
            if not program.fenced and _not_python(result.stderr.decode(errors="replace").rstrip().rpartition("\n")[2]):
                return Score(outcome=Outcome.NO_ANSWER, reward=0.0)
            why = why or f"test {number}: {failure}"
            over_limit += result.ended is not Ended.EXITED
            if mode == "all" or over_limit == _PATIENCE:
                break
    return _score(program.source, passed, len(tests.outputs), mode, why, isolation())


def _failure(result: RunResult, expected: str, tolerance: float) -> str:
    """Why a run is wrong; empty where it is right."""
    if result.ended is not Ended.EXITED:
        return str(result.ended)
    if result.exit_code != 0:
        last = result.stderr.decode(errors="replace").rstrip().rpartition("\n")[2]
        return f"exit status {result.exit_code}: {last[:200]}"
    output = result.stdout.decode(errors="replace")
    return "" if same_output(expected, output, tolerance) else f"wrong output: {output[:100]!r}"


def _run_functions(tests: FunctionTests, program: Program, mode: str, limits: Limits, *, in_process: bool) -> Score:
    source = continued(tests.start, program, tests.entry_point) if tests.start else program.source
    token = secrets.token_hex(16)
    fields = asdict(tests)
    job = {key: fields[key] for key in ("names", "prelude", "modules", "blocks", "calls")}
    job |= {"stop": mode == "all", "token": token}
    level = isolation()
    result = run_together(job | {"source": source}, limits) if in_process else run_judged(source, job, limits)
    verdict = _verdict(result, token)
    if verdict and verdict["one_process"]:
        in_process, reason = True, verdict["one_process"]
        result = run_together(job | {"source": source}, limits)
        verdict = _verdict(result, token)
        level = f"{level}, in-process ({reason})"
    elif in_process:
        level = f"{level}, in-process"
    if verdict is None:
        return _score(source, 0, 1, mode, f"no verdict: {result.ended}", level)
    if verdict["broken"]:
        return Score(
            outcome=Outcome.UNSCORABLE, reward=math.nan, note=f"its tests fail by themselves: {verdict['broken']}"
        )
    if not program.fenced and _not_python(verdict["why"]):
        return Score(outcome=Outcome.NO_ANSWER, reward=0.0)
    counted = verdict["passed"] + verdict["failed"]
    # Assertions that were never reached count where the tests broke off.
    tests_run = counted if verdict["finished"] else max(counted, verdict["declared"])
    return _score(source, verdict["passed"], tests_run, mode, verdict["why"], level)


def _verdict(result: RunResult, token: str) -> dict[str, Any] | None:
    """The judge's verdict; None where it came to none, for instance because the program ended the process."""
    try:
        verdict = json.loads(result.stdout)
    except ValueError:
        return None
    return verdict if isinstance(verdict, dict) and verdict.get("token") == token else None


def _not_python(message: str) -> bool:
    return message.startswith(("SyntaxError", "IndentationError", "TabError"))


def _score(source: str, passed: int, tests: int, mode: str, why: str, level: str) -> Score:
    share = passed / max(tests, 1)
    reward = 1.0 if passed == tests > 0 and not why else share if mode == "share" else 0.0
    outcome = Outcome.CORRECT if reward == 1.0 else Outcome.PARTIAL if reward > 0 else Outcome.WRONG
    note = f"{why} [{level}]" if why else level
    return Score(outcome=outcome, reward=reward, extracted=source, parts={"tests": tests, "share": share}, note=note)
