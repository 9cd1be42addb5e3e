"""`brorl export`: a run's policy as a model for others. `brorl export-verl`: a recipe for verl."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from brorl.cli import app


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="the directory of a run")],
    directory: Annotated[Path, typer.Argument(help="where the model goes: empty, or not there")],
    step: Annotated[str | None, typer.Option(help="a number, last (default) or best")] = None,
    scores: Annotated[
        list[Path] | None, typer.Option(help="a directory of brorl eval on this checkpoint, for the card (repeatable)")
    ] = None,
    json_out: Annotated[Path | None, typer.Option("--json", help="write what was exported to this file")] = None,
) -> None:
    """A Hugging Face model directory with a model card, for transformers and vLLM."""
    from brorl.evaluation.exporting import export_model
    from brorl.rundir import check_output, write_json

    check_output(json_out)
    found = export_model(run, directory, step=step, scores=scores or ())
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"step {found['step']} of {run}: {found['mib']:.1f} MiB in [bold]{directory}[/]", markup=True)
    console.print(", ".join(found["files"]))
    if json_out:
        write_json(json_out, found)


@app.command("export-verl")
def export_verl_command(
    recipe: Annotated[Path, typer.Argument(help="a recipe (YAML)")],
    directory: Annotated[Path, typer.Argument(help="where the files go: empty, or not there")],
    setting: Annotated[
        list[str] | None, typer.Option("-s", "--set", help="override, such as rollouts.per_prompt=16 (repeatable)")
    ] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="training rows; default 1.5 per prompt trained on")] = None,
    nodes: Annotated[int, typer.Option(min=1)] = 1,
    gpus_per_node: Annotated[int, typer.Option(min=1)] = 8,
    json_out: Annotated[Path | None, typer.Option("--json", help="write what was exported to this file")] = None,
) -> None:
    """What verl 0.9.1 needs to run a recipe: overrides, launch script, reward function, plugin, data."""
    from brorl.recipe_file import load_recipe
    from brorl.rundir import check_output, write_json
    from brorl.verl.export import export_verl

    check_output(json_out)
    found = export_verl(
        load_recipe(recipe, setting or []), directory, rows=rows, nodes=nodes, gpus_per_node=gpus_per_node
    )
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{found['rows']} training rows, {found['heldout_rows']} held-out rows in [bold]{directory}[/]")
    console.print(", ".join(found["files"]))
    for sentence in found["missing"]:
        console.print(f"missing, so data/ is empty: {sentence}", markup=False)
    console.print("verl does otherwise:")
    for sentence in found["beyond_verl"]:
        console.print(f"- {sentence}", markup=False)
    if json_out:
        write_json(json_out, found)
