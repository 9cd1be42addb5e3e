"""The probe of a real run: its figures against another forward pass, and training that does not notice it."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM

from brorl.build import open_trainer
from brorl.group import RolloutGroup
from brorl.recipe_file import load_recipe
from brorl.reports.summary import summarise_run
from brorl.rundir import RunDirectory
from brorl.storage import read_groups
from tiny_policy import write_recipe

SETTINGS: dict[str, Any] = {
    "steps": 4,
    "evaluation": {"heldout_prompts": 0, "training_prompts": 0},
    "checkpoint": {"keep": 10},
    "optimizer": {"lr": 5e-3},
    # The order of rows hangs on the path as it is written: a relative one, for the same run in every temporary folder.
    "tasks": [{"kind": "file", "path": "data.jsonl", "verifier": "regex", "meta": {"answer_format": "whole"}}],
}
PROBE = {"every": 2, "prompts": 3, "rollouts": 128}
VOLATILE = ("seconds", "rollouts_per_second", "peak_memory_mib")


def train(home: Path, name: str, **changes: Any) -> RunDirectory:
    recipe = load_recipe(write_recipe(home, **SETTINGS, **changes))
    with contextlib.chdir(home), open_trainer(recipe, path=home / name) as trainer:
        for _ in trainer.train():
            pass
    return RunDirectory.open(home / name)


def figures(run: RunDirectory, *left_out: str) -> list[dict[str, Any]]:
    return [{k: v for k, v in r.items() if k not in (*VOLATILE, *left_out)} for r in run.read_metrics()]


def weights(run: RunDirectory) -> list[bytes]:
    return [(c / "model.safetensors").read_bytes() for c in sorted(run.checkpoints.iterdir())]


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return train(tmp_path_factory.mktemp("probed"), "run", probe=PROBE)


def flat_probabilities(checkpoint: Path, group: RolloutGroup) -> NDArray[np.float64]:
    """Each distinct response's probability under a checkpoint, one plain forward pass per response."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float64)
    prompt, found = group.prompt.token_ids.tolist(), []
    for response in group.responses():
        ids = torch.tensor([[*prompt, *response.tolist()]])
        with torch.no_grad():
            logp = torch.log_softmax(model(ids).logits[0, len(prompt) - 1 : -1], -1)
        found.append(float(logp.gather(1, ids[0, len(prompt) :, None]).sum().exp()))
    return np.array(found)


def test_figures_equal_a_plain_forward_pass_of_the_checkpoints(probed: RunDirectory) -> None:
    first, last = probed.read_metrics()[0]["probe"], probed.read_metrics()[2]["probe"]
    start, after_first, after_third = (probed.checkpoints / f"step_{s:06d}" for s in (0, 1, 3))
    groups = read_groups(probed.bank)
    assert [g.group.prompt.id for g in groups] == [p["id"] for p in first["by_prompt"]]
    assert all(g.group.rollouts == PROBE["rollouts"] for g in groups)
    retained = []
    for scored, early, late in zip(groups, first["by_prompt"], last["by_prompt"], strict=True):
        correct = scored.rewards >= 1
        assert 0 < correct.sum() < len(correct)
        before, after = (flat_probabilities(c, scored.group) for c in (start, after_first))
        assert early["p_pos"] == pytest.approx((after - before)[correct].sum(), rel=1e-3, abs=1e-7)
        assert early["p_neg"] == pytest.approx((after - before)[~correct].sum(), rel=1e-3, abs=1e-7)
        assert early["unseen_mass"] == pytest.approx(-(after - before).sum(), rel=1e-3, abs=1e-7)
        now = flat_probabilities(after_third, scored.group)
        lost = np.maximum(before - now, 0.0)[correct].sum() / before[correct].sum()
        assert late["retained_mass"] == pytest.approx(1 - lost, abs=1e-4)
        retained.append(late["retained_mass"])
    assert min(retained) < 0.99  # something was lost, so that the comparison says something
    assert last["retained_mass"] == pytest.approx(np.mean(retained))
    assert last["bank_answers"] == sum(int((g.rewards >= 1).sum()) for g in groups)


def test_change_of_the_correct_mass_comes_with_interval_or_reason(probed: RunDirectory) -> None:
    measured = 0
    for record in probed.read_metrics():
        if record["step"] % 2:
            assert "probe" not in record
            assert "probe" not in record["seconds"]
            continue
        found, change = record["probe"], record["probe"]["q_pos"]
        assert record["seconds"]["probe"] > 0
        assert change["prompts"] + sum(change["declined"].values()) == found["prompts"] == 3
        measured += change["prompts"]
        if change["prompts"]:
            assert change["low"] < change["value"] < change["high"]
            assert 0 < change["effective_samples"] <= change["rollouts"] == change["prompts"] * PROBE["rollouts"]
    assert measured > 0


def test_summary_tells_cost_and_course(probed: RunDirectory) -> None:
    found = summarise_run(probed)
    assert found["probe"]["updates"] == 2
    assert found["seconds_per_phase"]["probe"] > 0
    assert 0 < found["probe"]["share_of_time"] < 1
    assert found["probe"]["retained_mass"] == probed.read_metrics()[2]["probe"]["retained_mass"]


def test_training_is_the_same_without_a_probe(probed: RunDirectory) -> None:
    plain = train(probed.path.parent, "plain")
    assert figures(plain) == figures(probed, "probe")
    assert weights(plain) == weights(probed)
    for a, b in zip(sorted(plain.groups.iterdir()), sorted(probed.groups.iterdir()), strict=True):
        assert a.read_bytes() == b.read_bytes()
    assert not plain.bank.exists()
    assert "probe" not in summarise_run(plain)["seconds_per_phase"]


def test_resume_after_kill_finds_the_same_bank_and_figures(probed: RunDirectory, tmp_path: Path) -> None:
    recipe = write_recipe(probed.path.parent, **SETTINGS, probe=PROBE)
    process = subprocess.Popen(
        [sys.executable, "-m", "brorl", "train", str(recipe), "--run", str(tmp_path / "killed")],
        cwd=probed.path.parent,
        env={**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "step 1," in line:
            process.send_signal(signal.SIGKILL)
            break
    process.wait()
    process.stdout.close()
    killed = RunDirectory.open(tmp_path / "killed")
    with contextlib.chdir(probed.path.parent), open_trainer(killed.recipe(), resume=killed.path) as trainer:
        assert trainer.progress.step < 4
        for _ in trainer.train():
            pass
    assert figures(killed) == figures(probed)
    assert weights(killed)[-1] == weights(probed)[-1]
    assert killed.bank.read_bytes() == probed.bank.read_bytes()
