"""Everything as a function of N: sub-samples of real groups, without replacement, from *all* generated groups.

Groups that dynamic sampling dropped belong in; groups that an adaptive allocation stopped early are not independent
draws and stay out. Intervals are clustered by prompt.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from brorl.group import Fate, RolloutGroup, ScoredGroup
from brorl.seeding import generator
from brorl.theory.groups import GroupMeasure, GroupTable, Masses, measure
from brorl.theory.pass_at_k import Interval, clustered_interval, pass_at_k


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """Means over prompts at one N; None where no prompt, or only one, can be measured."""

    rollouts: int
    prompts: int
    kept_share: Interval
    """groups with both a right and a wrong rollout, exact expectation over sub-samples"""
    pass_at_n: Interval
    distinct_correct: Interval
    """distinct correct responses per group"""
    unseen_mass_good_turing: Interval
    """from counts alone, so measurable for every group"""
    measurable: int
    """prompts whose drawn mass is large enough for the quantities below"""
    p_pos: Interval | None
    """exact mass of drawn correct responses"""
    p_neg: Interval | None
    unseen_mass: Interval | None
    t1_low: Interval | None
    """the terms of the paper's surrogate at their worst case"""
    t2_low: Interval | None
    t3_low: Interval | None
    u2_bound: Interval | None
    u2_estimate: Interval | None
    surrogate_low: Interval | None
    """worst-case change of the correct mass by the paper's surrogate, for a step of size 1"""
    reinforce_low: Interval | None
    certified_share: Interval | None
    """share of groups whose correct mass is certain to grow by the paper's surrogate, to first order"""


def whole_groups(groups: Sequence[ScoredGroup]) -> tuple[list[ScoredGroup], int]:
    """The groups of the commonest N, and how many others (stopped early, or topped up) stay out."""
    independent = [scored for scored in groups if scored.fate is not Fate.STOPPED]
    if not independent:
        return [], len(groups)
    sizes = Counter(scored.group.rollouts for scored in independent)
    common = max(sizes, key=lambda size: (sizes[size], size))
    whole = [scored for scored in independent if scored.group.rollouts == common]
    return whole, len(groups) - len(whole)


def curve(
    tables: Sequence[GroupTable], sizes: Sequence[int], *, draws: int = 8, level: float = 0.95, seed: int = 0
) -> list[CurvePoint]:
    """Measure sub-samples of each size.

    Args:
        tables: one per prompt, from `group_table`; prompts with too few rollouts for a size are left out of it.
        sizes: N, each at least 2; a size that fewer than two prompts reach is left out.
        draws: sub-samples per prompt and size.

    Raises:
        ValueError: a size below 2.
    """
    if any(size < 2 for size in sizes):
        raise ValueError("sub-samples need at least 2 rollouts")
    points = (_point(tables, size, draws, level, seed) for size in sizes)
    return [point for point in points if point is not None]


def by_prompt(prompt_ids: Sequence[str], values: ArrayLike, *, level: float = 0.95) -> Interval:
    """The mean over prompts of per-group values (f64[G]), with an interval clustered by prompt.

    Groups of one prompt, such as those of several steps, are averaged first.

    Raises:
        ValueError: as `clustered_interval`.
    """
    _, index = np.unique(np.asarray(prompt_ids), return_inverse=True)
    sums = np.bincount(index, weights=np.asarray(values, np.float64))
    return clustered_interval(sums / np.bincount(index), level=level)


