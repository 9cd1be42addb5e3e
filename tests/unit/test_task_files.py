"""Data files: three layouts, and an error for each way in which a file can be wrong."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from brorl.errors import DataError
from brorl.tasks.files import RowsSource, read_rows, split_rows
from brorl.tasks.rows import TaskRow, content_key
from shared_data import shared


def jsonl(folder: Path, *rows: dict[str, Any] | str, name: str = "rows.jsonl") -> Path:
    path = folder / name
    path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows) + "\n", encoding="utf-8")
    return path


def test_our_layout(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path, {"id": "a", "question": "1+1?", "answer": 2, "level": "easy"}, {"question": "q", "answer": "x"}
    )
    first, second = read_rows(path, verifier="numeric", meta={"answer_format": "whole"})
    assert first == TaskRow(
        id="a",
        question="1+1?",
        verifier="numeric",
        answer="2",
        meta={"level": "easy", "answer_format": "whole"},
    )
    assert second.id == "rows/2"


def test_lines_end_at_newlines_only(tmp_path: Path) -> None:
    text = "a\u2028b\x85c\x0bd"
    path = tmp_path / "rows.jsonl"
    path.write_bytes(json.dumps({"question": text, "answer": "1"}, ensure_ascii=False).encode() + b"\r\n\r\n")
    assert [row.question for row in read_rows(path, verifier="text")] == [text]


def test_verl_layout(tmp_path: Path) -> None:
    row = {
        "data_source": "gsm8k",
        "prompt": [{"role": "user", "content": "How many?"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": "72"},
        "extra_info": {"split": "train", "index": 0},
    }
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "train.parquet")
    (read,) = read_rows(tmp_path / "train.parquet", verifier="math")
    assert (read.id, read.answer, read.messages) == ("train/1", "72", ({"role": "user", "content": "How many?"},))
    assert read.meta["data_source"] == "gsm8k"
    assert read.meta["extra_info"] == {"split": "train", "index": 0}
    assert RowsSource("verl", [read]).size == 1


@pytest.mark.parametrize("column", ["answer", "solution", "ground_truth"])
def test_trl_layout(tmp_path: Path, column: str) -> None:
    plain, chat = read_rows(
        jsonl(tmp_path, {"prompt": "Say 3", column: "3"}, {"prompt": [{"role": "user", "content": "3?"}], column: "3"}),
        verifier="text",
    )
    assert (plain.question, plain.messages, plain.answer) == ("Say 3", (), "3")
    assert (chat.question, chat.messages[0]["content"], chat.answer) == ("", "3?", "3")
    assert plain.meta == ({} if column == "answer" else {column: "3"}), "a reward function may ask for it by name"


def test_columns_can_be_named(tmp_path: Path) -> None:
    path = jsonl(tmp_path, {"uid": 7, "text": "q", "gold": "g", "answer": "not this"})
    (row,) = read_rows(path, verifier="text", columns={"id": "uid", "question": "text", "answer": "gold"})
    assert (row.id, row.question, row.answer, row.meta) == ("7", "q", "g", {"gold": "g", "answer": "not this"})


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (['{"question": "q"'], r"line 1: not valid JSON"),
        ([{"question": "q", "answer": "1"}, "", "[1]"], r"line 3: expected a JSON object, found list"),
        ([{"question": "q", "answer": "1"}, {"question": "q"}], r"line 2: no answer"),
        ([{"question": "q", "answer": "  "}], r"line 1: no answer"),
        ([{"question": "q", "answer": None}], r"line 1: no answer"),
        ([{"question": " ", "answer": "1"}], r"line 1: no question"),
        ([{"answer": "1"}], r"line 1: no question"),
        ([{"prompt": [{"content": "q"}], "answer": "1"}], r"line 1: a message needs"),
        ([{"prompt": [{"role": "assistant", "content": "q"}], "answer": "1"}], r"line 1: a conversation must"),
        ([{"id": 1, "question": "q", "answer": "1"}] * 2, r"line 2: id '1' already stands in line 1"),
        ([], r"holds no rows"),
    ],
)
def test_a_broken_file_names_its_line(tmp_path: Path, rows: list[Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_rows(jsonl(tmp_path, *rows), verifier="text")


def test_other_mistakes(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no data file"):
        read_rows(tmp_path / "absent.jsonl", verifier="text")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(DataError, match="not a readable Parquet file"):
        read_rows(tmp_path / "bad.parquet", verifier="text")
    path = jsonl(tmp_path, {"question": "q", "answer": "1"})
    with pytest.raises(DataError, match="'questoin' is unknown"):
        read_rows(path, verifier="text", columns={"questoin": "q"})
    with pytest.raises(DataError, match="no column 'gold', which is to hold the answer; it has question, answer"):
        read_rows(path, verifier="text", columns={"answer": "gold"})
    with pytest.raises(DataError, match="no rows"):
        RowsSource("empty", [])
    with pytest.raises(DataError, match="two rows have the id 'x'"):
        RowsSource("twice", [TaskRow(id="x", question="a"), TaskRow(id="x", question="b")])


def test_rows_without_answers_where_the_verifier_needs_none(tmp_path: Path) -> None:
    path = jsonl(tmp_path, {"prompt": "write", "instruction_id_list": ["x"]})
    (row,) = read_rows(path, verifier="instruction", needs_answer=False)
    assert (row.answer, row.meta) == ("", {"instruction_id_list": ["x"], "kwargs": [{}]})


def test_the_fingerprint_is_of_the_content(tmp_path: Path) -> None:
    first = RowsSource("a", read_rows(jsonl(tmp_path, {"question": "q", "answer": "1"}), verifier="text"))
    again = RowsSource("a", read_rows(jsonl(tmp_path, {"question": "q", "answer": "1"}), verifier="text"))
    other = RowsSource("a", read_rows(jsonl(tmp_path, {"question": "q", "answer": "2"}), verifier="text"))
    assert first.fingerprint == again.fingerprint != other.fingerprint


def test_a_split_by_content_is_disjoint_and_complete() -> None:
    rows = [TaskRow(id=str(i), question=f"Question  {i % 300}") for i in range(600)]
    train, held_out = split_rows(rows, "train", 0.2), split_rows(rows, "heldout", 0.2)
    assert len(train) + len(held_out) == 600
    assert not {content_key(r) for r in train} & {content_key(r) for r in held_out}
    assert 60 < len(held_out) < 180


def test_real_files() -> None:
    rows = read_rows(shared("data/gsm8k_test.jsonl"), verifier="numeric")
    assert len(rows) == 677
    assert all(row.answer and row.question for row in rows)


def test_tables_from_elsewhere(tmp_path: Path) -> None:
    """Dates and decimals become text, and NaN, as tables write it, is no answer."""
    path = tmp_path / "t.parquet"
    when = datetime(2026, 1, 2, tzinfo=UTC)
    table = pa.table({"question": ["a?"], "answer": pa.array([Decimal("1.50")]), "made": pa.array([when])})
    pq.write_table(table, path)
    [row] = read_rows(path, verifier="numeric")
    assert row.answer == "1.50"
    assert row.meta["made"].startswith("2026-01-02")
    (tmp_path / "n.jsonl").write_text('{"question": "a?", "answer": NaN}')
    with pytest.raises(DataError, match="no answer"):
        read_rows(tmp_path / "n.jsonl", verifier="numeric")
