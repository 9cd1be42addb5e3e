"""Every handed case of the area resume, run with the command line on a tiny policy; numbers as handed where they are
small enough, else in proportion."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from brorl.build import open_trainer
from brorl.rundir import RunDirectory
from brorl.storage import read_groups
from command_line import brorl, refused
from shared_data import cases
from tiny_policy import write_recipe, write_rows

Case = dict[str, Any]
VOLATILE = ("seconds", "rollouts_per_second", "peak_memory_mib")


def recipe_with(home: Path, rows: int, **settings: Any) -> Path:
    """A recipe on a file of that many prompts, all of them for training, without evaluations."""
    changes: dict[str, Any] = {"evaluation": {"heldout_prompts": 0, "training_prompts": 0}, **settings}
    task = {"kind": "file", "path": "data.jsonl", "heldout_path": "heldout.jsonl", "verifier": "regex"}
    recipe = write_recipe(home, tasks=[{**task, "meta": {"answer_format": "whole"}}], **changes)
    questions = [{"id": f"q{i}", "question": f"say {i}?", "answer": "[a-m].*"} for i in range(rows)]
    write_rows(home / "data.jsonl", questions)
    write_rows(home / "heldout.jsonl", [{"id": "h", "question": "what else", "answer": "x"}])
    return recipe


def in_two_parts(home: Path, recipe: Path, first: int, total: int, *, name: str = "parts") -> RunDirectory:
    run = home / name
    brorl("train", recipe, "-s", f"steps={first}", "--run", run, cwd=home)
    brorl("train", "--resume", run, "-s", f"steps={total}", "--allow-changes", cwd=home)
    return RunDirectory.open(run)


def drawn(run: RunDirectory) -> list[list[str]]:
    """Ids of the prompts of each step."""
    return [[g.group.prompt.id for g in read_groups(run.group_file(r["step"]))] for r in run.read_metrics()]


def stopped_at_the_end_of_an_epoch(case: Case, home: Path) -> None:
    asked = case["input"]
    epoch, saved, total = asked["steps_per_epoch"], asked["saved_at"], asked["total"]
    recipe = recipe_with(
        home,
        epoch,
        steps=total,
        rollouts={"per_prompt": 2, "prompts_per_step": 1, "max_new_tokens": 2},
        algorithm={"minibatches": 1, "kl_weight": 0},
        selection={"drop_constant": False},
        checkpoint={"every": saved},
    )
    run = in_two_parts(home, recipe, saved, total)
    steps = drawn(run)
    assert len(steps) == total
    for start in range(0, total, epoch):
        assert len({name for step in steps[start : start + epoch] for name in step}) == epoch


def stopped_in_the_middle(case: Case, home: Path) -> None:
    saved, total = case["input"]["saved_after"], case["input"]["saved_after"] + 2
    recipe = recipe_with(home, 40, steps=total)
    brorl("train", recipe, "--run", home / "whole", cwd=home)
    parts, whole = in_two_parts(home, recipe, saved, total), RunDirectory.open(home / "whole")
    assert drawn(parts) == drawn(whole)
    one, other = (
        [{k: v for k, v in r.items() if k not in VOLATILE} for r in run.read_metrics()] for run in (parts, whole)
    )
    assert one == other
    newest = [sorted(run.checkpoints.iterdir())[-1] / "model.safetensors" for run in (parts, whole)]
    assert newest[0].read_bytes() == newest[1].read_bytes()


def each_prompt_once(case: Case, home: Path) -> None:
    """Stopped in mid-epoch with groups carried over: no prompt is lost, and none comes twice before all came once."""
    prompts = case["input"]["prompts"]
    recipe = recipe_with(
        home,
        prompts,
        steps=9,
        optimizer={"lr": 0.0},
        rollouts={"per_prompt": 4, "prompts_per_step": 32, "max_new_tokens": 4},
        selection={"oversample": 1.5, "carry_surplus": True},
    )
    run = in_two_parts(home, recipe, 3, 9)
    records = run.read_metrics()
    assert records[2]["position"] < prompts < records[-1]["position"]
    newest = sorted(run.checkpoints.iterdir())[-1]
    carried = [g.group.prompt.id for g in read_groups(newest / "carried.parquet")]
    counts = Counter([*(name for step in drawn(run) for name in step), *carried])
    epochs, more = divmod(records[-1]["position"], prompts)
    assert len(counts) == prompts
    assert Counter(counts.values()) == Counter({epochs: prompts - more, epochs + 1: more})


def other_data(_: Case, home: Path) -> None:
    recipe = recipe_with(home, 40, steps=2)
    brorl("train", recipe, "-s", "steps=1", "--run", home / "run", cwd=home)
    rows = (home / "data.jsonl").read_text().replace("say 7?", "say seven?")
    (home / "data.jsonl").write_text(rows)
    refused("train", "--resume", home / "run", cwd=home, says="the data has changed")
    brorl("train", "--resume", home / "run", "-s", "steps=2", "--allow-changes", cwd=home)
    assert len(RunDirectory.open(home / "run").read_metrics()) == 2


def no_flag_is_ignored(_: Case, home: Path) -> None:
    """There is no such flag: a setting that is not known is an error. The schedule is a function of the step."""
    recipe = recipe_with(home, 40, steps=4, optimizer={"schedule": "cosine", "warmup_steps": 1, "lr": 1e-3})
    refused("train", recipe, "-s", "optimizer.skip_scheduler=true", cwd=home, says="unknown key")
    brorl("train", recipe, "-s", "optimizer.schedule=constant", "--run", home / "constant", cwd=home)
    brorl("train", recipe, "--run", home / "cosine", cwd=home)
    rates = {n: [r["lr"] for r in RunDirectory.open(home / n).read_metrics()] for n in ("constant", "cosine")}
    assert rates["constant"] == [1e-3] * 4
    assert rates["cosine"][1] > rates["cosine"][2] > rates["cosine"][3]


def the_reference_after_a_reset(case: Case, home: Path) -> None:
    """200 and 350 steps in proportion: a reset after 4 steps, a stop after 7."""
    every, saved = case["input"]["ref_reset_every"] // 50, case["input"]["saved_at"] // 50
    recipe = recipe_with(
        home, 40, steps=saved, optimizer={"lr": 1e-2}, reference={"reset_every": every}, checkpoint={"keep": 20}
    )
    brorl("train", recipe, "--run", home / "run", cwd=home)
    run = RunDirectory.open(home / "run")
    stored = load_file(run.checkpoints / f"step_{saved:06d}" / "reference.state")
    at_reset = load_file(run.checkpoints / f"step_{every:06d}" / "model.safetensors")
    base = load_file(run.checkpoints / "step_000000" / "model.safetensors")
    assert all(stored[name].equal(at_reset[name]) for name in stored)
    assert not all(stored[name].equal(base[name]) for name in stored)

    with open_trainer(run.recipe(), resume=run.path) as trainer:
        assert trainer.learner.reference is not None
        restored = dict(trainer.learner.reference.named_parameters())
        assert all(restored[name].equal(stored[name]) for name in stored)


CHECKS: dict[str, Callable[[Case, Path], None]] = {
    "steps_per_epoch": stopped_at_the_end_of_an_epoch,
    "saved_after": stopped_in_the_middle,
    "prompts": each_prompt_once,
    "dataset_fingerprint": other_data,
    "skip_scheduler": no_flag_is_ignored,
    "ref_reset_every": the_reference_after_a_reset,
}


@pytest.mark.slow
@pytest.mark.parametrize("key", CHECKS)
def test_the_case_holds(key: str, tmp_path: Path) -> None:
    [case] = [case for case in cases("resume") if key in case["input"]]
    CHECKS[key](case, tmp_path)


def test_there_is_no_other_case() -> None:
    assert len(cases("resume")) == len(CHECKS)
