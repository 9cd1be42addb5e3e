"""What glibc's allocator does with the large temporaries of a training step."""

import ctypes
from collections.abc import Callable

from transformers import PreTrainedModel

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h
_LARGE = 256 * 2**20  # bytes of weights


def keep_freed_memory(model: PreTrainedModel) -> bool:
    """For a large model on a CPU, let this process keep freed memory for its next use; whether it does now.

    Else every micro-batch faults its temporaries in anew: a tenth of SmolLM2's step, against a twentieth more memory.
    A small model's step is not worth it. Without effect where the C library has no `mallopt`.
    """
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    if model.device.type != "cpu" or size < _LARGE:
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and keep_below_largest(mallopt)


def keep_below_largest(mallopt: Callable[[int, int], int]) -> bool:
    """Keep freed blocks up to the largest size that this `mallopt` takes: 128 MiB, else 32 MiB (glibc before 2.35).

    The size comes first: giving memory back set alone would hold it at 128 KiB, and fault in more than before.
    """
    taken = any(mallopt(_MMAP_THRESHOLD, size) for size in (2**27, 2**25))
    return taken and bool(mallopt(_TRIM_THRESHOLD, 2**31 - 1))
