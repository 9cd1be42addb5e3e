"""From scored groups to new weights: advantages over the step, then weights and one optimizer step per mini-batch."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from brorl.algorithms.advantages import Estimator, GroupRewards, estimate
from brorl.algorithms.weights import token_weights
from brorl.config import Recipe
from brorl.errors import RunError
from brorl.group import Finish, ScoredGroup
from brorl.learner.learner import Learner
from brorl.learner.objective import TrainingGroup
from brorl.phases import Phases


def update_policy(
    learner: Learner, groups: Sequence[ScoredGroup], recipe: Recipe, estimator: Estimator, lr: float, phases: Phases
) -> dict[str, float]:
    """Train on the groups of one step; the number of mini-batches is the recipe's, whatever N is.

    Returns:
        The learner's figures, averaged over the mini-batches.

    Raises:
        RunError: rewards that the estimator is not made for.
    """
    try:
        advantages = estimate(estimator, [group_rewards(group, recipe) for group in groups])
    except ValueError as error:
        raise RunError(f"advantage estimator {recipe.algorithm.advantage.name!r}: {error}") from error
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
                    advantages=advantages[i],
                    weights=weight,
                    old_logprobs=old.get(i),
                    ref_logprobs=reference[i],
                )
                for i, weight in zip(members.tolist(), weights, strict=True)
            ]
            figures.append(learner.step(batch, lr))
    return {name: float(np.mean([f[name] for f in figures])) for name in figures[0]}


def group_rewards(scored: ScoredGroup, recipe: Recipe) -> GroupRewards:
    """What the advantage estimator sees of a group: unscorable and masked responses are NaN."""
    rewards = np.where(trained_responses(scored, recipe), scored.rewards, np.nan).astype(np.float64)
    return GroupRewards(
        rewards=rewards,
        counts=scored.group.end_counts.astype(np.int64),
        lengths=scored.group.lengths().astype(np.int64),
        correct=np.nan_to_num(rewards, nan=-np.inf) >= recipe.verification.correct_threshold,
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
