"""`brorl plan` held against a study: what the baseline's first step says about every arm, beside what was measured."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from brorl.evaluation.plan import Workload, plan_rows
from brorl.rundir import RunDirectory
from brorl.storage import read_groups
from brorl.study.replay import StepCost
from brorl.study.running import StudyRun
from brorl.study.spec import Study
from brorl.theory.curves import node_growth
from brorl.theory.planning import fit_pass_rates


def planner_check(study: Study, runs: Sequence[StudyRun], costs: Mapping[str, StepCost]) -> dict[str, Any]:
    """By arm, ``kept_share``, ``nodes`` (distinct, of one group) and ``seconds`` (of one step): predicted and measured.

    The pilot is all that the baseline drew in its first step, over all seeds; seconds a node come from its replay.
    Kept share and nodes are measured in each arm's first step, seconds in the replay. Empty before the baseline's first
    step.
    """
    first = {arm: [r for run in runs if run.arm == arm and (r := _first_step(run))] for arm in study.arms}
    base = study.verdict.baseline
    if not first[base]:
        return {}
    threshold = runs[0].recipe.verification.correct_threshold
    groups = [g for run in first[base] for g in read_groups(run.group_file(0)) if g.scored_rollouts]
    tries = [g.group for g in groups if g.group.rollouts >= 4]
    if not tries:
        return {}
    fit = fit_pass_rates([g.scored_rollouts for g in groups], [g.successes(threshold) for g in groups])
    start, alpha = node_growth(tries)
    recipes = {run.arm: run.recipe for run in runs}
    found: dict[str, Any] = {}
    for arm, own in first.items():
        if not own:
            continue
        work = Workload(
            prompts_per_step=recipes[arm].rollouts.prompts_per_step,
            prompt_tokens=float(np.mean([len(g.prompt.token_ids) for g in tries])),
            response_tokens=sum(g.total_tokens for g in tries) / sum(g.rollouts for g in tries),
            node_alpha=alpha,
            node_first=start,
            seconds_per_node=costs[base].seconds / costs[base].distinct_nodes if base in costs else None,
            model=None,
            base_samples=recipes[arm].samples_per_step,
            assumptions=(),
        )
        row = plan_rows(fit, [recipes[arm].rollouts.per_prompt], work)[0]
        records = [run.read_metrics()[0] for run in own]
        found[arm] = {
            "kept_share": {
                "predicted": row.kept_share,
                "low": row.kept_share_low,
                "high": row.kept_share_high,
                "measured": float(np.mean([record["kept_share"] for record in records])),
            },
            "nodes": {
                "predicted": row.nodes,
                "measured": float(np.mean([record["nodes"] / record["groups"] for record in records])),
            },
            "seconds": {"predicted": row.seconds, "measured": costs[arm].seconds if arm in costs else None},
        }
    return found


def _first_step(run: StudyRun) -> RunDirectory | None:
    """The run, once it has done a step."""
    directory = run.directory()
    return directory if directory and directory.group_file(0).exists() and directory.read_metrics() else None
