"""Files of responses, one JSON object a line, read into prompts and texts to grade.

A row holds an id, the reference answer, and one completion or a list of them; everything else in it is handed to the
verifier in `Prompt.meta`. Rows are read on ``\\n`` alone: model outputs hold other line breaks.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brorl.errors import DataError
from brorl.group import Prompt

NO_ANSWER_NEEDED = ("code", "gym", "instruction")
"""Verifiers whose gold is in the meta: tests, a task entry, a list of instructions; a user's own, too."""

_TRUNCATED = ("length", "max_tokens", "max_length", "truncated")
_RECORDED = ("is_correct", "expected", "reward", "strict_all", "is_correct_base", "correct")


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """What the columns of a file are called."""

    id: str = "id"
    problem: str = "problem_id"
    """rows of one problem are its samples; where it is missing, the id is the problem"""
    answer: str = "answer"
    completion: str = "completion"
    completions: str = "completions"
    finish: str = "finish_reason"
    """"length" or "max_tokens" marks a truncated response"""
    recorded: str | None = None
    """a recorded verdict, kept away from the verifier: true or false, or a number that is correct from 1 up"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One response to grade."""

    id: str
    problem: str
    prompt: Prompt
    text: str
    truncated: bool = False
    recorded: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """A row that cannot be used, and why."""

    line: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


class _Unusable(ValueError):
    """Why a row cannot be used."""


def read_responses(
    path: Path,
    verifier: str,
    *,
    columns: Columns | None = None,
    problems: Sequence[Path] = (),
    meta: Mapping[str, Any] | None = None,
    skip_bad: bool = False,
) -> tuple[list[Response], list[BadRow]]:
    """Read a file of responses; a list of completions gives the rows ``id#0``, ``id#1`` and so on.

    Args:
        verifier: goes into every prompt; decides whether a row must have an answer.
        problems: JSONL files with the tests or other columns of each problem, joined on the problem's id. A row's own
            columns win.
        meta: settings for the verifier, put over the columns of every row.
        skip_bad: leave malformed rows out and return them, instead of raising.

    Raises:
        DataError: no such file, nothing to grade in it, or malformed rows, each named with its line.
    """
    columns = columns or Columns()
    known = _read_problems(problems, columns.id)
    responses: list[Response] = []
    bad: list[BadRow] = []
    for line, data in _lines(path):
        try:
            row = _parse(data)
            responses += _responses(row, verifier, columns, known if problems else None, meta or {})
        except _Unusable as reason:
            bad.append(BadRow(line=line, reason=str(reason)))
    if bad and not skip_bad:
        shown = "\n".join(f"  {row}" for row in bad[:20]) + (f"\n  and {len(bad) - 20} more" if len(bad) > 20 else "")
        raise DataError(
            f"{path}: {len(bad)} malformed {'row' if len(bad) == 1 else 'rows'}\n{shown}\n"
            "Mend them, name other columns by flags, or leave them out with --skip-bad."
        )
    if not responses:
        raise DataError(f"{path}: no response to grade" + (f"; all {len(bad)} rows are malformed" if bad else ""))
    return responses, bad


def recorded_column(path: Path) -> str | None:
    """The name of the column that holds recorded verdicts, by the names in use, seen in the first row; None if none.

    Raises:
        DataError: no such file.
    """
    for _, data in _lines(path):
        try:
            row = _parse(data)
        except _Unusable:
            continue
        return next((name for name in _RECORDED if name in row), None)
    return None


def _lines(path: Path) -> Iterable[tuple[int, bytes]]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
                if line.strip():
                    yield number, line
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error


def _parse(data: bytes) -> dict[str, Any]:
    try:
        row = json.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise _Unusable(f"not UTF-8 at byte {error.start}") from error
    except (ValueError, RecursionError) as error:
        raise _Unusable(f"not JSON: {error}") from error
    if not isinstance(row, dict):
        raise _Unusable(f"a JSON object is needed, this is a {type(row).__name__}")
    return row


