"""Every recipe in the repository loads, and the quickstart runs with the bundled model on its own ground."""

import json
from pathlib import Path

import pytest

from brorl.config import GymTask
from brorl.recipe_differences import compare_recipes, effective_lr
from brorl.recipe_file import differences, load_recipe
from brorl.study.spec import load_study
from brorl.tasks.gym_items import task_names
from brorl.tasks.reasoning_gym import GymSource
from command_line import brorl

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
STUDIES = sorted(RECIPES.glob("*_study.yaml"))
TRAINING = sorted({*RECIPES.glob("*.yaml")} - {*STUDIES, RECIPES / "simulation.yaml"})


@pytest.mark.parametrize("path", TRAINING, ids=lambda path: path.stem)
def test_recipe_loads(path: Path) -> None:
    recipe = load_recipe(path)
    assert recipe.name == path.stem
    for task in recipe.tasks:
        if isinstance(task, GymTask):
            assert task.task in task_names()
            if task.args:
                assert GymSource(task.task, task.args).row(0).question


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_study_loads_and_its_arms_are_recipes(path: Path) -> None:
    study = load_study(path)
    assert study.name == path.stem
    study.check()
    assert {study.recipe_of(arm, 1, 9).name for arm in study.arms} == {f"{path.stem}-{arm}" for arm in study.arms}


def test_the_laptop_study_has_the_papers_arms_and_both_controls() -> None:
    study = load_study(RECIPES / "laptop_study.yaml")
    arms = {arm: study.recipe_of(arm, 1, 1) for arm in study.arms}
    narrow, broad = arms["step_scaling"], arms["broad"]
    assert broad.samples_per_step == 8 * narrow.samples_per_step
    assert 4 * broad.rollouts.prompts_per_step == narrow.rollouts.prompts_per_step
    assert broad.optimizer.lr == pytest.approx(8**0.5 * narrow.optimizer.lr, rel=1e-3)
    for name, allowed in (
        ("broad", {"rollouts.per_prompt", "rollouts.prompts_per_step", "optimizer.lr"}),
        ("broad_equal_lr", {"rollouts.per_prompt", "rollouts.prompts_per_step"}),
        ("broad_same_prompts", {"rollouts.per_prompt"}),
        ("equal_batch", {"rollouts.prompts_per_step", "optimizer.lr"}),
    ):
        assert differences(narrow, arms[name]).keys() - {"name"} == allowed
    assert arms["equal_batch"].samples_per_step == broad.samples_per_step
    assert arms["equal_batch"].optimizer.lr == broad.optimizer.lr


def test_quickstart_stands_on_the_ground_of_the_bundled_model() -> None:
    quickstart, base = load_recipe(RECIPES / "quickstart.yaml"), load_recipe(RECIPES / "base_model.yaml")
    assert quickstart.tasks == base.tasks
    assert quickstart.prompt == base.prompt
    assert quickstart.rollouts.per_prompt == 512
    assert base.rollouts.per_prompt == 16


def test_quickstart_in_small(tmp_path: Path) -> None:
    small = ["steps=1", "rollouts.prompts_per_step=4", "evaluation.heldout_prompts=6", "evaluation.training_prompts=6"]
    arguments = [part for setting in small for part in ("-s", setting)]
    done = brorl("train", RECIPES / "quickstart.yaml", *arguments, "--json", "out.json", cwd=tmp_path)
    figures = json.loads((tmp_path / "out.json").read_text())
    assert figures["rollouts_per_prompt"] == 512
    assert set(figures["evaluations"]) == {"held-out", "training"}
    assert set(figures["evaluations"]["held-out"]["after"]["pass_at"]) == {"1", "64"}
    assert figures["distinct_node_share"] < 0.2  # a settled policy shares its prefixes
    for words in ("pass@64", "kept share", "distinct-node share", "rollouts per second", "runs/quickstart-1"):
        assert words in done.text


