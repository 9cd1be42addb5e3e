"""The benchmarks that need no peer, run as a user runs them, on tiny sizes."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
QUICKSTART = str(ROOT / "recipes" / "quickstart.yaml")
COMMANDS = {
    "roofline": ["--recipe", QUICKSTART, "--prompts", "2", "--rounds", "1"],
    "memory": ["--prompts", "2", "--widths", "16", "32"],
    "pipeline": ["--steps", "2", "--set", "rollouts.prompts_per_step=4"],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_it_writes_its_rows(name: str, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    command = [sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), *COMMANDS[name], "--out", str(out)]
    subprocess.run(command, check=True, timeout=250, capture_output=True)
    rows: list[dict[str, Any]] = json.loads(out.read_text())
    for row in rows:
        assert {"name", "ratio", "aim", "versions", "machine", "commit"} <= set(row)
        assert math.isfinite(row["ratio"])


@pytest.mark.slow
def test_the_script_for_a_gpu_runs_on_a_cpu_at_toy_size(tmp_path: Path) -> None:
    surroundings = os.environ | {"DEVICE": "cpu", "OUT": str(tmp_path), "PYTHON": sys.executable}
    script = str(ROOT / "benchmarks" / "gpu.sh")
    ended = subprocess.run(
        ["bash", script, "--toy"], check=True, timeout=250, env=surroundings, capture_output=True, text=True
    )
    assert "equality checks that failed: 0" in ended.stdout
    rows: list[dict[str, Any]] = json.loads((tmp_path / "gpu.json").read_text())
    assert ["nothing shared" in row["name"] for row in rows] == [True, False]
    assert all(math.isfinite(row["ratio"]) for row in rows)
    shared = [row["medians"]["ours"]["distinct_node_share"] for row in rows]
    assert shared[1] < 0.7 < shared[0]