def _read_problems(paths: Sequence[Path], id_column: str) -> dict[str, dict[str, Any]]:
    known: dict[str, dict[str, Any]] = {}
    for path in paths:
        for line, data in _lines(path):
            try:
                row = _parse(data)
                known[_identity(row, id_column)] = {key: value for key, value in row.items() if key != id_column}
            except _Unusable as reason:
                raise DataError(f"{path}, line {line}: {reason}") from reason
    return known


def _identity(row: Mapping[str, Any], column: str) -> str:
    value = row.get(column)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise _Unusable(f"column {column!r} must hold a text or a whole number" if column in row else f"no {column!r}")
    return str(value)


def _responses(
    row: dict[str, Any],
    verifier: str,
    columns: Columns,
    problems: Mapping[str, dict[str, Any]] | None,
    meta: Mapping[str, Any],
) -> list[Response]:
    row_id = _identity(row, columns.id)
    problem = _identity(row, columns.problem) if row.get(columns.problem) is not None else row_id
    texts, many = _texts(row, columns)
    finishes = _per_text(row, columns.finish, len(texts), many)
    recorded = _per_text(row, columns.recorded, len(texts), many) if columns.recorded else [None] * len(texts)
    if columns.recorded and row.get(columns.recorded) is None:
        raise _Unusable(f"no {columns.recorded!r}")
    if problems is not None:
        if problem not in problems:
            raise _Unusable(f"no problem {problem!r} in the files of problems")
        row = {**problems[problem], **row}
    prompt = _prompt(row, problem, verifier, columns, meta)
    return [
        Response(
            id=f"{row_id}#{i}" if many else row_id,
            problem=problem,
            prompt=prompt,
            text=text,
            truncated=_truncated(finish, columns.finish),
            recorded=None if columns.recorded is None else _verdict(verdict, columns.recorded),
        )
        for i, (text, finish, verdict) in enumerate(zip(texts, finishes, recorded, strict=True))
    ]


def _texts(row: Mapping[str, Any], columns: Columns) -> tuple[list[str], bool]:
    name = columns.completion if columns.completion in row else columns.completions
    if name not in row:
        raise _Unusable(f"no {columns.completion!r} and no {columns.completions!r}")
    value = row[name]
    if isinstance(value, str):
        return [value], False
    if not isinstance(value, list) or not value or not all(isinstance(text, str) for text in value):
        raise _Unusable(f"column {name!r} must hold a text, or a list of at least one text")
    return value, True


def _per_text(row: Mapping[str, Any], name: str, count: int, many: bool) -> list[Any]:
    value = row.get(name)
    if not many or not isinstance(value, list):
        return [value] * count
    if len(value) != count:
        raise _Unusable(f"column {name!r} has {len(value)} entries for {count} completions")
    return value


def _truncated(finish: Any, name: str) -> bool:
    if finish is not None and not isinstance(finish, str):
        raise _Unusable(f"column {name!r} must hold a text such as 'stop' or 'length'")
    return finish is not None and finish.lower() in _TRUNCATED


def _verdict(value: Any, name: str) -> bool:
    if not isinstance(value, bool | int | float):
        raise _Unusable(f"column {name!r} must hold true, false or a number")
    return bool(value >= 1)


def _prompt(row: dict[str, Any], problem: str, verifier: str, columns: Columns, meta: Mapping[str, Any]) -> Prompt:
    answer = row.get(columns.answer)
    if answer is None and verifier not in NO_ANSWER_NEEDED and ":" not in verifier:
        raise _Unusable(f"no {columns.answer!r}, which verifier {verifier!r} needs")
    named = {columns.id, columns.problem, columns.answer, columns.completion, columns.completions, columns.finish}
    others = {key: value for key, value in row.items() if key not in named and key != columns.recorded}
    question = next((row[key] for key in ("question", "prompt") if isinstance(row.get(key), str)), "")
    return Prompt(
        id=problem,
        text=question,
        verifier=verifier,
        answer="" if answer is None else answer if isinstance(answer, str) else json.dumps(answer),
        meta={**others, **meta},
    )
