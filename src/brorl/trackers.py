"""Trackers: the figures of a run, sent on to TensorBoard or W&B as they come.

``metrics.jsonl`` and ``evals/`` hold everything whatever the tracker does, so a tracker that fails is a warning and
never the end of a run. Neither package is loaded unless the recipe names it.
"""

import importlib.util
import os
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from brorl.config import Recipe
from brorl.errors import RecipeError
from brorl.metrics import flatten
from brorl.rundir import RunDirectory

Track = Callable[[int, Mapping[str, Any]], None]
"""(step, a record): its numbers, under dotted names, belong to that step"""
Close = Callable[[], object]

WAIT_SECONDS = 30
"""how long W&B may take to begin or to end"""


def untracked(step: int, record: Mapping[str, Any]) -> None:
    """The `Track` of a run without trackers."""


def _tensorboard(run: RunDirectory, recipe: Recipe, step: int) -> tuple[Track, Close]:
    """Scalars in ``tensorboard/`` of the run. What an earlier session wrote at `step` or later no longer counts."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(run.path / "tensorboard"), purge_step=step)

    def track(step: int, record: Mapping[str, Any]) -> None:
        for name, value in flatten(record).items():
            writer.add_scalar(name, value, step)
        writer.flush()

    return track, writer.close


def _wandb(run: RunDirectory, recipe: Recipe, step: int) -> tuple[Track, Close]:
    """A W&B run whose id stays the same when the run is resumed; files in ``wandb/`` of the run.

    Project, entity and mode are W&B's own environment variables. Where nobody is logged in, or the service cannot be
    reached at the start, it records offline.
    """
    import wandb

    identity = run.read_info().get("wandb")
    if identity is None:
        identity = uuid.uuid4().hex[:12]
        run.note(wandb=identity)

    def begin(mode: Any) -> Any:
        return wandb.init(
            project=os.environ.get("WANDB_PROJECT", "brorl"),
            name=run.path.resolve().name,
            id=identity,
            resume="allow",
            dir=str(run.path),
            config=recipe.model_dump(mode="json"),
            mode=mode,
            settings=wandb.Settings(console="off", silent=True, init_timeout=WAIT_SECONDS, finish_timeout=WAIT_SECONDS),
        )

    mode, why = os.environ.get("WANDB_MODE"), ""
    if mode is None and not wandb.login(prompt=False):
        mode, why = "offline", "nobody is logged in (wandb login)"
    try:
        session = begin(mode)
    except wandb.Error as error:
        why = str(error).split("\n")[0]
        session = begin("offline")
    if why:
        warnings.warn(
            f"tracker wandb records offline: {why}. Send it later with: wandb sync {run.path}/wandb/offline-*",
            stacklevel=2,
        )

    def track(step: int, record: Mapping[str, Any]) -> None:
        # Only the line of a step completes it: the evaluation before it belongs to the same step, and W&B takes
        # nothing for a step that is complete. After a resume that also leaves out what it was sent before.
        session.log(flatten(record), step=step, commit="step" in record)

    return track, session.finish


TRACKERS: Mapping[str, Callable[[RunDirectory, Recipe, int], tuple[Track, Close]]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
}


def check_trackers(names: Sequence[str]) -> None:
    """Refuse a tracker whose package is not there, before the work begins.

    Raises:
        RecipeError: with the command that installs it.
    """
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise RecipeError(f"trackers: {name} is not installed; pip install 'brorl[{name}]', or leave it out")


@contextmanager
def open_trackers(run: RunDirectory, recipe: Recipe, step: int) -> Iterator[Track]:
    """Send figures to the recipe's trackers while the block runs, from `step` on."""
    opened: dict[str, tuple[Track, Close]] = {}

    def attempt(name: str, act: Callable[[], Any]) -> Any:
        try:
            return act()
        except Exception as error:  # a network, a disk, a service: whatever it is, it is not worth a run
            opened.pop(name, None)
            warnings.warn(
                f"tracker {name} failed ({error}): the run goes on without it, metrics.jsonl has every figure",
                stacklevel=2,
            )
            return None

    def track(step: int, record: Mapping[str, Any]) -> None:
        for name, (send, _) in [*opened.items()]:
            attempt(name, lambda send=send: send(step, record))

    for name in recipe.trackers:
        tracker = attempt(name, lambda name=name: TRACKERS[name](run, recipe, step))
        if tracker is not None:
            opened[name] = tracker
    try:
        yield track
    finally:
        for name, (_, close) in [*opened.items()]:
            attempt(name, close)
