"""The code verifier on every test format, and against responses that try to pass without solving anything."""

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from brorl.group import Outcome, Prompt
from brorl.verifiers import sandbox
from brorl.verifiers.code import verify_code
from brorl.verifiers.sandbox import launch, run
from brorl.verifiers.score import Score
from cheating_programs import CHEATS
from sandbox_needed import require_sandbox


@pytest.fixture(autouse=True)
def _sandbox() -> None:
    require_sandbox()


def grade(response: str, answer: str = "", **meta: Any) -> Score:
    return verify_code(Prompt(id="p", text="", answer=answer, meta={"time_limit": 1, **meta}), response)


def fenced(source: str) -> str:
    return f"Here it is:\n```python\n{source}\n```\n"


STDOUT: dict[str, Any] = {"inputs": ["1 2", "3 4", "5 6"], "outputs": ["3", "7\n", "11"]}
ADD = "print(sum(map(int, input().split())))"
HUMANEVAL: dict[str, Any] = {
    "prompt": 'def helper(x):\n    return x\n\n\ndef double(x):\n    """Twice x."""\n',
    "entry_point": "double",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n"
    "    for i in range(3):\n        assert candidate(i) == 2 * i\n"
    '    assert True, "nothing"\n    assert helper(candidate(1)) == 2\n',
}
MBPP: dict[str, Any] = {
    "test_list": ["assert double(2) == 4", "assert double([1]) == [1, 1]", "assert double('a') == 'aa'"]
}
GOLD = "def double(x):\n    return x * 2\n"


def test_columns_of_other_meanings_are_no_settings() -> None:
    """A data file may hold recorded rewards, and nulls or texts where limits could stand."""
    columns = {"reward": 1.0, "tolerance": "loose", "time_limit": None, "memory_limit": True}
    assert grade(fenced(ADD), **STDOUT, **columns).outcome is Outcome.CORRECT
    assert grade(fenced("print(3)"), **STDOUT, **columns).reward == 0.0
    assert grade(fenced(ADD), **STDOUT, reward="generous").outcome is Outcome.UNSCORABLE


# Formats.


def test_standard_input_and_output() -> None:
    score = grade(fenced(ADD), **STDOUT)
    assert (score.outcome, score.reward, score.parts["tests"]) == (Outcome.CORRECT, 1.0, 3)
    assert score.note == sandbox.STRONG
    assert score.extracted == ADD + "\n"
    wrong = grade(fenced("print(3)"), **STDOUT)
    assert (wrong.outcome, wrong.reward) == (Outcome.WRONG, 0.0)
    assert "test 2" in wrong.note


def test_a_share_is_paid_only_where_it_is_asked_for() -> None:
    score = grade(fenced("print(3)"), reward="share", **STDOUT)
    assert score.outcome is Outcome.PARTIAL
    assert score.reward == pytest.approx(1 / 3)
    assert grade(fenced(ADD), reward="share", **STDOUT).reward == 1.0
    assert grade(fenced("print(0)"), reward="share", **STDOUT).outcome is Outcome.WRONG
    unknown = grade(fenced(ADD), reward="most", **STDOUT)
    assert unknown.outcome is Outcome.UNSCORABLE
    assert "most" in unknown.note


@pytest.mark.parametrize(
    "meta",
    [
        {"input_output": json.dumps(STDOUT)},
        {"input_output": STDOUT},
        {"tests": [{"input": "1 2", "output": "3"}]},
        {"official_tests": [{"input": "1 2\n", "output": "3\n"}], "time_limit": 2.0, "memory_limit": 256.0},
        {"public_tests": {"input": ["1 2"], "output": ["3"]}},
        {"test_cases": json.dumps([{"input": "1 2", "output": "3"}])},
    ],
)
def test_the_layouts_of_public_data_sets(meta: dict[str, Any]) -> None:
    assert grade(fenced(ADD), **meta).outcome is Outcome.CORRECT
    assert grade(fenced("print(4)"), **meta).outcome is Outcome.WRONG


def test_tests_as_json_in_the_answer() -> None:
    assert grade(fenced(ADD), answer=json.dumps(STDOUT)).outcome is Outcome.CORRECT


