"""`brorl report` and `brorl show`: runs to look at."""

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from brorl.cli import app
from brorl.errors import DataError, RunError
from brorl.reports.untrusted import finite, visible

MARKS = {"good": "✓", "neutral": "-", "warning": "!", "bad": "✕"}


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="run directories; several are overlaid")],
    output: Annotated[Path, typer.Option("--output", "-o", help="the HTML file")] = Path("report.html"),
    evals: Annotated[list[Path] | None, typer.Option("--evals", help="a directory of brorl eval (repeatable)")] = None,
    json_out: Annotated[Path | None, typer.Option("--json", help="write the figures behind the verdicts")] = None,
) -> None:
    """Write one HTML file about one or more runs: verdicts, scores, breadth, health, exploration trees, rollouts."""
    from brorl.reports.report import write_report
    from brorl.rundir import check_output, write_json

    for path in (output, json_out):
        check_output(path)
    started = time.perf_counter()
    figures = write_report(output, runs, evals or ())
    console = Console(highlight=False)
    for verdict in figures["verdicts"]:
        console.print(f"{MARKS[verdict['level']]} {verdict['run']}: {visible(verdict['text'])}", markup=False)
    size = output.stat().st_size / 2**20
    console.print(f"{output}: {size:.1f} MiB in {time.perf_counter() - started:.1f} s", markup=False)
    if json_out:
        write_json(json_out, finite(figures))


@app.command()
def show(
    run: Annotated[Path, typer.Argument(help="a run directory")],
    step: Annotated[int | None, typer.Option(help="a step, counted from 0; default the newest")] = None,
    prompt: Annotated[str, typer.Option(help="its number in the step, counted from 0, or its id")] = "0",
    evaluation: Annotated[str | None, typer.Option(help="an evaluation's groups, such as held-out")] = None,
    branches: Annotated[int, typer.Option(help="distinct responses to draw", min=1)] = 24,
) -> None:
    """Draw the exploration tree of one prompt: where its rollouts branch, how many go where, which succeed."""
    from brorl.reports.exploration import explore
    from brorl.reports.tokens import run_decoder
    from brorl.reports.tree_terminal import tree_lines
    from brorl.rundir import RunDirectory
    from brorl.storage import read_groups, read_tallies

    opened = RunDirectory.open(run)
    file = _group_file(opened.groups if evaluation is None else opened.evals, step, evaluation)
    threshold = opened.recipe().verification.correct_threshold
    ids = read_tallies(file, correct_threshold=threshold).prompt_ids
    scored = read_groups(file, [_position(prompt, ids, file)])[0]
    tree = explore(scored, run_decoder(opened), correct_threshold=threshold, max_leaves=branches)
    console = Console(highlight=False)
    for line in tree_lines(scored, tree, width=console.width):
        console.print(line, no_wrap=True, crop=True)


def _group_file(directory: Path, step: int | None, evaluation: str | None) -> Path:
    suffix = ".parquet" if evaluation is None else f"_{evaluation}.parquet"
    found = {_number(path.name): path for path in directory.glob(f"step_*{suffix}")}
    if not found:
        there = sorted({path.stem.split("_", 2)[2] for path in directory.glob("step_*_*.parquet")})
        hint = f"; there are {', '.join(there)}" if evaluation and there else ""
        what = "groups of a step" if evaluation is None else f"evaluation {evaluation!r}"
        raise RunError(f"{directory}: no {what} yet{hint}")
    if step is None:
        return found[max(found)]
    if step not in found:
        raise RunError(f"{directory}: nothing of step {step}; there are steps {_ranges(sorted(found))}")
    return found[step]


def _number(name: str) -> int:
    return int(name.removeprefix("step_").split("_")[0].split(".")[0])


def _ranges(numbers: list[int]) -> str:
    """1, 2, 3, 7 as "1-3, 7"."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)


def _position(prompt: str, ids: list[str], file: Path) -> int:
    if prompt in ids:
        return ids.index(prompt)
    if prompt.isdigit() and int(prompt) < len(ids):
        return int(prompt)
    raise DataError(f"{file}: no prompt {prompt!r}; it holds {len(ids)} groups, numbered from 0, such as {ids[:1]}")
