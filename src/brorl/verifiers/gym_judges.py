"""Our own verdicts for the Reasoning Gym tasks whose scorer pays for wrong answers, or would run the model's text.

Each judge is ``(answer, entry) -> bool``: is the answer right? Why the task's own scorer is not used stands beside it.
"""

import ast
import json
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

Entry = Mapping[str, Any]

_NUMBER = re.compile(r"[+-]?(?:\d[\d,]*)?\.?\d+")
_RATIO = re.compile(r"[+-]?\d{1,30}(?:\.\d{1,30})?(?:[eE][+-]?\d{1,2})?|[+-]?\d{1,30}/\d{1,30}")
_EXACT = 1e-9


def _same_text(answer: str, entry: Entry) -> bool:
    return _squeeze(answer) == _squeeze(str(entry["answer"]))


def _squeeze(text: str) -> str:
    return "".join(text.split()).casefold()


def _same_words(answer: str, entry: Entry) -> bool:
    return answer.split() == str(entry["answer"]).split()


def _calendar(answer: str, entry: Entry) -> bool:
    gold = str(entry["answer"]).strip()
    if re.fullmatch(r"[+-]?\d+", gold):
        return re.fullmatch(r"[+-]?\d{1,30}", answer) is not None and int(answer) == int(gold)
    return answer.casefold() == gold.casefold()


def _probability(answer: str, entry: Entry) -> bool:
    """Within 1e-4, as the scorer asks, and within one per cent, so that 0 is not right where the gold is small."""
    text = answer.replace(",", "").replace(" ", "")
    if not _RATIO.fullmatch(text) or re.search(r"/0+$", text):
        return False
    gold = _fraction(str(entry["answer"]).replace(",", ""))
    return abs(_fraction(text) - gold) <= min(Fraction(1, 10_000), abs(gold) / 100)


def _fraction(text: str) -> Fraction:
    numerator, _, denominator = text.partition("/")
    return Fraction(numerator) / Fraction(denominator or "1")


def _complex(answer: str, entry: Entry) -> bool:
    value = _parse_complex(answer)
    return value is not None and abs(value - complex(*entry["metadata"]["result"])) <= _EXACT


def _parse_complex(text: str) -> complex | None:
    """``a``, ``bi``, ``a + bi`` or ``bi + a``, with i or j, in optional brackets."""
    text = text.replace(" ", "").lower().replace("j", "i").removeprefix("(").removesuffix(")")
    terms = re.findall(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)?i?", text)
    terms = [term for term in terms if term]
    imaginary = [term for term in terms if term.endswith("i")]
    if "".join(terms) != text or not terms or len(imaginary) > 1 or len(terms) - len(imaginary) > 1:
        return None
    value = 0j
    for term in terms:
        number = term.removesuffix("i")
        if number in ("", "+", "-"):
            if not term.endswith("i"):
                return None
            number += "1"
        value += float(number) * (1j if term.endswith("i") else 1)
    return value


def _expression_with(numbers: list[int], target: int, answer: str) -> bool:
    value, used = evaluate(answer)
    return value == target and sorted(used) == sorted(numbers)


def evaluate(text: str) -> tuple[Fraction | None, list[int]]:
    """The exact value of an expression of integers, + - * / and brackets, and the integers used; None where it is not
    one. Nothing is executed."""
    if len(text) > 500 or not re.fullmatch(r"[\d+*/()\-\s]+", text) or re.search(r"\*\s*\*|/\s*/", text):
        return None, []
    used: list[int] = []
    try:
        return _value(ast.parse(text.strip(), mode="eval").body, used), used
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None, []


def _value(node: ast.expr, used: list[int]) -> Fraction:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        used.append(node.value)
        return Fraction(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub):
        value = _value(node.operand, used)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left, used), _value(node.right, used)
        match node.op:
            case ast.Add():
                return left + right
            case ast.Sub():
                return left - right
            case ast.Mult():
                return left * right
            case ast.Div():
                return left / right
    raise ValueError("not arithmetic")


def _countdown(answer: str, entry: Entry) -> bool:
    return _expression_with(list(entry["metadata"]["numbers"]), entry["metadata"]["target"], answer)


def _puzzle24(answer: str, entry: Entry) -> bool:
    return _expression_with(list(entry["metadata"]["numbers"]), 24, answer)


def _life(answer: str, entry: Entry) -> bool:
    return _json(answer) == _json(str(entry["answer"]))


def _json(text: str) -> str | None:
    """A canonical form in which true and 1 differ; None for text that is not JSON."""
    try:
        return json.dumps(json.loads(text))
    except (ValueError, RecursionError):
        return None


def _one_number(answer: str, entry: Entry) -> bool:
    found = _NUMBER.findall(answer.replace(" ", " "))
    gold = float(str(entry["answer"]).replace(",", ""))
    return len(found) == 1 and len(found[0]) < 40 and float(found[0].replace(",", "")) == gold


def _floats(text: str, separator: str = ",") -> list[float] | None:
    try:
        return [float(part) for part in text.split(separator)] if text.strip() else []
    except ValueError:
        return None


def _roots(answer: str, entry: Entry) -> bool:
    """As many numbers as roots, each within 1e-4: the question asks for four decimals."""
    found, gold = _floats(answer), _floats(str(entry["answer"]))
    if found is None or gold is None or len(found) != len(gold):
        return False
    return all(abs(a - b) <= 1.01e-4 for a, b in zip(sorted(found), sorted(gold), strict=True))


def _sorted_numbers(answer: str, entry: Entry) -> bool:
    found, gold = _number_list(answer), _number_list(str(entry["answer"]))
    if found is None or gold is None or len(found) != len(gold):
        return False
    return all(abs(a - b) <= _EXACT * max(1.0, abs(b)) for a, b in zip(found, gold, strict=True))


def _number_list(text: str) -> list[float] | None:
    try:
        values = json.loads(text.replace("'", '"'))
        return [float(value) for value in values]
    except (ValueError, TypeError, RecursionError):
        return None


def _sorted_words(answer: str, entry: Entry) -> bool:
    return [word.strip() for word in answer.split(",")] == list(entry["metadata"]["sorted_words"])


JUDGES: dict[str, Callable[[str, Entry], bool]] = {
    "calendar_arithmetic": _calendar,  # pays 0.05 for "wednesday"
    "coin_flip": _probability,  # pays 1.0 for the first digit of the gold: "0" for 0.25
    "complex_arithmetic": _complex,  # refuses "-7i + 4"
    "countdown": _countdown,  # sympy evaluates the model's text: "9**9**9**9" hangs
    "figlet_font": _same_text,  # pays 1.0 for ten equal characters of a longer word
    "game_of_life": _life,  # pays 1.0 whatever further rows and columns follow
    "game_of_life_halting": _same_text,  # pays 1.0 for any text
    "gsm_symbolic": _one_number,  # reads the first number of several, and never a minus sign
    "letter_jumble": _same_words,  # pays 1.0 whatever words follow
    "number_sorting": _sorted_numbers,  # tolerates 1.0 in every number
    "polynomial_equations": _roots,  # ignores what is no number; pays less than 1 for a fifth decimal
    "puzzle24": _puzzle24,  # sympy evaluates the model's text; any four small numbers do; 24.9 is 24
    "spell_backward": _same_text,  # pays 0.9999999 whatever letters follow
    "word_sorting": _sorted_words,  # pays 1.0 whatever words follow
}
