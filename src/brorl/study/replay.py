"""What a step of each arm takes: a few steps from the start, arms in turn, before anything else runs.

The runs of a study may share their machine with anything; their own clocks say nothing. Wall-clock axes, and budgets
in anything but steps and kept samples, rest on these few steps, which belong on an otherwise idle machine.
"""

import json
import shutil
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from brorl.build import open_trainer
from brorl.config import Recipe
from brorl.errors import RunError
from brorl.rundir import write_json
from brorl.study.spec import Study

STEPS = 3
"""of an arm each time its turn comes; the first one warms up"""
TURNS = 2
FILE = "replay.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """Medians over the steps of an arm's replay, per step."""

    seconds: float
    """whole step, checkpoints included, evaluations not"""
    generation_seconds: float
    """of it, sampling and verification"""
    kept_samples: float
    generated_samples: float
    tokens: float
    distinct_nodes: float


def replay(study: Study, out: Path, arms: Sequence[str], told: Callable[[str], None]) -> dict[str, StepCost]:
    """Measure these arms, and keep what was found in `out`, beside what is there of others.

    Raises:
        UserError: an arm that cannot run.
    """
    records: dict[str, list[dict[str, Any]]] = {arm: [] for arm in arms}
    scratch = out / ".replay"
    shutil.rmtree(scratch, ignore_errors=True)
    for turn in range(TURNS):
        for arm in arms:
            told(f"timing {arm}: {STEPS} steps, turn {turn + 1} of {TURNS}")
            recipe = _without_evaluation(study.recipe_of(arm, study.seeds[0], STEPS))
            with open_trainer(recipe, path=scratch / f"{arm}-{turn}") as trainer:
                records[arm] += list(trainer.train())[1:]
    shutil.rmtree(scratch, ignore_errors=True)
    found = {arm: step_cost(steps, study.recipe_of(arm, study.seeds[0], STEPS)) for arm, steps in records.items()}
    costs = {**stored_replay(out), **found}
    write_json(out / FILE, {arm: asdict(cost) for arm, cost in costs.items()})
    return costs


def stored_replay(out: Path) -> dict[str, StepCost]:
    """What earlier replays found, by arm; empty where there was none.

    Raises:
        RunError: the file is damaged.
    """
    file = out / FILE
    if not file.exists():
        return {}
    try:
        return {arm: StepCost(**values) for arm, values in json.loads(file.read_text(encoding="utf-8")).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise RunError(f"{file}: damaged ({error}). Remove it: the next run of the study measures again") from error


def step_cost(records: Sequence[Mapping[str, Any]], recipe: Recipe) -> StepCost:
    """The medians of these steps' records, as metrics.jsonl has them."""
    found = [counts(record, recipe) | _seconds(record) for record in records]
    return StepCost(**{f.name: statistics.median(step[f.name] for step in found) for f in fields(StepCost)})


def counts(record: Mapping[str, Any], recipe: Recipe) -> dict[str, float]:
    """What a step used, by the name of a budget's axis."""
    trained = record["fate_trained"] * (recipe.selection.downsample or recipe.rollouts.per_prompt)
    return {
        "kept_samples": float(trained),
        "generated_samples": float(record["rollouts"]),
        "tokens": float(record["tokens"]),
        "distinct_nodes": float(record["nodes"]),
    }


def _seconds(record: Mapping[str, Any]) -> dict[str, float]:
    seconds = record["seconds"]
    drawing = seconds.get("sampling", 0.0) + seconds.get("verification", 0.0)
    return {"seconds": seconds["total"], "generation_seconds": drawing}


def _without_evaluation(recipe: Recipe) -> Recipe:
    """The recipe less all that looks at evaluations, or sends figures elsewhere."""
    nothing = recipe.evaluation.model_copy(update={"heldout_prompts": 0, "training_prompts": 0, "every": 0})
    return recipe.model_copy(
        update={
            "evaluation": nothing,
            "checkpoint": recipe.checkpoint.model_copy(update={"keep_best": False}),
            "reference": recipe.reference.model_copy(update={"reset_on_stall": None}),
            "trackers": (),
        }
    )
