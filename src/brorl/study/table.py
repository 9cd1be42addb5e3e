"""The figures of a study as one dictionary: what results.json, the report and the terminal show."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from brorl.recipe_file import differences
from brorl.study.planned import planner_check
from brorl.study.replay import StepCost
from brorl.study.results import SCORE, Curve, common_amount, read_curve, score_at
from brorl.study.running import StudyRun
from brorl.study.spec import AXES, Study
from brorl.study.verdict import RULE, Difference, adjusted, difference, verdict
from brorl.theory.comparison import lost_by_chance, paired_t, permutation_p
from brorl.theory.pass_at_k import clustered_interval

Figures = dict[str, Any]


def study_results(study: Study, runs: Sequence[StudyRun], costs: Mapping[str, StepCost]) -> Figures:
    """Everything that is known of a study; its keys are in docs/study.md.

    Raises:
        RunError: damaged files, or runs of other recipes.
    """
    curves = [curve for run in runs if (curve := read_curve(run, costs.get(run.arm))) is not None]
    whole = {arm: [c for c in curves if c.arm == arm and c.finished] for arm in study.arms}
    roles = study.verdict
    over_baseline = _between(whole, roles.baseline, roles.broad)
    over_control = _between(whole, roles.control, roles.broad) if roles.control else None
    return {
        "name": study.name,
        "budget": {study.axis: study.amount},
        "seeds": list(study.seeds),
        "verdict": {
            "words": verdict(over_baseline, over_control, has_control=roles.control is not None),
            "rule": RULE,
            "broad_over_baseline": over_baseline and asdict(over_baseline),
            "broad_over_control": over_control and asdict(over_control),
            **roles.model_dump(),
        },
        "arms": _arms(study, runs, whole, costs),
        "runs": [_run(curve) for curve in curves],
        "by_prompt": _by_prompt(whole, roles.baseline),
        "equal_amounts": _equal_amounts(whole),
        "planner": planner_check(study, runs, costs),
    }


def _between(whole: Mapping[str, Sequence[Curve]], base: str, other: str) -> Difference | None:
    first, second = (_final(whole[arm]) for arm in (base, other))
    return difference(first, second) if first.keys() & second.keys() else None


def _final(curves: Sequence[Curve], score: str = SCORE) -> dict[int, float]:
    return {curve.seed: float(curve.scores[score][-1]) for curve in curves}


def _arms(
    study: Study, runs: Sequence[StudyRun], whole: Mapping[str, Sequence[Curve]], costs: Mapping[str, StepCost]
) -> list[Figures]:
    base = study.verdict.baseline
    recipes = {arm: next(run.recipe for run in runs if run.arm == arm) for arm in study.arms}
    over = {arm: found for arm in study.arms if arm != base and (found := _between(whole, base, arm))}
    p_values = dict(zip(over, adjusted(list(over.values())), strict=True))
    return [
        {
            "arm": arm,
            "settings": {
                key: value
                for key, (_, value) in differences(recipes[base], recipes[arm]).items()
                if key not in ("name", "steps", "evaluation.every")
            },
            "rollouts_per_prompt": recipes[arm].rollouts.per_prompt,
            "prompts_per_step": recipes[arm].rollouts.prompts_per_step,
            "lr": recipes[arm].optimizer.lr,
            "steps": recipes[arm].steps,
            "finished_runs": len(whole[arm]),
            "start": _over_seeds({c.seed: float(c.scores[SCORE][0]) for c in whole[arm]}),
            "end": {score: _over_seeds(_final(whole[arm], score)) for score in _scores(whole[arm])},
            "over_baseline": asdict(over[arm]) | {"p_holm": p_values[arm]} if arm in over else None,
            "facts": {key: _mean(c.facts[key] for c in whole[arm]) for key in _fact_names(whole[arm])},
            "tokens": _tokens(whole[arm]),
            "step": _throughput(costs.get(arm)),
        }
        for arm in study.arms
    ]


def _scores(curves: Sequence[Curve]) -> list[str]:
    return list(curves[0].scores) if curves else []


def _fact_names(curves: Sequence[Curve]) -> list[str]:
    return list(curves[0].facts) if curves else []


def _over_seeds(values: Mapping[int, float]) -> Figures | None:
    """Mean with the t interval over seeds: the difference from 0."""
    if not values:
        return None
    found = difference(dict.fromkeys(values, 0.0), values)
    return {"mean": found.mean, "low": found.low, "high": found.high, "by_seed": dict(values)}


def _tokens(curves: Sequence[Curve]) -> Figures | None:
    """Of the last held-out evaluation, means over seeds."""
    drawn = [curve.efficiency["caps"][0] for curve in curves if curve.efficiency["caps"]]
    if not drawn:
        return None
    return {
        "mean_tokens": _mean(cap["mean_tokens"]["value"] for cap in drawn),
        "score_per_1k_tokens": _mean(cap["score_per_1k_tokens"] for cap in drawn),
        "tokens_per_correct": _mean(cap["tokens_per_correct"] for cap in drawn),
    }


def _throughput(cost: StepCost | None) -> Figures | None:
    """By the replay's clock."""
    if cost is None:
        return None
    return asdict(cost) | {
        "generated_per_second_generation": cost.generated_samples / cost.generation_seconds,
        "kept_per_second_generation": cost.kept_samples / cost.generation_seconds,
        "generated_per_second": cost.generated_samples / cost.seconds,
        "kept_per_second": cost.kept_samples / cost.seconds,
    }


