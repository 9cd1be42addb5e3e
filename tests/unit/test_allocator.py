"""Only a large model on a CPU changes what the process does with freed memory."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from brorl.learner.allocator import keep_freed_memory
shape = dict(vocab_size={vocabulary}, hidden_size=1024, intermediate_size=8, num_hidden_layers=1, num_attention_heads=4)
print(keep_freed_memory(LlamaForCausalLM(LlamaConfig(**shape, tie_word_embeddings=True))))
"""


@pytest.mark.parametrize("large", [False, True])
def test_only_a_large_model_keeps_freed_memory(large: bool) -> None:
    """In a process of its own: what it sets lasts as long as the process."""
    program = PROGRAM.format(vocabulary=2**16 if large else 2**10)
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=100)
    assert said.stdout.strip() == str(large and platform.libc_ver()[0] == "glibc")
