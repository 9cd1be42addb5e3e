"""Rows from JSONL and Parquet files, in our own, verl's and TRL's column layouts."""

import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from brorl.errors import DataError
from brorl.seeding import derive_seed
from brorl.tasks.rows import TaskRow, content_key, fingerprint

_NAMES: dict[str, tuple[str, ...]] = {
    "id": ("id",),
    "question": ("question", "prompt", "problem"),
    "messages": ("messages", "prompt"),
    "answer": ("answer", "ground_truth", "solution"),
}
"""Columns that are looked for, in this order, where the recipe names none."""


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


def read_rows(
    path: Path,
    *,
    verifier: str,
    columns: Mapping[str, str] | None = None,
    meta: Mapping[str, Any] | None = None,
    needs_answer: bool = True,
) -> list[TaskRow]:
    """All rows of a ``.jsonl`` (or ``.json``, ``.ndjson``) or ``.parquet`` file.

    The question is a text or a list of messages; verl's ``reward_model.ground_truth`` counts as an answer. Every other
    column goes to `TaskRow.meta`. An id defaults to the file's name and the row's number.

    Args:
        columns: which columns hold ``id``, ``question``, ``messages``, ``answer``, where they are not called so.
        meta: added to each row's meta, such as ``{"answer_format": "whole"}``.
        needs_answer: whether a row without an answer is an error; a user's verifier may read other columns.

    Raises:
        DataError: a missing or empty file, broken JSON, a row without question or answer, an unknown key in `columns`,
            a repeated id; the message names file and row.
    """
    columns = dict(columns or {})
    for key in columns:
        if key not in _NAMES:
            raise DataError(f"columns: {key!r} is unknown; known: {', '.join(_NAMES)}")
    rows: list[TaskRow] = []
    first_seen: dict[str, str] = {}
    for number, record in read_records(path):
        where = f"{path}, {_unit(path)} {number}"
        row = _row(record, where, f"{path.stem}/{number}", verifier, columns, needs_answer)
        row = TaskRow(
            id=row.id,
            question=row.question,
            messages=row.messages,
            verifier=row.verifier,
            answer=row.answer,
            meta={**row.meta, **(meta or {})},
        )
        if row.id in first_seen:
            raise DataError(f"{where}: id {row.id!r} already stands in {first_seen[row.id]}: ids must differ")
        first_seen[row.id] = f"{_unit(path)} {number}"
        rows.append(row)
    if not rows:
        raise DataError(f"{path} holds no rows")
    return rows


def split_rows(rows: Sequence[TaskRow], split: Literal["train", "heldout"], share: float = 0.1) -> list[TaskRow]:
    """The rows of one side of a split by content: equal questions are always on the same side, in any file."""
    limit = share * 2**63
    return [row for row in rows if (derive_seed("file-split", content_key(row)) < limit) is (split == "heldout")]


def _unit(path: Path) -> str:
    return "row" if path.suffix == ".parquet" else "line"


def read_records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a ``.jsonl`` or ``.parquet`` file as they stand, each with its line or row number from 1.

    Raises:
        DataError: a missing file, broken JSON, a row that is not an object; the message names file and line.
    """
    if not path.is_file():
        raise DataError(f"no data file {path}")
    if path.suffix == ".parquet":
        try:
            records: list[dict[str, Any]] = pq.read_table(path).to_pylist()
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{path} is not a readable Parquet file: {error}") from error
        yield from enumerate(records, 1)
        return
    # Only b"\n" ends a line: str.splitlines would also break at characters that texts hold.
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise DataError(f"{path}, line {number}: not valid JSON ({error}): mend or remove the line") from error
        if not isinstance(record, dict):
            raise DataError(f"{path}, line {number}: expected a JSON object, found {type(record).__name__}")
        yield number, record


def _row(
    record: dict[str, Any],
    where: str,
    default_id: str,
    verifier: str,
    columns: Mapping[str, str],
    needs_answer: bool,
) -> TaskRow:
    for key, column in columns.items():
        if column not in record:
            raise DataError(f"{where}: no column {column!r}, which is to hold the {key}; it has {', '.join(record)}")
    used: set[str] = set()
    question, messages = _question(record, columns, used, where)
    answer = _answer(record, columns)
    if answer is None and needs_answer:
        raise DataError(f"{where}: no answer: add a column 'answer', or name the one that holds it under columns")
    id_column = columns.get("id", "id")
    identity = record.get(id_column)
    used.add(id_column)
    if "answer" not in columns:
        used.add("answer")  # under any other name the answer stays in meta too, for reward functions that ask for it
    return TaskRow(
        id=default_id if identity is None else str(identity),
        question=question,
        messages=messages,
        verifier=verifier,
        answer=answer or "",
        meta={key: plain(value) for key, value in record.items() if key not in used},
    )


def _question(
    record: dict[str, Any], columns: Mapping[str, str], used: set[str], where: str
) -> tuple[str, tuple[dict[str, str], ...]]:
    for kind in ("messages", "question"):
        for column in (columns[kind],) if kind in columns else _NAMES[kind]:
            value = record.get(column)
            if kind == "messages" and isinstance(value, list):
                used.add(column)
                return "", _messages(value, where)
            if kind == "question" and isinstance(value, str) and value.strip():
                used.add(column)
                return value, ()
    raise DataError(
        f"{where}: no question: a column 'question' or 'prompt' with text, or 'messages' with a conversation, is needed"
    )


def _messages(value: list[Any], where: str) -> tuple[dict[str, str], ...]:
    messages: list[dict[str, str]] = []
    for message in value:
        if not (isinstance(message, dict) and isinstance(message.get("role"), str)) or not isinstance(
            message.get("content"), str
        ):
            raise DataError(f"{where}: a message needs a 'role' and a 'content', both text: {message!r}")
        messages.append({"role": message["role"], "content": message["content"]})
    if not messages or messages[-1]["role"] == "assistant":
        raise DataError(f"{where}: a conversation must hold a question and end before the assistant's answer")
    return tuple(messages)


def _answer(record: dict[str, Any], columns: Mapping[str, str]) -> str | None:
    candidates = (columns["answer"],) if "answer" in columns else _NAMES["answer"]
    for column in candidates:
        value = record.get(column)
        if value is not None and value == value and str(value).strip():  # NaN is how tables write a missing answer
            return _text(value)
    reward_model = record.get("reward_model")  # verl
    if isinstance(reward_model, dict) and reward_model.get("ground_truth") is not None:
        return _text(reward_model["ground_truth"])
    return None


def _text(value: Any) -> str:
    if isinstance(value, str | Decimal):
        return str(value)
    return json.dumps(plain(value))


def plain(value: Any) -> Any:
    """JSON values: dates, decimals and bytes of a Parquet column become text."""
    return json.loads(json.dumps(value, default=str))
