"""`brorl selftest`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from brorl.cli import app
from brorl.config import load_recipe


@app.command()
def selftest(
    recipe: Annotated[Path, typer.Argument(help="a recipe file")],
    overrides: Annotated[
        list[str] | None, typer.Option("--set", "-s", help="change a setting, such as -s model.path=DIR (repeatable)")
    ] = None,
    prompts: Annotated[int, typer.Option(help="prompts that are drawn", min=1)] = 4,
    rollouts: Annotated[int, typer.Option(help="rollouts per prompt, at most the recipe's", min=2)] = 64,
    json_out: Annotated[Path | None, typer.Option("--json", help="write the figures to this file")] = None,
) -> None:
    """Check on your own model what a run rests on: exact gradients, one policy in engine and learner, checkpoints."""
    from brorl.rundir import check_output, write_json
    from brorl.selftest import CHECKS, run_selftest

    check_output(json_out)
    settings = load_recipe(recipe, overrides or ())
    console = Console(highlight=False)
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