def test_the_arms_keep_the_papers_ratios() -> None:
    for size, samples in (("1p5b", 8192), ("laptop", 1024)):
        narrow, broad = load_recipe(RECIPES / f"prorlv2_{size}.yaml"), load_recipe(RECIPES / f"brorl_{size}.yaml")
        assert (narrow.rollouts.per_prompt, broad.rollouts.per_prompt) == (16, 512)
        assert (narrow.samples_per_step, broad.samples_per_step) == (samples, 8 * samples)
        changed = differences(narrow, broad).keys() - {"name", "steps"}
        assert changed == {"rollouts.per_prompt", "rollouts.prompts_per_step"}
        assert effective_lr(broad) == pytest.approx(8**0.5 * effective_lr(narrow))


@pytest.mark.parametrize("name", ["prorlv2_1p5b", "brorl_1p5b", "brorl_1gpu"])
def test_every_value_of_the_large_recipes_says_where_it_comes_from(name: str) -> None:
    lines = (RECIPES / f"{name}.yaml").read_text().splitlines()
    marked, section = ("model", "rollouts", "selection", "algorithm", "optimizer", "reference", "checkpoint"), ""
    for line in lines:
        section = line.partition(":")[0] if line[:1].isalpha() else section
        if line.startswith("  ") and section in marked:
            assert any(mark in line for mark in ("paper", "public configuration", "our choice")), line


def test_check_says_what_a_large_recipe_lacks(tmp_path: Path) -> None:
    done = brorl("check", RECIPES / "brorl_1p5b.yaml", "--json", "out.json", cwd=tmp_path, check=False)
    assert done.returncode == 1
    for words in ("128 prompts x 512 rollouts = 65536 samples", "1,777,088,000 parameters", "no such model directory"):
        assert words in done.text
    found = json.loads((tmp_path / "out.json").read_text())
    assert len(found["missing"]) == 11, "the model, four data sets, six evaluation sets"
    assert found["costs"]["nothing shared"]["tokens"] == 1.5 * 65536 * 15360
    assert "data/deepscaler" in done.text


def test_check_against_explains_the_confound(tmp_path: Path) -> None:
    done = brorl(
        "check",
        RECIPES / "prorlv2_1p5b.yaml",
        "--against",
        RECIPES / "brorl_1p5b.yaml",
        "--json",
        "o.json",
        cwd=tmp_path,
    )
    found = json.loads((tmp_path / "o.json").read_text())
    assert [row["key"] for row in found["settings"]] == ["rollouts.per_prompt", "rollouts.prompts_per_step", "steps"]
    assert found["derived"]["samples trained on per step"] == [8192, 65536]
    first, second = found["derived"]["learning rate after the square-root rule"]
    assert (first, second) == pytest.approx((1e-6, 2.828e-6), rel=1e-3)
    assert "3 things change together: N x 32, samples per step x 8, the learning rate x 2.83" in done.text
    assert "16 rollouts for each of 4096 prompts" in done.text, "the control arm the paper lacks"


def test_check_against_says_what_a_setting_does(tmp_path: Path) -> None:
    quickstart = RECIPES / "quickstart.yaml"
    done = brorl(
        "check", quickstart, "-s", "algorithm.kl=k3", "-s", "optimizer.lr=1e-3", "--against", quickstart, cwd=tmp_path
    )
    for words in ("algorithm.kl", "k3", "optimizer.lr", "learning rate of AdamW"):
        assert words in done.text
    assert "the learning rate changes although the samples per step do not" in done.text
    same = compare_recipes(load_recipe(quickstart), load_recipe(quickstart))
    assert same.settings == same.confounds == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["prorlv2_laptop", "brorl_laptop"])
def test_the_laptop_twins_run(tmp_path: Path, name: str) -> None:
    small = ["steps=2", "evaluation.heldout_prompts=4", "evaluation.training_prompts=0", "evaluation.rollouts=64"]
    arguments = [part for setting in small for part in ("-s", setting)]
    brorl("train", RECIPES / f"{name}.yaml", *arguments, "--run", "run", cwd=tmp_path)
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert len(records) == 2
    assert all(record["grad_norm"] > 0 for record in records)


def test_check_quickstart(tmp_path: Path) -> None:
    done = brorl("check", RECIPES / "quickstart.yaml", cwd=tmp_path)
    assert "64 prompts x 512 rollouts = 32768 samples" in done.text
    assert "16 of 16 graded as correct" in done.text
