"""Python values as JSON: what the judge and the candidate, two processes that share no memory, say to each other.

JSON scalars and lists stand for themselves, everything else is ``{"tag": ..., "value": ...}``. Reading a message runs
no code of the sender; an object whose comparison was tampered with arrives as plain data or as an opaque reference.
"""

import builtins
import json
import os
import struct
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

Json = Any
MAX_MESSAGE = 64 << 20  # bytes


class NotData(Exception):
    """A value that cannot be written down."""


def _items(value: Any) -> list[list[Any]]:
    return [[key, item] for key, item in dict.items(value)]


# Type -> its content as plainer values. Base-class methods are called on purpose: a subclass may lie.
_TAKE_APART: dict[type, Callable[[Any], Any]] = {
    tuple: lambda v: list(tuple.__iter__(v)),
    set: lambda v: list(set.__iter__(v)),
    frozenset: lambda v: list(frozenset.__iter__(v)),
    Counter: _items,
    OrderedDict: lambda v: [[key, item] for key, item in OrderedDict.items(v)],
    dict: _items,
    bytes: lambda v: list(bytes.__iter__(v)),
    bytearray: lambda v: list(bytearray.__iter__(v)),
    deque: lambda v: [list(deque.__iter__(v)), v.maxlen],
    range: lambda v: [v.start, v.stop, v.step],
    complex: lambda v: [v.real, v.imag],
    Fraction: lambda v: [v.numerator, v.denominator],
    Decimal: lambda v: Decimal.__str__(v),
    datetime: lambda v: datetime.isoformat(v),
    date: lambda v: date.isoformat(v),
    time: lambda v: time.isoformat(v),
    timedelta: lambda v: [v.days, v.seconds, v.microseconds],
}
_PUT_TOGETHER: dict[str, Callable[[Any], Any]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "Counter": lambda v: Counter(dict(v)),
    "OrderedDict": OrderedDict,
    "dict": dict,
    "bytes": bytes,
    "bytearray": bytearray,
    "deque": lambda v: deque(*v),
    "range": lambda v: range(*v),
    "complex": lambda v: complex(*v),
    "Fraction": lambda v: Fraction(*v),
    "Decimal": Decimal,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timedelta": lambda v: timedelta(*v),
    "builtin": lambda v: _builtin(v),
}
_SCALARS: dict[type, Callable[[Any], Any]] = {int: int.__pos__, float: float.__pos__, str: str.__str__}


def refuse(value: Any) -> Json:
    """For `pack`: no references to objects of this process.

    Raises:
        NotData: always.
    """
    raise NotData(f"a value of type {type(value).__name__} cannot be passed between processes")


def pack(value: Any, refer: Callable[[Any], Json] = refuse) -> Json:
    """A value as JSON; what is not data becomes what `refer` makes of it.

    Raises:
        NotData: `refer` refuses.
        RecursionError: nested too deeply, or within itself.
    """
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is list:
        return [pack(item, refer) for item in value]
    if kind.__module__ == "numpy":
        return pack(value.tolist(), refer)
    if _is_builtin(value, kind):
        return {"tag": "builtin", "value": value.__name__}
    for base in kind.__mro__[:-1]:
        if base in _SCALARS:
            return _SCALARS[base](value)
        if base is list:
            return [pack(item, refer) for item in list.__iter__(value)]
        if base in _TAKE_APART:
            return {"tag": base.__name__, "value": pack(_TAKE_APART[base](value), refer)}
    return refer(value)


def _builtin(name: str) -> Any:
    value = vars(builtins)[name]
    if not _is_builtin(value, type(value)):  # `__loader__`, for instance
        raise ValueError(f"{name} cannot be passed between processes")
    return value


def _is_builtin(value: Any, kind: type) -> bool:
    return kind in (type, type(len)) and vars(builtins).get(value.__name__) is value


def unpack(data: Json, follow: Callable[[int], Any]) -> Any:
    """The value of a message; `follow` turns the number of a reference into an object.

    Raises:
        KeyError, TypeError, ValueError: not a message of `pack`.
    """
    if isinstance(data, list):
        return [unpack(item, follow) for item in data]
    if not isinstance(data, dict):
        return data
    if data["tag"] == "reference":
        return follow(data["value"])
    return _PUT_TOGETHER[data["tag"]](unpack(data["value"], follow))


def send(descriptor: int, message: Json) -> None:
    """Write one message."""
    data = json.dumps(message).encode()
    if len(data) > MAX_MESSAGE:
        raise NotData(f"a message of {len(data)} bytes is too long")
    data = struct.pack("<I", len(data)) + data
    while data:
        data = data[os.write(descriptor, data) :]


def receive(descriptor: int) -> Json:
    """Read one message.

    Raises:
        EOFError: the other side is gone.
        ValueError: not a message.
    """
    size = struct.unpack("<I", _read(descriptor, 4))[0]
    if size > MAX_MESSAGE:
        raise ValueError(f"a message of {size} bytes is too long")
    return json.loads(_read(descriptor, size))


def _read(descriptor: int, size: int) -> bytes:
    chunks: list[bytes] = []
    while size:
        chunk = os.read(descriptor, min(size, 1 << 20))
        if not chunk:
            raise EOFError("the other side is gone")
        chunks.append(chunk)
        size -= len(chunk)
    return b"".join(chunks)
