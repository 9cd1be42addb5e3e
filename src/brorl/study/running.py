"""A study's runs: which there are, how many steps each gets, and how they are carried out.

Every run is an ordinary run directory, ``OUT/ARM/seed-S``, that `brorl train --resume`, `report` and `show` read too.
Processes that share `OUT` divide the runs among themselves: each takes what no other has claimed.
"""

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from brorl.build import open_trainer
from brorl.changes import told as changes_told
from brorl.config import Recipe
from brorl.errors import RunError, UserError
from brorl.recipe_file import differences
from brorl.rundir import RunDirectory, write_text
from brorl.storage import read_groups
from brorl.study.replay import StepCost, replay, stored_replay
from brorl.study.spec import MEASURED, Study, dump_study, load_study
from brorl.tasks.rows import fingerprint
from brorl.trainer import Trainer

FILE = "study.yaml"
Told = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRun:
    """One arm under one seed."""

    arm: str
    seed: int
    recipe: Recipe
    path: Path

    @property
    def name(self) -> str:
        """As messages call it."""
        return f"{self.arm}, seed {self.seed}"

    def directory(self) -> RunDirectory | None:
        """The run on disk; None before it has begun.

        Raises:
            RunError: what lies there was started with another recipe.
        """
        run = _begun(self.path)
        apart = differences(run.recipe(), self.recipe) if run else {}
        if apart:
            raise RunError(
                f"{self.path}: was started with another recipe: {changes_told(apart)}. Put the study back as it was, "
                "or name another directory with --out"
            )
        return run

    def status(self) -> str:
        """``finished``, ``running``, ``stopped``, ``failed``, ``created``, or ``not begun``."""
        run = self.directory()
        return "not begun" if run is None else run.read_info().get("status", "created")


def costs_of(study: Study, out: Path, told: Told, *, again: bool = False) -> dict[str, StepCost]:
    """What a step of each arm takes, measured where that is not known yet, or all `again`.

    One process measures at a time; others wait for what it finds.

    Raises:
        UserError: an arm that cannot run.
    """
    with _lock(out / "replay.lock", wait=True):
        known = {} if again else stored_replay(out)
        missing = [arm for arm in study.arms if arm not in known]
        return replay(study, out, missing, told) if missing else known


def planned_runs(study: Study, out: Path, costs: Mapping[str, StepCost]) -> list[StudyRun]:
    """All runs of the study, whole seeds first.

    Raises:
        RunError: a budget that needs a replay, or runs in `out` that are not this study's.
    """
    steps = {arm: steps_of(study, arm, out, costs) for arm in study.arms}
    runs = [
        StudyRun(
            arm=arm,
            seed=seed,
            recipe=study.recipe_of(arm, seed, steps[arm]),
            path=out / arm / f"seed-{seed}",
        )
        for seed in study.seeds
        for arm in study.arms
    ]
    for run in runs:
        run.directory()
    return runs


def steps_of(study: Study, arm: str, out: Path, costs: Mapping[str, StepCost]) -> int:
    """How many steps of an arm the budget buys, one at least.

    Steps and kept samples follow from the recipe. On the other axes a replay says what a step takes, and the arm's
    first run settles it: a later replay changes what is reported, never the runs.

    Raises:
        RunError: the budget needs a replay, and there is none of this arm.
    """
    if study.axis == "steps":
        return max(1, round(study.amount))
    if study.axis == "kept_samples":
        return max(1, round(study.amount / study.recipe_of(arm, study.seeds[0], 1).trained_samples_per_step))
    begun = [run for path in sorted((out / arm).glob("seed-*")) if (run := _begun(path))]
    if begun:
        return begun[0].recipe().steps
    if arm not in costs:
        raise RunError(
            f"a budget in {study.axis} needs what a step of {arm!r} takes, which nobody has measured yet: brorl study "
            "--replay does, and brorl study without --no-replay and --report-only"
        )
    return max(1, round(study.amount / getattr(costs[arm], study.axis)))


def keep_study(study: Study, out: Path) -> None:
    """Write the study beside its runs.

    Raises:
        RunError: the directory cannot be written, or its runs were given another budget.
    """
    file = out / FILE
    before = load_study(file) if file.exists() else study
    if before.budget != study.budget and {before.axis, study.axis} & {*MEASURED} and any(out.glob("*/seed-*/run.json")):
        raise RunError(
            f"{out}: its runs were given {before.axis} {before.amount:g}, not {study.axis} {study.amount:g}. Put the "
            "budget back, or name another directory with --out"
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_text(file, dump_study(study))
    except OSError as error:
        raise RunError(f"{out}: cannot write a study there ({error.strerror})") from error


def train_all(runs: Sequence[StudyRun], train: Callable[[Trainer], None], told: Told) -> bool:
    """Carry out, or go on with, every run that is not finished; False where `train` was asked to stop.

    Raises:
        RunError: runs that failed, once all others are done.
    """
    failed: dict[str, str] = {}
    for at, run in enumerate(runs, 1):
        place = f"{run.name} (run {at} of {len(runs)})"
        with _lock(run.path.with_suffix(".lock")) as mine:
            if not mine:
                told(f"{place}: another process has it, passed over")
                continue
            if run.status() == "finished":
                told(f"{place}: finished before")
                continue
            try:
                going_on = _train(run, train)
            except UserError as error:
                failed[run.name] = str(error)
                told(f"{place}: failed: {error}")
                continue
        if not going_on:
            return False
        told(f"{place}: finished")
    if failed:
        raise RunError(
            f"{len(failed)} of {len(runs)} runs failed: "
            + "; ".join(f"{name}: {why}" for name, why in failed.items())
            + ". The same command tries them again"
        )
    return True


def _train(run: StudyRun, train: Callable[[Trainer], None]) -> bool:
    before = run.directory()
    with open_trainer(run.recipe, resume=before.path if before else None, path=None if before else run.path) as trainer:
        _check_prompts(run, trainer)
        train(trainer)
        return not trainer.stop_requested


def _check_prompts(run: StudyRun, trainer: Trainer) -> None:
    """Refuse to train where another arm was evaluated on other prompts: a data file was changed in between."""
    for name, prompts in trainer.evaluation_sets.items():
        wanted = fingerprint([[p.text, p.answer] for p in prompts])
        for file in sorted(run.path.parent.parent.glob(f"*/{run.path.name}/evals/step_000000_{name}.parquet")):
            found = fingerprint([[g.group.prompt.text, g.group.prompt.answer] for g in read_groups(file)])
            if found != wanted:
                raise RunError(
                    f"the {name} prompts are no longer those on which {file.parent.parent} was evaluated: scores of "
                    "other prompts cannot be compared. Restore the data, or start the study anew with --out"
                )


def _begun(path: Path) -> RunDirectory | None:
    """The run at `path`, unless it was killed before it was one."""
    return RunDirectory.open(path) if (path / "config.yaml").exists() and (path / "run.json").exists() else None


@contextmanager
def _lock(path: Path, *, wait: bool = False) -> Iterator[bool]:
    """Whether this process holds `path` while the block runs; the system drops the lock of a process that dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(descriptor)
