"""Fill one step with groups that carry signal: dynamic sampling with refill, a round limit and exact accounting."""

import warnings
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from brorl.algorithms.allocation import Allocation, stops, uniform
from brorl.algorithms.selection import Selection, count_solved, is_constant, retired, select
from brorl.config import Recipe
from brorl.engines.protocol import SampleRequest, Sampling
from brorl.group import Fate, Prompt, ScoredGroup
from brorl.phases import Phases
from brorl.rollouts import Rollouts
from brorl.seeding import Key
from brorl.verifiers.grading import merge_scored

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
    saved: int = 0
    """rollouts that prompts given up early did not take"""
    prompts_from_savings: int = 0
    """fresh prompts beyond the round limit, paid with them"""


def collect(
    rollouts: Rollouts,
    prompt_at: PromptAt,
    recipe: Recipe,
    sampling: Sampling,
    *,
    step: int,
    position: int,
    allocation: Allocation | None = None,
    carried: Sequence[ScoredGroup] = (),
    solved: Mapping[str, int] | None = None,
    span: int | None = None,
    phases: Phases | None = None,
) -> Collected:
    """Draw rounds of groups until `prompts_per_step` carry signal or the round limit is reached.

    Each round asks for as many prompts as are missing (times `oversample`); groups already accepted stay. At the limit
    the step goes on with what there is, with a warning. Rollouts that given-up prompts did not take pay for further
    rounds beyond the limit.

    Args:
        position: the first unused position of the stream.
        allocation: how many rollouts a prompt gets; by default N for each.
        carried: usable groups of the step before.
        solved: times in a row that prompts came out all right before this step; those that retire by it, or within
            the step, are passed over.
        span: stream positions that hold every prompt; after as many without one that is left, the step has what it has.
    """
    wanted, threshold = recipe.rollouts.prompts_per_step, recipe.verification.correct_threshold
    drop, full = recipe.selection.drop_constant, recipe.rollouts.per_prompt
    allocation, limit = allocation or uniform(full), recipe.selection.max_rounds if drop else 1
    groups: list[ScoredGroup] = list(carried)
    missing = wanted - len(groups)
    rounds = saved = left = from_savings = 0
    while missing > 0 and (rounds < limit or left >= full):
        asked = ceil(missing * recipe.selection.oversample)
        if rounds >= limit:
            asked = min(asked, left // full)
            left -= asked * full
        gone = retired(count_solved(solved or {}, groups[len(carried) :], threshold), recipe.selection.retire_after)
        prompts, position = next_prompts(prompt_at, position, asked, passed_over=gone, span=span)
        if not prompts:
            break
        key = (recipe.seed, "train", step)
        fresh = _allocated(rollouts, prompts, sampling, allocation, key, rounds, threshold, phases)
        unspent = sum(full - group.group.rollouts for group in fresh)
        from_savings += len(fresh) if rounds >= limit else 0
        groups, saved, left, rounds = [*groups, *fresh], saved + unspent, left + unspent, rounds + 1
        missing = wanted - sum(not is_constant(g, threshold) for g in groups) if drop else 0
    if missing > 0:
        warnings.warn(
            f"step {step}: only {wanted - missing} of {wanted} groups carry signal after {rounds} rounds and "
            f"{len(groups)} prompts; going on with these (more rounds: selection.max_rounds)",
            stacklevel=2,
        )
    return Collected(
        selection=select(groups, wanted=wanted, correct_threshold=threshold, drop_constant=drop),
        drawn=tuple(groups[len(carried) :]),
        position=position,
        rounds=rounds,
        saved=saved,
        prompts_from_savings=from_savings,
    )


def _allocated(
    rollouts: Rollouts,
    prompts: Sequence[Prompt],
    sampling: Sampling,
    allocation: Allocation,
    key: tuple[Key, ...],
    refill: int,
    threshold: float,
    phases: Phases | None,
) -> list[ScoredGroup]:
    """One group per prompt, drawn round by round; those given up have the fate STOPPED.

    The draws of a round depend on its number and the prompt's slot alone, not on what became of other prompts.
    """
    groups: dict[int, ScoredGroup] = {}
    active = list(range(len(prompts)))
    for number, size in enumerate(allocation.rounds):
        requests = [
            SampleRequest(prompt=prompts[slot], rollouts=size, key=(*key, slot, refill, *((number,) if number else ())))
            for slot in active
        ]
        for slot, group in zip(active, rollouts.draw(requests, sampling, phases), strict=True):
            groups[slot] = merge_scored(groups[slot], group) if number else group
        given_up = {slot for slot in active if _given_up(groups[slot], allocation, threshold)}
        groups |= {slot: replace(groups[slot], fate=Fate.STOPPED) for slot in given_up}
        active = [slot for slot in active if slot not in given_up]
        if not active:
            break
    return [groups[slot] for slot in range(len(prompts))]


def _given_up(group: ScoredGroup, allocation: Allocation, threshold: float) -> bool:
    right = group.successes(threshold)
    return stops(allocation, drawn=group.group.rollouts, right=right, wrong=group.scored_rollouts - right)


def next_prompts(
    prompt_at: PromptAt, position: int, wanted: int, *, passed_over: Container[str] = (), span: int | None = None
) -> tuple[list[Prompt], int]:
    """The next prompts but those passed over, and the position after them; fewer once `span` positions hold none."""
    prompts: list[Prompt] = []
    last = position
    while len(prompts) < wanted and (span is None or position - last < span):
        prompt = prompt_at(position)
        position += 1
        if prompt is not None and prompt.id not in passed_over:
            prompts.append(prompt)
            last = position
    return prompts, position