@pytest.mark.parametrize(
    "meta",
    [
        {},
        {"inputs": [], "outputs": []},
        {"inputs": ["1"], "outputs": ["1", "2"]},
        {"input_output": "not json"},
        {"input_output": "{}"},
        {"test_list": []},
        {"test_list": ["double(2)"]},
        {"test_list": ["assert double(2) =="]},
        {"entry_point": "f", "test": "def check(candidate):\n    assert True\n", "prompt": ""},
        {"base_input": [[1]], "entry_point": "double", "prompt": ""},
    ],
)
def test_no_usable_test_is_unscorable(meta: dict[str, Any]) -> None:
    score = grade(fenced(GOLD), **meta)
    assert score.outcome is Outcome.UNSCORABLE, score
    assert math.isnan(score.reward)
    assert score.note


def test_humaneval() -> None:
    for response in (
        "    return x * 2",
        "return x * 2\n\nprint('more text')",
        "    y = x\n    return y + y\n\n\ndef other(",
        fenced(GOLD),
        fenced("    return x * 2"),
        HUMANEVAL["prompt"] + "    return 2 * x\n",
    ):
        score = grade(response, **HUMANEVAL)
        assert score.outcome is Outcome.CORRECT, (response, score)
        assert score.note == sandbox.STRONG
        assert score.parts["tests"] == 5  # ``assert True`` is none
    assert grade("    return x", **HUMANEVAL).outcome is Outcome.WRONG
    assert grade("    return x", reward="share", **HUMANEVAL).reward == pytest.approx(1 / 5)


def test_mbpp() -> None:
    assert grade(fenced(GOLD), answer=GOLD, **MBPP).parts == {"tests": 3, "share": 1.0}
    score = grade(fenced("def double(x):\n    return 2 * x if x == 2 else 0"), answer=GOLD, reward="share", **MBPP)
    assert score.reward == pytest.approx(1 / 3)
    assert grade(fenced("def twice(x):\n    return x * 2"), answer=GOLD, **MBPP).outcome is Outcome.WRONG


def test_mbpp_with_objects_of_the_program() -> None:
    setup = "root = Node(1)\nroot.left = Node(2)\nroot.left.left = Node(3)"
    tests = ["assert height(root) == 3", "assert height(root.left) == 2"]
    node = "class Node:\n    def __init__(self, v):\n        self.v, self.left = v, None\n"
    right = node + "def height(n):\n    return 0 if n is None else 1 + height(n.left)\n"
    score = grade(fenced(right), answer=right, test_list=tests, test_setup_code=setup)
    assert score.outcome is Outcome.CORRECT
    assert score.note == sandbox.STRONG
    wrong = right.replace("1 + ", "")
    assert grade(fenced(wrong), answer=right, test_list=tests, test_setup_code=setup).outcome is Outcome.WRONG


def test_a_function_under_test_may_have_a_builtins_name() -> None:
    gold = "def sum(a, b):\n    return a + b\n"
    assert grade(fenced(gold), answer=gold, test_list=["assert sum(10, 15) == 25"]).outcome is Outcome.CORRECT


def test_arguments_changed_in_place() -> None:
    tests = ["x = [3, 1, 2]\norder(x)\nassert x == [1, 2, 3]"]
    gold = "def order(x):\n    x.sort()\n"
    assert grade(fenced(gold), answer=gold, test_list=tests).outcome is Outcome.CORRECT
    assert grade(fenced("def order(x):\n    x = sorted(x)\n"), answer=gold, test_list=tests).outcome is Outcome.WRONG


def test_exceptions_that_tests_expect() -> None:
    test = "try:\n    root(-1)\n    assert False\nexcept ValueError:\n    assert 1 + 1 == 2"
    gold = "def root(x):\n    if x < 0:\n        raise ValueError('negative')\n"
    assert grade(fenced(gold), answer=gold, test_list=[test]).outcome is Outcome.CORRECT
    assert grade(fenced(gold.replace("ValueError", "KeyError")), answer=gold, test_list=[test]).reward == 0
    assert grade(fenced("def root(x): pass"), answer=gold, test_list=[test]).reward == 0


def test_what_cannot_cross_is_run_in_one_process_and_says_so() -> None:
    gold = "def twice(f, x):\n    return f(f(x))\n"
    tests = ["assert twice(lambda x: x + 3, 1) == 7"]
    score = grade(fenced(gold), answer=gold, test_list=tests)
    assert score.outcome is Outcome.CORRECT
    assert "in-process" in score.note
    assert grade(fenced("def twice(f, x): return 7.5"), answer=gold, test_list=tests).outcome is Outcome.WRONG


