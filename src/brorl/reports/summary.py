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
    ``rollouts``, ``seconds_per_phase`` (medians over steps; of the probe, over the steps that have one),
    ``seconds_per_step``, ``peak_memory_mib``, ``probe`` (None without one).
    """
    records = run.read_metrics()

    def mean(key: str) -> float | None:
        values = [record[key] for record in records if key in record and record[key] == record[key]]
        return sum(values) / len(values) if values else None

    phases = {
        phase: median(record["seconds"].get(phase, 0.0) for record in records) if records else 0.0 for phase in _PHASES
    }
    probe = _probe(records)
    if probe:
        phases["probe"] = probe["seconds"]
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
        "probe": probe,
    }


def _probe(records: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Cost and course of the measured updates: last retained mass, and how many intervals exclude no change."""
    probed = [record for record in records if "probe" in record]
    if not probed:
        return None
    seconds = [record["seconds"]["probe"] for record in probed]
    changes = [record["probe"]["q_pos"] for record in probed if record["probe"]["q_pos"]["prompts"]]
    return {
        "updates": len(probed),
        "seconds": median(seconds),
        "share_of_time": sum(seconds) / sum(record["seconds"]["total"] for record in records),
        "retained_mass": probed[-1]["probe"]["retained_mass"],
        "bank_answers": probed[-1]["probe"]["bank_answers"],
        "updates_with_interval": len(changes),
        "updates_up": sum(change["low"] > 0 for change in changes),
        "updates_down": sum(change["high"] < 0 for change in changes),
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
    if summary["probe"]:
        _probe_rows(table, summary["probe"])
    if summary["peak_memory_mib"] is not None:
        table.add_row("peak memory", f"{summary['peak_memory_mib']:,.0f} MiB")
    table.add_row("run", summary["run"])
    return table


def _probe_rows(table: Table, probe: dict[str, Any]) -> None:
    table.add_row("measured updates (probe)", str(probe["updates"]))
    table.add_row("  their share of all time", f"{probe['share_of_time']:.1%}")
    table.add_row(
        "  correct mass up / down / undecided (90 %)",
        f"{probe['updates_up']} / {probe['updates_down']} / "
        f"{probe['updates'] - probe['updates_up'] - probe['updates_down']}",
    )
    if probe["retained_mass"] is not None:
        table.add_row(f"  retained of {probe['bank_answers']:,} answers of the start", f"{probe['retained_mass']:.1%}")
