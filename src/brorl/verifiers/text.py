"""Verifiers for short answers: exact text, a number, a regular expression, a JSON schema.

All read the answer as `brorl.verifiers.extraction` does, in the format ``prompt.meta["answer_format"]``; for a JSON
schema the default is the whole response, for the others ``tag``.
"""

import decimal
import json
import math
import re
from decimal import Decimal
from fractions import Fraction
from typing import Any

import jsonschema
from jsonschema.validators import validator_for
from jsonschema_specifications import REGISTRY
from referencing.jsonschema import specification_with

from brorl.group import Outcome, Prompt
from brorl.verifiers.extraction import extract
from brorl.verifiers.score import Score

_INTEGER = re.compile(r"[+-]?\d{1,400}|[+-]?\d{1,3}(?:,\d{3})+")
_DECIMAL = re.compile(
    r"[+-]?(?:\d{1,400}|\d{1,3}(?:,\d{3})+)?\.\d{1,400}(?:[eE][+-]?\d{1,3})?|[+-]?\d+[eE][+-]?\d{1,3}"
)
_RATIO = re.compile(r"[+-]?\d{1,400}\s*/\s*[+-]?\d{1,400}")
_TOLERANCE = Fraction(1, 1_000_000)
_FENCE = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)
_WHOLE_DIGITS = 400  # of a number with point or exponent: longer whole numbers stay decimals


def verify_text(prompt: Prompt, response: str) -> Score:
    """Correct where answer and reference are the same text, runs of white space being one space.

    ``meta["ignore_case"]: true`` compares without case. A blank reference makes the prompt UNSCORABLE.
    """
    answer = extract(response, prompt.meta.get("answer_format", "tag"))
    if not prompt.answer.strip():
        return Score(outcome=Outcome.UNSCORABLE, reward=math.nan, note="no reference answer")
    if answer is None:
        return _NO_ANSWER
    found, gold = " ".join(answer.split()), " ".join(prompt.answer.split())
    if prompt.meta.get("ignore_case", False):
        found, gold = found.casefold(), gold.casefold()
    return _verdict(found == gold, answer)


def verify_numeric(prompt: Prompt, response: str) -> Score:
    """Correct where answer and reference are the same number.

    Integers and fractions compare exactly (``0.5`` is ``1/2``); two decimals within the relative tolerance
    ``meta["tolerance"]`` (default 1e-6). Thousands separators, a leading ``$`` and a final full stop are read over;
    an answer with anything more is no number and wrong. A reference that is no number makes the prompt UNSCORABLE.
    """
    answer = extract(response, prompt.meta.get("answer_format", "tag"))
    gold = _number(prompt.answer)
    if gold is None:
        return Score(
            outcome=Outcome.UNSCORABLE, reward=math.nan, note=f"the reference {prompt.answer!r} is not a number"
        )
    if answer is None:
        return _NO_ANSWER
    found = _number(answer)
    if found is None:
        return Score(outcome=Outcome.WRONG, reward=0.0, extracted=answer, note="not a number")
    if found[1] and gold[1]:
        setting = prompt.meta.get("tolerance")
        usable = isinstance(setting, int | float) and math.isfinite(setting)
        tolerance = Fraction(str(setting)) if usable and not isinstance(setting, bool) else _TOLERANCE
        return _verdict(abs(found[0] - gold[0]) <= tolerance * max(abs(found[0]), abs(gold[0])), answer)
    return _verdict(found[0] == gold[0], answer)


def _number(text: str) -> tuple[Fraction, bool] | None:
    """The exact value, and whether it is written as a decimal."""
    text = text.strip().removesuffix(".").replace("\u2212", "-").removeprefix("$").strip()
    if _INTEGER.fullmatch(text):
        return Fraction(int(text.replace(",", ""))), False
    if _DECIMAL.fullmatch(text):
        return Fraction(Decimal(text.replace(",", ""))), True
    if _RATIO.fullmatch(text):
        numerator, denominator = (int(part) for part in text.split("/"))
        return (Fraction(numerator, denominator), False) if denominator else None
    return None


