"""The judge: runs the tests, which the candidate never sees, and counts the assertions that hold.

A job is JSON: ``prelude`` (trusted code, run first), ``names`` {name in the tests: name in the program}, ``blocks``
(test code, run in order), ``calls`` (tests as data, see `_run_calls`), ``stop`` (at the first failure), ``token``.
The verdict is one JSON line with that token on standard output.
"""

import ast
import builtins
import copy
import importlib
import json
import os
from collections.abc import Callable
from types import CodeType
from typing import Any

from .candidate import define, resolve
from .equality import EQUAL
from .remote import CandidateError, Here, Link, NeedsOneProcess

_BUILTINS = dict(vars(builtins))  # as they are before any program has run
_CHECK = """
try:
    __tally__.check(0, {text})
except Exception as __error__:
    __tally__.fail(__told__(__error__, {text}))
"""


class Stop(BaseException):
    """Enough is known."""


class Tally:
    """Counts of assertions."""

    def __init__(self, stop: bool) -> None:
        self.passed = self.failed = 0
        self.why = ""
        self._stop = stop

    def check(self, holds: Any, text: str) -> None:
        """Count one assertion."""
        if holds:
            self.passed += 1
        else:
            self.fail(f"does not hold: {text}")

    def fail(self, why: str) -> None:
        """Count one failure; the first one is kept as the reason.

        Raises:
            Stop: the job wants no more than one.
        """
        self.failed += 1
        self.why = self.why or why[:300]
        if self._stop:
            raise Stop


class _CountAsserts(ast.NodeTransformer):
    """``assert E`` becomes a counted check that lets the test go on."""

    def __init__(self) -> None:
        self.found = 0

    def visit_Assert(self, node: ast.Assert) -> Any:
        if isinstance(node.test, ast.Constant) and node.test.value:
            return ast.copy_location(ast.Pass(), node)  # ``assert True`` tests nothing
        self.found += 1
        text = ast.unparse(node)[7:][:200]
        replacement = ast.parse(_CHECK.format(text=repr(text))).body[0]
        assert isinstance(replacement, ast.Try)
        call = replacement.body[0]
        assert isinstance(call, ast.Expr)
        assert isinstance(call.value, ast.Call)
        call.value.args[0] = node.test
        return ast.fix_missing_locations(ast.copy_location(replacement, node))


def _told(error: BaseException, text: str) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}: {text}"


def _compile(blocks: list[str]) -> tuple[list[CodeType], int]:
    """Test code with its assertions counted, and how many it declares."""
    counter = _CountAsserts()
    trees = [counter.visit(ast.parse(block)) for block in blocks]
    return [compile(tree, "<tests>", "exec", dont_inherit=True) for tree in trees], counter.found


def _run_blocks(programs: list[CodeType], namespace: dict[str, Any], tally: Tally) -> None:
    for program in programs:
        try:
            exec(program, namespace)
        except (Stop, NeedsOneProcess):
            raise
        except BaseException as error:
            tally.fail(_told(error, "the tests could not go on"))


def _run_calls(calls: dict[str, Any], outputs: list[Any], namespace: dict[str, Any], tally: Tally) -> None:
    """Call ``name`` with each of ``inputs`` (argument lists) and compare with `outputs`."""
    name = calls["name"]
    for arguments, expected in zip(calls["inputs"], outputs, strict=True):
        text = f"{name}({', '.join(map(repr, arguments))})"[:200]
        try:
            actual = namespace[name](*_shaped(arguments, calls["shapes"]))
            tally.check(EQUAL[calls["compare"]](expected, actual, calls["tolerance"]), text)
        except Exception as error:
            tally.fail(_told(error, text))


def _expected(calls: dict[str, Any]) -> list[Any]:
    """``outputs``, or what the gold code in ``reference`` returns."""
    if "outputs" in calls:
        return calls["outputs"]
    gold = resolve(define(calls["reference"]), calls["name"])
    return [gold(*copy.deepcopy(_shaped(arguments, calls["shapes"]))) for arguments in calls["inputs"]]


def _shaped(arguments: list[Any], shapes: list[Any] | None) -> list[Any]:
    if shapes is None or len(shapes) != len(arguments):
        return arguments
    return [_in_shape(argument, shape) for argument, shape in zip(arguments, shapes, strict=True)]


def _in_shape(value: Any, shape: list[Any] | None) -> Any:
    """Lists back to the tuples that they were before they were written as JSON."""
    if shape is None or not isinstance(value, list):
        return value
    items = [_in_shape(item, shape[1]) for item in value]
    return tuple(items) if shape[0] == "tuple" else items


def _judge(job: dict[str, Any], find: Callable[[str], Any], greeting: Exception | None) -> dict[str, Any]:
    tally = Tally(job["stop"])
    verdict = {"token": job["token"], "finished": False, "one_process": "", "broken": ""}
    namespace: dict[str, Any] = {"__name__": "tests", "__builtins__": dict(_BUILTINS)}
    try:
        exec(compile(job["prelude"], "<prelude>", "exec", dont_inherit=True), namespace)
        namespace |= {module: importlib.import_module(module) for module in job["modules"]}
        outputs = _expected(job["calls"]) if job["calls"] else []
        programs, declared = _compile(job["blocks"])
        verdict["declared"] = declared + len(outputs)
        if not verdict["declared"]:
            raise ValueError("nothing is asserted")
    except Exception as error:
        return verdict | {"broken": f"{type(error).__name__}: {str(error)[:200]}"}
    try:
        if greeting is not None:
            tally.fail(_told(greeting, "running the program"))
        for name, target in job["names"].items():
            try:
                namespace[name] = find(target)
            except Exception as error:
                namespace.pop(name, None)  # the prelude's stub would answer in its place
                tally.fail(_told(error, f"looking for {target}"))
        namespace |= {"__tally__": tally, "__told__": _told}
        if job["calls"]:
            _run_calls(job["calls"], outputs, namespace, tally)
        _run_blocks(programs, namespace, tally)
        verdict["finished"] = True
    except Stop:
        pass
    except NeedsOneProcess as reason:
        verdict["one_process"] = str(reason)
    return verdict | {"passed": tally.passed, "failed": tally.failed, "why": tally.why}


def main(channel: int | None, job: dict[str, Any]) -> None:
    """Judge the program at the other end of `channel`; with no channel, the job's ``source`` in this very process."""
    verdict_to = os.dup(1)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    if channel is not None:
        link = Link(channel)
        verdict = _judge(job, lambda name: link.value("global", name), link.greeting)
    else:
        verdict = _judge_here(job)
    os.write(verdict_to, json.dumps(verdict).encode())
    os._exit(0)


def _judge_here(job: dict[str, Any]) -> dict[str, Any]:
    here = Here()
    try:
        namespace = define(job["source"])
    except BaseException as error:
        return _judge(job, _nothing, CandidateError(_told(error, "running the program")))

    derived = {job["names"].get(base, base) for base in _bases(job["blocks"])}

    def find(name: str) -> Any:
        value = resolve(namespace, name)
        return value if name in derived and isinstance(value, type) else here.wrap(value)

    return _judge(job, find, None)


def _bases(blocks: list[str]) -> set[str]:
    """What the tests derive classes from: these must be here as they are, and their instances compare as they like."""
    try:
        classes = [node for block in blocks for node in ast.walk(ast.parse(block)) if isinstance(node, ast.ClassDef)]
    except SyntaxError:
        return set()  # `_judge` says so
    return {base.id for node in classes for base in node.bases if isinstance(base, ast.Name)}


def _nothing(name: str) -> Any:
    raise NameError(f"name {name!r} is not defined")
