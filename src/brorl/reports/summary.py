"""What a run came to: one mapping of figures, and the table that `brorl train` ends with."""

import json
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from brorl.rundir import RunDirectory

_PHASES = ("sampling", "verification", "log-probabilities", "update", "groups", "checkpoint")


def summarise_run(run: RunDirectory) -> dict[str, Any]:
    """The figures of a run as it lies on disk.

    Keys: ``run``, ``recipe``, ``steps``, ``evaluations`` (set -> before and after -> pass@k with intervals),
    ``kept_share``, ``distinct_node_share``, ``rollouts_per_second`` (means over steps; generation and verification),
    ``rollouts``, ``seconds_per_phase`` (medians over steps), ``seconds_per_step``, ``peak_memory_mib``.
    """
    records = run.read_metrics()

    def mean(key: str) -> float | None:
        values = [record[key] for record in records if key in record and record[key] == record[key]]
        return sum(values) / len(values) if values else None

    phases = {
        phase: median(record["seconds"].get(phase, 0.0) for record in records) if records else 0.0 for phase in _PHASES
    }
    return {
        "run": str(run.path),
        "recipe": run.recipe().name,
        "status": run.read_info().get("status"),
        "steps": len(records),
        "rollouts_per_prompt": run.recipe().rollouts.per_prompt,
        "evaluations": _evaluations(run.evals),
        "kept_share": mean("kept_share"),
        "distinct_node_share": mean("distinct_node_share"),
        "rollouts_per_second": mean("rollouts_per_second"),
        "rollouts": sum(record.get("rollouts", 0) for record in records),
        "seconds_per_phase": phases,
        "seconds_per_step": median(record["seconds"]["total"] for record in records) if records else None,
        "peak_memory_mib": max((record["peak_memory_mib"] for record in records), default=None),
    }


def _evaluations(directory: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(directory.glob("step_*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        found.setdefault(data["name"], []).append(data)
    return {name: {"before": rows[0], "after": rows[-1]} for name, rows in found.items()}


def summary_tables(summary: dict[str, Any]) -> list[Table]:
    """The scores before and after, and what the run cost."""
    return [_score_table(summary), _cost_table(summary)]


def _score_table(summary: dict[str, Any]) -> Table:
    table = Table(title=f"{summary['recipe']}: scores (95 % intervals, clustered by prompt)", title_justify="left")
    table.add_column("prompts")
    table.add_column("score")
    for column in ("before", "after", "difference"):
        table.add_column(column, justify="right")
    for name, pair in summary["evaluations"].items():
        before, after = pair["before"], pair["after"]
        for k in before["pass_at"]:
            first, last = before["pass_at"][k], after["pass_at"][k]
            table.add_row(
                f"{name} ({before['prompts']})",
                f"pass@{k}",
                _interval(first),
                _interval(last) if after["step"] != before["step"] else "-",
                f"{last['value'] - first['value']:+.3f}" if after["step"] != before["step"] else "-",
            )
    return table


def _interval(score: dict[str, Any]) -> str:
    return f"{score['value']:.3f} [dim]({score['low']:.3f}-{score['high']:.3f})[/]"


def _cost_table(summary: dict[str, Any]) -> Table:
    table = Table(title="what it took", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("steps", str(summary["steps"]))
    table.add_row("rollouts per prompt (N)", str(summary["rollouts_per_prompt"]))
    table.add_row("rollouts drawn", f"{summary['rollouts']:,}")
    for key, label, form in (
        ("kept_share", "kept share (groups with signal)", "{:.1%}"),
        ("distinct_node_share", "distinct-node share (trie nodes / tokens)", "{:.1%}"),
        ("rollouts_per_second", "rollouts per second, verified", "{:,.0f}"),
        ("seconds_per_step", "seconds per step (median)", "{:.2f}"),
    ):
        if summary[key] is not None:
            table.add_row(label, form.format(summary[key]))
    for phase, seconds in summary["seconds_per_phase"].items():
        table.add_row(f"  {phase}", f"{seconds:.2f}")
    if summary["peak_memory_mib"] is not None:
        table.add_row("peak memory", f"{summary['peak_memory_mib']:,.0f} MiB")
    table.add_row("run", summary["run"])
    return table
