"""Dynamic sampling: which groups are trained on, with exact accounting of what was generated and what was kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from brorl.group import Fate, ScoredGroup


def is_constant(group: ScoredGroup, correct_threshold: float = 1.0) -> bool:
    """All scored rollouts right, all wrong, or none scored: the group carries no signal.

    Decided on *correctness*, the unshaped reward against a threshold, so that a length bonus cannot make a hopeless
    prompt look useful. Source: BroRL 4.2, the set B' (0 < number correct < N).
    """
    return group.successes(correct_threshold) in (0, group.scored_rollouts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The groups of one step, each with its fate."""

    trained: tuple[ScoredGroup, ...]
    set_aside: tuple[ScoredGroup, ...]
    """constant, surplus and stopped groups, in prompt order"""


def kept_share(groups: Sequence[ScoredGroup], correct_threshold: float = 1.0) -> float:
    """Share of the rollouts that lie in groups with signal (the paper's Table 2); NaN without groups."""
    total = sum(g.group.rollouts for g in groups)
    kept = sum(g.group.rollouts for g in groups if not is_constant(g, correct_threshold))
    return kept / total if total else float("nan")


def select(
    groups: Sequence[ScoredGroup], *, wanted: int, correct_threshold: float = 1.0, drop_constant: bool = True
) -> Selection:
    """Keep the first `wanted` groups with signal, in the order given (prompt order, never completion order).

    Args:
        groups: those that allocation stopped carry that fate already, and keep it.
        drop_constant: False trains on every group up to `wanted`; a constant group then adds nothing but its KL term.
    """
    trained: list[ScoredGroup] = []
    aside: list[ScoredGroup] = []
    for group in groups:
        if group.fate is Fate.STOPPED:
            aside.append(group)
        elif drop_constant and is_constant(group, correct_threshold):
            aside.append(replace(group, fate=Fate.CONSTANT))
        elif len(trained) < wanted:
            trained.append(replace(group, fate=Fate.TRAINED))
        else:
            aside.append(replace(group, fate=Fate.SURPLUS))
    return Selection(trained=tuple(trained), set_aside=tuple(aside))


def count_solved(
    solved: Mapping[str, int], groups: Sequence[ScoredGroup], correct_threshold: float = 1.0
) -> dict[str, int]:
    """How many times in a row each prompt came out all right, brought up to date with a step's groups, in their order.

    A group that sequential allocation stopped while all of it was right counts; one without a verdict changes nothing.
    """
    counts = dict(solved)
    for group in groups:
        if not group.scored_rollouts:
            continue
        name = group.group.prompt.id
        right = group.successes(correct_threshold) == group.scored_rollouts
        counts[name] = counts.get(name, 0) + 1 if right else 0
    return {name: count for name, count in counts.items() if count}


def retired(solved: Mapping[str, int], retire_after: int | None) -> frozenset[str]:
    """Ids of the prompts that are not drawn any more."""
    return frozenset(name for name, count in solved.items() if retire_after is not None and count >= retire_after)
