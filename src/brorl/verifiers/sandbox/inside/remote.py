"""The judge's side of the candidate process: its functions, classes and objects as stand-ins.

Data crosses by value; anything else stays with the candidate and is a `Remote` here. Comparisons are never asked of the
candidate: a `Remote` equals only itself, so an overridden ``__eq__`` decides nothing.
"""

import builtins
from collections.abc import Callable, Iterator
from typing import Any

from .candidate import VERBS, Objects
from .values import Json, NotData, pack, receive, refuse, send, unpack


class CandidateError(Exception):
    """The candidate raised something that is not a built-in exception, sent nonsense, or is gone."""


class NeedsOneProcess(BaseException):
    """The tests hand the candidate something that only exists in this process, such as a lambda."""


class Link:
    """The connection to a candidate."""

    def __init__(self, channel: int) -> None:
        self._channel = channel
        self._known: dict[int, Remote] = {}
        self._gone = ""
        self.greeting = self._failure_of(self._receive())

    def ask(self, verb: str, target: Any, *arguments: Json) -> Json:
        """One request; the answer as JSON.

        Raises:
            Exception: what the candidate raised, as the built-in exception of that name or a `CandidateError`.
        """
        try:
            if not self._gone:
                send(self._channel, [verb, target, *arguments])
        except OSError:
            self._gone = "the program ended"
        answer = self._receive()
        failure = self._failure_of(answer)
        if failure is not None:
            raise failure
        return answer

    def value(self, verb: str, target: Any, *arguments: Json) -> Any:
        """One request; the answer's value."""
        return self.read(self.ask(verb, target, *arguments).get("value"))

    def read(self, data: Json) -> Any:
        """The value of packed data.

        Raises:
            CandidateError: it makes no sense.
        """
        try:
            return unpack(data, self._follow)
        except (KeyError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
            raise CandidateError(f"unreadable value: {type(error).__name__}") from None

    def write(self, value: Any) -> Json:
        """A value of the tests as packed data.

        Raises:
            NeedsOneProcess: it cannot leave this process.
        """
        try:
            return pack(value, lambda item: item.reference if type(item) is Remote else refuse(item))
        except NotData as error:
            raise NeedsOneProcess(str(error)) from None
        except RecursionError:  # may be the candidate's doing, who must not choose where the tests run
            raise CandidateError("a value is nested too deeply") from None

    def _receive(self) -> Json:
        if not self._gone:
            try:
                answer = receive(self._channel)
                if isinstance(answer, dict):
                    return answer
                self._gone = "the program broke the protocol"
            except (EOFError, OSError):
                self._gone = "the program ended"
            except (ValueError, RecursionError):
                self._gone = "the program broke the protocol"
        return {"error": ["CandidateError", self._gone]}

    def _failure_of(self, answer: Json) -> Exception | None:
        if "error" not in answer:
            return None
        error = answer["error"]
        if not (isinstance(error, list) and [type(part) for part in error] == [str, str]):
            return CandidateError("the program broke the protocol")
        kind = vars(builtins).get(error[0])
        if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, UnicodeError):
            return kind(error[1])
        return CandidateError(f"{error[0]}: {error[1]}" if error[0] != "CandidateError" else error[1])

    def _follow(self, number: int) -> "Remote":
        if number not in self._known:
            self._known[number] = Remote(self, int(number))
        return self._known[number]


class Here:
    """In place of a `Link`: the candidate is in this process, arguments go by reference, results as ever."""

    def __init__(self) -> None:
        self._objects = Objects()
        self._known: dict[int, Remote] = {}

    def wrap(self, value: Any) -> Any:
        """Data, rebuilt so that no overridden method is left; anything else as a `Remote`."""
        return unpack(pack(value, self._objects.refer), self._follow)

    def ask(self, verb: str, target: int, *arguments: Any) -> Json:
        """One request; the answer's value is already one of the tests'."""
        try:
            value = VERBS[verb](self._objects.follow(target), *arguments)
        except Exception:
            raise
        except BaseException as error:  # leaving the program is not leaving the tests
            raise CandidateError(type(error).__name__) from None
        return {"value": self.wrap(value), "changed": []}

    def value(self, verb: str, target: int, *arguments: Any) -> Any:
        """One request; the answer's value."""
        return self.ask(verb, target, *arguments)["value"]

    def read(self, data: Any) -> Any:
        """Nothing to do here."""
        return data

    def write(self, value: Any) -> Any:
        """A value as the candidate knows it."""
        return self._objects.follow(value.number) if type(value) is Remote else value

    def _follow(self, number: int) -> "Remote":
        return self._known.setdefault(number, Remote(self, number))


def _asks(verb: str) -> Callable[..., Any]:
    def method(self: "Remote", *arguments: Any) -> Any:
        return self.link.value(verb, self.number, *[self.link.write(item) for item in arguments])

    return method


def _sequence(self: "Remote") -> Iterator[Any]:
    items = self.link.value("all", self.number)
    if type(items) is not list:
        raise CandidateError("the program broke the protocol")
    return iter(items)


class Remote:
    """An object, function or class that lives in the candidate process."""

    __slots__ = ("link", "number")
    link: Link | Here
    number: int

    def __init__(self, link: Link | Here, number: int) -> None:
        object.__setattr__(self, "link", link)
        object.__setattr__(self, "number", number)

    @property
    def reference(self) -> Json:
        """How it is written in a message."""
        return {"tag": "reference", "value": self.number}

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        packed = [self.link.write(item) for item in arguments], [[k, self.link.write(v)] for k, v in named.items()]
        answer = self.link.ask("call", self.number, *packed)
        for change in answer.get("changed") or []:
            if type(change) is list and len(change) == 2 and change[0] in range(len(arguments)):
                overwrite(arguments[change[0]], self.link.read(change[1]))
        return self.link.read(answer.get("value"))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # copy, pickle and numpy look for these
        return self.link.value("get", self.number, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self.link.value("set", self.number, name, self.link.write(value))

    __getitem__ = _asks("item")
    __setitem__ = _asks("put")
    __len__ = _asks("length")
    __next__ = _asks("next")
    __iter__ = _sequence

    def __str__(self) -> str:
        return _as_text(self.link.value("text", self.number))

    def __repr__(self) -> str:
        return _as_text(self.link.value("shown", self.number))

    def __bool__(self) -> bool:
        return True

    def __hash__(self) -> int:
        return hash(self.number)

    def __eq__(self, other: object) -> bool:
        return self is other


def _as_text(value: Any) -> str:
    if type(value) is not str:
        raise CandidateError("the program broke the protocol")
    return value


def overwrite(old: Any, new: Any) -> None:
    """Bring a mutable argument to the state that a call left its copy in."""
    if type(old) is not type(new):
        return
    if isinstance(old, (list, bytearray)):
        old[:] = new
    elif isinstance(old, (dict, set)):
        old.clear()
        old.update(new)
    elif isinstance(old, tuple) and len(old) == len(new):
        for old_item, new_item in zip(old, new, strict=True):
            overwrite(old_item, new_item)
