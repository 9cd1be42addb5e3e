"""Gradients from disjoint sets of rollouts: the policy gradient of a step, taken twice at each N from one pool."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from brorl.algorithms.advantages import Estimator
from brorl.algorithms.selection import is_constant
from brorl.algorithms.shaping import Shaping
from brorl.config import Recipe
from brorl.engines.protocol import SampleRequest, Sampling
from brorl.group import Prompt, ScoredGroup
from brorl.learner.learner import Learner
from brorl.phases import Phases
from brorl.rollouts import Rollouts
from brorl.seeding import Key, generator
from brorl.theory.agreement import GradientPair
from brorl.theory.groups import disjoint_pair
from brorl.updating import policy_batch, shaped_groups

SIZES = (16, 64, 512)
"""N at which gradients are compared, where nothing else is asked for"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Updates:
    """How rollouts become a gradient."""

    recipe: Recipe
    learner: Learner
    advantage: Estimator
    shapings: Mapping[str, Shaping]


def sizes_up_to(rollouts: int) -> tuple[int, ...]:
    """Those of `SIZES` that a recipe's N reaches, or N itself."""
    return tuple(size for size in SIZES if size <= rollouts) or (rollouts,)


def draw_pool(
    rollouts: Rollouts,
    prompts: Sequence[Prompt],
    size: int,
    sampling: Sampling,
    key: tuple[Key, ...],
    phases: Phases | None = None,
) -> list[ScoredGroup]:
    """`size` scored rollouts of each prompt."""
    requests = [SampleRequest(prompt=p, rollouts=size, key=(*key, slot)) for slot, p in enumerate(prompts)]
    return rollouts.draw(requests, sampling, phases)


def gradient_pair(
    pool: Sequence[ScoredGroup], size: int, updates: Updates, *, step: int, key: tuple[Key, ...]
) -> GradientPair:
    """The policy gradients of two disjoint sets of `size` rollouts per prompt, as one step on these prompts takes them.

    The KL term and down-sampling stay out: the first is no property of the rollouts, the second changes N.

    Args:
        pool: a group per prompt, of at least 2 `size` rollouts.
        size: N.
        updates: how rollouts become a gradient.
        step: for shaping that depends on it.
        key: of the split.
    """
    halves = [disjoint_pair(scored, size, generator(*key, size, slot)) for slot, scored in enumerate(pool)]
    first = _policy_gradient([a for a, _ in halves], updates, step)
    second = _policy_gradient([b for _, b in halves], updates, step)
    return GradientPair(
        first_square=_product(first, first), second_square=_product(second, second), product=_product(first, second)
    )


def measure_agreement(
    rollouts: Rollouts,
    prompts: Sequence[Prompt],
    sampling: Sampling,
    updates: Updates,
    *,
    step: int,
    phases: Phases,
) -> dict[str, Any]:
    """One pair of gradients at each N, for a line of metrics; inner products too, to put pairs of steps together."""
    seed, sizes = updates.recipe.seed, sizes_up_to(updates.recipe.rollouts.per_prompt)
    with phases.timed("snr"):
        quiet = Phases(lambda _, done, total: phases.report("snr", done, total))
        pool = draw_pool(rollouts, prompts, 2 * max(sizes), sampling, (seed, "snr", step), quiet)
        pairs = {size: gradient_pair(pool, size, updates, step=step, key=(seed, "snr split", step)) for size in sizes}
    return {
        "prompts": len(prompts),
        "pool": 2 * max(sizes),
        "by_rollouts": [
            {"rollouts": size, "cosine": pair.cosine, "norm_ratio": pair.norm_ratio, **asdict(pair)}
            for size, pair in pairs.items()
        ],
    }


def _policy_gradient(groups: Sequence[ScoredGroup], updates: Updates, step: int) -> dict[str, Tensor]:
    """Empty where no group carries signal."""
    recipe = updates.recipe
    recipe = recipe.model_copy(update={"selection": recipe.selection.model_copy(update={"downsample": None})})
    if recipe.selection.drop_constant:
        groups = [g for g in groups if not is_constant(g, recipe.verification.correct_threshold)]
    groups = [group for group in groups if group.scored_rollouts]
    if not groups:
        return {}
    batch = policy_batch(shaped_groups(groups, recipe, updates.shapings, step), recipe, updates.advantage)
    objective = replace(updates.learner.settings.objective, kl_coefficient=0.0)
    return updates.learner.gradient(batch, objective)


def _product(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> float:
    shared = first.keys() & second.keys()
    return float(np.sum([float((first[name].double() * second[name].double()).sum()) for name in sorted(shared)]))
