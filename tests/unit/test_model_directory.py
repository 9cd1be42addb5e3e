"""Model directories that cannot be used: one message that names the path and the remedy."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from brorl.errors import ModelError
from brorl.learner.model import check_context, load_model, model_directory
from tiny_policy import save_tiny_policy


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_policy(tmp_path_factory.mktemp("model"))


@pytest.fixture
def policy(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "policy"))


def test_a_sound_directory_loads_in_the_asked_dtype(policy: Path) -> None:
    model, tokenizer = load_model(policy, torch.float64, context=64)
    assert model.dtype == torch.float64
    assert tokenizer.eos_token_id == 2


def edit_json(file: Path, **changes: object) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def truncated_weights(path: Path) -> None:
    with (path / "model.safetensors").open("r+b") as file:
        file.truncate(20_000)


def a_weight_missing(path: Path) -> None:
    tensors = load_file(path / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})


def no_end_of_sequence(path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(path)
    tokenizer.eos_token = None
    tokenizer.save_pretrained(path)


def too_many_tokens(path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(path)
    tokenizer.add_tokens(["<extra>"])
    tokenizer.save_pretrained(path)


def a_shard_missing(path: Path) -> None:
    index = {"metadata": {}, "weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))


def adapter_only(path: Path) -> None:
    (path / "config.json").unlink()
    (path / "adapter_config.json").write_text("{}")


def pickled_weights(path: Path) -> None:
    torch.save(load_file(path / "model.safetensors"), path / "pytorch_model.bin")
    (path / "model.safetensors").unlink()


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda p: [file.unlink() for file in p.iterdir()], "holds no config.json"),
    "no weights": (lambda p: (p / "model.safetensors").unlink(), r"model\.safetensors: missing"),
    "truncated weights": (truncated_weights, r"model\.safetensors: truncated or damaged"),
    "empty weights": (
        lambda p: (p / "model.safetensors").write_bytes(b""),
        r"model\.safetensors: truncated or damaged",
    ),
    "a weight missing": (a_weight_missing, r"1 weights are missing .* first model\.layers\.1\.mlp\.up_proj\.weight"),
    "a shard missing": (a_shard_missing, "model-00001-of-00002.safetensors: missing"),
    "broken index": (lambda p: (p / "model.safetensors.index.json").write_text("[]"), "index.json: unreadable"),
    "broken config": (lambda p: (p / "config.json").write_text('{"model_type": '), r"config\.json: unreadable"),
    "quantised": (
        lambda p: edit_json(p / "config.json", quantization_config={"quant_method": "gptq", "bits": 4}),
        r"quantised weights \(gptq\) cannot be trained",
    ),
    "an adapter": (adapter_only, "an adapter without its model"),
    "PyTorch weights": (pickled_weights, r"model\.safetensors: missing.*convert the model with save_pretrained"),
    "config of a list": (lambda p: (p / "config.json").write_text("[]"), "not a JSON object"),
    "unknown architecture": (lambda p: edit_json(p / "config.json", model_type="zebra"), "model_type 'zebra'"),
    "other sizes": (
        lambda p: edit_json(p / "config.json", hidden_size=64),
        "cannot load it as a causal language model",
    ),
    "no tokenizer": (lambda p: [file.unlink() for file in p.glob("tokenizer*")], "no usable tokenizer"),
    "broken tokenizer": (lambda p: (p / "tokenizer.json").write_text("{}"), "no usable tokenizer"),
    "no end of sequence": (no_end_of_sequence, "no end-of-sequence token"),
    "too many tokens": (too_many_tokens, "token ids up to 52, the model an embedding of 52 rows"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_directory_is_one_clear_message(policy: Path, case: str) -> None:
    harm, message = BROKEN[case]
    harm(policy)
    with pytest.raises(ModelError, match=message) as caught:
        load_model(policy)
    assert str(policy) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nothing_is_downloaded(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no such model directory\. Nothing is downloaded"):
        load_model("HuggingFaceTB/SmolLM2-135M")
    with pytest.raises(ModelError, match="no such model directory"):
        model_directory(tmp_path / "absent")


def test_a_context_that_is_too_short(policy: Path) -> None:
    with pytest.raises(ModelError, match="may take 65 tokens, and the model's context is 64"):
        load_model(policy, context=65)
    model, _ = load_model(policy)
    check_context(policy, model, 64)
