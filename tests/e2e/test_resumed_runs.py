"""Resuming: what may have changed meanwhile, what may not, and that going on is going on."""

import json
from pathlib import Path
from typing import Any

import pytest

from brorl.build import open_trainer
from brorl.recipe_file import load_recipe
from brorl.rundir import RunDirectory
from command_line import brorl, refused
from tiny_policy import write_recipe

QUICK: dict[str, Any] = {"evaluation": {"heldout_prompts": 0, "training_prompts": 0}}


def trained(home: Path, **settings: Any) -> tuple[Path, Path]:
    """A finished run of two steps, and its recipe."""
    recipe = write_recipe(home, **{**QUICK, "steps": 2, **settings})
    brorl("train", recipe, "--run", home / "run", cwd=home)
    return recipe, home / "run"


def steps_of(run: Path) -> list[int]:
    return [record["step"] for record in RunDirectory.open(run).read_metrics()]


def test_a_run_that_breaks_says_so_and_goes_on(tmp_path: Path) -> None:
    recipe = load_recipe(write_recipe(tmp_path, **{**QUICK, "steps": 2}))

    def broken(_: object) -> Any:
        raise KeyError("weight")

    with open_trainer(recipe, path=tmp_path / "run") as trainer:
        trainer.advantage = broken
        with pytest.raises(KeyError):
            list(trainer.train())
    info = RunDirectory.open(tmp_path / "run").read_info()
    assert (info["status"], info["reason"]) == ("failed", "KeyError: 'weight'")
    brorl("train", "--resume", tmp_path / "run", cwd=tmp_path)
    assert steps_of(tmp_path / "run") == [0, 1]


def test_a_changed_recipe(tmp_path: Path) -> None:
    recipe, run = trained(tmp_path)
    brorl("train", recipe, "--resume", run, cwd=tmp_path)  # the same recipe is no change
    more = ("train", "--resume", run, "-s", "steps=3", "-s", "optimizer.lr=0.001")
    refused(*more, cwd=tmp_path, says="optimizer.lr 0.003 -> 0.001, steps 2 -> 3")
    assert steps_of(run) == [0, 1]
    brorl(*more, "--allow-changes", cwd=tmp_path)
    assert steps_of(run) == [0, 1, 2]
    assert RunDirectory.open(run).read_metrics()[-1]["lr"] == 0.001
    (change,) = RunDirectory.open(run).read_info()["changes"]
    assert (change["step"], change["recipe"], change["data"]) == (
        2,
        {"optimizer.lr": [0.003, 0.001], "steps": [2, 3]},
        [],
    )
    assert RunDirectory.open(run).recipe().steps == 3  # from here on it is the run's own
    brorl("train", "--resume", run, cwd=tmp_path)
    refused("train", "--resume", run, "-s", "seed=9", "--allow-changes", cwd=tmp_path, says="another seed: seed 3 -> 9")


def test_changed_rows_of_the_learner_hold(tmp_path: Path) -> None:
    _, run = trained(tmp_path)
    change = ("-s", "steps=3", "-s", "optimizer.max_nodes=32")
    brorl("train", "--resume", run, *change, "--allow-changes", cwd=tmp_path)
    state = json.loads((run / "checkpoints/step_000003/trainer.json").read_text())
    assert state["learner"]["max_nodes"] == 32  # what running out of memory leaves of it is in the checkpoint too


def test_changed_data(tmp_path: Path) -> None:
    _, run = trained(tmp_path)
    more = ("train", "--resume", run, "-s", "steps=3", "--allow-changes")
    lines = (tmp_path / "data.jsonl").read_text().splitlines(keepends=True)
    first = json.loads(lines[0])
    (tmp_path / "data.jsonl").write_text(json.dumps({**first, "answer": "[a-k].*"}) + "\n" + "".join(lines[1:]))
    refused("train", "--resume", run, cwd=tmp_path, says="data.jsonl, train rows: other content (")
    (tmp_path / "data.jsonl").write_text("".join(lines[5:]))
    refused("train", "--resume", run, cwd=tmp_path, says="rows instead of")
    assert steps_of(run) == [0, 1]
    brorl(*more, cwd=tmp_path)
    assert steps_of(run) == [0, 1, 2]
    assert "rows instead of" in RunDirectory.open(run).read_info()["changes"][0]["data"][0]
    brorl("train", "--resume", run, cwd=tmp_path)  # once allowed, the new data is the run's own
    (tmp_path / "data.jsonl").write_text("".join(lines))
    refused("train", "--resume", run, cwd=tmp_path, says="rows instead of")


def test_a_flag_without_effect_is_refused(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, **QUICK)
    refused("train", recipe, "--allow-changes", cwd=tmp_path, says="no effect without --resume")
    refused("train", "--resume", tmp_path, "--run", tmp_path / "x", cwd=tmp_path, says="belongs to a new run")


def test_a_run_killed_before_its_first_checkpoint_starts_again(tmp_path: Path) -> None:
    run = RunDirectory.create(load_recipe(write_recipe(tmp_path, **QUICK, steps=2)), path=tmp_path / "born")
    (run.checkpoints / ".step_000000.partial").mkdir()
    brorl("train", "--resume", run.path, cwd=tmp_path)
    assert steps_of(run.path) == [0, 1]
    assert not list(run.checkpoints.glob(".*"))


def test_every_step_is_run_after_the_end_of_an_epoch(tmp_path: Path) -> None:
    """Saved where an epoch ends, a run goes on into the next instead of ending cleanly with nothing done."""
    rows = [{"id": f"q{i}", "question": f"say {i}?", "answer": "[a-m].*"} for i in range(30)]
    data = tmp_path / "train.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "heldout.jsonl").write_text(data.read_text())
    task = {"kind": "file", "path": str(data), "heldout_path": str(tmp_path / "heldout.jsonl"), "verifier": "regex"}
    settings = {
        **QUICK,
        "tasks": [{**task, "meta": {"answer_format": "whole"}}],
        "contamination": {"ngram": None},
        "selection": {"drop_constant": False},
        "rollouts": {"prompts_per_step": 10, "per_prompt": 4},
    }
    _, run = trained(tmp_path, steps=3, **settings)
    assert RunDirectory.open(run).read_metrics()[-1]["position"] == len(rows)
    brorl("train", "--resume", run, "-s", "steps=6", "--allow-changes", cwd=tmp_path)
    assert steps_of(run) == list(range(6))
    ended = brorl("train", "--resume", run, cwd=tmp_path)
    assert "nothing left to do: 6 of 6 steps are done" in ended.text


@pytest.mark.parametrize("name", ["run.json", "config.yaml"])
def test_damaged_papers_of_a_run_are_a_message(tmp_path: Path, name: str) -> None:
    _, run = trained(tmp_path)
    (run / name).write_text("{")
    refused("train", "--resume", run, cwd=tmp_path, says=name)
