"""`brorl simulate`, `brorl analyze` and `brorl plan`: the theory, in a bandit, on rollouts, and for the next run."""

import json
import time
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from brorl.cli import app
from brorl.errors import DataError, RunError

if TYPE_CHECKING:
    from brorl.evaluation.foreign import Rollouts

BUNDLED_MODEL = "models/brorl-tiny"

Json = Annotated[Path | None, typer.Option("--json", help="write the figures to this file")]
Layout = Annotated[str | None, typer.Option(help="groups, verl, trl, openrlhf, rows or counts; else recognised")]
Columns = Annotated[
    list[str] | None,
    typer.Option(help="names of columns by role, such as problem=uid,reward=ok; roles: problem, completion, reward, "
                 "step, samples, correct"),
]  # fmt: skip
Threshold = Annotated[
    float | None, typer.Option("--correct-threshold", help="a reward from here up is correct; default 1, or the run's")
]
Sizes = Annotated[list[str] | None, typer.Option("--at", help="N to predict, repeatable or 16,64,512")]


@app.command()
def simulate(
    recipe: Annotated[Path, typer.Argument(help="a simulation recipe, such as recipes/simulation.yaml")],
    overrides: Annotated[
        list[str] | None, typer.Option("--set", "-s", help="change a setting, such as -s steps=100 (repeatable)")
    ] = None,
    json_out: Json = None,
    csv_out: Annotated[Path | None, typer.Option("--csv", help="write every step of every run")] = None,
    figure_out: Annotated[Path | None, typer.Option("--figure", help="write the four panels as one HTML file")] = None,
) -> None:
    """The paper's bandit: how N and the optimiser move the mass of correct actions."""
    from brorl.simulation.sweep import load_recipe, sweep, write_csv, write_json

    settings = load_recipe(recipe, tuple(overrides or ()))
    for path in (json_out, csv_out, figure_out):
        if path:
            _write(path, path.touch)  # now, not after all the work
    console = Console()
    table = _table("N", "seed", "correct mass", "improved", "worst drop", "retained mass", "seconds")
    runs: list[Any] = []
    total = len(settings.rollouts) * len(settings.seeds)
    with console.status("simulating") as status:
        started = time.perf_counter()
        for run in sweep(settings):
            runs.append(run)
            status.update(f"simulated {len(runs)} of {total}")
            table.add_row(
                f"{run.rollouts:,}", str(run.seed), f"{run.correct_mass[-1]:.4f}", f"{run.improved_share[-1]:.1%}",
                f"{run.worst_drop[-1]:.1e}", f"{run.retained_mass[-1]:.4f}", f"{time.perf_counter() - started:.1f}",
            )  # fmt: skip
            started = time.perf_counter()
    console.print(
        f"after {settings.steps} steps of {settings.optimizer.name}, started from {runs[0].correct_mass[0]:.4f}"
    )
    console.print(table)
    if json_out:
        _write(json_out, lambda: write_json(json_out, runs))
    if csv_out:
        _write(csv_out, lambda: write_csv(csv_out, runs))
    if figure_out:
        from brorl.simulation.figure import write_figure

        _write(figure_out, lambda: write_figure(figure_out, runs))


@app.command()
def analyze(
    sources: Annotated[list[Path], typer.Argument(help="a run directory, or files of rollouts or counts")],
    base: Annotated[
        Path | None, typer.Option(help="rollouts of the starting policy; default: each first visit")
    ] = None,
    at: Sizes = None,
    layout: Layout = None,
    columns: Columns = None,
    correct_threshold: Threshold = None,
    max_groups: Annotated[int, typer.Option(help="newest groups behind the figures at each N", min=2)] = 256,
    json_out: Json = None,
) -> None:
    """Where a run stands: pass rates, what N buys, what was lost, entropy, lengths. Reads others' rollouts too."""
    from brorl.evaluation.analysis import analyze as analyze_rollouts
    from brorl.reports.analysis import analysis_report
    from brorl.rundir import RunDirectory

    rollouts = _read(sources, layout, columns, correct_threshold)
    start = _read([base], layout, columns, correct_threshold) if base else None
    records = RunDirectory.open(sources[0]).read_metrics() if _is_run(sources) else []
    figures = analyze_rollouts(rollouts, base=start, records=records, sizes=_sizes(at) or None, max_groups=max_groups)
    Console().print(*analysis_report(figures), sep="\n")
    if json_out:
        _write_json(json_out, figures)


