"""Study files: what they say, what they refuse, and how many steps a budget buys."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from brorl.errors import RecipeError, RunError
from brorl.rundir import RunDirectory
from brorl.study.replay import StepCost, step_cost
from brorl.study.running import keep_study, planned_runs, steps_of
from brorl.study.spec import AXES, MEASURED, Study, dump_study, load_study

COST = StepCost(
    seconds=2.0,
    generation_seconds=1.0,
    kept_samples=32.0,
    generated_samples=64.0,
    tokens=640.0,
    distinct_nodes=160.0,
)


def write_study(directory: Path, **changes: Any) -> Path:
    (directory / "base.yaml").write_text("name: base\nsteps: 5\ntasks: [{kind: gym, task: chain_sum}]\n")
    study: dict[str, Any] = {
        "name": "toy",
        "recipe": "base.yaml",
        "set": {"rollouts.prompts_per_step": 8},
        "seeds": [1, 2],
        "budget": {"steps": 20},
        "evaluations": 4,
        "arms": {"narrow": {"rollouts.per_prompt": 4}, "broad": {"rollouts.per_prompt": 16, "optimizer.lr": 1e-5}},
        "verdict": {"baseline": "narrow", "broad": "broad"},
        **changes,
    }
    path = directory / "study.yaml"
    path.write_text(yaml.safe_dump(study, sort_keys=False))
    return path


def study_of(directory: Path, **changes: Any) -> Study:
    return load_study(write_study(directory, **changes))


def test_a_run_is_the_base_with_the_studys_and_the_arms_settings(tmp_path: Path) -> None:
    recipe = study_of(tmp_path).recipe_of("broad", 2, 21)
    assert (recipe.name, recipe.seed, recipe.steps) == ("toy-broad", 2, 21)
    assert (recipe.rollouts.per_prompt, recipe.rollouts.prompts_per_step) == (16, 8)
    assert recipe.optimizer.lr == 1e-5
    assert recipe.evaluation.every == 6  # four evaluations in 21 steps, the last one at the end


def test_what_is_written_reads_back_the_same(tmp_path: Path) -> None:
    study = study_of(tmp_path)
    (tmp_path / "again.yaml").write_text(dump_study(study))
    assert load_study(tmp_path / "again.yaml") == study


def test_overrides_go_to_all_arms(tmp_path: Path) -> None:
    study = load_study(write_study(tmp_path), ["rollouts.max_new_tokens=9", "algorithm.kl_weight=1e-3"])
    for arm in study.arms:
        assert study.recipe_of(arm, 1, 1).rollouts.max_new_tokens == 9
        assert study.recipe_of(arm, 1, 1).algorithm.kl_weight == 1e-3


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"budgets": 1}, "unknown key 'budgets'"),
        ({"budget": {"steps": 1, "tokens": 2}}, "budget: name one of"),
        ({"budget": {"epochs": 1}}, "budget.epochs"),
        ({"budget": {"steps": 0}}, "greater than 0"),
        ({"seeds": [1, 1]}, "each only once"),
        ({"seeds": []}, "seeds"),
        ({"arms": {"narrow": {}}}, "at least 2"),
        ({"arms": {"../up": {}, "narrow": {}}}, "arms"),
        ({"verdict": {"baseline": "narrow", "broad": "wide"}}, "no arm 'wide'"),
        ({"verdict": {"baseline": "narrow", "broad": "narrow"}}, "different arms"),
        ({"set": {"steps": 4}}, "set: steps is set by the study"),
        ({"arms": {"narrow": {"seed": 4}, "broad": {}}}, "arms.narrow: seed is set by the study"),
        ({"recipe": None}, "recipe"),
    ],
)
def test_a_study_that_makes_no_sense_is_refused(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(RecipeError, match=says):
        study_of(tmp_path, **changes)


@pytest.mark.parametrize(
    ("broad", "says"),
    [
        ({"rollouts.per_prmpt": 16}, "arm 'broad': .*did you mean 'per_prompt'"),
        ({"evaluation.heldout_prompts": 64}, "differ in evaluation.heldout_prompts 128 against 64"),
        ({"evaluation.temperature": 0.5}, "differ in evaluation.temperature"),
        ({"tasks": [{"kind": "gym", "task": "gcd"}]}, "differ in tasks"),
        ({"prompt.template": "{question}!"}, "differ in prompt.template"),
        ({"contamination.ngram": 9}, "differ in contamination.ngram"),
        ({"model.path": "elsewhere"}, "differ in model.path"),
        ({"model.warm_optimizer": False}, "differ in model.warm_optimizer"),
        ({"verification.correct_threshold": 0.5}, "differ in verification.correct_threshold"),
        ({"rollouts.max_new_tokens": 65}, "differ in rollouts.max_new_tokens"),
        ({}, None),
        ({"rollouts.per_prompt": 4}, "are the same recipe"),
    ],
)
def test_arms_that_cannot_be_compared_are_refused(tmp_path: Path, broad: dict[str, Any], says: str | None) -> None:
    study = study_of(tmp_path, arms={"narrow": {"rollouts.per_prompt": 4}, "broad": broad})
    if says is None:
        study.check()
        return
    with pytest.raises(RecipeError, match=says):
        study.check()


def test_arms_need_a_heldout_set(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="compares held-out scores"):
        study_of(tmp_path, set={"evaluation.heldout_prompts": 0}).check()


@pytest.mark.parametrize(
    ("axis", "amount", "narrow", "broad"),
    [
        ("steps", 20, 20, 20),
        ("kept_samples", 1280, 40, 10),  # 8 prompts of 4 and 16 rollouts
        ("generated_samples", 640, 10, 10),
        ("tokens", 6400, 10, 10),
        ("distinct_nodes", 1600, 10, 10),
        ("seconds", 21, 10, 10),
        ("seconds", 0.1, 1, 1),
    ],
)
def test_every_axis_buys_steps(tmp_path: Path, axis: str, amount: float, narrow: int, broad: int) -> None:
    study = study_of(tmp_path, budget={axis: amount})
    costs = {"narrow": COST, "broad": COST}
    assert [steps_of(study, arm, tmp_path, costs) for arm in ("narrow", "broad")] == [narrow, broad]


@pytest.mark.parametrize("axis", AXES)
def test_only_measured_axes_need_a_replay(tmp_path: Path, axis: str) -> None:
    study = study_of(tmp_path, budget={axis: 100})
    if axis in MEASURED:
        with pytest.raises(RunError, match="nobody has measured yet"):
            steps_of(study, "broad", tmp_path, {})
    else:
        assert steps_of(study, "broad", tmp_path, {}) >= 1


def test_a_later_replay_does_not_change_the_runs(tmp_path: Path) -> None:
    study, out = study_of(tmp_path, budget={"seconds": 40}), tmp_path / "out"
    keep_study(study, out)
    first = planned_runs(study, out, {"narrow": COST, "broad": COST})
    RunDirectory.create(first[0].recipe, path=first[0].path)
    slower = StepCost(**{**{f: getattr(COST, f) for f in COST.__slots__}, "seconds": 4.0})
    again = planned_runs(study, out, {"narrow": slower, "broad": slower})
    assert [run.recipe.steps for run in again] == [20, 10, 20, 10]  # narrow has begun, broad has not
    assert (first[0].status(), again[0].status()) == ("created", "created")
    with pytest.raises(RunError, match="were given seconds 40, not seconds 80"):
        keep_study(study_of(tmp_path, budget={"seconds": 80}), out)


def test_another_studys_runs_are_not_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = planned_runs(study_of(tmp_path), out, {})[0]
    RunDirectory.create(run.recipe, path=run.path)
    with pytest.raises(RunError, match=r"narrow.*another recipe: .*rollouts.prompts_per_step 8 -> 9"):
        planned_runs(study_of(tmp_path, set={"rollouts.prompts_per_step": 9}), out, {})
    with pytest.raises(RunError, match="steps 20 -> 30"):
        planned_runs(study_of(tmp_path, budget={"steps": 30}), out, {})


def test_whole_seeds_come_first(tmp_path: Path) -> None:
    runs = planned_runs(study_of(tmp_path), tmp_path / "out", {})
    assert [run.name for run in runs] == ["narrow, seed 1", "broad, seed 1", "narrow, seed 2", "broad, seed 2"]
    assert runs[1].path == tmp_path / "out" / "broad" / "seed-1"


def test_the_cost_of_a_step_is_the_median(tmp_path: Path) -> None:
    recipe = study_of(tmp_path, set={"selection.downsample": 2}).recipe_of("broad", 1, 1)
    records = [
        {
            "fate_trained": 8,
            "rollouts": rollouts,
            "tokens": 10 * rollouts,
            "nodes": 4 * rollouts,
            "seconds": {"sampling": 1.0, "verification": 0.5, "total": seconds},
        }
        for rollouts, seconds in ((128, 2.0), (160, 9.0), (256, 3.0))
    ]
    cost = step_cost(records, recipe)
    assert (cost.kept_samples, cost.generated_samples, cost.tokens, cost.distinct_nodes) == (16, 160, 1600, 640)
    assert (cost.seconds, cost.generation_seconds) == (3.0, 1.5)
