"""Guards, the best checkpoint and Ctrl-C at work on real runs of the tiny policy."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from brorl.build import open_trainer
from brorl.errors import RunError
from brorl.learner.checkpoint import damage
from brorl.recipe_file import load_recipe
from brorl.rundir import RunDirectory
from command_line import brorl
from tiny_policy import write_recipe

QUICK: dict[str, Any] = {"evaluation": {"heldout_prompts": 0, "training_prompts": 0}}


def test_a_warning_is_said_once_and_kept_in_run_json(tmp_path: Path) -> None:
    """The tiny policy's answers are all cut at two tokens, step after step."""
    recipe = write_recipe(tmp_path, steps=3, **QUICK, guards={"truncated": 0.2, "entropy": None})
    said = brorl("train", recipe, "-s", "rollouts.max_new_tokens=2", "--run", "run", cwd=tmp_path)
    assert said.text.count("of the rollouts are cut at rollouts.max_new_tokens") == 1
    (warning,) = RunDirectory.open(tmp_path / "run").read_info()["warnings"]
    assert (warning["step"], warning["guard"], warning["stop"]) == (0, "truncated", False)
    off = brorl("train", recipe, "-s", "guards.truncated=null", "--run", "off", cwd=tmp_path)
    assert "rollouts.max_new_tokens" not in off.text
    assert not RunDirectory.open(tmp_path / "off").read_info().get("warnings")


def test_a_warning_is_cut_back_with_the_step_it_belongs_to(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, steps=2, **QUICK)
    run = RunDirectory.create(load_recipe(recipe), path=tmp_path / "run")
    run.note(warnings=[{"step": 0, "guard": "clipped"}, {"step": 1, "guard": "truncated"}])
    run.cut_back(1)
    assert run.read_info()["warnings"] == [{"step": 0, "guard": "clipped"}]


def test_an_exploding_gradient_is_skipped_counted_and_stops_the_run(tmp_path: Path) -> None:
    """Every gradient is larger than a threshold next to nothing."""
    recipe = write_recipe(tmp_path, steps=9, **QUICK, guards={"exploding_gradient": 1e-9, "skipped_steps": 2})
    stopped = brorl("train", recipe, "--run", "run", cwd=tmp_path, check=False)
    assert stopped.returncode == 1
    assert "the gradient was not finite or exploding in 2 steps in a row" in stopped.text
    run = RunDirectory.open(tmp_path / "run")
    assert [record["skipped"] for record in run.read_metrics()] == [1.0, 1.0]
    assert [record["policy_version"] for record in run.read_metrics()] == [0, 0]
    assert run.read_info()["status"] == "failed"
    assert damage(run.checkpoints / "step_000002") is None
    more = ("-s", "guards.exploding_gradient=null", "-s", "steps=3", "--allow-changes")
    brorl("train", "--resume", "run", *more, cwd=tmp_path)
    assert run.read_metrics()[-1]["skipped"] == 0.0


def test_a_disk_nearly_full_stops_the_run_saved(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, steps=4, **QUICK, guards={"disk": 1e12})
    stopped = brorl("train", recipe, "--run", "run", cwd=tmp_path, check=False)
    assert stopped.returncode == 1
    assert "the disk is nearly full" in stopped.text
    run = RunDirectory.open(tmp_path / "run")
    assert len(run.read_metrics()) == 1
    assert damage(run.checkpoints / "step_000001") is None


def test_ctrl_c_during_an_evaluation_leaves_it_and_resume_repeats_it(tmp_path: Path) -> None:
    evaluation = {"every": 1, "heldout_prompts": 6, "training_prompts": 2, "rollouts": 8}
    path = write_recipe(tmp_path, steps=2, evaluation=evaluation)
    recipe = load_recipe(path)
    with open_trainer(recipe, path=tmp_path / "whole") as trainer:
        list(trainer.train())
    with open_trainer(recipe, path=tmp_path / "cut") as trainer:
        seen: list[str] = []

        def report(phase: str, done: int, total: int) -> None:
            seen.append(phase)
            trainer.stop_requested = trainer.progress.step == 2 and phase == "evaluating training" and done == 1

        trainer.report = report
        list(trainer.train())
    run = RunDirectory.open(tmp_path / "cut")
    assert run.read_info()["status"] == "stopped"
    assert seen[-1] == "evaluating training"
    assert not run.evaluation_file(2, "training").exists()
    assert run.evaluation_file(2, "held-out").exists()
    brorl("train", "--resume", run.path, cwd=tmp_path)
    assert run.read_info()["status"] == "finished"
    for file in (tmp_path / "whole" / "evals").glob("*.json"):
        assert (run.evals / file.name).read_bytes() == file.read_bytes()


