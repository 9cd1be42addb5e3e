"""Reading the arguments of an instruction: present, of the right kind, or the instruction cannot be judged."""

from collections.abc import Callable, Mapping
from typing import Any

Arguments = Mapping[str, Any]
Check = Callable[[str, Arguments], bool | None]


class BadInstruction(ValueError):
    """An instruction whose arguments are missing or make no sense: whatever the response, it is unscorable."""


def text_argument(kwargs: Arguments, name: str) -> str:
    """A non-blank string.

    Raises:
        BadInstruction: missing, blank, or not a string.
    """
    value = kwargs.get(name)
    if not isinstance(value, str) or not value.strip():
        raise BadInstruction(f"argument {name!r} must be a non-empty text, not {value!r}")
    return value.strip()


def texts_argument(kwargs: Arguments, name: str) -> list[str]:
    """A non-empty list of non-blank strings.

    Raises:
        BadInstruction: missing, empty, or not a list of strings.
    """
    value = kwargs.get(name)
    if not isinstance(value, list | tuple) or not value or not all(isinstance(v, str) and v.strip() for v in value):
        raise BadInstruction(f"argument {name!r} must be a list of texts, not {value!r}")
    return [v.strip() for v in value]


def count_argument(kwargs: Arguments, name: str) -> int:
    """A whole number that is not negative (a float such as 3.0 counts: Parquet files hold them).

    Raises:
        BadInstruction: missing, negative, or not a whole number.
    """
    value = kwargs.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1 or value < 0:
        raise BadInstruction(f"argument {name!r} must be a whole number, not {value!r}")
    return int(value)


def compare(actual: int, kwargs: Arguments, relation: str, threshold: str) -> bool:
    """Does `actual` stand in the named relation to the named threshold?

    Raises:
        BadInstruction: a relation other than "less than" and "at least", or no threshold.
    """
    limit = count_argument(kwargs, threshold)
    match kwargs.get(relation):
        case "less than":
            return actual < limit
        case "at least":
            return actual >= limit
        case other:
            raise BadInstruction(f"argument {relation!r} must be 'less than' or 'at least', not {other!r}")
