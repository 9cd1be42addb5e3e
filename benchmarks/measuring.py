"""What every benchmark states beside its figures: medians and spreads, versions, machine, commit."""

import json
import os
import platform
import resource
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"


def summary(values: Sequence[float]) -> dict[str, Any]:
    """Median and range of a figure over rounds."""
    return {"median": statistics.median(values), "spread": [min(values), max(values)]}


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> dict[str, Any]:
    """The median over rounds of one figure over the other, which were measured in turn."""
    ratios = [a / b for a, b in zip(numerators, denominators, strict=True)]
    return {"ratio": statistics.median(ratios), "ratio_spread": [min(ratios), max(ratios)], "rounds": len(ratios)}


def environment(threads: int, packages: Sequence[str] = ("brorl", "torch", "transformers")) -> dict[str, Any]:
    """What a figure depends on besides the code under test."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=HERE, capture_output=True, text=True, check=False)
    return {
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in packages}},
        "machine": {"processor": _processor(), "cores": os.cpu_count(), "threads": threads},
        "commit": commit.stdout.strip() or None,
    }


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the list of results, and print each one's ratio beside its aim."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(list(rows), indent=2) + "\n", encoding="utf-8")
    for row in rows:
        print(f"{row['name']}: {row['ratio']:.3g} (aim {row['aim']})")


def peak_memory_mib() -> float:
    """The most memory this process has held, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()
