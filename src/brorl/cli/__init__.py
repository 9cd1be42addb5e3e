"""The command line: every verb is a thin call into the library.

One file per family of verbs. Verbs import what they need when they run, so that ``brorl --help`` loads no torch.
"""

import os
import sys

import typer
from rich.console import Console

from brorl.errors import UserError

app = typer.Typer(
    name="brorl",
    help="RL from verifiable rewards with hundreds of rollouts per prompt.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line; a user's error is one message on stderr and exit code 1."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # a user's own functions lie where the command is given
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is downloaded
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        app()
    except UserError as error:
        console = Console(stderr=True, highlight=False, soft_wrap=True)
        console.print("[bold red]error:[/]", end=" ")
        console.print(str(error), markup=False)  # messages quote what users wrote, brackets included
        sys.exit(1)


from brorl.cli import compare as compare  # noqa: E402  (verbs register themselves on `app`)
from brorl.cli import eval as eval  # noqa: E402
from brorl.cli import export as export  # noqa: E402
from brorl.cli import models as models  # noqa: E402
from brorl.cli import report as report  # noqa: E402
from brorl.cli import score as score  # noqa: E402
from brorl.cli import selftest as selftest  # noqa: E402
from brorl.cli import study as study  # noqa: E402
from brorl.cli import theory as theory  # noqa: E402
from brorl.cli import train as train  # noqa: E402
