"""Reading files of responses: columns, lists, joins, and rows that cannot be used."""

import json
from pathlib import Path
from typing import Any

import pytest

from brorl.errors import DataError
from brorl.evaluation.responses import Columns, read_responses, recorded_column


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), "utf-8")
    return path


def test_default_columns(tmp_path: Path):
    row = {"id": 7, "question": "1+1?", "answer": 2, "completion": "2", "finish_reason": "stop", "level": "easy"}
    (response,), bad = read_responses(write(tmp_path / "r.jsonl", row), "math")
    assert (response.id, response.problem, response.text, response.truncated) == ("7", "7", "2", False)
    assert (response.prompt.id, response.prompt.text, response.prompt.answer) == ("7", "1+1?", "2")
    assert response.prompt.meta == {"question": "1+1?", "level": "easy"}
    assert response.prompt.verifier == "math"
    assert bad == []


def test_named_columns_and_settings(tmp_path: Path):
    row = {"key": "a", "task": "t", "gold": "2", "output": "2", "stop": "length", "mode": "strict"}
    columns = Columns(id="key", problem="task", answer="gold", completion="output", finish="stop")
    (response,), _ = read_responses(write(tmp_path / "r.jsonl", row), "math", columns=columns, meta={"mode": "lenient"})
    assert (response.id, response.problem, response.truncated) == ("a", "t", True)
    assert response.prompt.meta == {"mode": "lenient"}


@pytest.mark.parametrize("column", ["completion", "completions"])
def test_a_list_of_completions_yields_numbered_rows_of_one_problem(tmp_path: Path, column: str):
    row = {
        "id": "p",
        "answer": "2",
        column: ["2", "3", "2"],
        "finish_reason": ["stop", "length", None],
        "ok": [1, 0, 1.0],
    }
    responses, _ = read_responses(write(tmp_path / "r.jsonl", row), "math", columns=Columns(recorded="ok"))
    assert [r.id for r in responses] == ["p#0", "p#1", "p#2"]
    assert [r.problem for r in responses] == ["p"] * 3
    assert [r.truncated for r in responses] == [False, True, False]
    assert [r.recorded for r in responses] == [True, False, True]
    assert len({id(r.prompt) for r in responses}) == 1
    assert "ok" not in responses[0].prompt.meta


def test_problems_are_joined_and_the_rows_own_columns_win(tmp_path: Path):
    problems = write(tmp_path / "p.jsonl", {"id": "t1", "test": "assert f(1)", "level": "x", "answer": "def f(x): ..."})
    rows = write(tmp_path / "r.jsonl", {"id": "a", "problem_id": "t1", "completion": "def f", "level": "y"})
    (response,), _ = read_responses(rows, "code", problems=[problems])
    assert response.prompt.meta == {"test": "assert f(1)", "level": "y"}
    assert response.prompt.answer == "def f(x): ..."


MALFORMED = [
    ("{broken", "not JSON"),
    ("[1]", "a JSON object is needed"),
    ({"answer": "2", "completion": "2"}, "no 'id'"),
    ({"id": None, "answer": "2", "completion": "2"}, "column 'id' must hold"),
    ({"id": "a", "answer": "2"}, "no 'completion'"),
    ({"id": "a", "answer": "2", "completion": None}, "must hold a text"),
    ({"id": "a", "answer": "2", "completion": ["2", None]}, "must hold a text"),
    ({"id": "a", "answer": "2", "completions": []}, "must hold a text"),
    ({"id": "a", "completion": "2"}, "no 'answer'"),
    ({"id": "a", "answer": "2", "completion": "2", "finish_reason": 1}, "finish_reason"),
    ({"id": "a", "answer": "2", "completions": ["2", "3"], "finish_reason": ["stop"]}, "1 entries for 2"),
    ("[" * 100_000, "not JSON"),
    ("1" * 5000, "not JSON"),
]


@pytest.mark.parametrize(("row", "reason"), MALFORMED)
def test_malformed_rows_are_named_and_skipped_only_when_asked(tmp_path: Path, row: Any, reason: str):
    path = write(tmp_path / "r.jsonl", {"id": "good", "answer": "2", "completion": "2"}, "", row)
    with pytest.raises(DataError, match=r"(?s)1 malformed row\n  line 3: .*--skip-bad") as error:
        read_responses(path, "math")
    assert reason in str(error.value)
    responses, bad = read_responses(path, "math", skip_bad=True)
    assert [r.id for r in responses] == ["good"]
    assert [b.line for b in bad] == [3]


@pytest.mark.parametrize(("verifier", "needed"), [("regex", True), ("json_schema", True), ("code", False)])
def test_a_pattern_or_schema_is_an_answer(tmp_path: Path, verifier: str, needed: bool):
    path = write(tmp_path / "r.jsonl", {"id": "a", "completion": "x"})
    if needed:
        with pytest.raises(DataError, match="no 'answer'"):
            read_responses(path, verifier)
    else:
        assert read_responses(path, verifier)[0][0].prompt.answer == ""


def test_bytes_that_are_not_utf8_are_one_bad_row(tmp_path: Path):
    path = tmp_path / "r.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"id": "a", "answer": "1", "completion": "1"}\n{"id": "\xff"}\n')
    responses, bad = read_responses(path, "math", skip_bad=True)
    assert [r.id for r in responses] == ["a"]
    assert "not UTF-8" in bad[0].reason


def test_lines_end_at_newlines_alone(tmp_path: Path):
    path = tmp_path / "r.jsonl"
    path.write_text('{"id": "a", "answer": "1", "completion": "x\u2028y\u0085z"}\r\n', "utf-8", newline="")
    assert read_responses(path, "math")[0][0].text == "x\u2028y\x85z"


def test_nothing_to_grade(tmp_path: Path):
    with pytest.raises(DataError, match="cannot be read"):
        read_responses(tmp_path / "absent.jsonl", "math")
    with pytest.raises(DataError, match="no response to grade"):
        read_responses(write(tmp_path / "empty.jsonl"), "math")
    with pytest.raises(DataError, match="all 1 rows are malformed"):
        read_responses(write(tmp_path / "bad.jsonl", "x"), "math", skip_bad=True)


def test_an_unknown_problem_is_a_malformed_row(tmp_path: Path):
    problems = write(tmp_path / "p.jsonl", {"id": "t1"})
    rows = write(tmp_path / "r.jsonl", {"id": "a", "problem_id": "t2", "completion": "x"})
    with pytest.raises(DataError, match="no problem 't2'"):
        read_responses(rows, "code", problems=[problems])


def test_recorded_column_is_found_by_its_usual_names(tmp_path: Path):
    assert recorded_column(write(tmp_path / "a.jsonl", {"id": "a", "reward": 1.0})) == "reward"
    assert recorded_column(write(tmp_path / "b.jsonl", {"id": "a", "reward": 1.0, "is_correct": True})) == "is_correct"
    assert recorded_column(write(tmp_path / "c.jsonl", {"id": "a"})) is None
    rows = write(tmp_path / "d.jsonl", {"id": "a", "answer": "1", "completion": "1", "is_correct": "yes"})
    with pytest.raises(DataError, match="must hold true, false or a number"):
        read_responses(rows, "math", columns=Columns(recorded="is_correct"))
