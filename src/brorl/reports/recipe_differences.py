"""Two recipes side by side in the terminal, from the figures of `brorl check A --against B`."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text


def difference_tables(figures: Mapping[str, Any]) -> list[Table]:
    """The settings that differ with what they do, and the derived quantities with their ratio."""
    return [_settings(figures), _derived(figures)]


def _settings(figures: Mapping[str, Any]) -> Table:
    table = Table(title="settings that differ", title_justify="left")
    for name in ("setting", figures["first"], figures["second"], "what it does"):
        table.add_column(Text(name), overflow="fold")
    for row in figures["settings"]:
        table.add_row(*(Text(str(row[key])) for key in ("key", "first", "second", "meaning")))
    return table


def _derived(figures: Mapping[str, Any]) -> Table:
    table = Table(title="what follows", title_justify="left")
    table.add_column("quantity", overflow="fold")
    for name in (figures["first"], figures["second"], "ratio"):
        table.add_column(Text(name), justify="right")
    for name, (first, second) in figures["derived"].items():
        table.add_row(name, _number(first), _number(second), f"x {second / first:.3g}" if first else "-")
    return table


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 or value == 0 else f"{value:.3g}"
