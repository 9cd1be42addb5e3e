"""Only a large model on a CPU changes what the process does with freed memory."""

import platform
import subprocess
import sys

import pytest

from brorl.learner.allocator import keep_below_largest

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


@pytest.mark.parametrize(
    ("limit", "wanted"), [(2**31, {-3: 2**27, -1: 2**31 - 1}), (2**25, {-3: 2**25, -1: 2**31 - 1}), (0, {})]
)
def test_an_older_c_library_takes_smaller_blocks_or_stays_as_it_was(limit: int, wanted: dict[int, int]) -> None:
    """Before 2.35, glibc refuses to keep blocks above 32 MiB; half of the settings would be worse than none."""
    held: dict[int, int] = {}

    def mallopt(name: int, value: int) -> int:
        if name == -3 and value > limit:
            return 0
        held[name] = value
        return 1

    assert keep_below_largest(mallopt) == bool(wanted)
    assert held == wanted
