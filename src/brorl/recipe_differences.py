"""What `brorl check A --against B` says: how two recipes differ, what each setting does, and what follows from it."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import BaseModel

from brorl.algorithms.schedules import broadened
from brorl.config import FileTask, GymTask, Recipe
from brorl.recipe_file import differences

Quantity = int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One setting that two recipes have different values of."""

    key: str
    first: Any
    second: Any
    meaning: str
    """what the setting does; empty where its name says it"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two recipes, setting by setting and in derived quantities."""

    first: str
    second: str
    settings: tuple[Difference, ...]
    derived: Mapping[str, tuple[Quantity, Quantity]]
    confounds: tuple[str, ...]
    """what changes together, so that a difference in scores has no single cause"""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def effective_lr(recipe: Recipe) -> float:
    """The learning rate after the square-root rule, before warm-up and schedule."""
    return broadened(recipe.optimizer.lr, recipe.trained_samples_per_step, recipe.optimizer.base_samples)


DERIVED: dict[str, Callable[[Recipe], Quantity]] = {
    "rollouts per prompt (N)": lambda r: r.rollouts.per_prompt,
    "prompts per step": lambda r: r.rollouts.prompts_per_step,
    "samples trained on per step": lambda r: r.trained_samples_per_step,
    "optimizer updates per step": lambda r: r.algorithm.minibatches,
    "samples per update": lambda r: r.trained_samples_per_step / r.algorithm.minibatches,
    "learning rate after the square-root rule": effective_lr,
    "response tokens trained on per step, at most": lambda r: r.trained_samples_per_step * r.rollouts.max_new_tokens,
    "steps": lambda r: r.steps,
    "samples trained on in the whole run": lambda r: r.trained_samples_per_step * r.steps,
    "optimizer updates in the whole run": lambda r: r.algorithm.minibatches * r.steps,
}


def compare_recipes(first: Recipe, second: Recipe) -> Comparison:
    """The settings in which two recipes differ (names aside), derived quantities of both, and what is confounded."""
    found = differences(first, second)
    tasks = found.pop("tasks", None)
    found.pop("name", None)
    settings = [Difference(key=k, first=a, second=b, meaning=meaning(k)) for k, (a, b) in found.items()]
    if tasks:
        settings.append(
            Difference(key="tasks", first=_tasks(first), second=_tasks(second), meaning="the mixture of prompts")
        )
    derived = {name: (of(first), of(second)) for name, of in DERIVED.items()}
    return Comparison(
        first=first.name,
        second=second.name,
        settings=tuple(settings),
        derived=derived,
        confounds=tuple(_confounds(derived)),
    )


def meaning(key: str) -> str:
    """What a dotted key of the recipe does, in the words of `brorl.config`; of a section where the key has none."""
    model: Any = Recipe
    words = ""
    for part in key.split("."):
        if not (isinstance(model, type) and issubclass(model, BaseModel) and part in model.model_fields):
            break  # an argument of a function
        field = model.model_fields[part]
        words, model = field.description or words, field.annotation
    return " ".join(words.split())


def _tasks(recipe: Recipe) -> str:
    def told(task: GymTask | FileTask) -> str:
        return f"{task.task if isinstance(task, GymTask) else task.path} x {task.weight:g}"

    shown = [told(task) for task in recipe.tasks[:4]]
    return ", ".join(shown) + (f", and {len(recipe.tasks) - 4} more" if len(recipe.tasks) > 4 else "")


def _confounds(derived: Mapping[str, tuple[Quantity, Quantity]]) -> list[str]:
    names = {
        "N": "rollouts per prompt (N)",
        "samples per step": "samples trained on per step",
        "the learning rate": "learning rate after the square-root rule",
    }
    ratios = {name: derived[key][1] / derived[key][0] for name, key in names.items() if derived[key][0]}
    changed = {name: ratio for name, ratio in ratios.items() if abs(ratio - 1) > 1e-9}
    told: list[str] = []
    if len(changed) > 1:
        factors = ", ".join(f"{name} x {ratio:.3g}" for name, ratio in changed.items())
        told.append(
            f"{len(changed)} things change together: {factors}. A difference between the two runs cannot be credited "
            "to one of them alone"
        )
    if {"N", "samples per step"} <= changed.keys():
        prompts = derived["prompts per step"]
        same_batch = round(derived["samples trained on per step"][1] / derived["rollouts per prompt (N)"][0])
        told.append(
            f"the arm that tells N from batch size: {derived['rollouts per prompt (N)'][0]} rollouts for each of "
            f"{same_batch} prompts, the same samples per step and learning rate as the second recipe (prompts per step "
            f"are {prompts[0]} and {prompts[1]} here). The paper has no such arm"
        )
    if "the learning rate" in changed and "samples per step" not in changed:
        told.append("the learning rate changes although the samples per step do not")
    total = derived["samples trained on in the whole run"]
    if total[0] != total[1]:
        told.append(f"the whole runs train on {total[0]:,} and {total[1]:,} samples: compare at equal cost")
    return told
