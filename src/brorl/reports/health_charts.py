"""Health: is the optimiser well, where does the time go, what do responses look like."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from brorl.group import Outcome
from brorl.reports.plots import Chart, chart, line, stack, vertical
from brorl.reports.reading import RunView

LINES: tuple[tuple[str, tuple[tuple[str, str], ...], str, str], ...] = (
    ("entropy", (("entropy", ""),), "nats per token", "of the trained tokens; a fall towards 0 is a policy that no "
     "longer explores"),
    ("KL to the reference policy", (("kl", ""),), "nats per token", "dotted marks: the reference became the policy"),
    ("clipped tokens", (("clip_high", "above"), ("clip_low", "below")), "share", "tokens whose ratio left the range"),
    ("gradient norm", (("grad_norm", ""),), "", "before clipping"),
    ("response length", (("mean_length", ""),), "tokens", "mean over the rollouts"),
    ("cut at the length limit", (("truncated_share", ""),), "share", "share of the rollouts"),
    ("engine against learner", (("mismatch", ""),), "nats", "mean difference of their log-probabilities"),
    ("learning rate", (("lr", ""),), "", ""),
    ("rollouts per second", (("rollouts_per_second", ""),), "", "sampling and verification"),
    ("peak memory", (("peak_memory_mib", ""),), "MiB", "of the training process"),
)  # fmt: skip
STACKED = 120
"""points of a stacked area; longer runs are averaged over spans"""


def health_charts(views: Sequence[RunView]) -> list[Chart]:
    """Every panel for which some run has data."""
    panels = [_lines(views, *row) for row in LINES]
    for view in views:
        named = f", {view.name}" if len(views) > 1 else ""
        panels += [_outcomes(view, named), _phases(view, named)]
    return [panel for panel in panels if panel is not None]


def _lines(
    views: Sequence[RunView], title: str, series: Sequence[tuple[str, str]], unit: str, note: str
) -> Chart | None:
    traces = []
    for i, view in enumerate(views):
        for j, (key, label) in enumerate(series):
            rows = [record for record in view.records if record.get(key) is not None]
            name = " ".join(part for part in (label, view.name if len(views) > 1 else "") if part)
            if rows:
                index = i * len(series) + j
                traces.append(line([r["step"] for r in rows], [r[key] for r in rows], name, index, legend=bool(name)))
    if not traces:
        return None
    marks = [vertical(*mark) for view in views for mark in resets(view)] if title.startswith("KL") else []
    return chart(title, traces, y=unit, note=note, yaxis={"rangemode": "tozero"}, layout={"shapes": marks})


def resets(view: RunView) -> list[tuple[int, str]]:
    """Steps whose record says that the reference policy was reset, and why."""
    return [(r["step"], f"reset: {r['reference_reset']}") for r in view.records if r.get("reference_reset")]


def _outcomes(view: RunView, named: str) -> Chart | None:
    names = [outcome.name.lower() for outcome in Outcome]
    rows = [record for record in view.records if f"outcome_{names[0]}" in record]
    if not rows:
        return None
    x, values = _averaged(rows, [[r.get(f"outcome_{name}", 0.0) for name in names] for r in rows])
    layers = [stack(x, values[:, i].tolist(), name.replace("_", " "), i) for i, name in enumerate(names)
              if values[:, i].any()]  # fmt: skip
    return chart(f"outcomes{named}", layers, y="share of rollouts", yaxis={"range": [0, 1]})


def _phases(view: RunView, named: str) -> Chart | None:
    if not view.records:
        return None
    phases = phase_names(view.records)
    x, values = _averaged(view.records, [[r["seconds"].get(p, 0.0) for p in phases] for r in view.records])
    layers = [stack(x, values[:, i].tolist(), phase, i) for i, phase in enumerate(phases)]
    return chart(f"seconds per phase{named}", layers, y="seconds per step")


def phase_names(records: Sequence[dict[str, Any]]) -> list[str]:
    """Every phase that took time, in the order of a step."""
    return list(dict.fromkeys(phase for record in records for phase in record["seconds"] if phase != "total"))


def _averaged(rows: Sequence[dict[str, Any]], values: Sequence[Sequence[float]]) -> tuple[list[float], Any]:
    spans = np.array_split(np.arange(len(rows)), min(STACKED, len(rows)))
    steps, table = np.array([row["step"] for row in rows], np.float64), np.array(values, np.float64)
    return [float(steps[s].mean()) for s in spans], np.stack([table[s].mean(axis=0) for s in spans])
