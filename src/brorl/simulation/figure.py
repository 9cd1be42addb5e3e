"""The figure of the paper (three panels) with a fourth panel for retained mass, as one HTML file."""

from pathlib import Path

import numpy as np
import plotly.graph_objects as go
from plotly.colors import sample_colorscale
from plotly.subplots import make_subplots

from brorl.simulation.bandit import Curves

PANELS = (
    ("correct_mass", "Correct mass", 1.0),
    ("improved_share", "Correct actions improved (%)", 100.0),
    ("worst_drop", "Worst drop of one correct action", 1.0),
    ("retained_mass", "Retained mass", 1.0),
)


def figure(runs: list[Curves]) -> go.Figure:
    """Four panels over steps; one line per N, the mean over seeds, with a band from the least to the most seed."""
    panels = make_subplots(rows=1, cols=4, subplot_titles=[title for _, title, _ in PANELS])
    sizes = sorted({run.rollouts for run in runs})
    colours = sample_colorscale("Viridis", [i / max(len(sizes) - 1, 1) * 0.9 for i in range(len(sizes))])
    for size, colour in zip(sizes, colours, strict=True):
        same = [run for run in runs if run.rollouts == size]
        for column, (_, _, scale) in enumerate(PANELS, start=1):
            series = np.stack([_series(run)[column - 1] for run in same]) * scale
            steps = np.arange(series.shape[1])
            if len(same) > 1:
                low, high = series.min(axis=0), series.max(axis=0)
                band = go.Scatter(
                    x=np.concatenate([steps, steps[::-1]]),
                    y=np.concatenate([low, high[::-1]]),
                    fill="toself",
                    fillcolor=colour,
                    opacity=0.2,
                    line_width=0,
                    hoverinfo="skip",
                    showlegend=False,
                )
                panels.add_trace(band, row=1, col=column)
            line = go.Scatter(
                x=steps,
                y=series.mean(axis=0),
                name=f"N = {size:,}",
                legendgroup=str(size),
                line_color=colour,
                showlegend=column == 1,
            )
            panels.add_trace(line, row=1, col=column)
    panels.update_xaxes(title_text="step")
    panels.update_yaxes(exponentformat="e")  # -2e-05, where plotly writes -20µ
    panels.update_layout(
        template="simple_white", width=1500, height=400, margin_t=40, legend_orientation="h", legend_y=-0.25
    )
    return panels


def write_figure(path: Path, runs: list[Curves]) -> None:
    """Write the figure as one HTML file that needs no network."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure(runs).write_html(path, include_plotlyjs=True)


def _series(run: Curves) -> tuple[np.ndarray, ...]:
    return run.correct_mass, run.improved_share, run.worst_drop, run.retained_mass
