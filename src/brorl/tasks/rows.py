"""A row of training or evaluation data, before a tokenizer has seen it."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow:
    """One question and how to judge its answers."""

    id: str
    question: str = ""
    """plain text; empty where the row brings its own `messages`"""
    messages: tuple[Mapping[str, str], ...] = ()
    """a conversation of ``{"role": ..., "content": ...}`` up to and including the question"""
    verifier: str = "text"
    """a name in `brorl.verifiers.VERIFIERS`, or ``package.module:function``"""
    answer: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """JSON values: whatever else the verifier or a report needs"""


class Source(Protocol):
    """Rows by index: a file, a procedural task."""

    @property
    def name(self) -> str:
        """A name that is unique within a mixture."""
        ...

    @property
    def size(self) -> int | None:
        """How many rows; None for an endless source."""
        ...

    @property
    def fingerprint(self) -> str:
        """A hash that changes when any row would."""
        ...

    def row(self, index: int, /) -> TaskRow:
        """The row at an index, always the same one."""
        ...


def content_key(row: TaskRow) -> str:
    """What makes two rows the same question: its text, whatever the white space and case."""
    text = row.question or "\n".join(message["content"] for message in row.messages)
    return " ".join(text.split()).casefold()


def fingerprint(*parts: Any) -> str:
    """A short hash of JSON values."""
    data = json.dumps(parts, sort_keys=True, ensure_ascii=True).encode()
    return hashlib.blake2b(data, digest_size=16).hexdigest()
