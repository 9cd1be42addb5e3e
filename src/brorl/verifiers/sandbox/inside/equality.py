"""When a returned value equals an expected one. The expected value decides: tolerance only where it is a float."""

import math
from collections.abc import Callable
from typing import Any


def same(expected: Any, actual: Any, tolerance: float) -> bool:
    """Python equality, except that floats inside lists, tuples and dictionaries are equal within `tolerance`.

    Args:
        tolerance: absolute or relative, whichever is wider.
    """
    if isinstance(expected, (list, tuple)):
        return (
            isinstance(actual, list if isinstance(expected, list) else tuple)
            and len(expected) == len(actual)
            and all(same(e, a, tolerance) for e, a in zip(expected, actual, strict=True))
        )
    if isinstance(expected, dict):
        return (
            isinstance(actual, dict)
            and expected.keys() == actual.keys()
            and all(same(value, actual[key], tolerance) for key, value in expected.items())
        )
    if isinstance(expected, float) and isinstance(actual, (int, float)) and not isinstance(actual, bool):
        if math.isnan(expected):
            return math.isnan(actual)
        return math.isclose(expected, actual, rel_tol=tolerance, abs_tol=tolerance)
    return bool(expected == actual)


def same_json(expected: Any, actual: Any, tolerance: float) -> bool:
    """As `same`, where the expected value comes from JSON: tuples stand for lists at any depth."""
    return same(expected, _with_lists(actual), tolerance)


def same_set(expected: Any, actual: Any, tolerance: float) -> bool:
    """The same elements in any order, repetitions left out; `tolerance` does not apply."""
    return _as_set(expected) == _as_set(actual)


def same_truth(expected: Any, actual: Any, tolerance: float) -> bool:
    """Both true or both false; `tolerance` does not apply."""
    return bool(expected) == bool(actual)


EQUAL: dict[str, Callable[[Any, Any, float], bool]] = {
    "equal": same,
    "json": same_json,
    "set": same_set,
    "truth": same_truth,
}


def _with_lists(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_with_lists(item) for item in value]
    if isinstance(value, dict):
        return {key: _with_lists(item) for key, item in value.items()}
    return value


def _as_set(values: Any) -> frozenset[Any]:
    return frozenset(_hashable(value) for value in values)


def _hashable(value: Any) -> Any:
    return tuple(_hashable(item) for item in value) if isinstance(value, (list, tuple)) else value
