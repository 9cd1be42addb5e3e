"""The Reasoning Gym scorers that evaluate an answer's text: inside the sandbox, and only text of a plain form.

The sandbox keeps the text from doing harm. The form keeps it from deciding its own verdict, which code in the scorer's
process could: names, attributes, strings in formulas and calls other than elementary functions never get there.
"""

import ast
import json
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from brorl.verifiers.sandbox import Ended, Limits, isolation, run_scorer

_LIMITS = Limits(cpu_seconds=5, wall_seconds=25.0)
_LONGEST = {"literal": 10_000, "formula": 2_000}
_FUNCTIONS = (
    "Abs abs sqrt cbrt root exp log ln sin cos tan sec csc cot asin acos atan atan2 asec acsc acot sinh cosh tanh sech "
    "csch coth asinh acosh atanh asech acsch acoth sign erf erfc erfi gamma factorial Si Ci Shi Chi Ei li Rational "
    "Integer Float Pow Add Mul Max Min pi"
)
_FORMULA = re.compile(
    r"(?:\s|[-+*/(),!]"
    r"|(?:\d+(?:\.\d*)?|\.\d+)(?:\[\d+\])?(?:[eE][+-]?\d{1,3})?(?![\w.])"  # 0.2[1] is SymPy's repeating decimal
    rf"|(?:[A-Za-z]|{'|'.join(_FUNCTIONS.split())})(?![\w.]))*"
)
_TOWER = re.compile(r"\d\s*\*\*\s*\(*\d+\s*\*\*\s*\(*\d")  # 9**9**9: no answer, and it would cost the whole limit


def is_literal(answer: str, entry: Mapping[str, Any]) -> bool:
    """One of the golds, or a Python literal."""
    golds = [str(entry["answer"]), *entry["metadata"].get("valid_answers", [])]
    if answer.strip() in [gold.strip() for gold in golds]:
        return True
    if len(answer) > _LONGEST["literal"]:
        return False
    try:
        ast.literal_eval(answer)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return False
    return True


def is_formula(answer: str, entry: Mapping[str, Any]) -> bool:
    """Numbers, one-letter names, elementary functions, brackets, commas and + - * / ** !."""
    return len(answer) <= _LONGEST["formula"] and bool(_FORMULA.fullmatch(answer)) and not _TOWER.search(answer)


EVALUATED: dict[str, Callable[[str, Mapping[str, Any]], bool]] = {
    "binary_matrix": is_literal,  # eval
    "intermediate_integration": is_formula,  # sympy.parse_expr, which is eval
    "n_queens": is_literal,  # eval
    "polynomial_multiplication": is_formula,  # sympy.parse_expr
    "simple_integration": is_formula,  # sympy.parse_expr
    "spiral_matrix": is_literal,  # eval
    "string_insertion": is_literal,  # eval
}
"""Tasks whose scorer evaluates the answer's text, and the form that this text must have. (countdown and puzzle24 would
too: `brorl.verifiers.gym_judges` replaces them.)"""


def evaluated(task: str, entry: Mapping[str, Any], answer: str) -> tuple[float, str]:
    """What the task's scorer says in the sandbox, and why it is 0; with the level of isolation.

    Raises:
        SandboxUnavailable: no sandbox can be started here.
    """
    level = isolation()
    token = secrets.token_hex(16)
    result = run_scorer({"task": task, "entry": dict(entry), "answer": answer, "token": token}, _LIMITS)
    try:
        verdict = json.loads(result.stdout)
    except ValueError:
        verdict = None
    if not isinstance(verdict, dict) or verdict.get("token") != token:
        why = "the scorer came to no verdict" if result.ended is Ended.EXITED else str(result.ended)
        return 0.0, f"{why} [{level}]"
    return float(verdict["value"]), f"{verdict['why']} [{level}]" if verdict["why"] else level
