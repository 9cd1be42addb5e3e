"""The command line, called as a user calls it."""

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import torch

from brorl.cli import main


class Finished(NamedTuple):
    returncode: int
    text: str


def brorl(*arguments: object, cwd: Path, check: bool = True) -> Finished:
    """Run the command line as `brorl ARGUMENTS` in `cwd` would, in this process: starting another takes seconds."""
    output = io.StringIO()
    code = 0
    with contextlib.chdir(cwd), contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        before, sys.argv = sys.argv, ["brorl", *map(str, arguments)]
        try:
            main()
        except SystemExit as exit:
            code = exit.code if isinstance(exit.code, int) else int(exit.code is not None)
        finally:
            sys.argv = before
    if check:
        assert code == 0, output.getvalue()
    return Finished(code, output.getvalue())


def started(*arguments: object, cwd: Path) -> subprocess.Popen[str]:
    """The command line in a process of its own, to be killed or interrupted."""
    return subprocess.Popen(
        [sys.executable, "-m", "brorl", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())},
        stdout=subprocess.PIPE,
        text=True,
    )


def refused(*arguments: object, cwd: Path, says: str) -> None:
    """The command fails with one clear message: non-zero exit, the words, no traceback (`main` would have raised)."""
    done = brorl(*arguments, cwd=cwd, check=False)
    assert done.returncode != 0, done.text
    assert says in done.text, done.text
