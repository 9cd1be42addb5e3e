"""Randomness is keyed, never counted: every generator is made from a hash of a named key.

Additive seeds (``seed + i``) overlap between data sets and between runs; a hash of the whole key does not.
"""

import hashlib

import numpy as np

Key = int | float | str | bytes


def derive_seed(*key: Key) -> int:
    """A 64-bit seed from a key of any parts.

    Parts are hashed with their type and length, so ``("a", "bc")`` and ``("ab", "c")``, or ``1`` and ``"1"``,
    give different seeds.

    Returns:
        An integer in [0, 2**63), so that it fits every library's signed 64-bit seed.
    """
    digest = hashlib.blake2b(digest_size=8)
    for part in key:
        data = part if isinstance(part, bytes) else repr(part).encode()
        digest.update(f"{type(part).__name__}:{len(data)}:".encode())
        digest.update(data)
    return int.from_bytes(digest.digest(), "little") >> 1


def generator(*key: Key) -> np.random.Generator:
    """A NumPy generator for one named purpose: ``generator(run_seed, "prompts", step)``."""
    return np.random.Generator(np.random.Philox(key=derive_seed(*key)))
