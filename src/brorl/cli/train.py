"""`brorl train` and `brorl check`."""

import signal
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from brorl.cli import app
from brorl.config import Recipe
from brorl.errors import RecipeError, UserError
from brorl.recipe_file import load_recipe

if TYPE_CHECKING:
    from brorl.rundir import RunDirectory
    from brorl.trainer import Trainer

Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", help="change a setting, such as -s rollouts.per_prompt=16 (repeatable)"),
]


@app.command()
def train(
    recipe: Annotated[
        Path | None, typer.Argument(help="a recipe file; with --resume only to compare or change")
    ] = None,
    overrides: Overrides = None,
    run: Annotated[Path | None, typer.Option(help="directory of the run; default runs/<recipe>-<n>")] = None,
    resume: Annotated[Path | None, typer.Option(help="directory of a run to continue")] = None,
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="with --resume: go on although recipe or data have changed")
    ] = False,
    json_out: Annotated[Path | None, typer.Option("--json", help="write the final figures to this file")] = None,
) -> None:
    """Train a policy by a recipe, or continue a run that was stopped."""
    from brorl.build import open_trainer
    from brorl.reports.summary import summarise_run, summary_tables
    from brorl.rundir import RunDirectory, check_output, write_json

    check_output(json_out)
    if recipe is None and resume is None:
        raise RecipeError("give either a recipe file to start a run, or --resume RUN to continue one")
    if resume is not None and run is not None:
        raise RecipeError("--resume continues a run where it is; --run belongs to a new run")
    if allow_changes and resume is None:
        raise RecipeError("--allow-changes has no effect without --resume: a new run has nothing to differ from")
    console = Console()
    settings = load_recipe(recipe or RunDirectory.open(resume or Path()).config, overrides or ())
    with (
        warnings_on(console),
        open_trainer(settings, resume=resume, path=run, allow_changes=allow_changes) as trainer,
    ):
        follow(trainer, console)
        summary = summarise_run(trainer.run)
    console.print(*summary_tables(summary), sep="\n")
    if summary["status"] == "stopped":
        console.print(f"stopped after step {summary['steps']}; go on with: brorl train --resume {summary['run']}")
    if json_out:
        write_json(json_out, summary)


def follow(trainer: "Trainer", console: Console) -> None:
    """Train to the end, showing how far it is; Ctrl-C stops it, saved, and its report is written whatever happens."""
    from brorl.reports.live import LiveView

    settings = trainer.recipe
    view = LiveView(console, settings.steps, done=trainer.progress.step)
    trainer.report = view.report
    with view(), _interrupts(lambda: _stop(trainer, console)):
        console.print(f"{settings.name}: run in [bold]{trainer.run.path}[/]")
        if trainer.progress.step >= settings.steps:
            console.print(
                f"nothing left to do: {trainer.progress.step} of {settings.steps} steps are done "
                f"(more: -s steps={2 * settings.steps} --allow-changes)"
            )
        try:
            for record in trainer.train():
                view.show(record)
                if settings.report.every and (record["step"] + 1) % settings.report.every == 0:
                    _write_report(trainer.run, console)
        except UserError:  # a run that fails is one to look at
            _write_report(trainer.run, console)
            raise
        _write_report(trainer.run, console)


@contextmanager
def _interrupts(handle: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C calls `handle` while the block runs."""
    before = signal.signal(signal.SIGINT, lambda *_: handle())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _write_report(run: "RunDirectory", console: Console) -> None:
    """Write the run's report and say what it took; a report that fails is a warning, never the end of a run."""
    from brorl.reports.report import write_report

    started = time.perf_counter()
    try:
        write_report(run.report, [run.path])
    except Exception as error:
        _warn(console, f"no report: {type(error).__name__}: {error}")
        return
    console.print(f"report: {run.report} ({time.perf_counter() - started:.1f} s)", highlight=False, soft_wrap=True)


@contextmanager
def warnings_on(console: Console) -> Iterator[None]:
    """Warnings are lines for the user while the block runs."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_, **__: _warn(console, str(message))
        yield


def _warn(console: Console, message: str) -> None:
    console.print("[yellow]warning:[/]", end=" ")
    console.print(message, markup=False, highlight=False, soft_wrap=True)


def _stop(trainer: "Trainer", console: Console) -> None:
    """First Ctrl-C: finish the step, save, exit 0. Second: now."""
    if trainer.stop_requested:
        raise KeyboardInterrupt
    trainer.stop_requested = True
    console.print(
        "[yellow]stopping after this step, leaving any evaluation for later (Ctrl-C again: now, losing the step)[/]"
    )


@app.command()
def check(
    recipe: Annotated[Path, typer.Argument(help="a recipe file")],
    overrides: Overrides = None,
    against: Annotated[
        Path | None, typer.Option(help="a second recipe: explain the difference, and load nothing")
    ] = None,
    json_out: Annotated[Path | None, typer.Option("--json", help="write the figures to this file")] = None,
) -> None:
    """Validate a recipe, show it resolved with its cost and its first prompt, and start nothing."""
    from brorl.inspection import estimate_without, inspect_recipe, missing_parts, step_text
    from brorl.recipe_file import dump_recipe
    from brorl.rundir import check_output, write_json

    check_output(json_out)
    console = Console(highlight=False)
    settings = load_recipe(recipe, overrides or ())
    if against is not None:
        _compare(settings, load_recipe(against), console, json_out)
        return
    missing = missing_parts(settings)
    if missing:
        estimate = estimate_without(settings)
        console.print(dump_recipe(settings), markup=False)
        _sections(console, [("A step", step_text(settings)), ("Estimate, from the model's shape", estimate.text)])
        if json_out:
            write_json(json_out, {**estimate.as_json(), "missing": missing})
        raise RecipeError("this recipe cannot run here yet; it lacks\n" + "\n".join(f"  - {part}" for part in missing))
    with warnings_on(console):
        found = inspect_recipe(settings)
    console.print(dump_recipe(settings), markup=False)
    _sections(console, found.sections())
    if json_out:
        write_json(json_out, found.as_json())


def _sections(console: Console, sections: Sequence[tuple[str, str]]) -> None:
    for title, text in sections:
        console.print(f"[bold]{title}[/]")
        console.print(text, markup=False, soft_wrap=True)


def _compare(first: Recipe, second: Recipe, console: Console, json_out: Path | None) -> None:
    """Print how two recipes differ."""
    from brorl.recipe_differences import compare_recipes
    from brorl.reports.recipe_differences import difference_tables
    from brorl.rundir import write_json

    found = compare_recipes(first, second).as_json()
    console.print(*difference_tables(found), sep="\n")
    for sentence in found["confounds"]:
        console.print(f"- {sentence}", markup=False, soft_wrap=True)
    if json_out:
        write_json(json_out, found)
