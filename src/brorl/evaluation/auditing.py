"""Our verdicts against recorded ones and a second grader's: how far they agree, and every row where they do not."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brorl.errors import DataError
from brorl.evaluation.responses import Response
from brorl.evaluation.scoring import as_line, outcome_name
from brorl.group import Outcome
from brorl.verifiers.score import Score


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One response and what is said of it."""

    response: Response
    score: Score
    second: Score | None = None
    adjudicated: bool | None = None

    @property
    def agrees_with_recorded(self) -> bool | None:
        """None where nothing is recorded. Only correct counts as correct; what cannot be scored agrees with nothing."""
        return _agrees(self.score, self.response.recorded)

    @property
    def agrees_with_second(self) -> bool | None:
        """None where there is no second grader."""
        if self.second is None:
            return None
        return _agrees(self.score, _said(self.second))

    @property
    def agrees_with_adjudicated(self) -> bool | None:
        """Against the adjudicated verdict, else the recorded one; None where there is neither."""
        return _agrees(self.score, self.response.recorded if self.adjudicated is None else self.adjudicated)

    @property
    def disputed(self) -> bool:
        """Someone says otherwise than we do."""
        return self.agrees_with_recorded is False or self.agrees_with_second is False

    def as_line(self) -> dict[str, Any]:
        """One JSON line of `brorl audit --json`."""
        second = None if self.second is None else outcome_name(self.second.outcome)
        return {
            **as_line(self.response, self.score),
            "answer": self.response.prompt.answer,
            "recorded": self.response.recorded,
            "second": second,
            "second_extracted": None if self.second is None else self.second.extracted,
            "adjudicated": self.adjudicated,
            "agrees": not self.disputed,
        }


def _said(score: Score) -> bool | None:
    return None if score.outcome in (Outcome.UNSCORABLE, Outcome.ERROR) else score.outcome is Outcome.CORRECT


def _agrees(score: Score, other: bool | None) -> bool | None:
    return None if other is None else _said(score) == other


def read_adjudications(path: Path) -> dict[str, bool]:
    """Verdicts decided by a reader: JSON lines with ``id`` and ``correct`` (and a ``why`` for other readers).

    Raises:
        DataError: no such file, or a line without the two, named.
    """
    decided: dict[str, bool] = {}
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            decided[str(row["id"])] = _boolean(row["correct"])
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}, line {number}: needs 'id' and 'correct' (true or false): {error}") from error
    return decided


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")
    return value


def compare_verdicts(
    responses: Sequence[Response],
    scores: Sequence[Score],
    second: Sequence[Score] | None,
    adjudicated: Mapping[str, bool],
) -> list[Comparison]:
    """One comparison a response, in order.

    Raises:
        DataError: an adjudicated id that no response has.
    """
    unknown = set(adjudicated) - {response.id for response in responses}
    if unknown:
        raise DataError(f"adjudicated ids that no row has: {', '.join(sorted(unknown)[:5])}")
    others = [None] * len(scores) if second is None else second
    return [
        Comparison(response=response, score=score, second=other, adjudicated=adjudicated.get(response.id))
        for response, score, other in zip(responses, scores, others, strict=True)
    ]


def summarise_audit(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """The figures that `brorl audit` prints.

    Keys: ``recorded``, ``second`` and ``adjudicated``, each None or ``compared``, ``agree``, ``agreement``;
    ``recorded_against_second`` likewise; ``table``: outcome -> recorded "correct" or "not correct" -> rows;
    ``disputed``: rows.
    """
    table: dict[str, Counter[str]] = {}
    for c in comparisons:
        if c.response.recorded is not None:
            column = "correct" if c.response.recorded else "not correct"
            table.setdefault(outcome_name(c.score.outcome), Counter())[column] += 1
    with_second = [c for c in comparisons if c.second is not None and c.response.recorded is not None]
    decided = any(c.adjudicated is not None for c in comparisons)
    return {
        "recorded": _agreement([c.agrees_with_recorded for c in comparisons]),
        "second": _agreement([c.agrees_with_second for c in comparisons]),
        "recorded_against_second": _agreement(
            [_agrees(c.second, c.response.recorded) for c in with_second if c.second]
        ),
        "adjudicated": _agreement([c.agrees_with_adjudicated for c in comparisons]) if decided else None,
        "table": {name: dict(row) for name, row in table.items()},
        "disputed": sum(c.disputed for c in comparisons),
    }


def _agreement(verdicts: Sequence[bool | None]) -> dict[str, Any] | None:
    compared = [verdict for verdict in verdicts if verdict is not None]
    if not compared:
        return None
    return {"compared": len(compared), "agree": sum(compared), "agreement": sum(compared) / len(compared)}
