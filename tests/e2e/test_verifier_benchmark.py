"""The benchmark of the verifiers, run as a user runs it, on a tiny input."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox_needed import require_sandbox
from shared_data import shared

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "verifiers.py"


@pytest.mark.slow
def test_it_writes_rates_of_math_and_code(tmp_path: Path) -> None:
    require_sandbox()
    data = shared("data/outputs_math_greedy.jsonl").parent
    out = tmp_path / "verifiers.json"
    sizes = ["--rows", "5", "--programs", "4", "--rounds", "1", "--data", str(data), "--out", str(out)]
    subprocess.run([sys.executable, str(SCRIPT), *sizes], check=True, timeout=250)
    results = json.loads(out.read_text())
    assert len(results) == 4
    for result in results:
        assert result["ratio"] > 0
        assert all(value > 0 for value in result["medians"].values())
        assert {"name", "aim", "spreads", "versions", "machine", "commit"} <= set(result)
    assert set(results[0]["medians"]) == {"math", "math_verify", "repeated"}
