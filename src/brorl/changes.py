"""What a resumed run finds changed, in its recipe and in its data, told so that a person can decide about it."""

from collections.abc import Mapping, Sequence
from typing import Any

from brorl.config import Recipe
from brorl.errors import RunError
from brorl.recipe_file import differences

FIXED = ("seed", "model.path", "model.dtype", "model.lora", "probe.every", "probe.prompts")
"""Keys, or the sections they are in, that no resumed run may change: its checkpoint, its draws or its bank hang on
them."""
SPENT = ("model.warm_optimizer",)
"""Keys that only a run's start reads."""


def recipe_changes(stored: Recipe, wanted: Recipe, *, allowed: bool) -> dict[str, tuple[Any, Any]]:
    """The dotted keys in which the recipe of a resumed run differs from the run's own, with old and new value.

    Raises:
        RunError: there are differences and none is `allowed`, or one that no run survives or that would have no effect.
    """
    found = differences(stored, wanted)
    fixed = {key: found[key] for key in found if any(key == name or key.startswith(f"{name}.") for name in FIXED)}
    if fixed:
        raise RunError(
            f"a run cannot go on with another {', '.join(fixed)}: {told(fixed)}. Start a new run; "
            "model.path may name a checkpoint of this one"
        )
    spent = {key: found[key] for key in found if key in SPENT}
    if spent:
        raise RunError(f"{told(spent)} has no effect on a run that has started: leave the change out")
    if found and not allowed:
        raise RunError(
            f"the recipe is not the one this run was started with: {told(found)}. Leave the change out, or go on with "
            "it from here by --allow-changes (it is written down in run.json)"
        )
    return found


def data_changes(stored: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """What is different about the data, one sentence per source; empty where nothing is.

    Both are ``{"sources": [{"name", "rows", "fingerprint"}, ...], "order": hash, "sets": {name: hash}}``; `rows` is
    None for an endless source.
    """
    changes = [
        change
        for old, new in _paired(stored["sources"], found["sources"])
        if (change := _source_change(old, new)) is not None
    ]
    if not changes and stored["order"] != found["order"]:
        changes.append("the order of the training prompts (weights, their number, or the seed)")
    names = [*stored["sets"], *(name for name in found["sets"] if name not in stored["sets"])]
    changes += [f"the evaluation set {name!r}" for name in names if stored["sets"].get(name) != found["sets"].get(name)]
    return changes


def told(changes: Mapping[str, tuple[Any, Any]]) -> str:
    """Changed settings in words."""
    return ", ".join(f"{key} {old!r} -> {new!r}" for key, (old, new) in changes.items())


def _paired(
    old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]
) -> list[tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]]:
    """Sources of one name belong together, in their order: two tasks may read one file."""
    rest = list(new)
    pairs: list[tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]] = []
    for source in old:
        # An equal one first: of two sources of one name, the one that went is then the one that is told.
        same = next((n for n in rest if n == source), None) or next(
            (n for n in rest if n["name"] == source["name"] and n not in old), None
        )
        pairs.append((source, same))
        if same is not None:
            rest.remove(same)
    return [*pairs, *((None, source) for source in rest)]


def _source_change(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> str | None:
    if old == new:
        return None
    if new is None:
        return f"{old and old['name']} is gone"
    if old is None:
        return f"{new['name']} is new"
    if old["rows"] != new["rows"]:
        return f"{old['name']}: {_rows(new)} instead of {_rows(old)}"
    return f"{old['name']}: other content ({_rows(new)}, as before)"


def _rows(source: Mapping[str, Any]) -> str:
    return "an endless source" if source["rows"] is None else f"{source['rows']:,} rows"
