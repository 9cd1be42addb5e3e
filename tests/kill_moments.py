"""The command line, ended by SIGKILL at a chosen moment.

Run as a program it imports everything once and then forks a process per request, so that a killed run costs a fraction
of a second instead of the seconds that torch takes to load. A request is a line of JSON:

    arguments, cwd    what to run, and where
    inside            a directory: only what happens to files in it counts as a moment
    moment            the number of the file operation (open for writing, rename, remove, make directory) just before
                      which the process is killed; null: never
    seconds           a time after the start at which it is killed; null: never

and so is the answer: `killed`, `moments` (how many there were; null for a killed process) and `text`.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

FILE_EVENTS = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.symlink", "os.link")


class Forker:
    """A process that runs command lines in children of its own."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def run(
        self,
        *arguments: object,
        cwd: Path,
        inside: Path,
        moment: int | None = None,
        seconds: float | None = None,
    ) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {
            "arguments": [str(a) for a in arguments],
            "cwd": str(cwd),
            "inside": str(inside),
            "moment": moment,
            "seconds": seconds,
        }
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


def _serve() -> None:
    # The modules of a run, without a tensor made: a process that has computed nothing can be forked.
    import brorl.build
    import brorl.cli
    import brorl.reports.live
    import brorl.reports.summary  # noqa: F401

    requests, answers = sys.stdin, os.fdopen(os.dup(1), "w")
    while line := requests.readline():
        request = json.loads(line)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            _child(request, writer)
        os.close(writer)
        with os.fdopen(reader) as stream:
            told = stream.read()
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        log = Path(request["inside"] + ".log")
        answer = {"killed": killed, "moments": None, **(json.loads(told) if told else {}), "text": log.read_text()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _child(request: dict[str, Any], writer: int) -> None:
    from brorl.cli import main

    log = os.open(request["inside"] + ".log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(request["cwd"])
    moments, code = 0, 0

    def count(event: str, details: tuple[Any, ...]) -> None:
        nonlocal moments
        if event not in FILE_EVENTS or not str(details[0]).startswith(request["inside"]):
            return
        if event == "open" and not (isinstance(details[2], int) and details[2] & (os.O_WRONLY | os.O_RDWR)):
            return
        moments += 1
        if moments == request["moment"]:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    if request["seconds"] is not None:
        threading.Timer(request["seconds"], os.kill, (os.getpid(), signal.SIGKILL)).start()
    sys.argv = ["brorl", *request["arguments"]]
    try:
        main()
    except SystemExit as exit:
        code = exit.code if isinstance(exit.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 70
    sys.stdout.flush()
    sys.stderr.flush()
    os.write(writer, json.dumps({"moments": moments, "code": code}).encode())
    os._exit(0)


if __name__ == "__main__":
    _serve()
