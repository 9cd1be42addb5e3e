"""The candidate's side of a function test: define what the program defines, then answer calls until the judge is gone.

Messages: ``[verb, target, ...]`` where a target is a reference. Answers: ``{"value": ..., "changed": [[i, value]]}``,
the second part for arguments that the call changed in place, or ``{"error": [type name, message]}``.
"""

import os
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from .values import Json, pack, receive, send, unpack

_LONGEST_ITERATION = 1_000_000
_END = object()

VERBS: dict[str, Callable[..., Any]] = {
    "call": lambda target, arguments, named: target(*arguments, **dict(named)),
    "get": lambda target, name: getattr(target, name),
    "set": lambda target, name, value: setattr(target, name, value),
    "item": lambda target, key: target[key],
    "put": lambda target, key, value: target.__setitem__(key, value),
    "length": lambda target: len(target),
    "text": lambda target: str(target),
    "shown": lambda target: repr(target),
    "all": lambda target: list(islice(target, _LONGEST_ITERATION)),
    "next": lambda target: next(target),
}


class Objects:
    """Objects that stay here, by number."""

    def __init__(self) -> None:
        self._held: list[Any] = []
        self._numbers: dict[int, int] = {}

    def refer(self, value: Any) -> Json:
        """The reference of an object, the same one each time."""
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._held)
            self._held.append(value)
        return {"tag": "reference", "value": self._numbers[id(value)]}

    def follow(self, number: int) -> Any:
        """The object of a reference."""
        return self._held[number]


def resolve(namespace: dict[str, Any], name: str) -> Any:
    """What the program calls `name`: a global, or a method of its class `Solution`.

    Raises:
        NameError: neither.
    """
    if name in namespace:
        return namespace[name]
    if "Solution" in namespace and name in dir(namespace["Solution"]):
        return getattr(namespace["Solution"](), name)
    raise NameError(f"name {name!r} is not defined")


def define(source: str) -> dict[str, Any]:
    """Run a program as a module (its main guard is not taken) and return its globals."""
    namespace: dict[str, Any] = {"__name__": "candidate"}
    exec(compile(source, "<program>", "exec", dont_inherit=True), namespace)
    return namespace


def main(channel: int, source: str) -> None:
    """Serve a program to the judge at the other end of `channel`."""
    objects = Objects()
    try:
        namespace = define(source)
    except BaseException as error:  # SystemExit as well: a program that leaves has no functions
        send(channel, _failure(error))
        return
    send(channel, {"value": None, "changed": []})
    for message in _messages(channel):
        try:
            answer = _answer(message, namespace, objects)
        except BaseException as error:
            answer = _failure(error)
        send(channel, answer)


def _messages(channel: int) -> Iterator[Json]:
    while True:
        try:
            yield receive(channel)
        except EOFError:
            os._exit(0)  # threads of the program would keep it alive


def _answer(message: Json, namespace: dict[str, Any], objects: Objects) -> Json:
    verb, target, *packed = message
    if verb == "global":
        return {"value": pack(resolve(namespace, target), objects.refer), "changed": []}
    arguments = [unpack(item, objects.follow) for item in packed]
    value = VERBS[verb](objects.follow(target), *arguments)
    answer = pack(value, objects.refer)
    changed: list[Json] = []
    if verb == "call":
        for index, (before, argument) in enumerate(zip(packed[0], arguments[0], strict=True)):
            after = pack(argument, objects.refer)
            if after != before:
                changed.append([index, after])
    return {"value": answer, "changed": changed}


def _failure(error: BaseException) -> Json:
    try:
        message = str(error)[:500]
    except BaseException:  # its __str__ is the program's
        message = ""
    return {"error": [type(error).__name__, message]}
