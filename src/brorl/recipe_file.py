"""Recipes as YAML files: read with overrides, written back, made absolute, and told apart.

Unknown keys are errors that name the nearest known one.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast, get_args

import yaml
from pydantic import BaseModel, ValidationError

from brorl.config import FileTask, GymTask, Recipe
from brorl.errors import RecipeError


class RecipeYaml(yaml.SafeLoader):
    """YAML 1.2's booleans, true and false: in YAML 1.1 the keys ``on`` and ``off`` of a schedule are booleans too."""


_TRUE_OR_FALSE = re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")
RecipeYaml.yaml_implicit_resolvers = {
    first: [(tag, _TRUE_OR_FALSE if tag == "tag:yaml.org,2002:bool" else pattern) for tag, pattern in resolvers]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def load_recipe(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe file and apply dotted overrides such as ``rollouts.per_prompt=16``.

    Raises:
        RecipeError: the file is missing, not YAML, or does not describe a run; the message names each key at fault.
    """
    try:
        data = yaml.load(Path(path).read_text(encoding="utf-8"), RecipeYaml)
    except OSError as error:
        raise RecipeError(f"{path}: cannot read the recipe ({error.strerror})") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path}: not valid YAML: {error}") from error
    if not isinstance(data, dict):
        raise RecipeError(f"{path}: a recipe is a mapping of settings, such as 'steps: 20'")
    settings = cast(dict[str, Any], data)
    for override in overrides:
        _apply(settings, override)
    return parse_recipe(settings, source=str(path))


def parse_recipe(data: Mapping[str, Any], source: str = "recipe") -> Recipe:
    """Build a recipe from plain data.

    Raises:
        RecipeError: as `load_recipe`.
    """
    try:
        return Recipe.model_validate(data)
    except ValidationError as error:
        lines = [_explain(tuple(e["loc"]), e["type"], e["msg"], e["input"]) for e in error.errors()]
        raise RecipeError(f"{source}: " + "; ".join(lines)) from error


def dump_recipe(recipe: Recipe) -> str:
    """The resolved recipe as YAML that `load_recipe` reads back to the same recipe."""
    return yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=120)


def with_absolute_paths(recipe: Recipe) -> Recipe:
    """The recipe with every path made absolute, so that a run can be resumed from another folder."""

    def absolute(task: GymTask | FileTask) -> GymTask | FileTask:
        if isinstance(task, GymTask):
            return task
        heldout = _absolute(task.heldout_path) if task.heldout_path else None
        return task.model_copy(update={"path": _absolute(task.path), "heldout_path": heldout})

    model = Path(recipe.model.path)
    path = str(model.absolute()) if model.exists() else recipe.model.path
    return recipe.model_copy(
        update={
            "model": recipe.model.model_copy(update={"path": path}),
            "tasks": tuple(absolute(task) for task in recipe.tasks),
            "contamination": recipe.contamination.model_copy(
                update={"against": tuple(_absolute(path) for path in recipe.contamination.against)}
            ),
        }
    )


def _absolute(path: Path) -> Path:
    """The path from the root; the name of a data set, such as ``owner/name``, stays as it is."""
    return path.absolute() if path.parent.is_dir() else path


def differences(first: Recipe, second: Recipe) -> dict[str, tuple[Any, Any]]:
    """The dotted keys in which two recipes differ, with both values."""
    left, right = _flatten(first.model_dump(mode="json")), _flatten(second.model_dump(mode="json"))
    return {k: (left.get(k), right.get(k)) for k in sorted({*left, *right}) if left.get(k) != right.get(k)}


def _flatten(data: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(data, dict) and data:
        section = cast(dict[str, Any], data)
        parts = [_flatten(value, f"{prefix}.{key}" if prefix else key) for key, value in section.items()]
        return {key: value for part in parts for key, value in part.items()}
    return {prefix: data}


def _apply(data: dict[str, Any], override: str) -> None:
    key, equals, value = override.partition("=")
    if not equals:
        raise RecipeError(f"override {override!r}: write it as key=value, such as rollouts.per_prompt=16")
    *sections, last = key.strip().split(".")
    for section in sections:
        inner: object = data.setdefault(section, {})
        if isinstance(inner, str):
            inner = data[section] = {"name": inner}  # a bare function name gains arguments
        if not isinstance(inner, dict):
            raise RecipeError(f"override {override!r}: {section} is not a section of the recipe")
        data = cast(dict[str, Any], inner)
    try:
        data[last] = yaml.load(value, RecipeYaml)
    except yaml.YAMLError as error:
        raise RecipeError(f"override {override!r}: the value is not valid YAML") from error


def _explain(loc: tuple[Any, ...], kind: str, message: str, value: Any) -> str:
    where = ".".join(str(part) for part in loc if part not in ("gym", "file"))
    if kind == "extra_forbidden":
        known = _known_keys(loc[:-1])
        near = difflib.get_close_matches(str(loc[-1]), known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(sorted(known))}"
        return f"unknown key {where!r}; {hint}"
    if kind.startswith("union_tag"):
        return f"{where}: say which kind of task it is, 'kind: gym' or 'kind: file'"
    if kind == "missing":
        return f"{where!r} is missing"
    if kind == "value_error":
        return f"{where + ': ' if where else ''}{message.removeprefix('Value error, ')}"
    return f"{where}: {message} (it is {value!r})"


def _known_keys(loc: tuple[Any, ...]) -> list[str]:
    """The keys that are allowed at a place in the recipe."""
    current: type[BaseModel] = Recipe
    for part in loc:
        if part in ("gym", "file"):
            current = {"gym": GymTask, "file": FileTask}[part]
        elif isinstance(part, str) and part in current.model_fields:
            annotation = current.model_fields[part].annotation
            for section in (annotation, *get_args(annotation)):  # a section, or one that may be left out
                if isinstance(section, type) and issubclass(section, BaseModel):
                    current = section
    return list(current.model_fields)
