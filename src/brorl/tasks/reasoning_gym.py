"""Reasoning Gym tasks as sources of rows: any task by name, finite or endless, splits disjoint by content.

Reasoning Gym seeds item i of a data set with ``seed + i``, so data sets with neighbouring seeds share almost all of
their questions. Here every item has a seed of its own, hashed from (seed, task, split, index, attempt), and a question
belongs to the held-out split or to training by a hash of its own text: an item that falls on the wrong side is drawn
again. So no training set, whatever its seed and size, shares a question with any held-out set.
"""

from collections.abc import Mapping
from typing import Any, Literal

from brorl.errors import DataError, RecipeError
from brorl.seeding import derive_seed
from brorl.tasks.entries import pack
from brorl.tasks.gym_items import create, item
from brorl.tasks.isolated import UNRULY, isolated_item
from brorl.tasks.rows import TaskRow, content_key, fingerprint

Split = Literal["train", "heldout"]

HELD_OUT_SHARE = 0.2
"""Share of a task's distinct questions that only held-out sets may hold."""

_ATTEMPTS = 400  # draws in a row without a new question before a set counts as exhausted


def is_held_out(text: str) -> bool:
    """Whether a question belongs to held-out sets: a hash of its content decides, not the seed."""
    return derive_seed("held-out", " ".join(text.split()).casefold()) < HELD_OUT_SHARE * 2**63


class GymSource:
    """Rows of one Reasoning Gym task.

    Args:
        task: its name in Reasoning Gym.
        config: its options, such as ``{"min_terms": 2}``.
        split: ``train`` or ``heldout``.
        seed: of the run; rows depend on (seed, split, index) only.
        size: a finite set of that many distinct questions, made when first read; None for an endless one, whose
            questions may repeat where the task has few.
        meta: added to each row's meta, such as ``{"answer_format": "whole", "mode": "partial"}``.

    Raises:
        RecipeError: an unknown task or option.
    """

    def __init__(
        self,
        task: str,
        config: Mapping[str, Any] | None = None,
        *,
        split: Split = "train",
        seed: int = 0,
        size: int | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        if size is not None and size < 1:
            raise RecipeError(f"task {task!r}: size must be at least 1, or absent for an endless set")
        self.task, self.split, self.seed = task, split, seed
        self._config = dict(config or {})
        self._meta = dict(meta or {})
        self._dataset = create(task, self._config)
        self._size = size
        self._prefix = f"{task}-{fingerprint(pack(self._config), seed)[:6]}/{split}"
        self._rows: list[TaskRow] = []
        self._seen: set[str] = set()

    @property
    def name(self) -> str:
        """Task and split."""
        return f"{self.task}/{self.split}"

    @property
    def size(self) -> int | None:
        """How many rows; None for an endless source."""
        return self._size

    @property
    def fingerprint(self) -> str:
        """A hash of everything that the rows depend on."""
        return fingerprint(self.task, pack(self._config), self.split, self.seed, self._size, pack(self._meta))

    def row(self, index: int) -> TaskRow:
        """The row at an index.

        Raises:
            IndexError: outside a finite set.
            DataError: the task has too few distinct questions for this split.
        """
        if self._size is None:
            return self._draw(index, frozenset())
        if not 0 <= index < self._size:
            raise IndexError(f"{self.name} has {self._size} rows, not {index + 1}")
        while len(self._rows) <= index:
            row = self._draw(len(self._rows), self._seen)
            self._seen.add(content_key(row))
            self._rows.append(row)
        return self._rows[index]

    def _draw(self, index: int, seen: set[str] | frozenset[str]) -> TaskRow:
        for attempt in range(_ATTEMPTS):
            seed = derive_seed("reasoning-gym", self.seed, self.task, self.split, index, attempt) >> 31  # 32 bits
            entry = self._item(seed)
            if is_held_out(entry["question"]) is not (self.split == "heldout") or _is_unsolved(self.task, entry):
                continue
            row = TaskRow(
                id=f"{self._prefix}/{index}",
                question=entry["question"],
                verifier="gym",
                answer="" if entry["answer"] is None else str(entry["answer"]),
                meta={**self._meta, "task": self.task, "config": pack(self._config), "entry": _for_scorer(entry)},
            )
            if content_key(row) not in seen:
                return row
        have = f"only {len(seen)} distinct questions" if seen else "no question"
        raise DataError(
            f"task {self.task!r} with options {self._config} gives {have} for its {self.split} set"
            f"{'' if self._size is None else f' of {self._size}'}: ask for fewer, or widen its options"
        )

    def _item(self, seed: int) -> dict[str, Any]:
        if self.task in UNRULY:
            return isolated_item(self.task, self._config, seed)
        return item(self._dataset, self.task, self._config, seed)


def _is_unsolved(task: str, entry: Mapping[str, Any]) -> bool:
    """The generator found no closed form and gives the question back as its own answer."""
    return task == "intermediate_integration" and "Integral(" in entry["answer"]


def _for_scorer(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry as JSON, without what no scorer reads: the question, which the prompt holds already, and the day on
    which time_intervals made the item."""
    metadata = {key: value for key, value in entry["metadata"].items() if key not in ("start_time", "end_time")}
    return pack({"answer": entry["answer"], "metadata": metadata})
