"""`brorl study`: recipes compared over seeds at one budget."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from brorl.cli import app
from brorl.cli.train import Overrides, follow, warnings_on
from brorl.errors import RecipeError

if TYPE_CHECKING:
    from brorl.study.replay import StepCost
    from brorl.study.running import StudyRun
    from brorl.study.spec import Study


@app.command()
def study(
    study: Annotated[Path, typer.Argument(help="a study file: base recipe, arms, seeds, budget")],
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option(help="directory of the study; default runs/<name>")] = None,
    arms: Annotated[str | None, typer.Option(help="only these arms, such as broad,control")] = None,
    seeds: Annotated[str | None, typer.Option(help="only these seeds, such as 1,2")] = None,
    replay: Annotated[
        bool | None,
        typer.Option(
            "--replay/--no-replay",
            help="only time a few steps of every arm, once more; or go without. Default: time them once",
        ),
    ] = None,
    report_only: Annotated[bool, typer.Option("--report-only", help="train nothing, look at what is there")] = False,
    json_out: Annotated[Path | None, typer.Option("--json", help="write the study's figures to this file")] = None,
) -> None:
    """Train every arm of a study under every seed, or go on where it stopped."""
    from brorl.rundir import check_output, write_json
    from brorl.study.replay import stored_replay
    from brorl.study.running import costs_of, keep_study, planned_runs, train_all
    from brorl.study.spec import load_study

    check_output(json_out)
    console = Console(highlight=False, soft_wrap=True)
    spec = load_study(study, overrides or ())
    spec.check()
    out = out or Path("runs") / spec.name
    only = _named(arms, spec.arms, "arm"), _named(seeds, spec.seeds, "seed")
    if report_only and replay is not None:
        raise RecipeError("--report-only measures nothing: leave --replay and --no-replay out")
    if not report_only:
        keep_study(spec, out)
    with warnings_on(console):
        timing = not report_only and replay is not False
        costs = costs_of(spec, out, console.print, again=bool(replay)) if timing else stored_replay(out)
        runs = planned_runs(spec, out, costs)
        console.print(plan_table(spec, runs, costs))
        chosen = [run for run in runs if run.arm in only[0] and str(run.seed) in only[1]]
        try:
            if not (report_only or replay) and not train_all(chosen, lambda t: follow(t, console), console.print):
                console.print("stopped; the same command goes on")
        finally:  # a study in which a run failed is one to look at
            results = conclude(spec, out, runs, costs, console)
            if json_out:
                write_json(json_out, results)


def conclude(
    spec: "Study", out: Path, runs: Sequence["StudyRun"], costs: Mapping[str, "StepCost"], console: Console
) -> Mapping[str, Any]:
    """Write results.json and report.html, and print the tables and the verdict."""
    from brorl.reports.study import study_page, study_tables
    from brorl.rundir import write_json, write_text
    from brorl.study.table import study_results

    results = study_results(spec, runs, costs)
    if not results["runs"]:
        console.print("nothing is evaluated yet: no report")
        return results
    write_json(out / "results.json", results)
    write_text(out / "report.html", study_page(results))
    for found in study_tables(results):
        if found["rows"]:
            table = Table(title=found["title"], title_justify="left")
            for at, head in enumerate(found["head"]):
                table.add_column(head, justify="right" if at else "left")
            for row in found["rows"]:
                table.add_row(*row)
            console.print(table)
    console.print(f"verdict: [bold]{results['verdict']['words']}[/] ({results['verdict']['rule']})")
    console.print(f"report: {out / 'report.html'}, figures: {out / 'results.json'}")
    return results


def plan_table(spec: "Study", runs: Sequence["StudyRun"], costs: Mapping[str, "StepCost"]) -> Table:
    """What each arm is given, and where its runs stand."""
    table = Table(title=f"{spec.name}: {spec.axis.replace('_', ' ')} {spec.amount:,g} per run", title_justify="left")
    for column in ("arm", "N", "prompts", "lr", "steps", "kept samples", "seconds a step", "seconds", "runs finished"):
        table.add_column(column, justify="left" if column == "arm" else "right")
    for arm in spec.arms:
        own = [run for run in runs if run.arm == arm]
        recipe, cost = own[0].recipe, costs.get(arm)
        table.add_row(
            arm,
            f"{recipe.rollouts.per_prompt:,}",
            f"{recipe.rollouts.prompts_per_step:,}",
            f"{recipe.optimizer.lr:g}",
            f"{recipe.steps:,}",
            f"{recipe.steps * recipe.trained_samples_per_step:,}",
            f"{cost.seconds:.2f}" if cost else "-",
            f"{cost.seconds * recipe.steps:,.0f}" if cost else "-",
            f"{sum(run.status() == 'finished' for run in own)} of {len(own)}",
        )
    return table


def _named(given: str | None, known: Sequence[object] | Mapping[str, object], what: str) -> list[str]:
    """The arms or seeds that an option names, all where it names none."""
    names = [str(name) for name in known]
    asked = [name.strip() for name in given.split(",")] if given is not None else names
    if unknown := [name for name in asked if name not in names]:
        raise RecipeError(f"no {what} {', '.join(unknown)} in this study; it has {', '.join(names)}")
    return asked
