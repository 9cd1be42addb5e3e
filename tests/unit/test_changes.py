"""What a resumed run finds changed is named, source by source and key by key."""

from typing import Any

import pytest

from brorl.changes import data_changes, recipe_changes
from brorl.config import Recipe
from brorl.errors import RunError
from brorl.recipe_file import parse_recipe


def recipe(**changes: Any) -> Recipe:
    return parse_recipe({"name": "r", "steps": 2, "tasks": [{"kind": "gym", "task": "chain_sum"}], **changes})


def data(*sources: tuple[str, int | None, str], order: str = "o", **sets: str) -> dict[str, Any]:
    rows = [{"name": name, "rows": size, "fingerprint": mark} for name, size, mark in sources]
    return {"sources": rows, "order": order, "sets": sets}


def test_an_unchanged_recipe_goes_on() -> None:
    assert recipe_changes(recipe(), recipe(), allowed=False) == {}


def test_a_changed_recipe_is_refused_with_the_difference_unless_allowed() -> None:
    wanted = recipe(steps=9, optimizer={"lr": 1e-5})
    with pytest.raises(RunError, match=r"optimizer.lr 1e-06 -> 1e-05, steps 2 -> 9.*--allow-changes"):
        recipe_changes(recipe(), wanted, allowed=False)
    assert recipe_changes(recipe(), wanted, allowed=True) == {"optimizer.lr": (1e-6, 1e-5), "steps": (2, 9)}


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"model": {"path": "elsewhere"}},
        {"model": {"dtype": "float64"}},
        {"model": {"lora": {"rank": 4}}},
        {"probe": {"every": 2}},
    ],
)
def test_what_no_run_survives_is_refused_even_so(change: dict[str, Any]) -> None:
    with pytest.raises(RunError, match="a run cannot go on with another"):
        recipe_changes(recipe(), recipe(**change), allowed=True)


@pytest.mark.parametrize(
    ("key", "value"), [("device", "cpu"), ("compute", "bfloat16"), ("gradient_checkpointing", True)]
)
def test_how_the_model_computes_may_change(key: str, value: Any) -> None:
    assert list(recipe_changes(recipe(), recipe(model={key: value}), allowed=True)) == [f"model.{key}"]


def test_what_only_a_start_reads_is_refused() -> None:
    with pytest.raises(RunError, match=r"model\.warm_optimizer True -> False has no effect on a run that has started"):
        recipe_changes(recipe(), recipe(model={"warm_optimizer": False}), allowed=True)


def test_the_same_data_has_no_changes() -> None:
    one = data(("a", 3, "x"), ("b", None, "y"), held="h")
    assert data_changes(one, data(("a", 3, "x"), ("b", None, "y"), held="h")) == []


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (data(("a", 4, "z"), ("b", None, "y")), ["a: 4 rows instead of 3 rows"]),
        (data(("a", 3, "z"), ("b", None, "y")), ["a: other content (3 rows, as before)"]),
        (data(("a", 3, "x"), ("b", 9, "z")), ["b: 9 rows instead of an endless source"]),
        (data(("a", 3, "x")), ["b is gone"]),
        (data(("a", 3, "x"), ("b", None, "y"), ("c", 1, "w")), ["c is new"]),
        (data(("a", 3, "x"), ("b", None, "y"), order="other"), ["the order of the training prompts"]),
        (data(("a", 3, "x"), ("b", None, "y"), held="new"), ["the evaluation set 'held'"]),
    ],
)
def test_each_change_of_the_data_is_named(found: dict[str, Any], says: list[str]) -> None:
    changes = data_changes(data(("a", 3, "x"), ("b", None, "y")), found)
    assert [change[: len(says[0])] for change in changes] == says


def test_two_sources_of_one_name() -> None:
    stored = data(("a", 3, "x"), ("a", 3, "y"))
    assert data_changes(stored, data(("a", 3, "y"))) == ["a is gone"]
    assert data_changes(stored, data(("a", 3, "x"), ("a", 5, "z"))) == ["a: 5 rows instead of 3 rows"]