def test_calls_as_data() -> None:
    meta = {"fn_name": "solve", "inputs": [[3], [2]], "outputs": [[[1, 2]], 0.5]}
    right = "def solve(x):\n    return (((1, 2)),) if x == 3 else 0.5000001"
    assert grade(fenced(right), **meta).outcome is Outcome.CORRECT
    method = "class Solution:\n    def solve(self, x):\n        return [[1, 2]] if x == 3 else 0.5"
    assert grade(fenced(method), **meta).outcome is Outcome.CORRECT
    share = grade(fenced("def solve(x): return [(1, 2)]"), reward="share", **meta)
    assert share.reward == 0.5
    integer = {"fn_name": "f", "inputs": [[1], [2]], "outputs": [1.5, 1000000]}
    assert grade(fenced("def f(n): return 1.5 if n == 1 else 1000000.05"), **integer).outcome is Outcome.WRONG


def test_evalplus_compares_as_the_example_in_the_prompt() -> None:
    gold = "def same(a, b):\n    return tuple(set(a) & set(b))\n"
    meta = {
        "prompt": '"""\nShared elements.\nassert set(same((3, 4, 5), (5, 4))) == set((4, 5))\n"""\n',
        "entry_point": "same",
        "base_input": [[[3, 4, 5], [5, 4]]],
    }
    other = "def same(a, b):\n    assert type(a) is tuple\n    return [x for x in (5, 4, 3) if x in a and x in b]"
    assert grade(fenced(other), answer=gold, **meta).outcome is Outcome.CORRECT
    ordered = meta | {"prompt": meta["prompt"].replace("assert set(", "assert (").replace("set((4, 5))", "(4, 5)")}
    assert grade(fenced(other), answer=gold, **ordered).outcome is Outcome.WRONG


def test_golds_that_fail_by_themselves_are_unscorable() -> None:
    meta = {"prompt": "", "entry_point": "f", "base_input": [[0]]}
    score = grade(fenced("def f(x): return 1"), answer="def f(x):\n    return 1 / x\n", **meta)
    assert score.outcome is Outcome.UNSCORABLE
    assert "ZeroDivisionError" in score.note


# Responses.


def test_responses_without_a_program() -> None:
    assert grade("", **STDOUT).outcome is Outcome.NO_ANSWER
    assert grade("The answer is 3.", **STDOUT).outcome is Outcome.NO_ANSWER
    assert grade("I would use a loop.", answer=GOLD, **MBPP).outcome is Outcome.NO_ANSWER
    assert grade("<think>```python\n" + ADD + "\n```", **STDOUT).outcome is Outcome.NO_ANSWER
    assert grade("```python\n" + ADD, **STDOUT).outcome is Outcome.TRUNCATED
    assert grade(fenced("print(3"), **STDOUT).outcome is Outcome.WRONG


@pytest.mark.parametrize("ending", ["import os\nos.abort()", "while True: pass", "x = [0] * 10**11"])
def test_hanging_and_crashing_do_not_pay(ending: str) -> None:
    score = grade(fenced(f"print(3)\n{ending}"), inputs=[""], outputs=["3"])
    assert (score.outcome, score.reward) == (Outcome.WRONG, 0.0)


# Cheating.


def cheat(name: str, *, in_process: bool) -> None:
    for tests in (MBPP,) if name == "never returns" else (HUMANEVAL, MBPP):
        score = grade(fenced(CHEATS[name]), answer=GOLD, in_process=in_process, **tests)
        assert (score.outcome, score.reward) == (Outcome.WRONG, 0.0), score
        assert ("in-process" in score.note) == in_process
    assert grade(fenced(GOLD), answer=GOLD, **MBPP).outcome is Outcome.CORRECT


@pytest.mark.parametrize("name", CHEATS)
def test_cheats_are_wrong(name: str) -> None:
    cheat(name, in_process=False)


# To reach into the judge is what a process of its own prevents: the result of the weaker level says so.
@pytest.mark.parametrize("name", [name for name in CHEATS if name not in ("frames", "objects")])
def test_cheats_are_wrong_in_one_process_too(name: str) -> None:
    cheat(name, in_process=True)


def test_replies_in_advance_are_worth_what_they_say() -> None:
    """Whoever knows the right values may as well return them; who does not gains nothing by sending early."""
    early = """
import json, os, struct
for value in {values}:
    data = json.dumps({{"value": value, "changed": []}}).encode()
    os.write(3, struct.pack("<I", len(data)) + data)
"""
    assert grade(fenced(early.format(values=[None] * 9)), **HUMANEVAL).outcome is Outcome.WRONG
    assert grade(fenced(early.format(values=[True] * 9)), **HUMANEVAL).outcome is Outcome.WRONG


