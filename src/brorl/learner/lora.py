"""LoRA through peft: a small trainable adapter on a frozen model, W + (alpha / rank) B A (Hu et al., arXiv 2106.09685).

The learner trains the adapter beside the frozen weights. Everyone else, engine and readers of a checkpoint, gets the
plain model with the adapter merged in; the frozen weights themselves are never written to.
"""

import copy
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from brorl.errors import ModelError
from brorl.seeding import derive_seed

FOLDER = "adapter"
"""In a checkpoint, beside the merged model: there a model loader would take the adapter for its own."""
_NAME = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """An adapter to be trained. It has no dropout: the ratio of an unchanged policy is 1."""

    rank: int = 16
    alpha: int = 32
    """the adapter's product is scaled by alpha / rank"""
    targets: tuple[str, ...] | str = "all-linear"
    """names of the linear layers that get one, such as ("q_proj", "v_proj")"""
    seed: int = 0


def add_adapter(model: PreTrainedModel, lora: Lora) -> Any:
    """Freeze the model and put an adapter on it, in place; returns peft's handle of it.

    B starts at zero, so the policy starts as the model is; A is drawn by `lora.seed`, whatever else drew before.

    Raises:
        ModelError: peft is not installed, or a target is not a linear layer inside the model.
    """
    try:
        import peft
    except ImportError as error:
        raise ModelError("model.lora needs the package peft: pip install 'brorl[lora]'") from error
    targets = lora.targets if isinstance(lora.targets, str) else list(lora.targets)
    _check_targets(model, targets)
    settings = peft.LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        target_modules=targets,
        lora_dropout=0.0,
        bias="none",  # type: ignore[arg-type]
    )
    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers for a name that it renames
        adapter = peft.get_peft_model(model, settings, adapter_name=_NAME)
    for name, parameter in model.named_parameters():
        if ".lora_A." in name:
            drawn = torch.Generator().manual_seed(derive_seed(lora.seed, "lora", name))
            bound = parameter.shape[1] ** -0.5  # peft's own: Kaiming's with a = sqrt(5)
            values = torch.rand(parameter.shape, generator=drawn, dtype=torch.float64) * 2 - 1
            parameter.data.copy_(bound * values)
    return adapter


def _check_targets(model: PreTrainedModel, targets: list[str] | str) -> None:
    if targets == "all-linear":
        return
    head = model.get_output_embeddings()
    layers = {name.rpartition(".")[2] for name, module in model.named_modules() if _takes_adapter(module, head)}
    wrong = sorted(set([targets] if isinstance(targets, str) else targets) - layers)
    if wrong:
        raise ModelError(
            f"model.lora.targets: {', '.join(wrong)} is no linear layer of this model's blocks; there are "
            f"{', '.join(sorted(layers))}, or all-linear"
        )


def _takes_adapter(module: nn.Module, head: Any) -> bool:
    return isinstance(module, nn.Linear) and module is not head


def copy_sharing(model: PreTrainedModel, shared: Iterable[nn.Parameter]) -> PreTrainedModel:
    """A copy of the model that uses the `shared` parameters themselves and copies the others."""
    return copy.deepcopy(model, {id(parameter): parameter for parameter in shared})


@torch.no_grad()
def merged_weights(model: PreTrainedModel) -> dict[str, Tensor]:
    """The plain model's `state_dict` with the adapter merged in; what no adapter touches is not copied."""
    merged = {
        name.replace(".base_layer.", "."): tensor for name, tensor in model.state_dict().items() if ".lora_" not in name
    }
    for name, module in model.named_modules():
        if hasattr(module, "get_delta_weight"):
            merged[f"{name}.weight"] = merged[f"{name}.weight"] + module.get_delta_weight(_NAME)  # type: ignore[operator]
    return merged


def save_adapter(adapter: Any, directory: Path) -> None:
    """Write the adapter in peft's own format."""
    adapter.save_pretrained(directory, save_embedding_layers=False)


def load_adapter_tensors(directory: Path) -> dict[str, Tensor]:
    """An adapter's tensors by the names of the model's parameters.

    Raises:
        ModelError: no adapter there, or a damaged one.
    """
    file = directory / "adapter_model.safetensors"
    try:
        tensors = load_file(file)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{file}: no usable adapter ({error}); this run trains one (model.lora)") from error
    return {
        name.removeprefix("base_model.model.").replace(".weight", f".{_NAME}.weight"): tensor
        for name, tensor in tensors.items()
    }
