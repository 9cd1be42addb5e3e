"""Starting from somebody else's model: any Hugging Face checkpoint, with the reference policy set to it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, PreTrainedModel

from brorl.build import open_trainer
from brorl.recipe_file import load_recipe
from tiny_models import tiny_model
from tiny_policy import CHARACTERS, character_tokenizer, write_recipe

SETTINGS: dict[str, Any] = {
    "steps": 2,
    "evaluation": {"heldout_prompts": 0, "training_prompts": 0},
    "selection": {"drop_constant": False},
    "algorithm": {"kl_weight": 0.01, "minibatches": 2},
}


def checkpoint(directory: Path, architecture: str, dtype: torch.dtype, shards: bool) -> Path:
    """As another trainer leaves it: weights in its dtype, in one file or several."""
    model = tiny_model(architecture, vocab_size=len(CHARACTERS) + 4, dtype=dtype)
    model.save_pretrained(directory, max_shard_size="20KB" if shards else "5GB")
    character_tokenizer().save_pretrained(directory)
    assert (directory / "model.safetensors.index.json").exists() == shards
    return directory


def tied(model: PreTrainedModel) -> bool:
    output: Any = model.get_output_embeddings()
    return output.weight is model.get_input_embeddings().weight


@pytest.mark.parametrize(
    ("architecture", "dtype", "shards", "ties"),
    [
        ("llama", torch.float32, True, False),
        ("qwen2", torch.bfloat16, False, True),
        ("qwen3", torch.bfloat16, True, False),
        ("gemma3", torch.float32, False, True),
    ],
)
def test_any_checkpoint_is_a_start_and_its_own_reference(
    tmp_path: Path, architecture: str, dtype: torch.dtype, shards: bool, ties: bool
) -> None:
    start = checkpoint(tmp_path / "model", architecture, dtype, shards)
    given = AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32)
    assert tied(given) == ties
    recipe = load_recipe(write_recipe(tmp_path, **SETTINGS))
    with open_trainer(recipe, path=tmp_path / "run") as trainer:
        reference = trainer.learner.reference
        assert reference is not None
        for step in trainer.train():
            assert step["grad_norm"] > 0
            assert step["mismatch"] < 1e-4  # engine and learner stay one policy
            assert step["kl"] < 1.0
        theirs = dict(given.named_parameters())
        for name, parameter in reference.named_parameters():
            assert torch.equal(parameter, theirs[name]), name
        assert any(not torch.equal(p, theirs[name]) for name, p in trainer.learner.model.named_parameters())
        assert tied(trainer.learner.model) == ties
        last = trainer.learner.model(torch.arange(4, 14)[None]).logits
    saved = sorted((tmp_path / "run" / "checkpoints").glob("step_*"))[-1]
    assert {t.dtype for t in load_file(saved / "model.safetensors").values()} == {torch.float32}
    again = AutoModelForCausalLM.from_pretrained(saved)
    assert tied(again) == ties
    torch.testing.assert_close(again(torch.arange(4, 14)[None]).logits, last, rtol=1e-5, atol=1e-5)


def test_a_run_continued_elsewhere_starts_with_no_distance_to_its_reference(tmp_path: Path) -> None:
    """The second run's reference is the first run's last policy, not the first run's start."""
    first = load_recipe(write_recipe(tmp_path, **SETTINGS))
    with open_trainer(first, path=tmp_path / "first") as trainer:
        assert [record["kl"] > 0 for record in trainer.train()][-1]
    saved = sorted((tmp_path / "first" / "checkpoints").glob("step_*"))[-1]
    changes: dict[str, Any] = {**SETTINGS, "algorithm": {**SETTINGS["algorithm"], "minibatches": 1}}
    second = load_recipe(write_recipe(tmp_path, **changes, model={"path": str(saved)}))
    with open_trainer(second, path=tmp_path / "second") as trainer:
        records = list(trainer.train())
    assert records[0]["kl"] == pytest.approx(0.0, abs=1e-9)
    assert records[1]["kl"] > records[0]["kl"]
