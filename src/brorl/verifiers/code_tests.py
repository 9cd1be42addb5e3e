"""The test formats of public data sets, read from a prompt's `meta` (and, where noted, its `answer`).

- HumanEval: ``test`` (defines ``check(candidate)``), ``entry_point``, ``prompt`` (code that the response continues).
- MBPP: ``test_list`` of assertions, ``test_setup_code``; the names under test are those that the gold `answer` defines.
- EvalPlus: ``base_input`` (argument lists; with ``plus: true``, ``plus_input`` as well), ``entry_point``, ``prompt``,
  ``atol``; the gold `answer` says what is right, and the example in the prompt how results compare.
- Calls as data (LeetCode style): ``fn_name``, ``inputs`` (argument lists), ``outputs``.
- Standard input and output (APPS, Codeforces, CodeContests): ``inputs`` and ``outputs``; or ``tests``,
  ``official_tests``, ``public_tests`` or ``test_cases`` with ``input`` and ``output``.

The last two may also stand as JSON in ``input_output`` or in `answer`.
"""

import ast
import builtins
import json
import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from brorl.group import Prompt
from brorl.verifiers.code_stdout import TOLERANCE


@dataclass(frozen=True, slots=True, kw_only=True)
class StdoutTests:
    """Runs of the whole program."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTests:
    """Calls of what the program defines; the fields are those of a judge's job."""

    names: Mapping[str, str]
    """name in the tests -> name in the program"""
    prelude: str = ""
    """trusted code that runs before the names are bound"""
    modules: tuple[str, ...] = ()
    """standard library modules that the tests use without importing them"""
    blocks: tuple[str, ...] = ()
    calls: Mapping[str, Any] = field(default_factory=dict[str, Any])
    start: str = ""
    """code that the response continues"""
    entry_point: str = ""


class NoTests(Exception):
    """The prompt has no usable tests; the message says why."""


def read_tests(prompt: Prompt) -> StdoutTests | FunctionTests:
    """The tests of a prompt.

    Raises:
        NoTests: none, or not readable.
    """
    meta = prompt.meta
    try:
        if "test" in meta and "entry_point" in meta:
            return _humaneval(meta)
        if "test_list" in meta:
            return _mbpp(meta, prompt.answer)
        if "base_input" in meta:
            return _evalplus(meta, prompt.answer)
        return _data(_cases(meta, prompt.answer))
    except (KeyError, TypeError, ValueError, SyntaxError) as error:
        raise NoTests(f"its tests cannot be read: {type(error).__name__}: {error}") from None


def positive(value: Any, default: float) -> float:
    """A setting that must be a positive, finite number; the default where the column holds anything else."""
    usable = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
    return float(value) if usable else default


def _humaneval(meta: Mapping[str, Any]) -> FunctionTests:
    entry, start = meta["entry_point"], str(meta.get("prompt") or "")
    return FunctionTests(
        names={entry: entry, "candidate": entry},
        prelude=start,
        modules=_modules(meta["test"]),
        blocks=(meta["test"], "check(candidate)"),
        start=start,
        entry_point=entry,
    )


def _mbpp(meta: Mapping[str, Any], gold: str) -> FunctionTests:
    setup = str(meta.get("test_setup_code") or "") + "\n" + "\n".join(meta.get("test_imports") or [])
    tests = "\n".join(meta["test_list"])
    own, loaded = _names(f"{setup}\n{tests}")
    names = loaded & _defined(gold)
    if not names:
        names = loaded - own - set(vars(builtins)) - sys.stdlib_module_names
    return FunctionTests(
        names={name: name for name in sorted(names)},
        modules=tuple(sorted((loaded - own - names) & sys.stdlib_module_names)),
        blocks=(setup, *meta["test_list"]),
    )