@pytest.mark.parametrize(
    "source",
    [
        "import sys\nsys.modules['inside.candidate'].pack = lambda v, r: {'tag': 'builtin', 'value': '__loader__'}\n"
        "def double(x): return 1",
        "def double(x):\n    y = []\n    for _ in range(200): y = [y]\n    return y",
        "def double(x):\n    y = []\n    for _ in range(440): y = [y]\n    return y",
        "def double(x): return double",
    ],
)
def test_the_candidate_cannot_bring_the_tests_into_its_own_process(source: str) -> None:
    score = grade(fenced(source), answer=GOLD, test_list=["assert double(double(3)) == 12"])
    assert score.outcome is Outcome.WRONG
    assert "in-process" not in score.note


def test_the_candidate_cannot_see_the_tests() -> None:
    """It looks through everything that it can reach for a text that stands in the tests only."""
    secret = os.urandom(8).hex()
    program = f"""
import gc, os, sys
half = {secret[:8]!r}
def seen():
    gc.unfreeze()
    texts = [o for o in gc.get_objects() if isinstance(o, (str, bytes))] + list(os.environ.values()) + sys.argv
    for holder in gc.get_objects():
        if isinstance(holder, (list, tuple, set)):
            texts += [o for o in holder if isinstance(o, str)]
        elif isinstance(holder, dict):
            texts += [o for o in list(holder.values()) + list(holder) if isinstance(o, str)]
    for name in [os.path.join(d, f) for top in ('/tmp', '/brorl') for d, _, fs in os.walk(top) for f in fs]:
        texts.append(open(name).read())
    return [t for t in texts if isinstance(t, str) and len(t) > 8 and half in t and t != half and 'seen' not in t]
def double(x):
    return seen() or 'nothing'
"""
    test = f"assert double(1) == 'nothing', {secret!r}"
    score = grade(fenced(program), answer=GOLD, test_list=[test], time_limit=5)
    assert score.outcome is Outcome.CORRECT, score.note
    leaking = grade(fenced(program), answer=GOLD, test_list=[f"assert double({secret!r}) == 'nothing'"], time_limit=5)
    assert leaking.outcome is Outcome.WRONG  # as an argument it is found: the search works


# Isolation.


@pytest.fixture
def _no_bubblewrap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    launch.isolation.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    for kind in ("program", "judge"):
        run._discard(kind)
    yield
    launch.isolation.cache_clear()
    for kind in ("program", "judge"):
        run._discard(kind)


@pytest.mark.usefixtures("_no_bubblewrap")
def test_without_bubblewrap_code_is_refused_with_the_reason() -> None:
    with pytest.raises(sandbox.SandboxUnavailable, match="not installed"):
        sandbox.isolation()
    with pytest.raises(sandbox.SandboxUnavailable, match="apt-get install"):
        sandbox.run_python("print(1)")
    for tests in (STDOUT, HUMANEVAL):
        score = grade(fenced(ADD), **tests)
        assert score.outcome is Outcome.ERROR
        assert math.isnan(score.reward)
        assert "bubblewrap" in score.note


@pytest.mark.usefixtures("_no_bubblewrap")
def test_a_weaker_level_runs_where_it_is_allowed_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(sandbox.ALLOW_WEAK, "1")
    for score in (grade(fenced(ADD), **STDOUT), grade("    return x * 2", **HUMANEVAL)):
        assert score.outcome is Outcome.CORRECT
        assert "weak" in score.note
    for body in ("import os; os.fork()", "import socket; socket.socket()", "import os; os.kill(os.getppid(), 9)"):
        result = sandbox.run_python(body)
        assert b"PermissionError" in result.stderr
        assert "weak" in result.isolation
    assert not sandbox.run_python("import time\ntime.sleep(99)", limits=sandbox.Limits(wall_seconds=0.5)).ok
    assert sandbox.run_python("print(1)").stdout == b"1\n"


@pytest.mark.usefixtures("_no_bubblewrap")
def test_a_sandbox_that_breaks_at_start_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As a service that answers 503: the sample leaves numerator and denominator."""
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: out of order' >&2\nexit 1\n")
    broken.chmod(0o755)
    score = grade(fenced(ADD), **STDOUT)
    assert score.outcome is Outcome.ERROR
    assert "out of order" in score.note


def test_a_sandbox_that_dies_between_two_programs_is_replaced() -> None:
    assert grade(fenced(ADD), **STDOUT).outcome is Outcome.CORRECT
    run._warm("program").process.kill()
    run._warm("program").process.wait()
    assert grade(fenced(ADD), **STDOUT).outcome is Outcome.CORRECT
