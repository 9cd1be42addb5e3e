"""A run on disk: one directory that holds everything a run was, is, and needs to go on.

    config.yaml        the resolved recipe
    run.json           versions, commit, host, status
    metrics.jsonl      a line per step
    groups/            step_<s>.parquet, every group of the step with its fate
    evals/             step_<s>_<set>.parquet and .json
    contamination.jsonl training prompts that were left out, with the evaluation prompt that each resembles
    probe/bank.parquet where the recipe has a probe: its groups under the policy of the start
    report.html        figures and exploration trees, written at the end and every report.every steps
    checkpoints/       step_<s>/, each a Hugging Face model directory with the trainer's state beside it
    run.lock           held by the process that trains: its id and its host

Every file is written whole under a temporary name and renamed, or appended to line by line. `cut_back` removes what
lies after a checkpoint, so that a resumed run continues exactly where that checkpoint stands.
"""

import fcntl
import json
import os
import platform
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from brorl.config import Recipe
from brorl.errors import RunError
from brorl.group import ScoredGroup
from brorl.recipe_file import dump_recipe, load_recipe
from brorl.storage import write_groups

_RECORDED = ("brorl", "numpy", "torch", "transformers", "reasoning-gym", "math-verify")


class RunDirectory:
    """Paths and writes of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.info = path / "run.json"
        self.metrics = path / "metrics.jsonl"
        self.groups = path / "groups"
        self.evals = path / "evals"
        self.bank = path / "probe" / "bank.parquet"
        self.checkpoints = path / "checkpoints"
        self.lock = path / "run.lock"
        self.report = path / "report.html"

    @classmethod
    def create(cls, recipe: Recipe, *, parent: Path = Path("runs"), path: Path | None = None) -> "RunDirectory":
        """Start a run in `path`, or in ``parent/<recipe>-<n>`` with the first free n.

        Raises:
            RunError: `path` already holds something, or cannot be written.
        """
        try:
            if path is None:
                path = _first_free(parent, recipe.name)
            elif path.exists() and not _is_free(path):
                raise RunError(
                    f"{path}: already holds a run; continue it with --resume {path}, or name another directory"
                )
            run = cls(path)
            for directory in (run.path, run.groups, run.evals, run.checkpoints):
                directory.mkdir(parents=True, exist_ok=True)
            write_text(run.config, dump_recipe(recipe))
        except OSError as error:
            raise RunError(f"{path or parent}: cannot write a run there ({error.strerror})") from error
        run.note(status="created", created=_now(), **_environment())
        return run

    @classmethod
    def open(cls, path: Path) -> "RunDirectory":
        """An existing run.

        Raises:
            RunError: there is no run at `path`.
        """
        run = cls(path)
        if not run.config.is_file() or not run.info.is_file():
            raise RunError(f"{path}: not a run directory (no config.yaml and run.json); give the directory of a run")
        return run

    def recipe(self) -> Recipe:
        """The resolved recipe this run was started with."""
        return load_recipe(self.config)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep every other trainer out while the block runs. The system drops the lock of a process that dies.

        Raises:
            RunError: another process trains here; the message names it.
        """
        descriptor = os.open(self.lock, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunError(
                    f"{self.path}: another process is training this run ({self.lock.read_text().strip()}); "
                    "stop it first, or start a run of your own"
                ) from None
            except OSError as error:
                warnings.warn(
                    f"{self.lock}: this file system has no locks ({error.strerror}): see to it yourself that no other "
                    "process trains this run",
                    stacklevel=3,
                )
            os.truncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} on {platform.node()}\n".encode(), 0)
            yield
        finally:
            os.close(descriptor)

    def read_info(self) -> dict[str, Any]:
        """What run.json holds; empty before there is one.

        Raises:
            RunError: the file is damaged.
        """
        try:
            return json.loads(self.info.read_text(encoding="utf-8")) if self.info.exists() else {}
        except ValueError as error:
            raise RunError(
                f"{self.info}: damaged ({error}). It only describes the run: put {{}} in its place and go on"
            ) from error

    def note(self, **fields: Any) -> None:
        """Set fields of run.json."""
        with _disk(self.info):
            write_json(self.info, {**self.read_info(), **fields, "updated": _now()})

    def accept_changes(
        self,
        recipe: Recipe,
        *,
        step: int,
        recipe_changes: Mapping[str, tuple[Any, Any]],
        data: Sequence[str],
    ) -> None:
        """Make `recipe` the run's own from `step` on, and write down in run.json what is different."""
        change = {"step": step, "at": _now(), "recipe": {k: list(v) for k, v in recipe_changes.items()}}
        self.note(changes=[*self.read_info().get("changes", []), {**change, "data": list(data)}])
        with _disk(self.config):
            write_text(self.config, dump_recipe(recipe))

    def append_metrics(self, record: Mapping[str, Any]) -> None:
        """Add one line to metrics.jsonl and see it onto the disk."""
        with _disk(self.metrics), self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, allow_nan=True) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def read_metrics(self) -> list[dict[str, Any]]:
        """All complete lines; a line cut off by a crash is left out.

        Raises:
            RunError: a damaged line; the message names it.
        """
        if not self.metrics.exists():
            return []
        lines = self.metrics.read_text(encoding="utf-8").split("\n")
        records: list[dict[str, Any]] = []
        for number, line in enumerate(lines[:-1], 1):
            try:
                records += [json.loads(line)] if line else []
            except ValueError as error:
                raise RunError(f"{self.metrics}, line {number}: damaged ({error}); mend or remove the line") from error
        return records

    def group_file(self, step: int) -> Path:
        return self.groups / f"step_{step:06d}.parquet"

    def write_contamination(self, figures: Mapping[str, Any], listed: Sequence[Mapping[str, Any]]) -> None:
        """Figures of the check into run.json, the training prompts that were left out into contamination.jsonl."""
        path = self.path / "contamination.jsonl"
        with _disk(path):
            write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in listed))
        self.note(contamination=dict(figures))

    def write_step(self, step: int, groups: Sequence[ScoredGroup]) -> None:
        """Store every group of a step."""
        with _disk(self.groups):
            write_groups(self.group_file(step), groups)

    def evaluation_file(self, step: int, name: str) -> Path:
        """The scores of one evaluation; beside it, ``.parquet``, the groups behind them."""
        return self.evals / f"step_{step:06d}_{name}.json"

    def write_evaluation(self, step: int, name: str, scores: Mapping[str, Any], groups: Sequence[ScoredGroup]) -> None:
        """Store an evaluation; the scores come last, so that where they are, all is."""
        file = self.evaluation_file(step, name)
        with _disk(file):
            write_groups(file.with_suffix(".parquet"), groups)
            write_json(file, {"step": step, **scores})

    def read_scores(self, name: str) -> dict[int, dict[str, Any]]:
        """The scores of one evaluation set by step."""
        found = [json.loads(file.read_text(encoding="utf-8")) for file in self.evals.glob(f"step_*_{name}.json")]
        return {data["step"]: data for data in found}

    def write_bank(self, groups: Sequence[ScoredGroup]) -> None:
        """Store the probe's groups of the starting policy; a resumed run finds the same."""
        with _disk(self.bank):
            self.bank.parent.mkdir(exist_ok=True)
            write_groups(self.bank, groups)

    def cut_back(self, step: int) -> None:
        """Remove what was recorded at `step` or later (steps count from 0), and leftovers of unfinished writes."""
        kept = [record for record in self.read_metrics() if record["step"] < step]
        if self.metrics.exists():
            write_text(self.metrics, "".join(json.dumps(record, allow_nan=True) + "\n" for record in kept))
        for file in [*self.groups.iterdir(), *self.evals.iterdir()]:
            number = file.name.removeprefix("step_").split("_")[0].split(".")[0]
            limit = step if file.parent == self.groups else step + 1
            if number.isdigit() and int(number) >= limit:
                file.unlink()
        for leftover in self.checkpoints.glob(".*"):
            if leftover.is_symlink():
                leftover.unlink()
            else:
                shutil.rmtree(leftover)
        warned = self.read_info().get("warnings", [])
        if any(warning["step"] >= step for warning in warned):
            self.note(warnings=[warning for warning in warned if warning["step"] < step])
        for directory in (self.path, self.groups, self.evals, self.bank.parent):
            for leftover in directory.glob("*.partial"):
                leftover.unlink()


