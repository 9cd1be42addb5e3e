"""`brorl selftest`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from brorl.cli import app
from brorl.config import Recipe
from brorl.errors import RecipeError
from brorl.recipe_file import load_recipe

if TYPE_CHECKING:
    from brorl.theory.pass_at_k import Interval


@app.command()
def selftest(
    recipe: Annotated[Path, typer.Argument(help="a recipe file")],
    overrides: Annotated[
        list[str] | None, typer.Option("--set", "-s", help="change a setting, such as -s model.path=DIR (repeatable)")
    ] = None,
    prompts: Annotated[
        int | None, typer.Option(help="prompts that are drawn: default 4; with --snr those of one gradient, 16", min=1)
    ] = None,
    rollouts: Annotated[int, typer.Option(help="rollouts per prompt, at most the recipe's", min=2)] = 64,
    snr: Annotated[bool, typer.Option("--snr", help="measure signal-to-noise of the gradient instead")] = False,
    sizes: Annotated[str, typer.Option("--n", help="with --snr: N, as 16,64,512")] = "16,64,512",
    repeats: Annotated[int, typer.Option(help="with --snr: independent pairs of gradients at each N", min=2)] = 8,
    json_out: Annotated[Path | None, typer.Option("--json", help="write the figures to this file")] = None,
) -> None:
    """Check on your own model what a run rests on: exact gradients, one policy in engine and learner, checkpoints."""
    from brorl.rundir import check_output

    check_output(json_out)
    settings = load_recipe(recipe, overrides or ())
    console = Console(highlight=False)
    if snr:
        _signal_to_noise(console, settings, _sizes(sizes), prompts or 16, repeats, json_out)
    else:
        _checks(console, settings, prompts or 4, rollouts, json_out)


def _sizes(text: str) -> list[int]:
    numbers = [part.strip() for part in text.split(",") if part.strip()]
    if not numbers or not all(number.isdigit() for number in numbers):
        raise RecipeError(f"--n {text}: give whole numbers with commas between them, such as 16,64,512")
    return [int(number) for number in numbers]


def _checks(console: Console, settings: Recipe, prompts: int, rollouts: int, json_out: Path | None) -> None:
    from brorl.rundir import write_json
    from brorl.selftest import CHECKS, run_selftest

    found = []
    with console.status("loading") as status:
        checks = run_selftest(
            settings,
            prompts=prompts,
            rollouts=rollouts,
            report=lambda name, done, total: status.update(f"{name} ({done + 1} of {total})"),
        )
        for check in checks:
            found.append(check)
            mark = "[green]pass[/]" if check.passed else "[bold red]FAIL[/]"
            console.print(
                f"{mark}  {check.name}: {check.measured:.2g}, tolerance {check.tolerance:.2g} ({check.what}; "
                f"{check.seconds:.1f} s)",
                soft_wrap=True,
            )
    failed = [check.name for check in found if not check.passed]
    if json_out:
        write_json(
            json_out, {"recipe": settings.name, "passed": not failed, "checks": [check.as_json() for check in found]}
        )
    if failed:
        console.print(f"[bold red]{len(failed)} of {len(CHECKS)} checks failed:[/] {', '.join(failed)}. A run of this "
                      "recipe would not train what it says", soft_wrap=True)  # fmt: skip
        raise typer.Exit(1)
    console.print(f"all {len(CHECKS)} checks passed")


def _signal_to_noise(
    console: Console, settings: Recipe, sizes: list[int], prompts: int, repeats: int, json_out: Path | None
) -> None:
    from brorl.rundir import write_json
    from brorl.snr import measure_signal_to_noise

    with console.status("loading") as status:
        found = measure_signal_to_noise(
            settings,
            sizes=sizes,
            prompts=prompts,
            repeats=repeats,
            report=lambda phase, done, total: status.update(f"{phase} ({done} of {total})"),
        )
    algorithm = settings.algorithm
    console.print(
        f"policy gradients of two disjoint sets of N rollouts of each of {prompts} prompts; {repeats} repeats, each "
        f"with prompts and {found.pool:,} rollouts per prompt of its own; 90 % intervals. Advantage "
        f"{algorithm.advantage.name}, loss {algorithm.loss.name}, aggregation {algorithm.aggregation}",
        soft_wrap=True,
    )
    table = Table(box=None, pad_edge=False)
    for title in ("N", "cosine", "norm ratio", "|E g|", "noise", "signal / noise"):
        table.add_column(title, justify="right", no_wrap=True)
    for size, row in found.by_rollouts.items():
        signal = "<= 0" if row.signal is None else f"{row.signal:.2g}"
        told = [_told(interval) for interval in (row.cosine, row.norm_ratio, row.signal_to_noise)]
        table.add_row(f"{size:,}", *told[:2], signal, f"{row.noise:.2g}", told[2])
    console.print(table)
    for size, row in found.by_rollouts.items():
        if row.without_gradient:
            console.print(
                f"N = {size}: {row.without_gradient} of {row.pairs} pairs without a gradient in one of the sets"
            )
    console.print(f"{found.seconds:,.0f} seconds")
    if json_out:
        write_json(json_out, found.as_json())


def _told(interval: "Interval | None") -> str:
    return "-" if interval is None else f"{interval.value:.2f} ({interval.low:.2f}, {interval.high:.2f})"
