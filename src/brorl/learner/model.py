"""A model directory, checked before anything is computed with it. Nothing is ever downloaded."""

import json
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils.logging import disable_progress_bar

from brorl.errors import ModelError

BUNDLED = "brorl-tiny"
"""The model inside the package."""

# What transformers and safetensors raise on a directory they cannot read.
_FOREIGN = (OSError, ValueError, KeyError, TypeError, RuntimeError, ImportError, AttributeError, SafetensorError)


def model_directory(name: str | Path) -> Path:
    """The directory of a model: a path, or the bundled model by its name.

    Raises:
        ModelError: no such directory.
    """
    if str(name) == BUNDLED:
        bundled = Path(str(resources.files("brorl") / "models" / BUNDLED))
        if not bundled.is_dir():
            raise ModelError(f"the bundled model {BUNDLED} is missing from this installation ({bundled}): reinstall it")
        return bundled
    path = Path(name).expanduser()
    if not path.is_dir():
        raise ModelError(
            f"{path}: no such model directory. Nothing is downloaded: give the path of a Hugging Face model directory "
            f"(config.json, *.safetensors, tokenizer), or {BUNDLED}"
        )
    return path


def load_model(
    name: str | Path, dtype: torch.dtype = torch.float32, *, context: int | None = None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model and tokenizer of a Hugging Face directory, weights in `dtype`.

    Args:
        name: path of the directory, or ``brorl-tiny``.
        dtype: of the weights in memory, whatever they are on disk.
        context: tokens that prompt and response need together, checked where given.

    Raises:
        ModelError: missing directory or files, truncated or incomplete weights, an unreadable configuration, a
            tokenizer without an end-of-sequence token or with more tokens than the model, a context too short.
    """
    path = model_directory(name)
    disable_progress_bar()  # of loading and saving weights; the run has a display of its own
    config = _read_config(path)
    _check_weights(path)
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            path, dtype=dtype, local_files_only=True, trust_remote_code=False, output_loading_info=True
        )
    except _FOREIGN as error:
        raise ModelError(
            f"{path}: transformers cannot load it as a causal language model (model_type "
            f"{config.get('model_type')!r}): {_first_line(error)}. Check that config.json belongs to these weights"
        ) from error
    model, info = loaded
    missing = sorted(info["missing_keys"])
    if missing:
        raise ModelError(
            f"{path}: {len(missing)} weights are missing from its safetensors files, first {missing[0]}; "
            "copy the model again, complete"
        )
    tokenizer = load_tokenizer(path)
    _check_vocabulary(path, model, tokenizer)
    if context is not None:
        check_context(path, model, context)
    return model, tokenizer


def load_tokenizer(name: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a model directory.

    Raises:
        ModelError: there is none, or it has no end-of-sequence token.
    """
    path = model_directory(name)
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    # A damaged tokenizer.json raises a bare Exception from the Rust library.
    except Exception as error:
        raise ModelError(
            f"{path}: no usable tokenizer ({_first_line(error)}). Copy tokenizer.json and tokenizer_config.json of the "
            "model into the directory"
        ) from error
    if tokenizer.eos_token_id is None:
        raise ModelError(
            f"{path}: the tokenizer has no end-of-sequence token, so no response could end; "
            'set "eos_token" in tokenizer_config.json'
        )
    return tokenizer


def check_context(path: str | Path, model: PreTrainedModel, tokens: int) -> None:
    """Check that the model's positions reach `tokens`, prompt and response together.

    Raises:
        ModelError: they do not.
    """
    limit = model.config.to_dict().get("max_position_embeddings")
    if limit is not None and tokens > limit:
        raise ModelError(
            f"{path}: prompt and response may take {tokens} tokens, and the model's context is {limit} "
            "(max_position_embeddings); lower max_new_tokens or drop longer prompts"
        )


def _read_config(path: Path) -> dict[str, Any]:
    file = path / "config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        if (path / "adapter_config.json").exists():
            raise ModelError(
                f"{path}: an adapter without its model. Merge it into the model it was trained on (peft: "
                "merge_and_unload, then save_pretrained) and give that directory; a new adapter is model.lora"
            ) from error
        raise ModelError(f"{path}: holds no config.json, so it is not a Hugging Face model directory") from error
    except (OSError, ValueError) as error:
        raise ModelError(f"{file}: unreadable ({error}); copy it again from the model") from error
    if not isinstance(config, dict):
        raise ModelError(f"{file}: not a JSON object; copy it again from the model")
    if config.get("quantization_config"):
        method = config["quantization_config"].get("quant_method", "unknown")
        raise ModelError(
            f"{path}: quantised weights ({method}) cannot be trained; give the directory of the model as it was before"
        )
    return config


def _check_weights(path: Path) -> None:
    """Every weight file named is there and as long as its header says."""
    index = path / "model.safetensors.index.json"
    names = ["model.safetensors"]
    if index.exists():
        try:
            names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelError(f"{index}: unreadable ({error}); copy it again from the model") from error
    for name in names:
        file = path / name
        if not file.exists():
            raise ModelError(
                f"{file}: missing. Weights are read from safetensors files only; copy the file, or convert the model "
                "with save_pretrained"
            )
        try:
            with safe_open(file, framework="pt"):
                pass
        except (SafetensorError, OSError) as error:
            raise ModelError(f"{file}: truncated or damaged ({_first_line(error)}); copy it again") from error


def _check_vocabulary(path: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    embedding: Any = model.get_input_embeddings()
    rows = embedding.weight.shape[0]
    largest = max(tokenizer.get_vocab().values(), default=-1)
    if largest >= rows:
        raise ModelError(
            f"{path}: the tokenizer has token ids up to {largest}, the model an embedding of {rows} rows; "
            "tokenizer and weights are of different models"
        )


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
