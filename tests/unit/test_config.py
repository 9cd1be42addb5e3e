"""Recipes: unknown keys name the nearest, senseless settings are refused, and a recipe survives a round trip."""

from pathlib import Path
from typing import Any

import pytest

from brorl.config import Recipe
from brorl.errors import RecipeError
from brorl.recipe_file import differences, dump_recipe, load_recipe, parse_recipe

MINIMAL: dict[str, Any] = {"name": "r", "steps": 2, "tasks": [{"kind": "gym", "task": "chain_sum"}]}
_FOLDER = Path(__file__).resolve().parents[2] / "recipes"
RECIPES = sorted({*_FOLDER.glob("*.yaml")} - {*_FOLDER.glob("*_study.yaml")})


def with_changes(**changes: Any) -> dict[str, Any]:
    return {**MINIMAL, **changes}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rolouts": {}}, "unknown key 'rolouts'; did you mean 'rollouts'"),
        ({"rollouts": {"per_promt": 8}}, "unknown key 'rollouts.per_promt'; did you mean 'per_prompt'"),
        ({"tasks": [{"kind": "gym", "task": "gcd", "wieght": 2}]}, "'tasks.0.wieght'; did you mean 'weight'"),
        ({"tasks": [{"task": "gcd"}]}, "kind: gym"),
        ({"tasks": []}, "name at least one"),
        ({"steps": 0}, "steps: Input should be greater than 0"),
        ({"rollouts": {"per_prompt": 1}}, "leaves a group baseline nothing to compare with"),
        ({"rollouts": {"prompts_per_step": 2}}, "minibatches = 4 needs at least as many prompts"),
        ({"algorithm": {"kl_weight": 0}, "reference": {"reset_every": 5}}, "reset_every has no effect"),
        (
            {"model": {"dtype": "float64", "compute": "bfloat16"}},
            "model.compute has no effect while model.dtype is float64",
        ),
        ({"model": {"lora": {"rnk": 4}}}, "unknown key 'model.lora.rnk'; did you mean 'rank'"),
        ({"selection": {"carry_surplus": True}}, "no effect while oversample is 1"),
        ({"selection": {"oversample": 1.5, "drop_constant": False}}, "no effect while selection.drop_constant is"),
        ({"selection": {"max_rounds": 9, "drop_constant": False}}, "max_rounds has no effect"),
        ({"prompt": {"overlong": "drop"}}, "prompt.overlong has no effect without prompt.max_tokens"),
        ({"algorithm": {"kl": "k3", "kl_weight": 0}}, "algorithm.kl has no effect while algorithm.kl_weight is 0"),
        ({"evaluation": {"every": 1, "heldout_prompts": 0, "training_prompts": 0}}, "evaluation.every has no effect"),
        ({"reference": {"clear_optimizer": True}}, "no effect without a reset"),
        ({"reference": {"reset_on_stall": 3}}, "watches held-out pass@1"),
        ({"algorithm": {"kl_weight": 0}, "reference": {"reset_on_kl": 0.1}}, "reset_on_kl has no effect"),
        (
            {"selection": {"allocation": {"name": "sequential"}, "drop_constant": False}},
            "gives up groups without signal",
        ),
        ({"selection": {"downsample": 512}}, "downsample has no effect"),
        ({"selection": {"retire_after": 2}}, "no effect on ['chain_sum'], which never repeats"),
        ({"algorithm": {"shaping": ["cosine", "overlong"]}}, "one length reward at a time"),
        ({"algorithm": {"shaping": ["cosine", "cosine"]}}, "each shaping once"),
        ({"algorithm": {"shaping": ["stop_properly"], "truncated": "mask"}}, "what a truncated response scores"),
        ({"algorithm": {"shaping": ["stop_properly", "overlong"]}}, "what a truncated response scores"),
        ({"algorithm": {"shaping": ["cosine"], "advantage": "pass_at_k"}}, "counts successes"),
        ({"evaluation": {"ks": [1, 256]}}, "pass@256 needs at least 256 rollouts"),
        ({"name": "a/b"}, "name: String should match"),
        ({"optimizer": {"lr": float("inf")}}, "optimizer.lr: Input should be a finite number"),
        ({"optimizer": {"lr": "fast"}}, "optimizer.lr: Input should be a valid number"),
    ],
)
def test_what_cannot_run_is_refused_with_the_key(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=None) as caught:
        parse_recipe(with_changes(**changes))
    assert message in str(caught.value)