@app.command()
def plan(
    sources: Annotated[list[str], typer.Argument(help="a run directory, or files of rollouts or counts")],
    at: Sizes = None,
    layout: Layout = None,
    columns: Columns = None,
    correct_threshold: Threshold = None,
    model: Annotated[Path | None, typer.Option(help="model directory, for time and memory")] = None,
    prompts_per_step: Annotated[int, typer.Option(help="trained prompts per step", min=1)] = 64,
    prompt_tokens: Annotated[float, typer.Option(help="where the source has none", min=1)] = 64.0,
    response_tokens: Annotated[float, typer.Option(help="where the source has none", min=1)] = 64.0,
    base_samples: Annotated[int, typer.Option(help="samples per step the learning rate was tuned for", min=1)] = 8192,
    budget_rollouts: Annotated[float | None, typer.Option(help="rollouts for all steps together", min=1)] = None,
    budget_hours: Annotated[float | None, typer.Option(help="hours for all steps together", min=0)] = None,
    steps: Annotated[int, typer.Option(help="steps that share the budget", min=1)] = 100,
    json_out: Json = None,
) -> None:
    """Predict the kept share, pass@N, signal, time and memory at each N from a pilot, and recommend one."""
    from brorl.evaluation.plan import as_json, pilot, plan_rows, recommend, workload_of

    # "--at 16 64 512" leaves the later numbers among the sources.
    numbers = [s for s in sources if s.isdigit() and not Path(s).exists()] if at else []
    paths = [Path(s) for s in sources if s not in numbers]
    rollouts = _read(paths, layout, columns, correct_threshold)
    bundled = Path(str(resources.files("brorl") / BUNDLED_MODEL))
    work = workload_of(
        rollouts,
        paths[0] if _is_run(paths) else None,
        model=model,
        bundled=bundled if bundled.is_dir() else None,
        prompt_tokens=prompt_tokens,
        response_tokens=response_tokens,
        prompts_per_step=prompts_per_step,
        base_samples=base_samples,
    )
    fit = pilot(rollouts)
    rows = plan_rows(fit, _sizes([*(at or ()), *numbers]) or [8, 16, 32, 64, 128, 256, 512, 1024], work)
    choice = recommend(
        fit,
        rows,
        work,
        budget_rollouts=budget_rollouts / steps if budget_rollouts else None,
        budget_seconds=budget_hours * 3600 / steps if budget_hours else None,
    )
    _print_plan(Console(), f"{fit.problems} prompts, {fit.samples} pilot samples", rows, choice, work.assumptions)
    if json_out:
        _write_json(json_out, as_json(rows))


def _print_plan(console: Console, pilot: str, rows: Sequence[Any], choice: Any, assumptions: Sequence[str]) -> None:
    console.print(f"{pilot}; kept share with its 90 % interval")
    table = _table(
        "N", "kept\nshare", "low", "high", "pass@N", "tail\nmiss", "signal\n/noise", "nodes", "s/step", "MiB"
    )
    for row in rows:
        table.add_row(
            f"{row.rollouts:,}", f"{row.kept_share:.3f}", f"{row.kept_share_low:.3f}", f"{row.kept_share_high:.3f}",
            f"{row.pass_at_n:.3f}", f"{row.tail_miss:.3f}", f"{row.signal_to_noise:.2f}", f"{row.nodes:,.0f}",
            "-" if row.seconds is None else f"{row.seconds:,.1f}",
            "-" if row.memory_mib is None else f"{row.memory_mib:,.0f}",
        )  # fmt: skip
    console.print(table)
    best = choice.row
    console.print(
        f"recommended: N = {best.rollouts}, {best.prompts_per_step} prompts per step, "
        f"learning rate x {best.learning_rate_factor:.2f}\n  ({choice.reason})"
    )
    for assumption in assumptions:
        console.print(f"  assumed: {assumption}", markup=False)
    console.print(
        "[dim]tail miss: chance that a kept group misses one tenth of its correct mass; signal/noise: of one group's "
        "gradient, relative to how far right and wrong responses differ; nodes: of one group's trie[/]"
    )


def _read(
    sources: Sequence[Path], layout: str | None, columns: Sequence[str] | None, threshold: float | None
) -> "Rollouts":
    from brorl.evaluation.foreign import read_rollouts
    from brorl.rundir import RunDirectory

    if threshold is None and _is_run(sources):
        threshold = RunDirectory.open(sources[0]).recipe().verification.correct_threshold
    named = [pair for entry in columns or () for pair in entry.split(",")]
    if any("=" not in pair for pair in named):
        raise DataError("--columns takes role=column pairs, such as problem=uid,reward=ok")
    roles = dict(pair.split("=", 1) for pair in named)
    return read_rollouts(
        sources, layout=layout, columns=roles, correct_threshold=1.0 if threshold is None else threshold
    )


def _is_run(sources: Sequence[Path]) -> bool:
    return len(sources) == 1 and (sources[0] / "run.json").is_file()


def _sizes(at: Sequence[str] | None) -> list[int]:
    words = [word for entry in at or () for word in entry.replace(",", " ").split()]
    if not all(word.isdigit() for word in words):
        raise DataError(f"--at takes whole numbers of rollouts, not {', '.join(words)}")
    return sorted({int(word) for word in words})


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _write_json(path: Path, data: Any) -> None:
    _write(path, lambda: path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8"))


def _write(path: Path, write: Any) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write()
    except OSError as error:
        raise RunError(f"{path}: cannot be written ({error.strerror})") from error
