"""From scored groups to new weights: shaping and down-sampling, advantages over the step, then weights and one
optimizer step per mini-batch."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from brorl.algorithms.advantages import Estimator, GroupRewards, estimate
from brorl.algorithms.allocation import Allocation, survival_weight
from brorl.algorithms.downsampling import downsample
from brorl.algorithms.shaping import Responses, Shaping, shape
from brorl.algorithms.weights import token_weights
from brorl.config import Recipe
from brorl.errors import RunError
from brorl.group import Finish, ScoredGroup
from brorl.learner.learner import Learner
from brorl.learner.objective import TrainingGroup
from brorl.phases import Phases
from brorl.seeding import generator
from brorl.theory.groups import take_scored

SHAPED, TRAINED = "shaped", "trained_rollouts"
"""Parts of a group that was trained on: shaped rewards, and how many rollouts of each response down-sampling kept."""


def shaped_groups(
    groups: Sequence[ScoredGroup], recipe: Recipe, shapings: Mapping[str, Shaping], step: int
) -> list[ScoredGroup]:
    """The selected groups with what the update needs as parts; their rewards and rollouts stay as they are.

    Parts: ``shaped``, f32[K] shaped rewards, where they differ from the rewards; ``shaping_<name>``, each addend;
    ``trained_rollouts``, where the recipe down-samples.

    Raises:
        RunError: a shaping function that does not give a number per response.
    """
    prepared: list[ScoredGroup] = []
    for index, scored in enumerate(groups):
        responses = Responses(
            rewards=np.where(scored.scorable, scored.rewards, np.nan).astype(np.float64),
            lengths=scored.group.lengths().astype(np.int64),
            truncated=scored.group.finish == Finish.LENGTH,
            step=step,
            max_new_tokens=recipe.rollouts.max_new_tokens,
        )
        try:
            shaped, addends = shape(responses, shapings)
        except ValueError as error:
            raise RunError(f"algorithm.shaping: {error}") from error
        parts = {f"shaping_{name}": addend.astype(np.float32) for name, addend in addends.items()}
        if addends or not np.array_equal(shaped, responses.rewards, equal_nan=True):
            parts[SHAPED] = shaped.astype(np.float32)
        scored = replace(scored, parts={**scored.parts, **parts})
        if recipe.selection.downsample:
            rng = generator(recipe.seed, "downsample", step, index)
            kept = downsample(
                group_rewards(scored, recipe).rewards,
                scored.group.end_counts.astype(np.int64),
                recipe.selection.downsample,
                rng,
            )
            scored = replace(scored, parts={**scored.parts, TRAINED: kept.astype(np.float32)})
        prepared.append(scored)
    return prepared


def shaping_metrics(groups: Sequence[ScoredGroup]) -> dict[str, float]:
    """Of the groups trained on: mean reward per scored rollout before and after shaping, each addend, and the share of
    rollouts that down-sampling kept; only what the recipe has."""
    figures: dict[str, float] = {}
    if any(SHAPED in g.parts for g in groups):
        figures["unshaped_reward"] = _rollout_mean(groups, [g.rewards for g in groups])
        figures["shaped_reward"] = _rollout_mean(groups, [g.parts.get(SHAPED, g.rewards) for g in groups])
    for name in sorted({name for g in groups for name in g.parts if name.startswith("shaping_")}):
        figures[name] = _rollout_mean(groups, [g.parts[name] for g in groups])
    kept = [float(g.parts[TRAINED].sum()) for g in groups if TRAINED in g.parts]
    if kept:
        figures["trained_rollout_share"] = sum(kept) / sum(g.group.rollouts for g in groups)
    return figures


def _rollout_mean(groups: Sequence[ScoredGroup], values: Sequence[NDArray[np.float32]]) -> float:
    total = sum(
        float((g.group.end_counts * v.astype(np.float64))[g.scorable].sum())
        for g, v in zip(groups, values, strict=True)
    )
    return total / sum(g.scored_rollouts for g in groups)


def update_policy(
    learner: Learner,
    groups: Sequence[ScoredGroup],
    recipe: Recipe,
    estimator: Estimator,
    lr: float,
    phases: Phases,
    allocation: Allocation | None = None,
) -> dict[str, float]:
    """Train on the groups of one step; the number of mini-batches is the recipe's, whatever N is.

    Args:
        groups: as `shaped_groups` made them. With down-sampling, advantages are those of the rollouts that are kept,
            as in PODS (arXiv 2504.13818).
        allocation: where it is corrected, a group's advantages count by one over its chance of not being given up.

    Returns:
        The learner's figures, averaged over the mini-batches.

    Raises:
        RunError: rewards that the estimator is not made for.
    """
    survival = [_survival(group, allocation, recipe) for group in groups]
    groups = [take_scored(g, g.parts[TRAINED].astype(np.int64)) if TRAINED in g.parts else g for g in groups]
    advantages = _advantages(groups, recipe, estimator)
    tries = [group.group for group in groups]
    minibatches = np.array_split(np.arange(len(groups)), min(recipe.algorithm.minibatches, len(groups)))
    with phases.timed("log-probabilities"):
        # The first mini-batch is taken under today's weights, so its old log-probabilities are its own.
        later = range(len(minibatches[0]), len(groups))
        old = dict(zip(later, learner.logprobs([tries[i] for i in later]), strict=True))
        with_reference = recipe.algorithm.kl_weight > 0
        reference = learner.logprobs(tries, reference=True) if with_reference else [None] * len(tries)
    figures: list[dict[str, float]] = []
    with phases.timed("update"):
        for done, members in enumerate(minibatches):
            phases.report("update", done, len(minibatches))
            weights = _token_weights([groups[i] for i in members], recipe)
            batch = [
                TrainingGroup(
                    group=tries[i],
                    advantages=advantages[i] * survival[i],
                    weights=weight,
                    old_logprobs=old.get(i),
                    ref_logprobs=reference[i],
                )
                for i, weight in zip(members.tolist(), weights, strict=True)
            ]
            figures.append(learner.step(batch, lr))
    return {name: float(np.mean([f[name] for f in figures])) for name in figures[0]}


def policy_batch(groups: Sequence[ScoredGroup], recipe: Recipe, estimator: Estimator) -> list[TrainingGroup]:
    """All groups as one mini-batch at the weights of now, for the policy term alone: without a reference policy.

    Raises:
        RunError: rewards that the estimator is not made for.
    """
    advantages, weights = _advantages(groups, recipe, estimator), _token_weights(groups, recipe)
    return [
        TrainingGroup(group=scored.group, advantages=values, weights=weight)
        for scored, values, weight in zip(groups, advantages, weights, strict=True)
    ]


def _advantages(groups: Sequence[ScoredGroup], recipe: Recipe, estimator: Estimator) -> list[NDArray[np.float64]]:
    try:
        return estimate(estimator, [group_rewards(group, recipe) for group in groups])
    except ValueError as error:
        raise RunError(f"advantage estimator {recipe.algorithm.advantage.name!r}: {error}") from error


def _survival(scored: ScoredGroup, allocation: Allocation | None, recipe: Recipe) -> float:
    if allocation is None or len(allocation.rounds) == 1:
        return 1.0
    right = scored.successes(recipe.verification.correct_threshold)
    return survival_weight(allocation, right=right, wrong=scored.scored_rollouts - right)


def group_rewards(scored: ScoredGroup, recipe: Recipe) -> GroupRewards:
    """What the advantage estimator sees of a group: shaped rewards, NaN for unscorable and masked responses."""
    trained = trained_responses(scored, recipe)
    rewards = np.where(trained, scored.parts.get(SHAPED, scored.rewards), np.nan).astype(np.float64)
    return GroupRewards(
        rewards=rewards,
        counts=scored.group.end_counts.astype(np.int64),
        lengths=scored.group.lengths().astype(np.int64),
        correct=trained & (scored.rewards >= recipe.verification.correct_threshold),
    )


def trained_responses(scored: ScoredGroup, recipe: Recipe) -> NDArray[np.bool_]:
    """bool[K]: scorable, and not cut off where the recipe masks truncated responses."""
    if recipe.algorithm.truncated == "mask":
        return scored.scorable & (scored.group.finish != Finish.LENGTH)
    return scored.scorable


def _token_weights(groups: Sequence[ScoredGroup], recipe: Recipe) -> list[NDArray[np.float64]]:
    return token_weights(
        [group.group for group in groups],
        recipe.algorithm.aggregation,
        keep=[trained_responses(group, recipe) for group in groups],
        max_new_tokens=recipe.rollouts.max_new_tokens,
    )
