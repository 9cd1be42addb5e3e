"""Functions that a recipe names: arguments of a wrong type, and somebody's own function that does not work."""

from typing import Any

import pytest
from torch import Tensor

from brorl.algorithms.advantages import ADVANTAGES
from brorl.build import check_estimator, learner_settings, resolve_shapings
from brorl.config import Recipe, Ref
from brorl.errors import RecipeError
from brorl.recipe_file import parse_recipe
from brorl.resolving import checked_arguments, resolve


def recipe(**algorithm: Any) -> Recipe:
    tasks = [{"kind": "gym", "task": "chain_sum"}]
    return parse_recipe({"name": "r", "steps": 2, "tasks": tasks, "algorithm": algorithm})


def per_token(inputs: Any, settings: Any) -> tuple[Tensor, dict[str, Tensor]]:
    return -inputs.positive * inputs.logprobs, {}


def policy_gradient(inputs: Any, settings: Any) -> tuple[Tensor, dict[str, Tensor]]:
    return -(inputs.positive * inputs.logprobs).sum(), {}


def broken(*_: Any) -> Any:
    raise KeyError("weight")


def free(value: Any, *, number: float = 1.0, anything=None) -> None:  # type: ignore[no-untyped-def]
    """Takes one argument with a type and one without."""


@pytest.mark.parametrize(
    ("loss", "says"),
    [
        ({"name": "clipped", "dual_clip": "abc"}, "dual_clip: Input should be a valid number.*it is 'abc'"),
        ({"name": "clipped", "eps_high": float("nan")}, "eps_high: Input should be a finite number"),
        (f"{__name__}:per_token", r"must return a sum.*not one of shape \[2\]"),
        (f"{__name__}:broken", "fails on two nodes, KeyError: 'weight'.*test_resolving.py, line"),
    ],
)
def test_a_loss_that_cannot_work(loss: Any, says: str) -> None:
    with pytest.raises(RecipeError, match=says):
        learner_settings(recipe(loss=loss))


def test_a_loss_of_ones_own_works() -> None:
    assert learner_settings(recipe(loss=f"{__name__}:policy_gradient")).objective.loss is policy_gradient


def test_a_correction_of_ones_own_is_refused() -> None:
    with pytest.raises(RecipeError, match="unknown correction 'json:dumps'; there are none, tis, icepop"):
        learner_settings(recipe(correction="json:dumps"))


def test_an_estimator_and_a_shaping_that_fail() -> None:
    with pytest.raises(RecipeError, match="fails on an example, KeyError: 'weight'"):
        check_estimator(recipe(advantage=f"{__name__}:broken"), broken, {})
    with pytest.raises(RecipeError, match="fails on an example, KeyError: 'weight'"):
        resolve_shapings(recipe(shaping=[f"{__name__}:broken"]))


def test_arguments_are_read_as_annotated() -> None:
    assert checked_arguments(free, {"number": "1e-4", "anything": "1e-4"}, "here") == {
        "number": 1e-4,
        "anything": "1e-4",
    }
    with pytest.raises(RecipeError, match="advantage 'pass_at_k', k: Input should be a valid integer"):
        resolve(Ref.model_validate({"name": "pass_at_k", "k": 2.5}), ADVANTAGES, "advantage")
