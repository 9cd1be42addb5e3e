"""Others' rollouts: every layout is read to the same counts, and bad files are refused by name and row."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from brorl.errors import DataError
from brorl.evaluation.foreign import read_rollouts
from brorl.storage import write_groups
from shared_data import shared
from toy_language import toy_language

# problem, completion, reward: p1 has 2 of 3 right (one answer twice), p2 has 0 of 2, p3 one that could not be scored.
SAMPLES = [
    ("p1", "four", 1.0), ("p1", "four", 1.0), ("p1", "five", 0.0),
    ("p2", "x", 0.0), ("p2", "yy", 0.0), ("p3", "z", 1.0), ("p3", "w", None),
]  # fmt: skip


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_layout(directory: Path, layout: str) -> Path:
    match layout:
        case "verl":
            rows = [{"input": p, "output": t, "gts": "g", "score": -1.0, "step": 3, "acc": r} for p, t, r in SAMPLES]
            return write_jsonl(directory / "3.jsonl", rows)
        case "openrlhf":
            rows = [{"input": p, "output": t, "reward": r} for p, t, r in SAMPLES]
            return write_jsonl(directory / "out.jsonl", rows)
        case "trl":
            table = {
                "mode": ["train"] * 7,
                "step": [3] * 7,
                "prompt": [p for p, _, _ in SAMPLES],
                "completion": [t for _, t, _ in SAMPLES],
                "accuracy_reward": [r for _, _, r in SAMPLES],
                "advantage": [0.1] * 7,
            }
            pq.write_table(pa.table(table), directory / "completions_00003.parquet")
            return directory / "completions_00003.parquet"
        case "rows":
            rows = [
                {
                    "problem_id": p,
                    "completions": [t for q, t, _ in SAMPLES if q == p],
                    "is_correct": [None if r is None else r == 1 for q, _, r in SAMPLES if q == p],
                }
                for p in ("p1", "p2", "p3")
            ]
            return write_jsonl(directory / "rows.jsonl", rows)
        case _:
            raise ValueError(layout)


@pytest.mark.parametrize("layout", ["verl", "openrlhf", "trl", "rows"])
def test_layouts_of_responses(tmp_path: Path, layout: str) -> None:
    rollouts = read_rollouts([write_layout(tmp_path, layout)])
    assert rollouts.layout == layout
    assert rollouts.problems == ("p1", "p2", "p3")
    assert rollouts.samples.tolist() == [3, 2, 1]
    assert rollouts.correct.tolist() == [2, 0, 1]
    assert rollouts.unscorable == 1
    assert set(rollouts.steps) == ({3} if layout in ("verl", "trl") else {0})
    first = rollouts.groups[0]
    assert sorted(first.group.end_counts.tolist()) == [1, 2]
    assert first.parts["characters"].tolist() == [4, 4]
    assert any("log-probabilities" in lack for lack in rollouts.lacks)
    assert read_rollouts([tmp_path]).samples.tolist() == [3, 2, 1]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_counts_in_every_format(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"counts.{suffix}"
    table = {"problem": ["a", "b"], "samples": [16, 8], "correct": [3, 0]}
    match suffix:
        case "csv":
            path.write_text("\ufeffproblem,samples,correct\na,16,3\nb,8,0\n")
        case "jsonl":
            write_jsonl(path, [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)])
        case _:
            pq.write_table(pa.table(table), path)
    rollouts = read_rollouts([path])
    assert rollouts.layout == "counts"
    assert (rollouts.samples.tolist(), rollouts.correct.tolist()) == ([16, 8], [3, 0])
    assert rollouts.groups == ()


def test_our_groups_keep_log_probabilities_and_steps(tmp_path: Path) -> None:
    language = toy_language(0)
    rng = np.random.default_rng(0)
    (tmp_path / "groups").mkdir()
    for step in (9, 10):
        groups = [language.group(rng.multinomial(16, language.p), f"p{i}") for i in range(3)]
        write_groups(tmp_path / "groups" / f"step_{step:06d}.parquet", groups)
    rollouts = read_rollouts([tmp_path])
    assert rollouts.layout == "groups"
    assert rollouts.steps == (9,) * 3 + (10,) * 3
    assert rollouts.unit == "tokens"
    assert rollouts.lacks == ()
    assert rollouts.groups[0].group.logprobs is not None


def test_columns_and_threshold_are_named(tmp_path: Path) -> None:
    rows = [{"q": "p", "text_out": str(i), "points": i / 4} for i in range(5)]
    path = write_jsonl(tmp_path / "x.jsonl", rows)
    columns = {"problem": "q", "completion": "text_out", "reward": "points"}
    rollouts = read_rollouts([path], layout="rows", columns=columns, correct_threshold=0.5)
    assert (rollouts.samples.tolist(), rollouts.correct.tolist()) == ([5], [3])
    assert read_rollouts([path], columns=columns).correct.tolist() == [1]


def test_files_of_steps_are_read_in_order(tmp_path: Path) -> None:
    for step in (10, 9):
        write_jsonl(
            tmp_path / f"{step}.jsonl",
            [{"input": "p", "output": "a", "score": float(step == 10), "step": step}] * 2,
        )
    rollouts = read_rollouts([tmp_path])
    assert rollouts.steps == (9, 10)
    assert rollouts.correct.tolist() == [0, 2]


def test_texts_of_different_steps_compare(tmp_path: Path) -> None:
    rows = [{"input": "p", "output": text, "score": 1.0, "step": step} for step, text in [(0, "a"), (0, "b"), (1, "b")]]
    first, second = read_rollouts([write_jsonl(tmp_path / "x.jsonl", rows)]).groups
    assert set(second.group.tokens.tolist()) < set(first.group.tokens.tolist())


def test_real_rows_with_rewards() -> None:
    rollouts = read_rollouts([shared("data/outputs_rollouts_aime24.jsonl")])
    assert rollouts.layout == "rows"
    assert int(rollouts.samples.sum()) == 252
    counts = read_rollouts([shared("data/outputs_game24_gpt4_n100.jsonl")])
    assert set(counts.samples.tolist()) <= {100, 200}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "problem,samples,correct\na,4,5\n", "row 1: 5 correct of 4"),
        ("a.csv", "problem,samples,correct\na,4,1\na,4,1\n", "row 2: .*appears twice"),
        ("a.csv", "problem,samples,correct\na,four,1\n", "row 1: samples must be a whole number"),
        ("a.csv", "problem,samples\na,4\n", "layout is not recognised.*problem, samples"),
        ("a.csv", "problem,samples,correct\n", "no rows"),
        ("a.jsonl", '{"input": "p", "output": "x", "score": "good"}\n', "row 1: the reward must be a number"),
        ("a.jsonl", '{"input": "p"\n', "line 1: not JSON"),
        ("a.jsonl", "[1]\n", "line 1: a row is a JSON object"),
        ("a.jsonl", '{"input": "p", "output": null, "score": 1}\n', "row 1: no output"),
        ("a.txt", "hello", "unknown kind of file"),
        ("a.parquet", "not parquet", "cannot be read as Parquet"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        read_rollouts([tmp_path / name])


def test_bad_requests_are_refused(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "x.jsonl", [{"input": "p", "output": "x", "score": 1.0}])
    with pytest.raises(DataError, match="unknown layout"):
        read_rollouts([path], layout="nemo")
    with pytest.raises(DataError, match=r"layout trl needs a column for .*completion"):
        read_rollouts([path], layout="trl")
    with pytest.raises(DataError, match="no column answer"):
        read_rollouts([path], columns={"completion": "answer"})
    with pytest.raises(DataError, match="no layout has a column for colour"):
        read_rollouts([path], columns={"colour": "input"})
    with pytest.raises(DataError, match="no such file"):
        read_rollouts([tmp_path / "absent"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"holds no \.parquet"):
        read_rollouts([tmp_path / "empty"])
    table = {"prompt": ["p"], "completion": ["x"], "advantage": [0.0], "format": [1.0], "accuracy": [0.0]}
    pq.write_table(pa.table(table), tmp_path / "two.parquet")
    with pytest.raises(DataError, match="several reward columns"):
        read_rollouts([tmp_path / "two.parquet"])
    assert read_rollouts([tmp_path / "two.parquet"], columns={"reward": "accuracy"}).correct.tolist() == [0]
