"""What a study's runs have come to: one curve per run, against every axis of a budget.

Letters: E evaluations of a run, P held-out prompts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brorl.config import Recipe
from brorl.evaluation.token_efficiency import token_efficiency
from brorl.group import ScoredGroup
from brorl.storage import read_groups
from brorl.study.replay import StepCost, counts
from brorl.study.running import StudyRun
from brorl.study.spec import AXES, Axis

HELDOUT, TRAINING = "held-out", "training"
SCORE = f"{HELDOUT} pass@1"
"""what the verdict compares"""
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One run, at each of its evaluations."""

    arm: str
    seed: int
    status: str
    steps: NDArray[np.int64]
    """i64[E], ascending from 0"""
    used: Mapping[Axis, Floats | None]
    """f64[E] by axis, used up to each evaluation; seconds are those of the replay, None without one"""
    scores: Mapping[str, Floats]
    """f64[E] by set and k, such as ``held-out pass@1``"""
    start: Floats
    """f64[P], share of right answers of each held-out prompt before training; NaN where nothing could be scored"""
    end: Floats
    """f64[P], at the last evaluation"""
    samples: int
    """behind each share"""
    facts: Mapping[str, float | None]
    """figures of the whole run, named as in results.json"""
    efficiency: Mapping[str, Any]
    """`token_efficiency` of the last held-out evaluation"""

    @property
    def finished(self) -> bool:
        """Whether the budget is spent: other runs are shown and left out of comparisons."""
        return self.status == "finished"


def read_curve(run: StudyRun, cost: StepCost | None) -> Curve | None:
    """What a run has left so far; None before its first evaluation.

    Raises:
        RunError: damaged files, or a run of another recipe.
    """
    directory = run.directory()
    if directory is None:
        return None
    scores = {name: found for name in (HELDOUT, TRAINING) if (found := directory.read_scores(name))}
    if HELDOUT not in scores:
        return None
    steps = sorted(set.intersection(*({*found} for found in scores.values())))
    records = directory.read_metrics()[: steps[-1]]
    threshold = run.recipe.verification.correct_threshold
    first, last = (
        read_groups(directory.evaluation_file(step, HELDOUT).with_suffix(".parquet")) for step in (steps[0], steps[-1])
    )
    return Curve(
        arm=run.arm,
        seed=run.seed,
        status=run.status(),
        steps=np.array(steps, np.int64),
        used=_used(steps, records, run.recipe, cost),
        scores={
            f"{name} pass@{k}": np.array([found[step]["pass_at"][str(k)]["value"] for step in steps])
            for name, found in scores.items()
            for k in run.recipe.evaluation.ks
        },
        start=_rates(first, threshold),
        end=_rates(last, threshold),
        samples=run.recipe.evaluation.rollouts,
        facts=_facts(records),
        efficiency=token_efficiency(last, (), threshold),
    )


def score_at(curve: Curve, axis: Axis, amount: float, score: str = SCORE) -> float | None:
    """A run's score once it had used so much: linear between its evaluations, None beyond them."""
    used = curve.used[axis]
    if used is None or not used[0] <= amount <= used[-1]:
        return None
    return float(np.interp(amount, used, curve.scores[score]))


def common_amount(curves: Sequence[Curve], axis: Axis) -> float | None:
    """The most of an axis that every one of these runs has used."""
    ends = [used[-1] for curve in curves if (used := curve.used[axis]) is not None]
    return float(min(ends)) if len(ends) == len(curves) and ends else None


def _used(
    steps: Sequence[int], records: Sequence[Mapping[str, Any]], recipe: Recipe, cost: StepCost | None
) -> dict[Axis, Floats | None]:
    done, per_step = np.array(steps), [counts(record, recipe) for record in records]
    found: dict[Axis, Floats | None] = {}
    for axis in AXES:
        if axis == "steps":
            found[axis] = done.astype(np.float64)
        elif axis == "seconds":
            found[axis] = None if cost is None else done * cost.seconds
        else:
            found[axis] = np.concatenate([[0.0], np.cumsum([step[axis] for step in per_step])])[done]
    return found


def _rates(groups: Sequence[ScoredGroup], threshold: float) -> Floats:
    return np.array([g.successes(threshold) / g.scored_rollouts if g.scored_rollouts else np.nan for g in groups])


def _facts(records: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    tenth = max(1, len(records) // 10)
    probes = [record["probe"] for record in records if record.get("probe")]
    kept = float(sum(record["kept_share"] * record["groups"] for record in records))
    return {
        "kept_share": _ratio(kept, _sum(records, "groups")),
        "distinct_node_share": _ratio(_sum(records, "nodes"), _sum(records, "tokens")),
        "nodes_per_prompt": _ratio(_sum(records, "nodes"), _sum(records, "groups")),
        "entropy_first_tenth": _mean(records[:tenth], "entropy"),
        "entropy_last_tenth": _mean(records[-tenth:], "entropy"),
        "kl_last_tenth": _mean(records[-tenth:], "kl"),
        "retained_mass": probes[-1]["retained_mass"] if probes else None,
    }


def _sum(records: Sequence[Mapping[str, Any]], key: str) -> float:
    return float(sum(record[key] for record in records))


def _mean(records: Sequence[Mapping[str, Any]], key: str) -> float | None:
    found = [record[key] for record in records if record.get(key) is not None]
    return float(np.mean(found)) if found else None


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