def _run(curve: Curve) -> Figures:
    solved, kept = curve.start > 0, (curve.start > 0) & (curve.end > 0)
    counts = curve.start[~np.isnan(curve.start)] * curve.samples
    return {
        "arm": curve.arm,
        "seed": curve.seed,
        "status": curve.status,
        "steps": curve.steps.tolist(),
        "used": {axis: None if used is None else np.round(used, 3).tolist() for axis, used in curve.used.items()},
        "scores": {name: np.round(values, 6).tolist() for name, values in curve.scores.items()},
        "solved_at_start": int(solved.sum()),
        "still_solved": int(kept.sum()),
        "newly_solved": int(((curve.end > 0) & (curve.start == 0)).sum()),
        "lost_by_chance": lost_by_chance(counts, curve.samples, curve.samples),
        **curve.facts,
    }


def _by_prompt(whole: Mapping[str, Sequence[Curve]], base: str) -> list[Figures]:
    """Every run against the baseline's of its seed, prompt by prompt: about these runs, not about their arms."""
    baseline = {curve.seed: curve for curve in whole[base]}
    found: list[Figures] = []
    for curve in (c for arm, curves in whole.items() if arm != base for c in curves if c.seed in baseline):
        apart = curve.end - baseline[curve.seed].end
        apart = apart[~np.isnan(apart)]
        test, interval = paired_t(apart), clustered_interval(apart)
        found.append(
            {
                "arm": curve.arm,
                "seed": curve.seed,
                "difference": interval.value,
                "low": interval.low,
                "high": interval.high,
                "p_t": test and test.p_two_sided,
                "p_permutation": permutation_p(apart),
                "prompts": len(apart),
            }
        )
    return found


def _equal_amounts(whole: Mapping[str, Sequence[Curve]]) -> Figures:
    """Held-out scores of every arm at the most of an axis that all runs have used."""
    curves = [curve for found in whole.values() for curve in found]
    found: Figures = {}
    for axis in AXES:
        amount = common_amount(curves, axis)
        if amount is None:
            continue
        scores = {
            arm: {c.seed: score for c in runs if (score := score_at(c, axis, amount)) is not None}
            for arm, runs in whole.items()
        }
        found[axis] = {"amount": amount, "arms": {arm: _over_seeds(values) for arm, values in scores.items()}}
    return found


def _mean(values: Any) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