@contextmanager
def _disk(path: Path) -> Iterator[None]:
    """A failed write is a message for the user, not a traceback."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"{path}: cannot write ({error.strerror}). Make room and resume; what was saved before is whole"
        ) from error


def _is_free(path: Path) -> bool:
    """Whether a run may start in `path`: an empty directory, or what a run left that was killed before it was one."""
    own = {"config.yaml", "config.yaml.partial", "run.json.partial", "groups", "evals", "checkpoints"}
    return path.is_dir() and all(
        entry.name in own and not (entry.is_dir() and any(entry.iterdir())) for entry in path.iterdir()
    )


def _first_free(parent: Path, name: str) -> Path:
    parent.mkdir(parents=True, exist_ok=True)
    n = 1
    while True:
        try:
            (parent / f"{name}-{n}").mkdir()
        except FileExistsError:
            n += 1
        else:
            return parent / f"{name}-{n}"


def write_text(path: Path, text: str) -> None:
    """Write a whole file or nothing: temporary name, fsync, rename. Devices, pipes and links are not replaced."""
    if _kept(path):
        path.write_text(text, encoding="utf-8")
        return
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _kept(path: Path) -> bool:
    """`/dev/null`, `/dev/stdout`, a named pipe: to be written to, and to stay what they are."""
    return path.is_symlink() or (path.exists() and not path.is_file())


def check_output(path: Path | None, *others: Path | None) -> None:
    """Refuse a file that could not be written in the end, before the work begins.

    Args:
        others: files that the same command reads or writes.

    Raises:
        RunError: its folder is missing, it is one itself, or it is one of the others.
    """
    if path is None:
        return
    written = path if _kept(path) else path.parent
    if path.is_dir() or not path.parent.is_dir() or not os.access(written, os.W_OK):
        raise RunError(f"{path}: cannot be written; name a file in a folder that exists and is yours")
    if not _kept(path) and path.resolve() in [other.resolve() for other in others if other is not None]:
        raise RunError(f"{path}: this command reads it, or writes something else to it; name another file")


def write_json(path: Path, data: Any) -> None:
    """`write_text` of indented JSON."""
    write_text(path, json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _environment() -> dict[str, Any]:
    names = {d.metadata["Name"]: d.version for d in metadata.distributions() if d.metadata["Name"]}
    installed = {name.lower().replace("_", "-"): version for name, version in names.items()}
    return {
        "command": sys.argv,
        "host": platform.node(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: installed[name] for name in _RECORDED if name in installed},
        "commit": _commit(),
    }


def _commit() -> str | None:
    """The commit of the source tree in use, with + when it is modified; none when installed elsewhere."""
    here = Path(__file__).resolve().parent
    try:
        # Installed into somebody's project, this file is not a tracked one of that project's repository.
        subprocess.run(
            ["git", "-C", str(here), "ls-files", "--error-unmatch", "rundir.py"],
            capture_output=True,
            timeout=10,
            check=True,
        )
        found = subprocess.run(
            ["git", "-C", str(here), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10, check=True
        )
        dirty = subprocess.run(
            ["git", "-C", str(here), "status", "--porcelain", "--untracked-files=no"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() + ("+" if dirty.stdout.strip() else "")
