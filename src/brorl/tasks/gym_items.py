"""Single items of Reasoning Gym: a task by name, its options checked, one item for one seed."""

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any

import reasoning_gym
from reasoning_gym.factory import DATASETS

from brorl.errors import RecipeError

_NOT_TASKS = {"composite"}  # a mixer of data sets; `brorl.tasks.mixture` is ours
_SEEDED_AT_CREATION = {"acre", "gsm_symbolic", "list_functions"}  # these read their seed only when they are created


def task_names() -> list[str]:
    """All tasks of the installed Reasoning Gym."""
    return sorted(set(DATASETS) - _NOT_TASKS)


def task_category(task: str) -> str:
    """The family that Reasoning Gym puts a task into, such as "arithmetic": the columns of BroRL's Table 5."""
    return DATASETS[task][0].__module__.split(".")[1]


def create(task: str, config: Mapping[str, Any], seed: int = 0) -> Any:
    """A Reasoning Gym data set of one item.

    Raises:
        RecipeError: an unknown task or option, or values that the task refuses.
    """
    if task not in DATASETS or task in _NOT_TASKS:
        raise RecipeError(f"Reasoning Gym has no task {task!r}{_nearest(task, task_names())}")
    options = [f.name for f in dataclasses.fields(DATASETS[task][1]) if f.name not in ("seed", "size")]
    for key in config:
        if key not in options:
            hint = _nearest(key, options)
            raise RecipeError(f"task {task!r} has no option {key!r}{hint}; its options: {', '.join(options)}")
    try:
        return reasoning_gym.create_dataset(task, seed=seed, size=1, **config)
    except Exception as error:  # the library checks with assert, ValueError, TypeError ...
        raise RecipeError(f"task {task!r} refuses {dict(config)}: {error or type(error).__name__}") from error


def item(dataset: Any, task: str, config: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """The entry that a fresh data set of this seed would give first, from an existing one where that is the same."""
    if task in _SEEDED_AT_CREATION:
        return create(task, config, seed)[0]
    dataset.seed = dataset.config.seed = seed
    return dataset[0]


def _nearest(word: str, known: list[str]) -> str:
    near = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
