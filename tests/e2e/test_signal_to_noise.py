"""`brorl selftest --snr` and `probe.snr_every`: gradients from disjoint sets of rollouts, on a tiny policy."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from brorl.agreement import Updates, draw_pool, gradient_pair
from brorl.build import open_parts, open_trainer
from brorl.recipe_file import load_recipe
from brorl.rundir import RunDirectory
from brorl.snr import measure_signal_to_noise
from command_line import brorl, refused
from tiny_policy import write_recipe

QUIET: dict[str, Any] = {"heldout_prompts": 0, "training_prompts": 0}
# Unnormalised: the expected gradient of a group is (N - 1) / N of the true one, and its variance goes with 1 / N.
PLAIN: dict[str, Any] = {
    "algorithm": {"advantage": "dr_grpo", "loss": "reinforce", "aggregation": "constant", "correction": "none"},
    "selection": {"drop_constant": False},
    "evaluation": QUIET,
}


@pytest.mark.slow
def test_noise_falls_with_the_root_of_n_and_the_signal_stays(tmp_path: Path) -> None:
    recipe = load_recipe(write_recipe(tmp_path, **PLAIN))
    found = measure_signal_to_noise(recipe, sizes=(16, 64), prompts=3, repeats=40)
    few, many = found.by_rollouts[16], found.by_rollouts[64]
    assert few.pairs == many.pairs == 40
    assert few.noise / many.noise == pytest.approx(2.0, rel=0.15)
    assert few.signal is not None
    assert many.signal is not None
    assert many.signal / few.signal == pytest.approx((63 / 64) / (15 / 16), rel=0.2)
    assert few.cosine is not None
    assert many.cosine is not None
    assert few.cosine.high < many.cosine.low
    assert many.cosine.value == pytest.approx(many.signal**2 / (many.signal**2 + many.noise**2), abs=0.1)


def test_a_pair_hangs_on_its_split_alone_and_moves_nothing(tmp_path: Path) -> None:
    recipe = load_recipe(write_recipe(tmp_path, **PLAIN))
    with open_parts(recipe) as parts:
        prompts = [prompt for i in range(3) if (prompt := parts.data.prompt_at(i)) is not None]
        pool = draw_pool(parts.rollouts, prompts, 600, parts.sampling, (1, "pool"))
        updates = Updates(recipe=recipe, learner=parts.learner, advantage=parts.advantage, shapings=parts.shapings)
        before = {name: p.clone() for name, p in parts.learner.model.named_parameters()}
        pair = gradient_pair(pool, 300, updates, step=0, key=("split",))
        assert pair == gradient_pair(pool, 300, updates, step=0, key=("split",))
        assert pair != gradient_pair(pool, 300, updates, step=0, key=("another split",))
        assert min(pair.first_square, pair.second_square) > 0
        assert pair.product**2 < pair.first_square * pair.second_square
        for name, parameter in parts.learner.model.named_parameters():
            assert torch.equal(parameter, before[name])
            assert parameter.grad is None
        assert not parts.learner.optimizer_tensors()
        assert parts.learner.policy_version == 0


def test_the_command_tells_and_writes_the_figures(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    done = brorl("selftest", recipe, "--snr", "--n", "4,8", "--prompts", 2, "--repeats", 2, "--json", "o.json",
                 cwd=tmp_path)  # fmt: skip
    assert "signal / noise" in done.text
    figures = json.loads((tmp_path / "o.json").read_text())
    assert (figures["prompts"], figures["repeats"], figures["pool"]) == (2, 2, 16)
    assert [row["rollouts"] for row in figures["by_rollouts"]] == [4, 8]
    assert {"cosine", "norm_ratio", "signal", "noise", "signal_to_noise"} <= figures["by_rollouts"][0].keys()
    assert figures["advantage"] == {"name": "reinforce_pp_baseline"}
    assert not (tmp_path / "runs").exists()
    refused("selftest", recipe, "--snr", "--n", "4;8", cwd=tmp_path, says="whole numbers with commas")
    refused("selftest", recipe, "--snr", "--n", "1", cwd=tmp_path, says="at least 2 rollouts in each set")


def trained(home: Path, name: str, **probe: int) -> RunDirectory:
    settings: dict[str, Any] = {"steps": 3, "evaluation": QUIET, "checkpoint": {"keep": 10}}
    recipe = load_recipe(write_recipe(home, **settings, probe={"prompts": 3, **probe}))
    with open_trainer(recipe, path=home / name) as trainer:
        list(trainer.train())
    return RunDirectory.open(home / name)


def test_training_is_the_same_with_and_without(tmp_path: Path) -> None:
    plain, measured = trained(tmp_path, "plain"), trained(tmp_path, "measured", snr_every=2)
    left_out = ("seconds", "rollouts_per_second", "peak_memory_mib", "snr")
    figures = [
        [{k: v for k, v in record.items() if k not in left_out} for record in run.read_metrics()]
        for run in (plain, measured)
    ]
    assert figures[0] == figures[1]
    for a, b in zip(sorted(plain.checkpoints.iterdir()), sorted(measured.checkpoints.iterdir()), strict=True):
        assert (a / "model.safetensors").read_bytes() == (b / "model.safetensors").read_bytes()
        assert (a / "optimizer.state").exists() == (b / "optimizer.state").exists()
    found = [record.get("snr") for record in measured.read_metrics()]
    assert found[1] is None
    assert found[0] != found[2]
    for figure in (found[0], found[2]):
        assert figure is not None
        assert (figure["prompts"], figure["pool"]) == (3, 32)  # N is 24: of 16, 64 and 512 only 16 is within it
        (row,) = figure["by_rollouts"]
        assert row["rollouts"] == 16
        assert row["cosine"] == pytest.approx(row["product"] / (row["first_square"] * row["second_square"]) ** 0.5)
    assert all("snr" in record["seconds"] for record in measured.read_metrics()[::2])
