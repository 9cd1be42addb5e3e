"""Where tests find the shared data: `$BRORL_DATA`, by default the folder `shared` beside the repository."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).resolve().parents[1]


def shared(name: str) -> Path:
    """The path of a shared file; skips the test, with the reason, where it is absent."""
    path = _ROOT / os.environ.get("BRORL_DATA", "../shared") / name
    if not path.exists():
        pytest.skip(f"shared data not found: {path} (set BRORL_DATA)")
    return path


def shared_rows(name: str) -> list[dict[str, Any]]:
    """The rows of a shared JSON-lines file."""
    return [json.loads(line) for line in shared(name).read_text(encoding="utf-8").split("\n") if line]


def cases(area: str) -> list[dict[str, Any]]:
    """The handed cases of one area."""
    return [row for row in shared_rows("cases.jsonl") if row["area"] == area]
