"""`brorl export`: a run's policy as a model for others."""

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