def node_growth(groups: Sequence[RolloutGroup], *, draws: int = 2, seed: int = 0) -> tuple[float, float]:
    """(nodes of one rollout, alpha) of the law nodes ~ first * N^alpha, for the mean over groups.

    Least squares on log scales through the mean number of nodes at each N: costs follow the mean, which a few prompts
    with many different answers carry, not the typical group.

    Raises:
        ValueError: no group with at least four rollouts and one token.
    """
    found: dict[int, list[float]] = {}
    for index, group in enumerate(groups):
        if group.rollouts < 4 or group.nodes == 0:
            continue
        rng = generator(seed, "node_growth", index, group.prompt.id)
        for size in [1 << i for i in range(group.rollouts.bit_length()) if 1 << i < group.rollouts]:
            found.setdefault(size, []).extend(group.subsample(size, rng).nodes for _ in range(draws))
        found.setdefault(group.rollouts, []).append(group.nodes)
    if not found:
        raise ValueError("the growth of nodes needs a group of at least four rollouts")
    points = [(size, max(float(np.mean(nodes)), 1.0)) for size, nodes in found.items()]
    log_n = np.log(np.array([size for size, _ in points], np.float64))
    log_nodes = np.log(np.array([nodes for _, nodes in points], np.float64))
    centred = log_n - log_n.mean()
    slope = min(max(float(centred @ log_nodes) / float(centred @ centred), 0.0), 1.0)
    return float(np.exp(log_nodes.mean() - slope * log_n.mean())), slope


def _point(tables: Sequence[GroupTable], size: int, draws: int, level: float, seed: int) -> CurvePoint | None:
    counts = [(int(t.counts[t.correct | t.wrong].sum()), int(t.counts[t.correct].sum())) for t in tables]
    large = [i for i, (scorable, _) in enumerate(counts) if scorable >= size]
    ids = [tables[i].prompt_id for i in large]
    if len(set(ids)) < 2:
        return None
    n, c = np.array([counts[i] for i in large]).T
    samples = [_samples(tables[i], size, draws, seed) for i in large]
    # A prompt is measurable by its whole group, so that the same prompts stand behind every N.
    solid = [
        (tables[i].prompt_id, [row.masses for row in rows if row.masses is not None])
        for i, rows in zip(large, samples, strict=True)
        if measure(tables[i]).masses is not None
    ]
    solid_ids = [prompt_id for prompt_id, _ in solid]
    some_right, some_wrong = pass_at_k(n, c, size), pass_at_k(n, n - c, size)

    def over_groups(quantity: Callable[[GroupMeasure], float]) -> Interval:
        return by_prompt(ids, [np.mean([quantity(row) for row in rows]) for rows in samples], level=level)

    def over_masses(quantity: Callable[[Masses], float]) -> Interval | None:
        means = [np.mean([quantity(row) for row in rows]) for _, rows in solid]
        return by_prompt(solid_ids, means, level=level) if len(set(solid_ids)) > 1 else None

    return CurvePoint(
        rollouts=size,
        prompts=len(set(ids)),
        kept_share=by_prompt(ids, some_right + some_wrong - 1.0, level=level),
        pass_at_n=by_prompt(ids, some_right, level=level),
        distinct_correct=over_groups(lambda m: m.distinct_correct),
        unseen_mass_good_turing=over_groups(lambda m: m.unseen_mass_good_turing),
        measurable=len(set(solid_ids)),
        p_pos=over_masses(lambda m: m.p_pos),
        p_neg=over_masses(lambda m: m.p_neg),
        unseen_mass=over_masses(lambda m: m.unseen_mass),
        t1_low=over_masses(lambda m: m.t1.low),
        t2_low=over_masses(lambda m: m.t2.low),
        t3_low=over_masses(lambda m: m.t3.low),
        u2_bound=over_masses(lambda m: m.u2_bound),
        u2_estimate=over_masses(lambda m: m.u2_estimate),
        surrogate_low=over_masses(lambda m: m.surrogate.low),
        reinforce_low=over_masses(lambda m: m.reinforce.low),
        certified_share=over_masses(lambda m: m.certified),
    )


def _samples(table: GroupTable, size: int, draws: int, seed: int) -> list[GroupMeasure]:
    """Sub-samples of `size` scorable rollouts; one where the size is the whole group."""
    scorable = np.where(table.correct | table.wrong, table.counts, 0)
    if int(scorable.sum()) == size:
        return [measure(table, scorable, min_drawn_mass=0.0)]
    rng = generator(seed, "curve", table.prompt_id, size)
    taken = [rng.multivariate_hypergeometric(scorable, size, method="marginals") for _ in range(draws)]
    return [measure(table, counts, min_drawn_mass=0.0) for counts in taken]
