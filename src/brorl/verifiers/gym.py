"""Verifier for Reasoning Gym tasks: extract the answer, then ask the task's own scorer, where it can be trusted.

`prompt.meta` holds ``task``, ``config`` (its options) and ``entry`` (as packed by `brorl.tasks.entries`); optional are
``answer_format`` (`brorl.verifiers.extraction`; default ``tag``) and ``mode``: ``binary`` (default; reward 1 or 0) or
``partial`` (the scorer's own partial credit, where it means something).

What the scorers of Reasoning Gym 0.1.25 need: `JUDGES` replaces those that pay for wrong answers; `ADMISSIBLE` states
the form of an answer where a scorer picks what it likes out of any prose; the `UNSAFE_TASKS` evaluate the model's text,
so only text that a strict filter proves to be a literal or a plain formula reaches them: they never see names,
attributes, calls other than elementary functions, or towers of powers.
"""

import ast
import json
import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from brorl.group import Outcome, Prompt
from brorl.tasks.entries import unpack
from brorl.tasks.gym_items import create
from brorl.verifiers.extraction import extract
from brorl.verifiers.gym_judges import JUDGES, Entry
from brorl.verifiers.score import Score

_CORRECT = 1 - 1e-9
_FLOOR = 0.1  # scorers pay up to this for any text, or for its mere form
_FUNCTIONS = {"Abs", "abs", "sqrt", "exp", "log", "ln", "sin", "cos", "tan", "sec", "csc", "cot"}
_FUNCTIONS |= {"asin", "acos", "atan", "sinh", "cosh", "tanh"}
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.UAdd, ast.USub)


def _is_literal(answer: str, entry: Entry) -> bool:
    """The gold itself, or a Python literal: `eval` of it runs no code."""
    golds = [str(entry["answer"]), *entry["metadata"].get("valid_answers", [])]
    if answer.strip() in [gold.strip() for gold in golds]:
        return True
    try:
        ast.literal_eval(answer)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return False
    return len(answer) < 10_000


