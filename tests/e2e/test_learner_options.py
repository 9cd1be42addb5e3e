"""What a recipe says about device, precision and memory of the learner, as a run has it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from brorl.build import compute_device, compute_dtype, open_trainer
from brorl.config import Recipe
from brorl.engines.local import LocalEngine
from brorl.errors import RecipeError
from brorl.learner import learner as learner_module
from brorl.learner.logprobs import node_logprobs
from brorl.recipe_file import load_recipe
from brorl.rundir import RunDirectory
from brorl.selftest import run_selftest
from command_line import brorl, refused
from tiny_policy import write_recipe

QUIET: dict[str, Any] = {"steps": 2, "evaluation": {"heldout_prompts": 0, "training_prompts": 0}}


def trained(home: Path, name: str, **model: Any) -> RunDirectory:
    recipe = load_recipe(write_recipe(home, **QUIET, model=model))
    with open_trainer(recipe, path=home / name) as trainer:
        assert trainer.learner.settings.gradient_checkpointing == recipe.model.gradient_checkpointing
        assert len(list(trainer.train())) == 2
    return RunDirectory.open(home / name)


def recipe_with(home: Path, **model: Any) -> Recipe:
    return load_recipe(write_recipe(home, **QUIET, model=model))


def test_gradient_checkpointing_trains_alike(tmp_path: Path) -> None:
    plain, checkpointed = trained(tmp_path, "plain"), trained(tmp_path, "memory", gradient_checkpointing=True)
    for a, b in zip(plain.read_metrics(), checkpointed.read_metrics(), strict=True):
        assert a["rollouts"] == b["rollouts"]
        assert a["grad_norm"] == pytest.approx(b["grad_norm"], rel=1e-4)
        assert a["ratio"] == pytest.approx(b["ratio"], rel=1e-5)


def test_bfloat16_computes_on_float32_weights_in_learner_and_engine(tmp_path: Path) -> None:
    plain, half = trained(tmp_path, "plain"), trained(tmp_path, "half", compute="bfloat16")
    first, rounded = plain.read_metrics()[0], half.read_metrics()[0]
    assert rounded["mismatch"] != first["mismatch"]
    assert first["mismatch"] < 1e-5 < rounded["mismatch"] < 0.05  # bfloat16 keeps 8 bits
    assert rounded["correction_zero"] < 0.05
    assert np.isfinite(rounded["loss"])
    weights = load_file(sorted(half.checkpoints.iterdir())[-1] / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}
    assert any(not torch.equal(tensor, tensor.bfloat16().float()) for tensor in weights.values())


def test_a_run_that_is_out_of_memory_goes_on_with_smaller_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch's own error above so many tokens; that a real allocator's refusal is met alike, test_learner shows."""
    large = trained(tmp_path, "large")
    sound = node_logprobs

    def small_device(model: Any, batch: Any, *rest: Any, **options: Any) -> Any:
        if batch.tokens.size > 200:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return sound(model, batch, *rest, **options)

    monkeypatch.setattr(learner_module, "node_logprobs", small_device)
    with pytest.warns(UserWarning, match="out of memory: repeating with max_nodes"):
        small = trained(tmp_path, "small")
    for a, b in zip(large.read_metrics(), small.read_metrics(), strict=True):
        assert a["rollouts"] == b["rollouts"]
        assert a["grad_norm"] == pytest.approx(b["grad_norm"], rel=1e-4)
    state = json.loads((sorted(small.checkpoints.glob("step_*"))[-1] / "trainer.json").read_text())
    assert state["learner"]["max_tokens"] <= 200  # a resumed run does not try again


@pytest.mark.skipif(torch.cuda.is_available(), reason="speaks of a machine without a GPU")
def test_a_gpu_that_is_not_there(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, model={"device": "cuda"})
    refused("train", recipe, cwd=tmp_path, says="model.device is cuda, and PyTorch")
    assert not (tmp_path / "runs").exists()
    assert compute_device(recipe_with(tmp_path, device="auto")) == torch.device("cpu")


def test_what_is_computed_in(tmp_path: Path) -> None:
    cpu = torch.device("cpu")
    assert compute_dtype(recipe_with(tmp_path), cpu) is None
    assert compute_dtype(recipe_with(tmp_path, compute="float32"), cpu) is None
    assert compute_dtype(recipe_with(tmp_path, compute="bfloat16"), cpu) == torch.bfloat16
    with pytest.raises(RecipeError, match=r"no effect while model\.dtype"):
        recipe_with(tmp_path, compute="bfloat16", dtype="float64")


LORA = {"rank": 4, "alpha": 8}


@pytest.mark.slow
def test_a_run_with_lora_learns_resumes_and_leaves_a_plain_model(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "model": {"lora": LORA},
        "optimizer": {"lr": 2e-2},
        "reference": {"reset_every": 2},
        "evaluation": {"heldout_prompts": 0, "training_prompts": 4},
    }
    recipe = write_recipe(tmp_path, steps=6, **settings)
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    brorl("train", recipe, "--run", whole, "--json", tmp_path / "out.json", cwd=tmp_path)
    pair = json.loads((tmp_path / "out.json").read_text())["evaluations"]["training"]
    assert pair["after"]["pass_at"]["1"]["value"] > pair["before"]["pass_at"]["1"]["value"] + 0.05

    with open_trainer(load_recipe(recipe), path=stopped) as trainer:
        for record in trainer.train():
            trainer.stop_requested = record["step"] == 2
    assert len(RunDirectory.open(stopped).read_metrics()) == 3
    brorl("train", "--resume", stopped, cwd=tmp_path)
    newest = [sorted((run / "checkpoints").glob("step_*"))[-1] for run in (whole, stopped)]
    for file in ("model.safetensors", "adapter/adapter_model.safetensors", "adapter/optimizer.state"):
        assert (newest[0] / file).read_bytes() == (newest[1] / file).read_bytes(), file

    # The merged model is a start like any other; the adapter's optimizer is not taken for its own.
    following = write_recipe(tmp_path, name="next", model={"path": str(newest[0])}, **QUIET)
    brorl("train", following, "--run", tmp_path / "next", cwd=tmp_path)


def test_a_selftest_of_lora_finds_an_engine_that_keeps_old_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine has weights of its own here, so that forgetting to load them is a mistake that can be made."""
    recipe = load_recipe(write_recipe(tmp_path, model={"lora": LORA}))
    assert all(check.passed for check in run_selftest(recipe, prompts=2, rollouts=24))
    monkeypatch.setattr(LocalEngine, "load_weights", lambda self, weights, version: None)
    failed = [check.name for check in run_selftest(recipe, prompts=2, rollouts=24) if not check.passed]
    assert failed == ["engine after an update"]


def test_lora_settings_that_cannot_work(tmp_path: Path) -> None:
    says = "model.lora.targets: zebra is no linear layer"
    refused("train", write_recipe(tmp_path, model={"lora": {"targets": ["zebra"]}}), cwd=tmp_path, says=says)
    recipe = write_recipe(tmp_path, model={"lora": {"dropout": 0.1}})
    refused("check", recipe, cwd=tmp_path, says="unknown key 'model.lora.dropout'; known here: alpha, rank, targets")
    assert not (tmp_path / "runs").exists()
