"""The sweep over rollouts per prompt and seeds: its recipe, its runs, and its tables."""

import csv
import json
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from brorl.errors import RecipeError
from brorl.simulation.bandit import Curves, Optimizer, World, simulate

SERIES = ("correct_mass", "improved_share", "worst_drop", "retained_mass")


class SimulationRecipe(BaseModel):
    """A simulation as a YAML file; the defaults are the paper's Figure 3."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    world: World = World()
    optimizer: Optimizer = Optimizer()
    rollouts: tuple[Annotated[int, Field(ge=2)], ...] = Field(default=(4, 8, 16, 512, 51_200), min_length=1)
    seeds: tuple[int, ...] = Field(default=(0,), min_length=1)
    steps: int = Field(default=1000, ge=1)

    @model_validator(mode="after")
    def _distinct(self) -> "SimulationRecipe":
        for name, values in (("rollouts", self.rollouts), ("seeds", self.seeds)):
            if len(set(values)) < len(values):
                raise ValueError(f"{name} names a value twice")
        return self


def load_recipe(path: Path, overrides: tuple[str, ...] = ()) -> SimulationRecipe:
    """Read a simulation recipe and apply dotted overrides such as ``optimizer.weight_decay=0``.

    Raises:
        RecipeError: no such file, no YAML mapping, an unknown key, or a value out of range.
    """
    if not path.is_file():
        raise RecipeError(f"{path}: no such recipe")
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path}: not a YAML file: {error}") from error
    if not isinstance(data, dict):
        raise RecipeError(f"{path}: a simulation recipe is a mapping of settings, not a {type(data).__name__}")
    for override in overrides:
        _apply(data, override)
    try:
        return SimulationRecipe.model_validate(data)
    except ValidationError as error:
        lines = [
            f"  {'.'.join(map(str, item['loc'])) or 'recipe'}: {_message(item['loc'], item['type'], item['msg'])}"
            for item in error.errors()
            if item["type"] != "too_short" or item["input"] in ([], ())  # a list whose entries are refused is not empty
        ]
        raise RecipeError(f"{path} cannot be simulated:\n" + "\n".join(lines)) from error


def _message(loc: tuple[int | str, ...], kind: str, message: str) -> str:
    if kind not in ("extra_forbidden", "unexpected_keyword_argument"):
        return message.removeprefix("Value error, ")
    sections = {"world": fields(World), "optimizer": fields(Optimizer)}
    known = [f.name for f in sections[str(loc[0])]] if len(loc) > 1 else list(SimulationRecipe.model_fields)
    return f"no such setting; there are {', '.join(known)}"


def _apply(data: dict[str, Any], override: str) -> None:
    name, equals, value = override.partition("=")
    if not equals or not name:
        raise RecipeError(f'"{override}" is no override; write key=value, such as steps=100')
    *parents, last = name.split(".")
    for parent in parents:
        data = data.setdefault(parent, {})
        if not isinstance(data, dict):
            raise RecipeError(f'"{override}": {parent} holds one value, no settings below it')
    try:
        data[last] = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise RecipeError(f'"{override}": the value is not YAML: {error}') from error


def sweep(recipe: SimulationRecipe) -> Iterator[Curves]:
    """One run for each N and seed, N by N, as each is done."""
    for rollouts in recipe.rollouts:
        for seed in recipe.seeds:
            yield simulate(recipe.world, recipe.optimizer, rollouts=rollouts, steps=recipe.steps, seed=seed)


def as_json(runs: list[Curves]) -> list[dict[str, Any]]:
    """One object per run: the four metrics at the last step, and their whole series under ``curves``."""
    rows: list[dict[str, Any]] = []
    for run in runs:
        series = {name: values.tolist() for name, values in asdict(run).items() if name in SERIES}
        last = {name: series[name][-1] for name in SERIES}
        rows.append({"rollouts": run.rollouts, "seed": run.seed, **last, "curves": series})
    return rows


def write_json(path: Path, runs: list[Curves]) -> None:
    """Write `as_json` to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(as_json(runs)) + "\n", encoding="utf-8")


def write_csv(path: Path, runs: list[Curves]) -> None:
    """One row per run and step: rollouts, seed, step and the four metrics."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["rollouts", "seed", "step", *SERIES])
        for row in as_json(runs):
            for step, values in enumerate(zip(*(row["curves"][name] for name in SERIES), strict=True)):
                writer.writerow([row["rollouts"], row["seed"], step, *values])