def _is_formula(answer: str, entry: Entry) -> bool:
    """Numbers, one-letter names, elementary functions and + - * / **, with small exponents."""
    if len(answer) > 1000:
        return False
    try:
        tree = ast.parse(answer.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return sum(1 for _ in ast.walk(tree)) <= 500 and _is_plain(tree, powers=0)


def _is_plain(node: ast.expr, powers: int) -> bool:
    match node:
        case ast.Constant(value=value):
            return isinstance(value, int | float) and abs(value) < (65 if powers else 1e30)
        case ast.Name(id=name):
            return len(name) == 1 or name == "pi"
        case ast.UnaryOp(op=op, operand=operand):
            return isinstance(op, _OPERATORS) and _is_plain(operand, powers)
        case ast.BinOp(op=ast.Pow(), left=left, right=right):
            return powers < 2 and _is_plain(left, powers + 1) and _is_plain(right, powers + 1)
        case ast.BinOp(op=op, left=left, right=right):
            return isinstance(op, _OPERATORS) and _is_plain(left, powers) and _is_plain(right, powers)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return name in _FUNCTIONS and len(arguments) == 1 and _is_plain(arguments[0], powers)
    return False


UNSAFE_TASKS: dict[str, Callable[[str, Entry], bool]] = {
    "binary_matrix": _is_literal,  # eval
    "intermediate_integration": _is_formula,  # sympy.parse_expr, which is eval
    "n_queens": _is_literal,  # eval
    "polynomial_multiplication": _is_formula,  # sympy.parse_expr
    "simple_integration": _is_formula,  # sympy.parse_expr
    "spiral_matrix": _is_literal,  # eval
    "string_insertion": _is_literal,  # eval
}
"""Tasks whose scorer evaluates the model's text, and what that text must be before it may. (countdown and puzzle24
would too: `JUDGES` replaces them.)"""

ADMISSIBLE: dict[str, re.Pattern[str]] = {
    "quantum_lock": re.compile(r"[A-Ca-c\s,>→-]*"),  # picks the letters A, B and C out of prose
    "rush_hour": re.compile(r"[A-Z+\-\d\s,]*"),  # picks moves out of prose
    "sokoban": re.compile(r"[LRUD\s,]*"),  # skips what is no move
    "time_intervals": re.compile(r"[\d\s:.,+-]*(?:days?)?[\d\s:.,+-]*"),  # "5 or 6 days" counts as 5
}

NO_PARTIAL = {
    "acre", "aiw", "arc_1d", "base_conversion", "basic_arithmetic", "bf", "binary_alternation", "caesar_cipher",
    "chain_sum", "circuit_logic", "count_bits", "count_primes", "course_schedule", "gcd", "isomorphic_strings",
    "largest_island", "lcm", "leg_counting", "letter_counting", "list_functions", "mahjong_puzzle",
    "manipulate_matrix", "maze", "modulo_grid", "number_filtering", "number_sequence", "products",
    "propositional_logic", "ransom_note",
    "rotate_matrix", "rotten_oranges", "simple_equations", "simple_geometry", "string_manipulation",
    "string_splitting", "string_synthesis", "syllogism", "tsumego", "word_sequence_reversal",
}  # fmt: skip
"""Tasks whose scorer pays the share of characters that contain the gold (0.75 for 1880 where 188 is right), and
propositional_logic, which pays 0.25 for text that says nothing. That is no partial credit: binary in both modes."""


def verify_gym(prompt: Prompt, response: str) -> Score:
    """Grade one response to a Reasoning Gym question.

    Raises:
        KeyError: `prompt.meta` holds no task entry.
        RecipeError: an unknown task, option or answer format.
    """
    answer = extract(response, prompt.meta.get("answer_format", "tag"))
    if answer is None:
        return Score(outcome=Outcome.NO_ANSWER, reward=0.0)
    entry = unpack(prompt.meta["entry"])
    task, config = prompt.meta["task"], prompt.meta["config"]
    value, note = _value(task, config, entry, answer)
    bare = answer.rstrip(".")
    if value < _CORRECT and bare != answer:  # a full stop that ends a sentence, not the answer
        value, note = max((value, note), _value(task, config, entry, bare))
    if value >= _CORRECT:
        return Score(outcome=Outcome.CORRECT, reward=1.0, extracted=answer)
    if prompt.meta.get("mode", "binary") == "partial" and value > _FLOOR:
        return Score(outcome=Outcome.PARTIAL, reward=value, extracted=answer)
    return Score(outcome=Outcome.WRONG, reward=0.0, extracted=answer, note=note)


def prepare(prompt: Prompt) -> None:
    """Load the task's scorer; some read large files."""
    if prompt.meta["task"] not in JUDGES:
        _scorer(prompt.meta["task"], json.dumps(prompt.meta["config"], sort_keys=True))


def _value(task: str, config: Mapping[str, Any], entry: dict[str, Any], answer: str) -> tuple[float, str]:
    """The value of an answer in [0, 1], and why it is 0 where the scorer was not asked."""
    if task in JUDGES:
        return float(JUDGES[task](answer, entry)), ""
    if task in ADMISSIBLE and not ADMISSIBLE[task].fullmatch(answer):
        return 0.0, "more than the answer"
    if task in UNSAFE_TASKS and not UNSAFE_TASKS[task](answer, entry):
        return 0.0, "not evaluated: neither a literal nor a plain formula"
    scorer = _scorer(task, json.dumps(config, sort_keys=True))
    entry = {**entry, "metadata": dict(entry["metadata"])}  # knight_swap writes into it
    try:
        value = float(scorer(answer, entry))
    except Exception as error:  # prime_factorization and boxnet raise on junk, others may
        return 0.0, f"the scorer raises {type(error).__name__}"
    if value < _CORRECT and task in NO_PARTIAL:
        return 0.0, ""
    return (min(1.0, max(0.0, value)) if math.isfinite(value) else 0.0), ""


@lru_cache(maxsize=256)
def _scorer(task: str, config: str) -> Callable[[str, dict[str, Any]], float]:
    return create(task, unpack(json.loads(config))).score_answer