def test_ctrl_c_in_a_step_skips_the_evaluation_after_it(tmp_path: Path) -> None:
    evaluation = {"every": 1, "heldout_prompts": 2, "training_prompts": 0, "rollouts": 8}
    recipe = load_recipe(write_recipe(tmp_path, steps=3, evaluation=evaluation, checkpoint={"every": 3}))
    with open_trainer(recipe, path=tmp_path / "run") as trainer:
        for _ in trainer.train():
            trainer.stop_requested = True
    run = RunDirectory.open(tmp_path / "run")
    assert damage(run.checkpoints / "step_000001") is None  # saved, although no checkpoint was due
    assert not run.evaluation_file(1, "held-out").exists()
    brorl("train", "--resume", run.path, cwd=tmp_path)
    assert sorted(run.read_scores("held-out")) == [0, 1, 2, 3]


def test_the_best_checkpoint_stays(tmp_path: Path) -> None:
    evaluation = {"every": 2, "heldout_prompts": 6, "training_prompts": 0, "rollouts": 32}
    recipe = write_recipe(
        tmp_path,
        steps=8,
        evaluation=evaluation,
        checkpoint={"every": 3, "keep": 1, "keep_best": True},
        optimizer={"lr": 1e-2},
    )
    brorl("train", recipe, "--run", "run", cwd=tmp_path)
    run = RunDirectory.open(tmp_path / "run")
    scores = {step: data["pass_at"]["1"]["value"] for step, data in run.read_scores("held-out").items()}
    best = max(scores, key=lambda step: (scores[step], -step))
    assert run.read_info()["best"] == {"step": best, "score": scores[best]}
    assert json.loads((run.checkpoints / "best" / "trainer.json").read_text())["step"] == best
    assert damage(run.checkpoints / "best") is None
    assert {p.name for p in run.checkpoints.iterdir()} == {"best", f"step_{best:06d}", "step_000008"}


def test_going_back_before_the_best_forgets_it(tmp_path: Path) -> None:
    """The best checkpoint is damaged: the run goes on from the one before, and finds the best again."""
    evaluation = {"every": 1, "heldout_prompts": 6, "training_prompts": 0, "rollouts": 32}
    checkpoint = {"keep": 9, "keep_best": True}
    recipe = write_recipe(tmp_path, steps=4, evaluation=evaluation, checkpoint=checkpoint, optimizer={"lr": 1e-2})
    brorl("train", recipe, "--run", "run", cwd=tmp_path)
    run = RunDirectory.open(tmp_path / "run")
    before = run.read_info()["best"]
    assert before["step"] > 0
    for step in range(before["step"], 5):
        (run.checkpoints / f"step_{step:06d}" / "model.safetensors").write_bytes(b"")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        brorl("train", "--resume", "run", cwd=tmp_path)
    assert run.read_info()["best"] == before
    assert damage(run.checkpoints / "best") is None


def test_three_steps_without_signal_can_be_allowed(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, steps=4, **QUICK, selection={"max_rounds": 1}, guards={"empty_steps": None})
    rows = [{"id": f"q{i}", "question": f"say {i}?", "answer": "never-[0-9]{30}"} for i in range(40)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    brorl("train", recipe, "--run", "run", cwd=tmp_path)
    assert len(RunDirectory.open(tmp_path / "run").read_metrics()) == 4
    stops = load_recipe(recipe, ["guards.empty_steps=2"])
    with (
        open_trainer(stops, path=tmp_path / "stops") as trainer,
        pytest.raises(RunError, match="2 steps in a row without one group"),
    ):
        list(trainer.train())
