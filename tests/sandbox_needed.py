"""Skips where model-written code cannot be run."""

import pytest

from brorl.verifiers.sandbox import SandboxUnavailable, isolation


def require_sandbox() -> None:
    """Skip the calling test, with the reason, where no strong sandbox works."""
    try:
        isolation()
    except SandboxUnavailable as reason:
        pytest.skip(str(reason))
