"""Each guard fires where it should, and is silent one step before."""

import json
import math
from typing import Any

import pytest

from brorl.config import GUARD_THRESHOLDS
from brorl.errors import RecipeError
from brorl.guards import GUARDS, check_records, nearly_full
from brorl.recipe_file import parse_recipe

HEALTHY = {
    "skipped": 0.0,
    "fate_trained": 4,
    "entropy": 1.0,
    "clip_high": 0.05,
    "clip_low": 0.05,
    "truncated_share": 0.1,
    "groups": 4,
    "rollouts": 64,
    "distinct_response_share": 0.5,
    "mismatch": 1e-6,
}


def run(*changes: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"step": step, **HEALTHY, **change} for step, change in enumerate(changes)]


def found(records: list[dict[str, Any]], **thresholds: float | None) -> list[tuple[str, bool]]:
    limits = {**GUARD_THRESHOLDS, **thresholds}
    return [(finding.guard, finding.stop) for finding in check_records(records, limits)]


def test_a_healthy_run_is_left_alone() -> None:
    assert found(run(*[{}] * 10)) == []
    assert found([]) == []


@pytest.mark.parametrize(
    ("guard", "before", "then", "stop"),
    [
        ("skipped_steps", [{}], {"skipped": 0.25}, False),
        ("skipped_steps", [{"skipped": 1.0}] * 2, {"skipped": 1.0}, True),
        ("empty_steps", [{"fate_trained": 0}] * 2, {"fate_trained": 0}, True),
        ("entropy", [{}, {}, {}, {"entropy": 0.1}, {"entropy": 0.1}], {"entropy": 0.05}, False),
        ("clipped", [{"clip_high": 0.25}] * 2, {"clip_high": 0.3}, False),
        ("truncated", [{"truncated_share": 0.5}] * 2, {"truncated_share": 0.6}, False),
        ("duplicates", [{"distinct_response_share": 2 / 16}] * 2, {"distinct_response_share": 1 / 16}, False),
        ("mismatch", [{"mismatch": 0.05}] * 2, {"mismatch": 0.1}, False),
    ],
)
def test_a_guard_fires_at_its_step_and_not_before(
    guard: str, before: list[dict[str, Any]], then: dict[str, Any], stop: bool
) -> None:
    assert (guard, stop) not in found(run(*before))
    assert found(run(*before, then)) == [(guard, stop)]
    assert found(run(*before, then), **{guard: None}) == []


def test_a_row_is_broken_by_one_good_step() -> None:
    bad = {"skipped": 1.0, "fate_trained": 0}
    assert ("empty_steps", True) not in found(run(bad, bad, {}, bad))
    assert found(run(bad, bad, {}, bad)) == [("skipped_steps", False)]


def test_steps_without_a_figure_are_passed_over() -> None:
    """A step without an update has no learner's figures; a gradient that is not finite leaves NaN."""
    empty = {"entropy": None, "clip_high": math.nan, "mismatch": None}
    assert found(run(*[empty] * 2)) == []
    assert found(run({}, {}, {}, *[{"entropy": 0.01}, empty, {"entropy": 0.01}, {"entropy": 0.01}])) == [
        ("entropy", False)
    ]


def test_small_groups_are_not_judged_for_duplicates() -> None:
    assert found(run({"rollouts": 16, "distinct_response_share": 0.25})) == []


def test_the_disk() -> None:
    assert nearly_full(200, 100, 2.0) is None
    finding = nearly_full(199 * 2**20, 100 * 2**20, 2.0)
    assert finding is not None
    assert finding.stop
    assert "199 MiB are free, and a checkpoint takes 100 MiB" in str(finding)
    assert nearly_full(0, 100, None) is None


def test_the_recipe_names_every_guard() -> None:
    assert set(GUARD_THRESHOLDS) == {*GUARDS, "exploding_gradient", "disk"}
    recipe = parse_recipe(
        {"name": "r", "steps": 1, "tasks": [{"kind": "gym", "task": "gcd"}], "guards": {"disk": None}}
    )
    assert recipe.guards == {**GUARD_THRESHOLDS, "disk": None}
    assert json.loads(recipe.model_dump_json())["guards"]["entropy"] == GUARD_THRESHOLDS["entropy"]


def test_unknown_and_negative_guards_are_refused() -> None:
    minimal = {"name": "r", "steps": 1, "tasks": [{"kind": "gym", "task": "gcd"}]}
    with pytest.raises(RecipeError, match="no guard 'entrop'; did you mean 'entropy'"):
        parse_recipe({**minimal, "guards": {"entrop": 1}})
    with pytest.raises(RecipeError, match=r"guards\.disk"):
        parse_recipe({**minimal, "guards": {"disk": -1}})
