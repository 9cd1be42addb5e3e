"""Every estimator, loss, correction, KL, aggregation, shaping and allocation, run whole: finite, and the reward rises.

Parametrised over the dictionaries, so that a new entry is covered by being there.
"""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from brorl.algorithms.advantages import ADVANTAGES
from brorl.algorithms.allocation import ALLOCATIONS
from brorl.algorithms.losses import CORRECTIONS, KL_ESTIMATORS, LOSSES
from brorl.algorithms.shaping import SHAPINGS
from brorl.algorithms.weights import AGGREGATIONS
from brorl.build import open_trainer
from brorl.config import Recipe
from brorl.recipe_file import load_recipe, parse_recipe
from tiny_policy import write_recipe

STEPS = 8
ARGUMENTS: dict[str, dict[str, Any]] = {
    "sequential": {"rounds": [8, 16]},
    "gspo": {"eps_low": 0.05, "eps_high": 0.05},
}
"""What a name needs at this size: rounds that sum to 24; a clip range for responses of eight tokens."""


def named(name: str) -> dict[str, Any]:
    return {"name": name, **ARGUMENTS.get(name, {})}


CHOICES: list[tuple[str, dict[str, Any]]] = [
    *((f"advantage {name}", {"algorithm": {"advantage": named(name)}}) for name in ADVANTAGES),
    *((f"loss {name}", {"algorithm": {"loss": named(name)}}) for name in LOSSES),
    *((f"correction {name}", {"algorithm": {"correction": named(name)}}) for name in CORRECTIONS),
    *((f"kl {name}", {"algorithm": {"kl": name, "kl_weight": 1e-3}}) for name in KL_ESTIMATORS),
    *((f"aggregation {name}", {"algorithm": {"aggregation": name}}) for name in AGGREGATIONS),
    *((f"shaping {name}", {"algorithm": {"shaping": [named(name)]}}) for name in SHAPINGS),
    *((f"allocation {name}", {"selection": {"allocation": named(name)}}) for name in ALLOCATIONS),
    ("downsample", {"selection": {"downsample": 12}}),
    ("over samples", {"algorithm": {"advantage": {"name": "reinforce_pp_baseline", "over": "samples"}}}),
    ("dual clip", {"algorithm": {"loss": {"name": "clipped", "dual_clip": 3.0}}}),
]


def finite(record: dict[str, Any]) -> bool:
    """No figure of the learner or of the groups is NaN or infinite."""
    return all(np.isfinite(value) for value in record.values() if isinstance(value, float))


@pytest.mark.slow
@pytest.mark.parametrize("changes", [pytest.param(changes, id=name) for name, changes in CHOICES])
def test_a_short_run_is_finite_and_learns(tmp_path: Path, changes: dict[str, Any]) -> None:
    settings: dict[str, Any] = {
        "steps": STEPS,
        "optimizer": {"lr": 1e-2},
        "evaluation": {"heldout_prompts": 0, "training_prompts": 8, "rollouts": 32, "ks": [1]},
        "checkpoint": {"every": STEPS, "keep": 1},
        **changes,
    }
    settings["algorithm"] = {"minibatches": 2, **changes.get("algorithm", {})}
    before, after = run(load_recipe(write_recipe(tmp_path, **settings)), tmp_path)
    assert after > before + 0.3


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm",
    [
        *(pytest.param({"advantage": named(name)}, id=f"advantage {name}") for name in ADVANTAGES),
        *(pytest.param({"loss": named(name)}, id=f"loss {name}") for name in LOSSES),
    ],
)
def test_the_quickstart_model_learns_sixteen_sums(tmp_path: Path, algorithm: dict[str, Any]) -> None:
    """Sums of three numbers of two digits, the same sixteen in every step: it starts at a pass@1 of .06."""
    recipe = parse_recipe(
        {
            "name": "sums",
            "seed": 1,
            "steps": STEPS,
            "model": {"path": "brorl-tiny", "warm_optimizer": False},
            "prompt": {"template": "{question}\n"},
            "tasks": [
                {
                    "kind": "gym",
                    "task": "chain_sum",
                    "size": 16,
                    "args": {"min_terms": 3, "max_terms": 3, "min_digits": 2, "max_digits": 2},
                }
            ],
            "rollouts": {"per_prompt": 32, "prompts_per_step": 16, "max_new_tokens": 32},
            "selection": {"max_rounds": 1},
            "algorithm": {"minibatches": 2, **algorithm},
            "optimizer": {"lr": 1e-3},
            "evaluation": {"heldout_prompts": 0, "training_prompts": 16, "rollouts": 32, "ks": [1]},
            "checkpoint": {"every": STEPS, "keep": 1},
        }
    )
    before, after = run(recipe, tmp_path)
    assert after > before + 0.2


def run(recipe: Recipe, tmp_path: Path) -> tuple[float, float]:
    """Training pass@1 before and after a whole run in which every figure is finite."""
    with warnings.catch_warnings(), open_trainer(recipe, path=tmp_path / "run") as trainer:
        warnings.simplefilter("ignore", UserWarning)  # early steps of a random policy find few groups with signal
        records = list(trainer.train())
        files = [trainer.run.evaluation_file(step, "training") for step in (0, STEPS)]
    assert all(finite(record) for record in records)
    assert all(record["skipped"] == 0 for record in records if "skipped" in record)
    before, after = (json.loads(file.read_text())["pass_at"]["1"]["value"] for file in files)
    return before, after
