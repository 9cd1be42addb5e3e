"""Rows from data files, in the column layouts of public data sets."""

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from brorl.errors import DataError
from brorl.seeding import derive_seed
from brorl.tasks.layouts import COLUMNS, LAYOUTS, LeftOut, recognise
from brorl.tasks.records import records
from brorl.tasks.rows import TaskRow, content_key, fingerprint

_ANSWERED = ("choice", "gym", "json_schema", "math", "math_verify", "numeric", "regex", "text")
"""verifiers that need a reference answer, a pattern or a schema"""


class RowsSource:
    """Rows held in memory, as a source for a mixture.

    Raises:
        DataError: no row, or two rows of one id.
    """

    def __init__(self, name: str, rows: Sequence[TaskRow]) -> None:
        if not rows:
            raise DataError(f"{name}: no rows: nothing to ask")
        seen: set[str] = set()
        for row in rows:
            if row.id in seen:
                raise DataError(f"{name}: two rows have the id {row.id!r}: ids must differ")
            seen.add(row.id)
        self.name = name
        self.rows = tuple(rows)
        self.fingerprint = fingerprint(
            [[r.id, r.question, [dict(m) for m in r.messages], r.verifier, r.answer, dict(r.meta)] for r in rows]
        )

    @property
    def size(self) -> int:
        """How many rows."""
        return len(self.rows)

    def row(self, index: int) -> TaskRow:
        """The row at an index."""
        return self.rows[index]


class LeftOutWarning(UserWarning):
    """Rows that a layout leaves out."""


def read_rows(
    path: Path,
    *,
    layout: str = "auto",
    verifier: str | None = None,
    columns: Mapping[str, str] | None = None,
    meta: Mapping[str, Any] | None = None,
    needs_answer: bool = True,
) -> list[TaskRow]:
    """All rows of a file, a folder of shards or a saved data set (see `brorl.tasks.records.records`).

    An id defaults to the file's name and the row's number.

    Args:
        layout: a name in `brorl.tasks.layouts.LAYOUTS`, or ``auto``: the one that the first record's columns show.
        verifier: in place of the layout's own choice.
        columns: which columns hold ``id``, ``question``, ``messages``, ``answer``, where they are not called so; only
            with the layout ``plain``, which naming them chooses.
        meta: added to each row's meta, such as ``{"answer_format": "whole"}``.
        needs_answer: whether a row without an answer is an error where its verifier compares with one.

    Raises:
        DataError: a missing or empty file, broken JSON, a row that does not fit the layout, an unknown layout or key in
            `columns`, a repeated id; the message names file and row.
    """
    columns = dict(columns or {})
    for key in columns:
        if key not in COLUMNS:
            raise DataError(f"columns: {key!r} is unknown; known: {', '.join(COLUMNS)}")
    if columns and layout == "auto":
        layout = "plain"
    if layout != "auto" and layout not in LAYOUTS:
        raise DataError(f"layout {layout!r} is unknown; known: auto, {', '.join(LAYOUTS)}")
    if columns and LAYOUTS[layout] is not LAYOUTS["plain"]:
        raise DataError(f"columns have no effect on layout {layout!r}, which knows its own: drop one of the two")
    rows: list[TaskRow] = []
    first_seen: dict[str, str] = {}
    left_out = Counter[str]()
    for record in records(path):
        try:
            if layout == "auto":
                layout = recognise(record.values)
            row = LAYOUTS[layout](record.values, columns)
            row = _completed(row, record.id, verifier, meta or {}, needs_answer)
        except LeftOut as reason:
            left_out[str(reason)] += 1
            continue
        except KeyError as error:
            raise DataError(f"{record.where}: no column {error}, which layout {layout!r} needs") from error
        except DataError as error:
            raise DataError(f"{record.where}: {error}") from error
        place = record.where.rpartition(", ")[2]
        if row.id in first_seen:
            raise DataError(f"{record.where}: id {row.id!r} already stands in {first_seen[row.id]}: ids must differ")
        first_seen[row.id] = place
        rows.append(row)
    if not rows:
        raise DataError(f"{path} holds no rows" + (f" that can be used: {_told(left_out)}" if left_out else ""))
    if left_out:
        total = len(rows) + left_out.total()
        message = f"{path}: {left_out.total()} of {total} rows are left out by layout {layout!r}: {_told(left_out)}"
        warnings.warn(message, LeftOutWarning, stacklevel=2)
    return rows


def split_rows(rows: Sequence[TaskRow], split: Literal["train", "heldout"], share: float = 0.1) -> list[TaskRow]:
    """The rows of one side of a split by content: equal questions are always on the same side, in any file."""
    limit = share * 2**63
    return [row for row in rows if (derive_seed("file-split", content_key(row)) < limit) is (split == "heldout")]


def _completed(
    row: TaskRow, default_id: str, verifier: str | None, meta: Mapping[str, Any], needs_answer: bool
) -> TaskRow:
    row = replace(row, id=row.id or default_id, verifier=verifier or row.verifier, meta={**row.meta, **meta})
    if needs_answer and not row.answer and row.verifier in _ANSWERED:
        raise DataError("no answer: add a column 'answer', or name the one that holds it under columns")
    return row


def _told(reasons: Counter[str]) -> str:
    return "; ".join(f"{count} {reason}" for reason, count in reasons.most_common())
