"""Breadth: what hundreds of rollouts per prompt buy, over the run and as a function of N."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from brorl.reports.plots import Chart, Trace, chart, line
from brorl.reports.reading import RunView
from brorl.reports.score_charts import pass_rates
from brorl.theory.curves import CurvePoint
from brorl.theory.pass_at_k import Interval

BANDS = ("all wrong", *(f"{i / 10:.1f}-{(i + 1) / 10:.1f}" for i in range(10)), "all right")
COLUMNS = 40
SHOWN_BANDS = ("all wrong", "0.2-0.3", "0.5-0.6", "0.8-0.9", "all right")


def breadth_charts(views: Sequence[RunView]) -> list[Chart]:
    """Every panel for which some run has data."""
    overlaid = len(views) > 1
    panels = [
        _over_steps(views, "kept_share", "kept share", "share of the groups with right and wrong rollouts: the others "
                    "carry no learning signal"),
        _over_steps(views, "distinct_node_share", "distinct-node share", "trie nodes over flat tokens: the share of "
                    "the work that N rollouts really cost"),
        *(_histogram(view, overlaid) for view in views),
        _against_n(views, "kept share against N", (("", lambda p: p.kept_share),),
                   "newest groups, sub-sampled without replacement"),
        _against_n(views, "unseen mass against N", (("", lambda p: p.unseen_mass),),
                   "probability of all responses that were not drawn, exactly; absent where long answers make it "
                   "immeasurable"),
        _against_n(views, "certified share against N", (("", lambda p: p.certified_share),),
                   "groups whose correct mass must grow to first order under the paper's surrogate, in the worst case"),
        _against_n(views, "distinct correct answers against N", (("", lambda p: p.distinct_correct),),
                   "per group"),
        _against_n(views, "mass balance against N", (("T1", lambda p: p.t1_low), ("T2", lambda p: p.t2_low),
                   ("T3", lambda p: p.t3_low)), "terms of the paper's surrogate at their worst case; the trainer's own "
                   "update has no coupling term T3"),
        *_probe_charts(views),
    ]  # fmt: skip
    return [panel for panel in panels if panel is not None]


def _over_steps(views: Sequence[RunView], key: str, title: str, note: str) -> Chart | None:
    traces = [
        line([r["step"] for r in view.records], [r.get(key) for r in view.records], view.name, i,
             legend=len(views) > 1)
        for i, view in enumerate(views)
        if any(key in record for record in view.records)
    ]  # fmt: skip
    return chart(title, traces, y="share", note=note, yaxis={"rangemode": "tozero"}) if traces else None


def _histogram(view: RunView, named: bool) -> Chart | None:
    """Share of the prompts in each band of the pass rate, over spans of steps; exactly 0 and exactly 1 stand apart."""
    steps = np.array(sorted(view.visits))
    if not len(steps):
        return None
    shares, middles = [], []
    for span in np.array_split(steps, min(COLUMNS, len(steps))):
        rates = np.array([rate for step in span.tolist() for rate in pass_rates(view.visits[step]).values()])
        counts = np.zeros(len(BANDS))
        if len(rates):
            band = np.where(rates == 0, 0, np.where(rates == 1, len(BANDS) - 1, 1 + np.minimum(rates * 10, 9)))
            counts = np.bincount(band.astype(int), minlength=len(BANDS)) / len(rates)
        shares.append(counts)
        middles.append(float(span.mean()))
    heat: Trace = {
        "type": "heatmap",
        "x": middles,
        "y": list(BANDS),
        "z": np.array(shares).T.round(4).tolist(),
        "colorscale": [[0, "var(--panel)"], [1, "var(--deep)"]],
        "zmin": 0,
        "colorbar": {"tickformat": ".0%", "thickness": 10, "len": 0.9},
        "hovertemplate": "step %{x}<br>pass rate %{y}<br>%{z:.1%} of the prompts<extra></extra>",
        "ygap": 1,
    }
    title = f"pass rates over time, {view.name}" if named else "pass rates over time"
    return chart(
        title,
        [heat],
        note="share of a step's prompts at each pass rate",
        yaxis={"type": "category", "tickvals": list(SHOWN_BANDS)},
    )


Measure = Callable[[CurvePoint], Interval | None]


def _against_n(
    views: Sequence[RunView], title: str, measures: Sequence[tuple[str, Measure]], note: str
) -> Chart | None:
    traces: list[Trace] = []
    for i, view in enumerate(views):
        for j, (label, measure) in enumerate(measures):
            found = [(point.rollouts, measure(point)) for point in view.curve]
            points = [(size, value) for size, value in found if value is not None]
            if points:
                name = " ".join(part for part in (label, view.name if len(views) > 1 else "") if part)
                traces.append(_interval_line(points, name, i * len(measures) + j, bool(name)))
    return chart(title, traces, x="rollouts per prompt, N", note=note, xaxis=_powers(views)) if traces else None


def _powers(views: Sequence[RunView]) -> dict[str, Any]:
    """A logarithmic axis with a tick at every second or third size that was measured."""
    sizes = sorted({point.rollouts for view in views for point in view.curve})
    every = max(1, -(-len(sizes) // 5))
    ticks = sizes[::-1][::every]
    return {"type": "log", "tickvals": ticks, "ticktext": [f"{size:,}" for size in ticks]}


def _interval_line(points: Sequence[tuple[int, Interval]], name: str, index: int, legend: bool) -> Trace:
    sizes, values = [size for size, _ in points], [value for _, value in points]
    return line(
        sizes,
        [v.value for v in values],
        name,
        index,
        low=[v.low for v in values],
        high=[v.high for v in values],
        legend=legend,
    )


def _probe_charts(views: Sequence[RunView]) -> list[Chart | None]:
    change: list[Trace] = []
    retained: list[Trace] = []
    drawn: list[Trace] = []
    for i, view in enumerate(views):
        probed: list[dict[str, Any]] = [record for record in view.records if "probe" in record]
        certain = [r for r in probed if r["probe"]["q_pos"]["prompts"]]
        legend = len(views) > 1
        if certain:
            q = [r["probe"]["q_pos"] for r in certain]
            change.append(line([r["step"] for r in certain], [c["value"] for c in q], view.name, i,
                               low=[c["low"] for c in q], high=[c["high"] for c in q], legend=legend))  # fmt: skip
        kept = [r for r in probed if r["probe"]["retained_mass"] is not None]
        if kept:
            retained.append(
                line([r["step"] for r in kept], [r["probe"]["retained_mass"] for r in kept], view.name, i,
                     legend=legend)
            )  # fmt: skip
        for j, (key, label) in enumerate((("p_pos", "correct"), ("p_neg", "wrong"), ("unseen_mass", "undrawn"))):
            if probed:
                name = f"{label} {view.name}" if legend else label
                values = [r["probe"][key] for r in probed]
                drawn.append(line([r["step"] for r in probed], values, name, 3 * i + j))
    held_out = "one update, measured on held-out prompts that are never trained on"
    return [
        chart("change of the correct mass, ΔQ_pos", change, note=f"{held_out}; 90 % interval") if change else None,
        chart("change of the drawn masses", drawn, note=f"{held_out}; exact") if drawn else None,
        chart("retained mass", retained, note="what the policy still gives to the correct answers that it drew at the "
              "start; 1 means nothing was lost", yaxis={"rangemode": "tozero"}) if retained else None,
    ]  # fmt: skip
