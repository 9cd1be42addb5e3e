"""Reasoning Gym entries as JSON values and back, with the tuples and integer keys that scorers compare against."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

_TUPLE = "__tuple__"
_ITEMS = "__items__"
_FRACTION = "__fraction__"
_TAGS = {_TUPLE, _ITEMS, _FRACTION}


def pack(value: Any) -> Any:
    """JSON values for a nested entry; tuples, fractions and mappings with other keys than strings are tagged.

    Raises:
        TypeError: a value that JSON cannot hold and that is none of these.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)  # also string enumerations and NumPy strings
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value)
    if isinstance(value, Fraction):
        return {_FRACTION: [value.numerator, value.denominator]}
    if isinstance(value, tuple):
        return {_TUPLE: [pack(item) for item in value]}
    if isinstance(value, list | np.ndarray):
        return [pack(item) for item in value]
    if isinstance(value, Mapping):
        if all(type(key) is str for key in value) and not _TAGS & value.keys():
            return {key: pack(item) for key, item in value.items()}
        return {_ITEMS: [[pack(key), pack(item)] for key, item in value.items()]}
    raise TypeError(f"a task entry holds a {type(value).__name__}, which cannot be stored as JSON")


def unpack(value: Any) -> Any:
    """The inverse of `pack`."""
    if isinstance(value, list):
        return [unpack(item) for item in value]
    if isinstance(value, Mapping):
        if _TUPLE in value:
            return tuple(unpack(item) for item in value[_TUPLE])
        if _FRACTION in value:
            return Fraction(*value[_FRACTION])
        if _ITEMS in value:
            return {unpack(key): unpack(item) for key, item in value[_ITEMS]}
        return {key: unpack(item) for key, item in value.items()}
    return value
