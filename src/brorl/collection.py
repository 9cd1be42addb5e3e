"""Fill one step with groups that carry signal: dynamic sampling with refill, a round limit and exact accounting."""

import warnings
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from math import ceil

from brorl.algorithms.selection import Selection, is_constant, select
from brorl.config import Recipe
from brorl.engines.protocol import SampleRequest, Sampling
from brorl.group import Prompt, ScoredGroup
from brorl.phases import Phases
from brorl.rollouts import Rollouts

PromptAt = Callable[[int], Prompt | None]
"""The prompt at a position of the endless stream; None where that row is left out"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What one step drew."""

    selection: Selection
    drawn: tuple[ScoredGroup, ...]
    """groups sampled in this step; those carried over from the step before are not among them"""
    position: int
    """the first stream position that no step has used"""
    rounds: int


def collect(
    rollouts: Rollouts,
    prompt_at: PromptAt,
    recipe: Recipe,
    sampling: Sampling,
    *,
    step: int,
    position: int,
    carried: Sequence[ScoredGroup] = (),
    retired: Container[str] = (),
    span: int | None = None,
    phases: Phases | None = None,
) -> Collected:
    """Draw rounds of groups until `prompts_per_step` carry signal or the round limit is reached.

    Each round asks for as many prompts as are missing (times `oversample`); groups already accepted stay. At the limit
    the step goes on with what there is, with a warning.

    Args:
        position: the first unused position of the stream.
        carried: usable groups of the step before.
        retired: ids of prompts that are passed over.
        span: stream positions that hold every prompt; after as many without one that is left, the step has what it has.
    """
    wanted, threshold = recipe.rollouts.prompts_per_step, recipe.verification.correct_threshold
    drop = recipe.selection.drop_constant
    groups: list[ScoredGroup] = list(carried)
    missing = wanted - len(groups)
    rounds = 0
    while missing > 0 and rounds < (recipe.selection.max_rounds if drop else 1):
        asked = ceil(missing * recipe.selection.oversample)
        prompts, position = next_prompts(prompt_at, position, asked, retired=retired, span=span)
        if not prompts:
            break
        requests = [
            SampleRequest(
                prompt=prompt, rollouts=recipe.rollouts.per_prompt, key=(recipe.seed, "train", step, slot, rounds)
            )
            for slot, prompt in enumerate(prompts)
        ]
        groups += rollouts.draw(requests, sampling, phases)
        rounds += 1
        missing = wanted - sum(not is_constant(g, threshold) for g in groups) if drop else 0
    if missing > 0:
        warnings.warn(
            f"step {step}: only {wanted - missing} of {wanted} groups carry signal after {rounds} rounds and "
            f"{len(groups)} prompts; going on with these (more rounds: selection.max_rounds)",
            stacklevel=2,
        )
    selection = select(groups, wanted=wanted, correct_threshold=threshold, drop_constant=drop)
    return Collected(selection=selection, drawn=tuple(groups[len(carried) :]), position=position, rounds=rounds)


def next_prompts(
    prompt_at: PromptAt, position: int, wanted: int, *, retired: Container[str] = (), span: int | None = None
) -> tuple[list[Prompt], int]:
    """The next prompts that are not retired, and the position after them; fewer once `span` positions hold none."""
    prompts: list[Prompt] = []
    last = position
    while len(prompts) < wanted and (span is None or position - last < span):
        prompt = prompt_at(position)
        position += 1
        if prompt is not None and prompt.id not in retired:
            prompts.append(prompt)
            last = position
    return prompts, position
