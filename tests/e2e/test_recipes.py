"""Every recipe in the repository loads, and the quickstart runs with the bundled model on its own ground."""

import json
from pathlib import Path

import pytest

from brorl.config import GymTask, load_recipe
from brorl.tasks.reasoning_gym import GymSource
from command_line import brorl

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
TRAINING = sorted(path for path in RECIPES.glob("*.yaml") if path.name != "simulation.yaml")


@pytest.mark.parametrize("path", TRAINING, ids=lambda path: path.stem)
def test_recipe_loads(path: Path) -> None:
    recipe = load_recipe(path)
    assert recipe.name == path.stem
    for task in recipe.tasks:
        if isinstance(task, GymTask):
            assert GymSource(task.task, task.args).row(0).question


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


def test_check_quickstart(tmp_path: Path) -> None:
    done = brorl("check", RECIPES / "quickstart.yaml", cwd=tmp_path)
    assert "64 prompts x 512 rollouts = 32768 samples" in done.text
    assert "16 of 16 graded as correct" in done.text
