"""`brorl selftest --snr`: how much of a step's policy gradient is signal at each N, on the user's model and prompts.

Every repeat has prompts and a pool of rollouts of its own, so that repeats are independent and an interval over them
is one: splitting one pool again and again would only repeat its luck.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from brorl.agreement import Updates, draw_pool, gradient_pair
from brorl.build import open_parts
from brorl.config import Recipe
from brorl.errors import RecipeError
from brorl.group import Prompt
from brorl.phases import Phases, Report, silent
from brorl.theory.agreement import Agreement, GradientPair, agreement


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalToNoise:
    """The figures of `brorl selftest --snr`."""

    recipe: Recipe
    prompts: int
    repeats: int
    pool: int
    """rollouts per prompt and repeat"""
    by_rollouts: dict[int, Agreement]
    seconds: float

    def as_json(self) -> dict[str, Any]:
        algorithm = self.recipe.algorithm
        return {
            "recipe": self.recipe.name,
            "advantage": algorithm.advantage.model_dump(),
            "loss": algorithm.loss.model_dump(),
            "aggregation": algorithm.aggregation,
            "prompts": self.prompts,
            "repeats": self.repeats,
            "pool": self.pool,
            "seconds": self.seconds,
            "by_rollouts": [{"rollouts": size, **asdict(found)} for size, found in self.by_rollouts.items()],
        }


def measure_signal_to_noise(
    recipe: Recipe, *, sizes: Sequence[int], prompts: int = 16, repeats: int = 8, report: Report = silent
) -> SignalToNoise:
    """Compare gradients of disjoint sets of N rollouts for each N in `sizes`.

    Args:
        recipe: what is to be trained; its estimator, loss and aggregation make the gradient.
        sizes: N; the pool of a prompt holds twice the largest.
        prompts: of one gradient.
        repeats: independent pairs of gradients at each N.
        report: progress.

    Raises:
        UserError: whatever of the recipe cannot be used; sizes below 2 or fewer than two repeats.
    """
    if not sizes or min(sizes) < 2 or repeats < 2:
        raise RecipeError("signal-to-noise needs at least 2 rollouts in each set (--n) and 2 repeats (--repeats)")
    quiet = {"evaluation": {"heldout_prompts": 0, "training_prompts": 0}, "probe": {"every": 0, "snr_every": 0}}
    changed = {name: getattr(recipe, name).model_copy(update=update) for name, update in quiet.items()}
    started, pool_size = time.perf_counter(), 2 * max(sizes)
    pairs: dict[int, list[GradientPair]] = {size: [] for size in sorted(set(sizes))}
    with open_parts(recipe.model_copy(update=changed)) as parts:
        updates = Updates(recipe=recipe, learner=parts.learner, advantage=parts.advantage, shapings=parts.shapings)
        position = 0
        for repeat in range(repeats):
            chosen: list[Prompt] = []
            while len(chosen) < prompts:
                prompt = parts.data.prompt_at(position)
                position += 1
                if prompt is not None:
                    chosen.append(prompt)
            what = f"repeat {repeat + 1} of {repeats}"
            phases = Phases(lambda phase, done, total, what=what: report(f"{what}: {phase}", done, total))
            pool = draw_pool(parts.rollouts, chosen, pool_size, parts.sampling, (recipe.seed, "snr", repeat), phases)
            for done, size in enumerate(pairs):
                report(f"{what}: gradients", done, len(pairs))
                pairs[size].append(gradient_pair(pool, size, updates, step=0, key=(recipe.seed, "snr split", repeat)))
    return SignalToNoise(
        recipe=recipe,
        prompts=prompts,
        repeats=repeats,
        pool=pool_size,
        by_rollouts={size: agreement(found) for size, found in pairs.items()},
        seconds=time.perf_counter() - started,
    )
