"""Only a large model on a CPU changes what the process does with freed memory."""

import platform

import torch

from brorl.learner.allocator import keep_freed_memory
from tiny_models import tiny_model


def test_a_small_model_changes_nothing() -> None:
    assert not keep_freed_memory(tiny_model("llama"))


def test_a_large_model_keeps_freed_memory_where_glibc_is() -> None:
    model = tiny_model("llama")
    with torch.device("meta"):
        large = torch.nn.Embedding(2**17, 2**10)
    model.register_module("large", large)  # counted, never allocated
    assert keep_freed_memory(model) == (platform.libc_ver()[0] == "glibc")
