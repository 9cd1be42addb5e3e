"""The look of every chart: plain plotly figures as data, coloured by the page's own variables.

A colour is written ``var(--name)``; the page's script replaces it by what the current theme says. Runs differ by dash
and marker as well as by colour.
"""

from collections.abc import Sequence
from typing import Any

Trace = dict[str, Any]
Chart = dict[str, Any]

DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
MARKERS = ("circle", "square", "diamond", "triangle-up", "x", "star")
FILLS = ("", "/", "x", "-", "\\", "+", "|", ".")
"""patterns of stacked areas, so that neighbours differ without colour"""


def chart(
    title: str,
    traces: Sequence[Trace],
    *,
    x: str = "step",
    y: str = "",
    note: str = "",
    layout: dict[str, Any] | None = None,
    **axes: dict[str, Any],
) -> Chart:
    """One panel of the page: a heading, a sentence that explains it, and the figure.

    Args:
        x, y: axis titles.
        note: how to read it.
        layout: further plotly layout; `axes` further settings of ``xaxis`` and ``yaxis``.
    """
    return {
        "title": title,
        "note": note,
        "data": list(traces),
        "layout": {
            "xaxis": {"title": {"text": x}, **axes.get("xaxis", {})},
            "yaxis": {"title": {"text": y}, **axes.get("yaxis", {})},
            **(layout or {}),
        },
    }


def line(
    x: Sequence[float],
    y: Sequence[float | None],
    name: str,
    index: int = 0,
    *,
    low: Sequence[float | None] | None = None,
    high: Sequence[float | None] | None = None,
    legend: bool = True,
) -> Trace:
    """A line with markers where it has few points; `low` and `high` become error bars.

    Args:
        index: of the run or the series: decides colour, dash and marker.
    """
    few = len(x) <= 40
    trace: Trace = {
        "type": "scatter",
        "mode": "lines+markers" if few else "lines",
        "name": name,
        "x": list(x),
        "y": list(y),
        "showlegend": legend,
        "line": {"color": colour(index), "dash": DASHES[index % len(DASHES)], "width": 2},
        "marker": {"color": colour(index), "symbol": MARKERS[index % len(MARKERS)], "size": 7},
    }
    if low is not None and high is not None:
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": [_gap(h, v) for h, v in zip(high, y, strict=True)],
            "arrayminus": [_gap(v, w) for v, w in zip(y, low, strict=True)],
            "thickness": 1.2,
            "width": 3,
            "color": colour(index),
        }
    return trace


def stack(x: Sequence[float], y: Sequence[float], name: str, index: int) -> Trace:
    """One layer of a stacked area; neighbours differ in lightness and in pattern."""
    shade = f"var(--layer-{index % 8})"
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": list(x),
        "y": list(y),
        "stackgroup": "one",
        "line": {"width": 0.8, "color": "var(--ink)"},
        "fillcolor": shade,
        "fillpattern": {
            "shape": FILLS[index % len(FILLS)],
            "bgcolor": shade,
            "fgcolor": "var(--hatch)",
            "size": 8,
            "solidity": 0.2,
        },
    }


def colour(index: int) -> str:
    return f"var(--run-{index % 6})"


def vertical(x: float, text: str) -> dict[str, Any]:
    """A dotted mark at one step, with its reason above."""
    return {
        "type": "line",
        "xref": "x",
        "yref": "paper",
        "x0": x,
        "x1": x,
        "y0": 0,
        "y1": 1,
        "line": {"color": "var(--ink)", "width": 1, "dash": "dot"},
        "label": {"text": text, "textposition": "end", "font": {"size": 10}},
    }


def bare(chart: Chart) -> Chart:
    """What the page's script needs of a chart."""
    return {key: chart[key] for key in ("data", "layout", "axes") if key in chart}


def _gap(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else max(a - b, 0.0)
