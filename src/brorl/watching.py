"""The guards at work on a run: what they say is told once, kept in run.json, and cut back with the metrics."""

import shutil
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from brorl.guards import check_records, nearly_full
from brorl.metrics import flatten
from brorl.rundir import RunDirectory


@dataclass(slots=True, kw_only=True)
class Watch:
    """A run's figures so far, and what the guards make of them."""

    run: RunDirectory
    thresholds: Mapping[str, float | None]
    history: list[dict[str, float]] = field(default_factory=list[dict[str, float]])

    def take_up(self) -> None:
        """Begin with what is recorded."""
        self.history = [flatten(record) for record in self.run.read_metrics()]

    def add(self, record: Mapping[str, Any]) -> None:
        """A step is done: warn of what is new, in the terminal and in run.json under ``warnings``."""
        self.history.append(flatten(record))
        told = self.run.read_info().get("warnings", [])
        for finding in check_records(self.history, self.thresholds):
            if finding.stop or finding.guard in {warning["guard"] for warning in told}:
                continue
            told = [*told, {"step": record["step"], **asdict(finding)}]
            self.run.note(warnings=told)
            warnings.warn(f"step {record['step']}: {finding}", stacklevel=3)

    def reason_to_stop(self, checkpoint_bytes: int) -> str | None:
        """Why the run must not go on: the first guard that says so, or a disk without room for more checkpoints."""
        free = shutil.disk_usage(self.run.path).free
        disk = nearly_full(free, checkpoint_bytes, self.thresholds["disk"])
        findings = [*check_records(self.history, self.thresholds), *([disk] if disk else [])]
        return next((str(finding) for finding in findings if finding.stop), None)