def test_missing_key_is_named() -> None:
    with pytest.raises(RecipeError, match="'steps' is missing"):
        parse_recipe({"name": "r", "tasks": MINIMAL["tasks"]})


def test_round_trip_through_yaml(tmp_path: Path) -> None:
    recipe = parse_recipe(
        with_changes(
            algorithm={"loss": {"name": "clipped", "eps_high": 0.3}, "advantage": "grpo"}, optimizer={"lr": "1e-6"}
        )
    )
    path = tmp_path / "r.yaml"
    path.write_text(dump_recipe(recipe))
    assert load_recipe(path) == recipe
    assert recipe.optimizer.lr == 1e-6
    assert recipe.algorithm.loss.args == {"eps_high": 0.3}


def test_overrides(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(dump_recipe(parse_recipe(MINIMAL)))
    recipe = load_recipe(path, ["rollouts.per_prompt=16", "algorithm.loss.eps_high=0.4", "evaluation.ks=[1, 2]"])
    assert recipe.rollouts.per_prompt == 16
    assert recipe.algorithm.loss.args == {"eps_high": 0.4}
    assert recipe.evaluation.ks == (1, 2)
    with pytest.raises(RecipeError, match="key=value"):
        load_recipe(path, ["rollouts.per_prompt"])
    with pytest.raises(RecipeError, match="not a section"):
        load_recipe(path, ["steps.x=1"])
    with pytest.raises(RecipeError, match="did you mean 'per_prompt'"):
        load_recipe(path, ["rollouts.perprompt=16"])


def test_on_and_off_are_words(tmp_path: Path) -> None:
    """YAML 1.1 reads them as booleans, and a schedule of the length reward is written with them."""
    path = tmp_path / "r.yaml"
    text = dump_recipe(parse_recipe(MINIMAL)).replace("shaping: []", "shaping: [{name: cosine, on: 100, off: 500}]")
    path.write_text(text)
    recipe = load_recipe(path, ["selection.drop_constant=false", "algorithm.shaping=[{name: cosine, on: 2, off: 3}]"])
    assert load_recipe(path).algorithm.shaping[0].args == {"on": 100, "off": 500}
    assert recipe.algorithm.shaping[0].args == {"on": 2, "off": 3}
    assert recipe.selection.drop_constant is False


def test_broken_files(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="cannot read the recipe"):
        load_recipe(tmp_path / "none.yaml")
    path = tmp_path / "r.yaml"
    path.write_text("a: [")
    with pytest.raises(RecipeError, match="not valid YAML"):
        load_recipe(path)
    path.write_text("- a")
    with pytest.raises(RecipeError, match="a mapping of settings"):
        load_recipe(path)


def test_differences_name_dotted_keys() -> None:
    other = parse_recipe(with_changes(rollouts={"per_prompt": 16}))
    assert differences(parse_recipe(MINIMAL), other) == {"rollouts.per_prompt": (512, 16)}


def test_recipe_stays_small() -> None:
    """More settings than this need a decision record."""

    def leaves(model: Any) -> int:
        return sum(
            leaves(f.annotation) if isinstance(f.annotation, type) and issubclass(f.annotation, BaseModel) else 1
            for f in model.model_fields.values()
        )

    from pydantic import BaseModel

    assert leaves(Recipe) <= 76


def test_the_learning_rate_goes_by_samples_trained_on() -> None:
    recipe = parse_recipe(with_changes(rollouts={"per_prompt": 512, "prompts_per_step": 16}))
    assert recipe.trained_samples_per_step == recipe.samples_per_step == 8192
    kept = parse_recipe(
        with_changes(rollouts={"per_prompt": 512, "prompts_per_step": 16}, selection={"downsample": 32})
    )
    assert (kept.samples_per_step, kept.trained_samples_per_step) == (8192, 512)
