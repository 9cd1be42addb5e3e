"""Comparing what a program printed with what it should have printed, token by token.

Lines are compared in order, white space at their ends and empty lines at the end of the output left out. A token is
equal as text; or, where the expected token is an integer, as a number of the same value (``5.0`` for ``5``); or, where
the expected token has a point or an exponent, within the tolerance.
"""

import math
import re

TOLERANCE = 1e-6
_INTEGER = re.compile(r"[+-]?(?:0|[1-9]\d*)", re.ASCII)
_WHOLE = re.compile(r"([+-]?)0*(\d+?)(?:\.0*)?", re.ASCII)
_FLOAT = re.compile(r"[+-]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][+-]?\d{1,4})?", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)
_LONGEST_FLOAT = 400  # characters


def same_output(expected: str, actual: str, tolerance: float = TOLERANCE) -> bool:
    """Whether an output is right.

    Args:
        tolerance: absolute or relative, whichever is wider; for expected tokens that are floats.
    """
    expected_lines, actual_lines = _lines(expected), _lines(actual)
    return len(expected_lines) == len(actual_lines) and all(
        wanted == got or _same_line(wanted.split(), got.split(), tolerance)
        for wanted, got in zip(expected_lines, actual_lines, strict=True)
    )


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def _same_line(expected: list[str], actual: list[str], tolerance: float) -> bool:
    return len(expected) == len(actual) and all(
        wanted == got or _same_number(wanted, got, tolerance) for wanted, got in zip(expected, actual, strict=True)
    )


def _same_number(expected: str, actual: str, tolerance: float) -> bool:
    if _INTEGER.fullmatch(expected):
        return "." in actual and _whole(expected) == _whole(actual)
    if _FLOAT.fullmatch(expected) and _NUMBER.fullmatch(actual) and max(len(expected), len(actual)) <= _LONGEST_FLOAT:
        return math.isclose(float(expected), float(actual), rel_tol=tolerance, abs_tol=tolerance)
    return False


def _whole(token: str) -> tuple[bool, str] | None:
    """Sign and digits of a number without a fractional part, whatever its length; None for anything else."""
    match = _WHOLE.fullmatch(token)
    return match and (match[1] == "-" and match[2] != "0", match[2])
