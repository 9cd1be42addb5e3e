"""Live progress of a run in the terminal: a table of the latest steps, and a bar for what is going on now."""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

_COLUMNS = (
    ("step", "{:d}", "step"),
    ("pass@1", "{:.3f}", "pass_at_1"),
    ("kept", "{:.0%}", "kept_share"),
    ("distinct", "{:.1%}", "distinct_node_share"),
    ("length", "{:.1f}", "mean_length"),
    ("cut", "{:.1%}", "truncated_share"),
    ("entropy", "{:.3f}", "entropy"),
    ("KL", "{:.2e}", "kl"),
    ("grad", "{:.3f}", "grad_norm"),
    ("lr", "{:.1e}", "lr"),
    ("rollouts/s", "{:,.0f}", "rollouts_per_second"),
)


class LiveView:
    """Shows steps as they come: redrawn in place on a terminal, one line per step elsewhere."""

    def __init__(self, console: Console, total_steps: int, done: int = 0) -> None:
        self.console = console
        self.records: deque[dict[str, Any]] = deque(maxlen=8)
        self.steps = Progress(TextColumn("[bold]steps"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self.step_task = self.steps.add_task("steps", total=total_steps, completed=done)
        self.phase = Progress(TextColumn("{task.description:>20}"), BarColumn(), MofNCompleteColumn())
        self.phase_task = self.phase.add_task("starting", total=None)
        self._live: Live | None = None

    @contextmanager
    def __call__(self) -> Iterator["LiveView"]:
        """Show while the block runs."""
        if self.console.is_terminal:
            with Live(get_renderable=self._render, console=self.console, refresh_per_second=4, transient=False) as live:
                self._live = live
                yield self
            self._live = None
        else:
            yield self

    def report(self, phase: str, done: int, total: int) -> None:
        """The `Report` of the trainer."""
        self.phase.update(self.phase_task, description=phase, completed=done, total=total)

    def show(self, record: dict[str, Any]) -> None:
        """A step is done."""
        self.records.append(record)
        self.steps.advance(self.step_task)
        if not self.console.is_terminal:
            parts = [f"{name} {_cell(form, record.get(key))}" for name, form, key in _COLUMNS]
            line = f"{time.strftime('%H:%M:%S')} {', '.join(parts)}, {record['seconds']['total']:.1f} s"
            self.console.print(line, soft_wrap=True, highlight=False)
            if "probe" in record:
                self.console.print("  " + probe_line(record), soft_wrap=True, highlight=False)

    def _render(self) -> Group:
        table = Table(box=None, pad_edge=False)
        for name, _, _ in _COLUMNS:
            table.add_column(name, justify="right")
        table.add_column("seconds", justify="right")
        for record in self.records:
            cells = [_cell(form, record.get(key)) for _, form, key in _COLUMNS]
            table.add_row(*cells, f"{record['seconds']['total']:.1f}")
        probed = [probe_line(record) for record in self.records if "probe" in record]
        return Group(table, *probed[-1:], self.phase, self.steps)


def probe_line(record: dict[str, Any]) -> str:
    """One measured update in words, with what measuring it took."""
    probe = record["probe"]
    change, retained = probe["q_pos"], probe["retained_mass"]
    told = (
        f"drawn correct {probe['p_pos']:+.2e}, drawn wrong {probe['p_neg']:+.2e}, undrawn {probe['unseen_mass']:+.2e}"
    )
    if change["prompts"]:
        told += (
            f"; all correct {change['value']:+.2e} ({change['low']:+.2e} to {change['high']:+.2e}; {change['prompts']} "
            f"of {probe['prompts']} prompts, {change['effective_samples']:,.0f} effective of {change['rollouts']:,} "
            "rollouts)"
        )
    else:
        reasons = ", ".join(f"{why} ({prompts} prompts)" for why, prompts in change["declined"].items())
        told += f"; all correct: not measurable, {reasons}"
    if retained is not None:
        told += f"; retained {retained:.1%} of {probe['bank_answers']:,} answers of the start"
    return f"probe of step {record['step']}: {told}; {record['seconds']['probe']:.1f} s"


def _cell(form: str, value: Any) -> str:
    return "-" if value is None else form.format(value)
