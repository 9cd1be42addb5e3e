"""A study file: one base recipe, arms that differ from it, seeds, and one budget that all arms get."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, ValidationError, model_validator

from brorl.config import Recipe
from brorl.errors import RecipeError
from brorl.recipe_file import RecipeYaml, differences, load_recipe, with_absolute_paths

Axis = Literal["kept_samples", "generated_samples", "tokens", "distinct_nodes", "steps", "seconds"]
AXES: tuple[Axis, ...] = get_args(Axis)
"""what a budget, and the horizontal axis of a comparison, can count"""

SHARED = (
    *("model.path", "model.warm_optimizer", "model.dtype", "prompt", "tasks", "contamination"),
    *("evaluation", "verification", "rollouts.max_new_tokens"),
)
"""settings, or sections, in which arms may not differ: start, prompts, verdicts and evaluations are one for all"""
OWN = ("seed", "steps", "name", "evaluation.every")
"""keys that the study sets itself"""
MEASURED: tuple[Axis, ...] = ("generated_samples", "tokens", "distinct_nodes", "seconds")
"""axes on which only a replay says what a step takes"""


ArmName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")]
"""an arm's runs lie in a folder of its name"""


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Roles(_Settings):
    """Which arms the verdict compares."""

    baseline: str
    broad: str
    control: str | None = None
    """as many samples a step as `broad` at the baseline's N; without it a gain may be one of batch size"""


class Study(_Settings):
    """A study as its file says it."""

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]+$")
    recipe: Path
    """the base, relative to the study's file"""
    set: dict[str, Any] = {}
    """dotted settings of all arms"""
    seeds: Annotated[tuple[int, ...], Field(min_length=1)]
    budget: dict[Axis, PositiveFloat]
    """one axis and how much of it each run gets"""
    evaluations: Annotated[int, Field(ge=1)] = 8
    """evaluations during a run, the last one at its end; one more before it"""
    arms: Annotated[dict[ArmName, dict[str, Any]], Field(min_length=2)]
    """by name, the dotted settings in which each differs from the base"""
    verdict: Roles

    @model_validator(mode="after")
    def _consistent(self) -> "Study":
        if len(self.budget) != 1:
            raise ValueError(f"budget: name one of {', '.join(AXES)}, such as 'budget: {{steps: 100}}'")
        if len({*self.seeds}) < len(self.seeds):
            raise ValueError("seeds: each only once: equal seeds are equal runs")
        for role, arm in self.verdict.model_dump().items():
            if arm is not None and arm not in self.arms:
                raise ValueError(f"verdict.{role}: there is no arm {arm!r}; there are {', '.join(self.arms)}")
        named = [arm for arm in self.verdict.model_dump().values() if arm is not None]
        if len({*named}) < len(named):
            raise ValueError("verdict: baseline, broad and control are different arms")
        for where, settings in (("set", self.set), *((f"arms.{name}", arm) for name, arm in self.arms.items())):
            own = [key for key in settings if key in OWN]
            if own:
                raise ValueError(f"{where}: {', '.join(own)} is set by the study: from its seeds, budget and name")
        return self

    @property
    def axis(self) -> Axis:
        """What the budget counts."""
        return next(iter(self.budget))

    @property
    def amount(self) -> float:
        """How much of it a run gets."""
        return self.budget[self.axis]

    def recipe_of(self, arm: str, seed: int, steps: int) -> Recipe:
        """The recipe of one run, paths absolute.

        Raises:
            RecipeError: settings that make no recipe; the message names the arm.
        """
        settings = {
            **self.set,
            **self.arms[arm],
            "name": f"{self.name}-{arm}",
            "seed": seed,
            "steps": steps,
            "evaluation.every": math.ceil(steps / self.evaluations),
        }
        try:
            return with_absolute_paths(load_recipe(self.recipe, [_override(key, v) for key, v in settings.items()]))
        except RecipeError as error:
            raise RecipeError(f"arm {arm!r}: {error}") from error

    def check(self) -> None:
        """Whether the arms can be compared.

        Raises:
            RecipeError: an arm that is no recipe, that equals another, or that differs in what arms must share.
        """
        first, *others = self.arms
        base = self.recipe_of(first, self.seeds[0], 1)
        if base.evaluation.heldout_prompts < 2:
            raise RecipeError("evaluation.heldout_prompts: a study compares held-out scores, on 2 or more prompts")
        recipes = {first: base}
        for arm in others:
            recipe = self.recipe_of(arm, self.seeds[0], 1)
            found = differences(base, recipe)
            apart = [key for key in found if any(key == s or key.startswith(f"{s}.") for s in SHARED)]
            if apart:
                told = ", ".join(f"{key} {found[key][0]!r} against {found[key][1]!r}" for key in apart)
                raise RecipeError(
                    f"arms {first!r} and {arm!r} differ in {told}: scores of other data, models or evaluations cannot "
                    "be compared. Set it for all arms under 'set'"
                )
            for name, other in recipes.items():
                if not differences(other, recipe).keys() - {"name"}:
                    raise RecipeError(f"arms {name!r} and {arm!r} are the same recipe")
            recipes[arm] = recipe


def load_study(path: str | Path, overrides: Sequence[str] = ()) -> Study:
    """Read a study file; `overrides` such as ``optimizer.lr=1e-4`` go to all arms, above the file's `set`.

    Raises:
        RecipeError: the file is missing, not YAML, or no study; the message names each key at fault.
    """
    path = Path(path)
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), RecipeYaml)
    except OSError as error:
        raise RecipeError(f"{path}: cannot read the study ({error.strerror})") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path}: not valid YAML: {error}") from error
    if not isinstance(data, Mapping):
        raise RecipeError(f"{path}: a study is a mapping with recipe, seeds, budget, arms and verdict")
    try:
        study = Study.model_validate(data)
    except ValidationError as error:
        raise RecipeError(f"{path}: {'; '.join(_told(e) for e in error.errors())}") from error
    recipe = study.recipe if study.recipe.is_absolute() else path.parent / study.recipe
    return study.model_copy(update={"recipe": recipe.absolute(), "set": {**study.set, **dict(map(_split, overrides))}})


def dump_study(study: Study) -> str:
    """The study as YAML that `load_study` reads back."""
    return yaml.safe_dump(study.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=120)


def _told(error: Any) -> str:
    where = ".".join(map(str, error["loc"]))
    if error["type"] == "extra_forbidden":
        return f"unknown key {where!r}; a study has {', '.join(Study.model_fields)}"
    if error["type"] == "missing":
        return f"{where!r} is missing"
    message = error["msg"].removeprefix("Value error, ")
    return f"{where}: {message}" if where else message


def _split(override: str) -> tuple[str, Any]:
    key, equals, value = override.partition("=")
    if not equals:
        raise RecipeError(f"override {override!r}: write it as key=value, such as optimizer.lr=1e-4")
    return key.strip(), yaml.load(value, RecipeYaml)


def _override(key: str, value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000)
    return f"{key}={text.removesuffix('...' + chr(10)).strip()}"