def _evalplus(meta: Mapping[str, Any], gold: str) -> FunctionTests:
    """Arguments lost their tuples in JSON: the example in the prompt shows which are to be tuples again."""
    entry, start = meta["entry_point"], str(meta["prompt"])
    continues = f"def {entry}" in start
    example = re.search(rf"^assert .*\b{re.escape(entry)}\b.*$", start, re.MULTILINE)
    inputs = [*meta["base_input"], *(meta.get("plus_input") or [] if meta.get("plus") else [])]
    shapes = _example_arguments(example[0], entry) if example else None
    return FunctionTests(
        names={entry: entry},
        calls={
            "name": entry,
            "inputs": inputs,
            "shapes": shapes,
            "reference": start + gold if continues else gold,
            "tolerance": positive(meta.get("atol"), TOLERANCE),
            "compare": _comparison(example[0], entry) if example else "equal",
        },
        start=start if continues else "",
        entry_point=entry,
    )


def _comparison(line: str, entry: str) -> str:
    """How the example in the prompt compares: ``set``, ``truth`` (no comparison at all) or ``equal``."""
    if line.startswith(f"assert set({entry}("):
        return "set"
    statement = ast.parse(line).body[0]
    asserted = statement.test if isinstance(statement, ast.Assert) else None
    if isinstance(asserted, ast.UnaryOp) and isinstance(asserted.op, ast.Not):
        asserted = asserted.operand
    return "truth" if _is_call(asserted, entry) else "equal"


def _is_call(node: ast.AST | None, name: str) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _example_arguments(line: str, entry: str) -> list[Any] | None:
    for node in ast.walk(ast.parse(line)):
        if _is_call(node, entry):
            try:
                return [_shape(ast.literal_eval(argument)) for argument in node.args]
            except ValueError:  # an argument that is not a literal
                return None
    return None


def _shape(value: Any) -> list[Any] | None:
    """Which sequences are tuples: [type, shape of the elements]; None for anything else."""
    if not isinstance(value, (list, tuple)):
        return None
    return [type(value).__name__, next((shape for shape in map(_shape, value) if shape), None)]


def _cases(meta: Mapping[str, Any], answer: str) -> Mapping[str, Any]:
    if "outputs" in meta:
        return meta
    if "input_output" in meta:
        return {**meta, **_from_json(meta["input_output"])}
    for key in ("tests", "official_tests", "test_cases", "public_tests"):
        if meta.get(key):
            return {**meta, **_from_pairs(_from_json(meta[key]))}
    if answer.lstrip()[:1] in ("{", "["):
        return {**meta, **_from_pairs(_from_json(answer))}
    raise NoTests("it has no tests")


def _from_json(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _from_pairs(value: Any) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        if "outputs" in value:
            return value
        return {"inputs": value["input"], "outputs": value["output"]}
    return {"inputs": [case["input"] for case in value], "outputs": [case["output"] for case in value]}


def _data(cases: Mapping[str, Any]) -> StdoutTests | FunctionTests:
    outputs = cases["outputs"]
    inputs = cases.get("inputs") or [""] * len(outputs)
    if len(inputs) != len(outputs):
        raise NoTests(f"it has {len(inputs)} inputs for {len(outputs)} outputs")
    if not outputs:
        raise NoTests("it has no tests")
    name = cases.get("fn_name")
    if name is None:
        return StdoutTests(inputs=tuple(map(_as_text, inputs)), outputs=tuple(map(_as_text, outputs)))
    calls = {
        "name": name,
        "inputs": inputs,
        "outputs": outputs,
        "shapes": None,
        "tolerance": positive(cases.get("tolerance"), TOLERANCE),
        "compare": "json",
    }
    return FunctionTests(names={name: name}, calls=calls, entry_point=name)


def _as_text(value: Any) -> str:
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def _modules(source: str) -> tuple[str, ...]:
    own, loaded = _names(source)
    return tuple(sorted((loaded - own) & sys.stdlib_module_names))


def _names(source: str) -> tuple[set[str], set[str]]:
    """Names that some code binds, and names that it reads."""
    bound: set[str] = set()
    read: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            bound.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
    return bound, read


def _defined(source: str) -> set[str]:
    """Names that a program defines at its top level; none where it cannot be read."""
    try:
        body = ast.parse(source).body
    except SyntaxError:
        return set()
    names = {node.name for node in body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))}
    targets = [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
    return names | {target.id for target in targets if isinstance(target, ast.Name)}
