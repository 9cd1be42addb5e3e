"""What an update did to prompts that are never trained on, measured while a run goes on.

Before an update the probe's prompts are drawn under the current policy; after it the same responses are scored again.
Nothing of this enters the update. The groups of the very first probe are kept in the run directory: their distinct
correct answers are the bank on which later steps measure what the policy still knows.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from brorl.config import Recipe
from brorl.engines.protocol import SampleRequest, Sampling
from brorl.errors import RunError
from brorl.group import Floats, Prompt, RolloutGroup, ScoredGroup
from brorl.learner.learner import Learner
from brorl.phases import Phases
from brorl.rollouts import Rollouts
from brorl.rundir import RunDirectory
from brorl.storage import read_groups
from brorl.theory.probe import (
    DrawnChange,
    MassChange,
    answer_bank,
    correct_mass_change,
    drawn_change,
    mean_mass_change,
    retained_mass,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Groups of the policy before an update; their log-probabilities are the learner's own."""

    groups: Sequence[ScoredGroup]
    bank: Sequence[RolloutGroup | None]
    """per prompt the distinct correct answers of the policy of the start; None where it had none"""


def before_update(
    rollouts: Rollouts,
    learner: Learner,
    prompts: Sequence[Prompt],
    recipe: Recipe,
    sampling: Sampling,
    run: RunDirectory,
    *,
    step: int,
    phases: Phases,
) -> Probe:
    """Draw the probe's prompts under the current policy; the first probe of a run also leaves the bank on disk.

    Raises:
        RunError: the bank of a run under way is gone.
    """
    settings = recipe.probe
    requests = [
        SampleRequest(prompt=prompt, rollouts=settings.rollouts, key=(recipe.seed, "probe", step, prompt.id))
        for prompt in prompts
    ]
    with phases.timed("probe"):
        groups = rollouts.draw(requests, sampling, Phases(lambda _, done, total: phases.report("probe", done, total)))
        # The learner's log-probabilities on both sides of the update: a difference to the engine's would be taken for
        # a change of the policy.
        scored = learner.logprobs([g.group for g in groups])
        groups = [replace(g, group=replace(g.group, logprobs=lp)) for g, lp in zip(groups, scored, strict=True)]
        if not run.bank.exists():
            if step:
                raise RunError(f"{run.bank} is gone: without the starting policy's answers this run cannot go on")
            run.write_bank(groups)
        threshold = recipe.verification.correct_threshold
        bank = [answer_bank(group, correct_threshold=threshold) for group in read_groups(run.bank)]
    return Probe(groups=groups, bank=bank)


def after_update(probe: Probe, learner: Learner, recipe: Recipe, phases: Phases) -> dict[str, Any]:
    """The probe's figures for one line of metrics: means over prompts, and each prompt's own under ``by_prompt``."""
    threshold = recipe.verification.correct_threshold
    with phases.timed("probe"):
        now = learner.logprobs([scored.group for scored in probe.groups])
        kept = [bank for bank in probe.bank if bank is not None]
        bank_now = learner.logprobs(kept)
        drawn = [drawn_change(g, lp, correct_threshold=threshold) for g, lp in zip(probe.groups, now, strict=True)]
        changes = [_mass_change(g, lp, threshold) for g, lp in zip(probe.groups, now, strict=True)]
        retained = [retained_mass(bank, lp) for bank, lp in zip(kept, bank_now, strict=True)]
    shares = iter(retained)
    return {
        "prompts": len(probe.groups),
        "rollouts": recipe.probe.rollouts,
        **{name: float(np.mean([asdict(d)[name] for d in drawn])) for name in ("p_pos", "p_neg", "unseen_mass")},
        "q_pos": _mean_change(changes),
        "retained_mass": float(np.mean(retained)) if retained else None,
        "bank_prompts": len(kept),
        "bank_answers": sum(bank.distinct for bank in kept),
        "by_prompt": [
            _prompt_figures(scored, d, change, None if bank is None else next(shares))
            for scored, d, change, bank in zip(probe.groups, drawn, changes, probe.bank, strict=True)
        ],
    }


def _mass_change(scored: ScoredGroup, logprobs: Floats, threshold: float) -> MassChange | None:
    """None where fewer than two rollouts could be graded."""
    return correct_mass_change(scored, logprobs, correct_threshold=threshold) if scored.scored_rollouts > 1 else None


def _mean_change(changes: Sequence[MassChange | None]) -> dict[str, Any]:
    """The mean over prompts with an interval, how many they are, and why the others have none."""
    known = [change for change in changes if change is not None and change.declined is None]
    reasons = Counter("not gradable" if c is None else c.declined for c in changes if c is None or c.declined)
    figures = {} if not known else {k: v for k, v in asdict(mean_mass_change(known)).items() if k != "declined"}
    return {**figures, "prompts": len(known), "declined": dict(reasons)}


def _prompt_figures(
    scored: ScoredGroup, drawn: DrawnChange, change: MassChange | None, retained: float | None
) -> dict[str, Any]:
    return {
        "id": scored.group.prompt.id,
        **asdict(drawn),
        "q_pos": None if change is None else asdict(change),
        "retained_mass": retained,
    }
