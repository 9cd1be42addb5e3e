"""`brorl score` and `brorl audit` as users run them: the real command in its own process."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shared_data import shared


def brorl(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).with_name("brorl")), *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "COLUMNS": "200", "OMP_NUM_THREADS": "1"},
    )


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows), "utf-8")
    return path


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]


ROWS = [
    {"id": "a", "answer": "Paris", "completions": ["<answer>Paris</answer>", "<answer>Rome</answer>", "Paris"]},
    {"id": "b0", "problem_id": "b", "answer": "4", "completion": "<answer>4</answer>"},
    {"id": "b1", "problem_id": "b", "answer": "4", "completion": "<answer>4</answer>", "finish_reason": "length"},
    {"id": "b2", "problem_id": "b", "answer": "4", "completion": "\ud800 <answer>5</answer>"},
]


def test_score_writes_lines_and_figures(tmp_path: Path):
    data = write(tmp_path / "rows.jsonl", *ROWS)
    done = brorl("score", data, "--verifier", "text", "--json", "out.jsonl", "--summary", "sum.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = lines(tmp_path / "out.jsonl")
    assert [row["id"] for row in found] == ["a#0", "a#1", "a#2", "b0", "b1", "b2"]
    assert [row["outcome"] for row in found] == ["correct", "wrong", "no answer", "correct", "truncated", "wrong"]
    assert [row["reward"] for row in found] == [1.0, 0.0, 0.0, 1.0, 0.0, 0.0]
    assert found[1]["extracted"] == "Rome"
    assert all({"id", "outcome", "reward", "extracted", "parts", "seconds"} <= set(row) for row in found)
    figures = json.loads((tmp_path / "sum.json").read_text("utf-8"))
    assert figures["outcomes"] == {
        "correct": 2, "partial": 0, "wrong": 2, "no answer": 1, "truncated": 1, "unscorable": 0, "error": 0
    }  # fmt: skip
    assert figures["pass_at"]["1"]["value"] == pytest.approx(1 / 3)
    assert list(figures["pass_at"]) == ["1", "2", "3"]
    assert "pass@3" in done.stdout
    assert "truncated" in done.stdout


def test_malformed_rows_stop_it_and_are_skipped_on_request(tmp_path: Path):
    data = write(tmp_path / "rows.jsonl", ROWS[0], "{oops", {"id": "x", "answer": "[b]"})
    refused = brorl("score", data, "--verifier", "text", "--json", "out.jsonl", cwd=tmp_path)
    assert refused.returncode == 1
    assert "line 2" in refused.stderr
    assert "line 3" in refused.stderr
    assert "--skip-bad" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not (tmp_path / "out.jsonl").exists()
    done = brorl("score", data, "--verifier", "text", "--skip-bad", "--summary", "sum.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "line 2" in done.stderr
    assert [row["line"] for row in json.loads((tmp_path / "sum.json").read_text("utf-8"))["skipped"]] == [2, 3]


def test_other_columns_a_setting_and_k(tmp_path: Path):
    data = write(tmp_path / "rows.jsonl", *[{"key": i, "t": "p", "gold": "x", "out": "no\nx"} for i in range(4)])
    flags = ["--id", "key", "--problem", "t", "--answer", "gold", "--completion", "out"]
    setting = ["--meta", "answer_format=last_line"]
    done = brorl(
        "score", data, "--verifier", "text", *flags, *setting, "--k", "1,4", "--summary", "s.json", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "s.json").read_text("utf-8"))
    assert {k: v["value"] for k, v in figures["pass_at"].items()} == {"1": 1.0, "4": 1.0}
    assert figures["grading"]["repeated"] == 3
    too_many = brorl("score", data, "--verifier", "text", *flags, "--k", "8", cwd=tmp_path)
    assert too_many.returncode == 1
    assert "pass@8 needs 8 responses to each problem" in too_many.stderr


def test_a_users_own_verifiers_in_the_current_directory(tmp_path: Path):
    (tmp_path / "mine.py").write_text(
        "def trl(completions, target, **columns):\n"
        "    return [1.0 if c == t else 0.0 for c, t in zip(completions, target)]\n"
        "def broken(prompt, response):\n"
        "    raise RuntimeError('no server')\n",
        "utf-8",
    )
    data = write(tmp_path / "rows.jsonl", {"id": "a", "target": "x", "completions": ["x", "y"]})
    done = brorl("score", data, "--verifier", "mine:trl", "--json", "out.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [row["outcome"] for row in lines(tmp_path / "out.jsonl")] == ["correct", "wrong"]
    failed = brorl("score", data, "--verifier", "mine:broken", "--json", "out.jsonl", cwd=tmp_path)
    assert failed.returncode == 1
    assert "no server" in failed.stderr
    assert [row["outcome"] for row in lines(tmp_path / "out.jsonl")] == ["error", "error"]


def test_mistakes_are_one_message(tmp_path: Path):
    data = write(tmp_path / "rows.jsonl", *ROWS)
    for arguments, words in [
        (["score", "absent.jsonl", "--verifier", "text"], "cannot be read"),
        (["score", data, "--verifier", "txt"], "no verifier is called"),
        (["score", data, "--verifier", "absent_module:f"], "absent_module"),
        (["score", data, "--verifier", "text", "--json", "nowhere/out.jsonl"], "cannot be written"),
        (["audit", data, "--verifier", "text"], "nothing to compare with"),
        (["score", data, "--verifier", "text", "--json", data], "reads it"),
        (["score", data, "--verifier", "text", "--json", "o", "--summary", "o"], "writes something else to it"),
    ]:
        done = brorl(*arguments, cwd=tmp_path)
        assert done.returncode == 1, (arguments, done.stdout)
        assert words in " ".join(done.stderr.split()), done.stderr
        assert "Traceback" not in done.stderr


def test_audit_lists_every_disagreement(tmp_path: Path):
    rows = [
        {"id": "a", "answer": "4", "completion": "<answer>4</answer>", "is_correct": True},
        {"id": "b", "answer": "4", "completion": "<answer>4.0</answer>", "is_correct": True},
        {"id": "c", "answer": "0.5", "completion": "<answer>1/2</answer>", "is_correct": False},
    ]
    data = write(tmp_path / "rows.jsonl", *rows)
    decided = write(tmp_path / "decided.jsonl", {"id": "b", "correct": False, "why": "not the same text"})
    done = brorl(
        "audit", data, "--verifier", "text", "--second", "numeric", "--adjudicated", decided, "--golds",
        "--json", "out.jsonl", "--summary", "sum.json", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = {row["id"]: row for row in lines(tmp_path / "out.jsonl")}
    assert [found["b"][key] for key in ("outcome", "recorded", "second")] == ["wrong", True, "correct"]
    assert [row["agrees"] for row in found.values()] == [True, False, False]
    assert "b: ours wrong, recorded correct, second correct" in done.stdout
    assert "c: ours wrong, recorded not correct, second correct" in done.stdout
    assert "a: ours" not in done.stdout
    figures = json.loads((tmp_path / "sum.json").read_text("utf-8"))
    assert figures["recorded"] == {"compared": 3, "agree": 2, "agreement": 2 / 3}
    assert figures["second"]["agree"] == 1
    assert figures["adjudicated"]["agreement"] == 1.0
    assert figures["golds"] == {"checked": 3, "refused": []}


def test_audit_of_recorded_instruction_verdicts(tmp_path: Path):
    data = shared("data/outputs_ifeval.jsonl")
    done = brorl("audit", data, "--verifier", "instruction", "--summary", "sum.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "sum.json").read_text("utf-8"))
    assert figures["recorded_column"] == "strict_all"
    assert figures["recorded"] == {"compared": 978, "agree": 964, "agreement": 964 / 978}
