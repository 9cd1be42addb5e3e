"""`brorl eval` as a user runs it: on a model directory, on a run, killed and continued."""

import json
import signal
import time
from pathlib import Path

import pytest

from brorl.storage import read_groups
from command_line import brorl, refused, started
from tiny_policy import save_tiny_policy, write_recipe, write_rows

ROWS = [{"id": f"q{i}", "question": f"say {c}?", "answer": c} for i, c in enumerate("abcdefghijkl")]
FLAGS = ("--template", "{question}", "--samples", "8", "--max-tokens", "6", "--workers", "1")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("eval")
    save_tiny_policy(where / "model")
    write_rows(where / "gsm8k.jsonl", ROWS)
    return where


def test_a_model_directory(place: Path, tmp_path: Path) -> None:
    done = brorl(
        "eval", place / "model", "-b", "gsm8k", "--data-dir", place, *FLAGS, "--caps", "3", "--json", "out.json",
        "--figure", "f.html", cwd=tmp_path,
    )  # fmt: skip
    results = json.loads((tmp_path / "out.json").read_text())
    found = results["benchmarks"]["gsm8k"]
    assert results["directory"] == "evals/model-1"
    assert (found["problems"], found["samples_per_problem"]) == (12, {"fewest": 8, "most": 8})
    assert list(found["pass_at"]) == ["1", "2", "4", "8"]
    assert found["sampling"] == {"samples": 8, "seed": 0, "max_new_tokens": 6, "temperature": 0.6, "top_p": 0.95}
    assert [row["cap"] for row in found["token_efficiency"]["caps"]] == [None, 3]
    assert sum(found["outcomes"].values()) == 96
    groups = read_groups(tmp_path / "evals/model-1/gsm8k.parquet")
    assert [g.group.prompt.id for g in groups] == [row["id"] for row in ROWS]
    assert json.loads((tmp_path / "evals/model-1/results.json").read_text()) == results
    assert "mean tokens of a response" in (tmp_path / "f.html").read_text()
    assert "pass@8" in done.text
    assert "token efficiency" in done.text


@pytest.mark.slow
def test_killed_it_goes_on_and_ends_with_the_same_groups(place: Path, tmp_path: Path) -> None:
    command = ("eval", place / "model", "-b", "gsm8k", "--data-dir", place, *FLAGS)
    brorl(*command, "-o", "whole", cwd=tmp_path)
    process = started(*command, cwd=tmp_path)
    parts = tmp_path / "evals/model-1/gsm8k"
    while process.poll() is None and len(list(parts.glob("*.parquet"))) < 2:
        time.sleep(0.01)  # until two groups are on the disk
    process.send_signal(signal.SIGKILL)
    process.wait()
    killed_after = len(list(parts.glob("*.parquet")))
    done = brorl(*command, cwd=tmp_path)
    assert "evals/model-1" in done.text
    assert [p.name for p in (tmp_path / "evals").iterdir()] == ["model-1"]
    first, second = (read_groups(tmp_path / d / "gsm8k.parquet") for d in ("whole", "evals/model-1"))
    assert killed_after >= 2
    assert not parts.exists()
    for one, other in zip(first, second, strict=True):
        assert one.group.prompt.id == other.group.prompt.id
        assert one.group.tokens.tolist() == other.group.tokens.tolist()
        assert one.outcomes.tolist() == other.outcomes.tolist()


def test_checkpoints_of_a_run(place: Path, tmp_path: Path) -> None:
    write_recipe(tmp_path, steps=1)
    brorl("train", "recipe.yaml", "--run", "run", cwd=tmp_path)
    command = ("eval", "run", "-b", "gsm8k", "--data-dir", place, *FLAGS)
    assert "evals/run-step_000001-1" in brorl(*command, cwd=tmp_path).text
    assert "evals/run-step_000000-1" in brorl(*command, "--step", "0", cwd=tmp_path).text
    refused(*command, "--step", "7", cwd=tmp_path, says="no checkpoint '7'; there are: 0, 1")
    refused(*command, "--step", "first", cwd=tmp_path, says="a number of steps, last or best")


def test_problems_that_do_not_fit_are_left_out_and_counted(place: Path, tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", [*ROWS, {"id": "long", "question": "say a" + "?" * 70, "answer": "a"}])
    command = ("eval", place / "model", "-b", "gsm8k", "--data", "rows.jsonl", *FLAGS)
    refused(*command, cwd=tmp_path, says="--drop-overlong")
    brorl(*command, "--drop-overlong", "--json", "out.json", cwd=tmp_path)
    found = json.loads((tmp_path / "out.json").read_text())["benchmarks"]["gsm8k"]
    assert found["problems"] == 12
    assert found["left_out"] == {"no room for 6 tokens in a context of 64": 1}


def test_what_cannot_be_evaluated_is_said(place: Path, tmp_path: Path) -> None:
    model = place / "model"
    refused("eval", model, cwd=tmp_path, says="--list shows all")
    refused("eval", model, "-b", "gsm9k", cwd=tmp_path, says="did you mean gsm8k")
    refused("eval", tmp_path / "none", "-b", "gsm8k", "--data-dir", place, cwd=tmp_path, says="no such model directory")
    refused("eval", model, "-b", "gsm8k", "--data-dir", tmp_path / "no", cwd=tmp_path, says="no such folder of benchm")
    refused("eval", model, "-b", "gsm8k", "--data-dir", place, "--step", "1", cwd=tmp_path, says="directory of a run")
    too_long = ("eval", model, "-b", "gsm8k", "--data-dir", place, "--template", "{question}" + "!" * 70)
    refused(*too_long, cwd=tmp_path, says="the model's context is 64: it does not fit")
    refused("eval", model, "-b", "gsm8k", "--data-dir", place, *FLAGS, "--k", "16", cwd=tmp_path, says="pass@16 needs")
    brorl("eval", "golds", "-b", "gsm8k", "--data-dir", place, "-o", "mine", cwd=tmp_path)
    refused(
        "eval", "canary", "-b", "gsm8k", "--data-dir", place, "-o", "mine", cwd=tmp_path, says="policy.fixed: 'golds'"
    )
    assert not (tmp_path / "evals").exists()


def test_all_benchmarks_are_listed(tmp_path: Path) -> None:
    from brorl.evaluation.benchmarks import BENCHMARKS

    text = brorl("eval", "--list", cwd=tmp_path).text
    assert "No data is shipped" in text
    assert len(BENCHMARKS) == 21
    assert all(f"\n{name} {found.title}" in f"\n{text}" for name, found in BENCHMARKS.items())