def verify_regex(prompt: Prompt, response: str) -> Score:
    """Correct where the reference, a regular expression, matches the whole answer.

    A reference that is blank or no regular expression makes the prompt UNSCORABLE.
    """
    answer = extract(response, prompt.meta.get("answer_format", "tag"))
    if not prompt.answer.strip():
        return Score(outcome=Outcome.UNSCORABLE, reward=math.nan, note="no pattern")
    try:
        pattern = re.compile(prompt.answer)
    except (re.error, OverflowError, RecursionError) as error:
        return Score(
            outcome=Outcome.UNSCORABLE, reward=math.nan, note=f"the reference is no regular expression: {error}"
        )
    if answer is None:
        return _NO_ANSWER
    return _verdict(pattern.fullmatch(answer) is not None, answer)


def verify_json_schema(prompt: Prompt, response: str) -> Score:
    """Correct where the answer is JSON that the reference, a JSON schema, accepts.

    The answer may stand in one fenced block. Numbers are compared as they are written: 0.29 is a multiple of 0.01. A
    reference that is no valid schema, or refers to what is not in it, makes the prompt UNSCORABLE: nothing is fetched.
    """
    try:
        validator = _validator(prompt.answer)
    except Exception as error:  # the library raises whatever it stumbles over in a text that is no schema
        note = f"the reference is no JSON schema: {str(error) or type(error).__name__}"
        return Score(outcome=Outcome.UNSCORABLE, reward=math.nan, note=note)
    answer = extract(response, prompt.meta.get("answer_format", "whole"))
    if answer is None:
        return _NO_ANSWER
    fenced = _FENCE.findall(answer)
    answer = fenced[0].strip() if len(fenced) == 1 else answer
    try:
        value = _from_json(answer)
    except (ValueError, RecursionError, decimal.InvalidOperation) as error:
        return Score(outcome=Outcome.WRONG, reward=0.0, extracted=answer, note=f"not JSON: {error}")
    return _verdict(_accepts(validator, value), answer)


def _validator(text: str) -> Any:
    schema = _from_json(text)
    if not isinstance(schema, dict | bool):
        raise ValueError("it is neither an object nor true or false")
    kind: Any = validator_for(schema, default=jsonschema.Draft202012Validator)
    kind.check_schema(schema)
    resource = specification_with(kind.META_SCHEMA["$schema"]).create_resource(schema)
    _look_up(resource, REGISTRY.resolver_with_root(resource))
    validator = kind(schema, registry=REGISTRY)  # with a registry of its own the library fetches nothing
    _accepts(validator, None)  # a schema that only refers to itself never ends
    return validator


def _look_up(resource: Any, resolver: Any) -> None:
    """Raises for a reference to what is not there, also where few answers would meet it."""
    if isinstance(resource.contents, dict):
        for key in ("$ref", "$dynamicRef"):
            if isinstance(resource.contents.get(key), str):
                resolver.lookup(resource.contents[key])
    for part in resource.subresources():
        _look_up(part, resolver.in_subresource(part))


def _accepts(validator: Any, value: Any) -> bool:
    with decimal.localcontext(prec=2 * _WHOLE_DIGITS):
        return validator.is_valid(value)


def _from_json(text: str) -> Any:
    return json.loads(text, parse_constant=_no_constant, parse_float=_exact)


def _exact(text: str) -> int | Decimal:
    number = Decimal(text)
    whole = number.adjusted() < _WHOLE_DIGITS and number == number.to_integral_value()
    return int(number) if whole else number


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_NO_ANSWER = Score(outcome=Outcome.NO_ANSWER, reward=0.0)


def _verdict(right: bool, answer: str) -> Score:
    return Score(outcome=Outcome.CORRECT if right else Outcome.WRONG, reward=float(right), extracted=answer)
