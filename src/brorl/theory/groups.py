"""The theory measured on a real group, with "action" read as "whole response".

A group knows the exact probability of every response it drew, so the drawn masses and moments are exact; what was not
drawn is bounded by the trie and estimated by Horvitz-Thompson. Where the drawn mass is negligible, as for long
answers, the quantities that need it are None: not measurable, never a number.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brorl.group import ScoredGroup
from brorl.theory.mass_balance import Moments, reward_levels, surrogate_balance

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

MEASURABLE_MASS = 1e-3
"""Below this drawn mass nothing that rests on it is reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTable:
    """What the measures need of one scored group, computed once: sub-samples only change `counts`."""

    prompt_id: str
    counts: Counts
    """i64[K], rollouts of each distinct response"""
    correct: NDArray[np.bool_]
    """bool[K]"""
    wrong: NDArray[np.bool_]
    """bool[K]; a response that is neither was not scorable"""
    logp: Array | None
    """f64[K], log-probability of each response, -inf for a second ending of the same tokens"""
    ends: NDArray[Any]
    """i[K], end nodes; -1 is the prompt"""
    subtree: Counts
    """i64[M], nodes of each node's subtree, itself included; depth-first order makes it a slice"""
    parents: NDArray[Any]
    """i[M]"""
    node_p2: Array | None
    """f64[M], squared probability of reaching each node"""
    leaving2: Array | None
    """f64[M+1], p(v)^2 undrawn2_v of the prompt and of each node with children; None without `undrawn2`"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A quantity that the group pins down to an interval, since Q_pos is only known to lie in one."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Masses:
    """What rests on response probabilities; all for a step of size 1 with rewards {0, 1} less the group mean."""

    p_pos: float
    """exact mass of drawn correct responses"""
    p_neg: float
    """exact mass of drawn wrong responses"""
    a2: float
    b2: float
    unseen_mass: float
    """1 - mass of everything drawn"""
    q_pos: Range
    """[P_pos, 1 - P_neg] holds the success probability"""
    s_r: float
    t1: Range
    t2: Range
    t3: Range
    """worst and best case over the bound of the undrawn second moment"""
    surrogate: Range
    """change of Q_pos by the paper's surrogate, (T1 + T2 + T3) / N; not the update of the trainer"""
    reinforce: Range
    """change of Q_pos by REINFORCE with the group mean as baseline: the trainer's update to first order; >= 0"""
    u2_bound: float
    """hard bound of the undrawn second moment"""
    u2_estimate: float
    """Horvitz-Thompson, unbiased for E[U_2]"""
    certified: bool
    """T1 + T2 + T3 > 0 in the worst case: the correct mass is certain to grow, to first order, for the surrogate"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMeasure:
    """One group, or one sub-sample of it, measured."""

    prompt_id: str
    rollouts: int
    """scorable rollouts"""
    successes: int
    distinct: int
    distinct_correct: int
    unseen_mass_good_turing: float
    """share of rollouts whose response was drawn once: estimates the unseen mass without log-probabilities"""
    u2_doubletons: float
    """2 f_2 / (N (N - 1)): estimates sum p^2 (1 - p)^(N - 2), a little above E[U_2], without log-probabilities"""
    log_drawn_mass: float | None
    """log of the probability of everything drawn; None without log-probabilities"""
    masses: Masses | None
    """None without log-probabilities, or where the drawn mass is negligible: not measurable"""


def group_table(scored: ScoredGroup, *, correct_threshold: float = 1.0) -> GroupTable:
    """Prepare one scored group; correct means unshaped reward at or above the threshold."""
    group = scored.group
    correct = scored.scorable & (scored.rewards >= correct_threshold)
    logp = node_p2 = leaving2 = None
    if group.logprobs is not None:
        node_logp = _path_sums(group.parents, group.logprobs.astype(np.float64))
        logp = np.append(node_logp, 0.0)[group.ends]
        # One response that ended in two ways (a stop token at the length limit) is one point of the sample space.
        logp[1:][group.ends[1:] == group.ends[:-1]] = -np.inf
        node_p2 = np.exp(2.0 * node_logp)
        if group.undrawn2 is not None:
            inner = np.zeros(group.nodes + 1)
            inner[group.parents + 1] = 1.0
            inner[0] = 1.0
            leaving2 = inner * group.undrawn2.astype(np.float64) * np.append(1.0, node_p2)
    return GroupTable(
        prompt_id=group.prompt.id,
        counts=group.end_counts.astype(np.int64),
        correct=correct,
        wrong=scored.scorable & ~correct,
        logp=logp,
        ends=group.ends,
        subtree=_subtree_sizes(group.parents),
        parents=group.parents,
        node_p2=node_p2,
        leaving2=leaving2,
    )


def measure(
    table: GroupTable, counts: Counts | None = None, *, min_drawn_mass: float = MEASURABLE_MASS
) -> GroupMeasure:
    """Every quantity of one group, or of the sub-sample in which response k was drawn ``counts[k]`` times.

    Args:
        min_drawn_mass: below it `masses` is None.

    Raises:
        ValueError: fewer than two scorable rollouts, or probabilities of drawn responses that sum to more than 1.
    """
    taken = table.counts if counts is None else counts
    seen = taken > 0
    scorable = table.correct | table.wrong
    rollouts, draws = int(taken[scorable].sum()), int(taken.sum())
    if rollouts < 2:
        raise ValueError(f"prompt {table.prompt_id}: {rollouts} scorable rollouts; the measures need at least 2")
    log_drawn = None if table.logp is None else float(np.logaddexp.reduce(table.logp[seen]))
    measurable = log_drawn is not None and np.exp(log_drawn) >= min_drawn_mass
    return GroupMeasure(
        prompt_id=table.prompt_id,
        rollouts=rollouts,
        successes=int(taken[table.correct].sum()),
        distinct=int(seen.sum()),
        distinct_correct=int((seen & table.correct).sum()),
        unseen_mass_good_turing=float((taken == 1).sum()) / draws,
        u2_doubletons=2.0 * float((taken == 2).sum()) / (draws * (draws - 1)),
        log_drawn_mass=log_drawn,
        masses=_masses(table, taken, rollouts, draws) if measurable else None,
    )


def undrawn_second_moment_from_trie(table: GroupTable, counts: Counts) -> float | None:
    """The hard bound U_2 <= sum_v p(v)^2 undrawn2_v of a sub-sample; None where the group records no `undrawn2`.

    Every undrawn response leaves the trie at one visited node, and those that leave by one token weigh at most the
    square of that token's path probability. A child that the sub-sample lost is such a token.
    """
    if table.leaving2 is None or table.node_p2 is None:
        return None
    size = len(table.parents)
    ending = np.zeros(size + 1, np.int64)
    np.add.at(ending, table.ends[table.ends >= 0] + 1, counts[table.ends >= 0])
    passed = np.cumsum(ending)
    first = np.arange(size)
    alive = np.append(True, passed[first + table.subtree] - passed[first] > 0)  # the prompt first
    lost = ~alive[1:] & alive[table.parents + 1]
    return float(table.leaving2[alive].sum() + table.node_p2[lost].sum())


def undrawn_second_moment_estimate(p: Array, draws: int) -> float:
    """Horvitz-Thompson: sum over drawn responses of p^2 (1 - p)^N / (1 - (1 - p)^N), unbiased for E[U_2].

    Args:
        p: f64[D], exact probabilities of the distinct responses drawn.
        draws: N.
    """
    positive = p[p > 0]
    with np.errstate(divide="ignore"):
        log_miss = draws * np.log1p(-np.minimum(positive, 1.0))
    return float((positive**2 * np.exp(log_miss) / -np.expm1(log_miss)).sum())


def disjoint_pair(scored: ScoredGroup, size: int, rng: np.random.Generator) -> tuple[ScoredGroup, ScoredGroup]:
    """Two disjoint sub-samples of `size` rollouts each, for gradients whose agreement is the signal-to-noise ratio.

    Raises:
        ValueError: fewer than 2 `size` rollouts.
    """
    counts = scored.group.end_counts.astype(np.int64)
    if size < 1 or 2 * size > counts.sum():
        raise ValueError(f"two disjoint sets of {size} rollouts need {2 * size}, the group has {int(counts.sum())}")
    first = rng.multivariate_hypergeometric(counts, size, method="marginals")
    second = rng.multivariate_hypergeometric(counts - first, size, method="marginals")
    return take_scored(scored, first), take_scored(scored, second)


def take_scored(scored: ScoredGroup, counts: Counts) -> ScoredGroup:
    """The scored group in which response k has ``counts[k]`` of its rollouts."""
    present = counts > 0
    return replace(
        scored,
        group=scored.group.take(counts.astype(np.int32)),
        rewards=scored.rewards[present],
        outcomes=scored.outcomes[present],
        parts={name: values[present] for name, values in scored.parts.items()},
    )


def _masses(table: GroupTable, taken: Counts, rollouts: int, draws: int) -> Masses:
    assert table.logp is not None
    seen = taken > 0
    p = np.exp(table.logp)
    right, wrong, unscorable = seen & table.correct, seen & table.wrong, seen & ~(table.correct | table.wrong)
    p_pos, p_neg, p_other = float(p[right].sum()), float(p[wrong].sum()), float(p[unscorable].sum())
    unseen = 1.0 - p_pos - p_neg - p_other
    if unseen < -1e-2:  # more than rounding and engines whose copies of one prefix differ
        raise ValueError(f"prompt {table.prompt_id}: probabilities of drawn responses sum to {1 - unseen:.6g}, above 1")
    unseen = max(unseen, 0.0)
    trie_bound = undrawn_second_moment_from_trie(table, taken)
    undrawn2 = unseen * unseen if trie_bound is None else trie_bound
    # Responses without a verdict were drawn, but for the balance they are as good as undrawn: reward 0, side unknown.
    loose2 = undrawn2 + float((p[unscorable] ** 2).sum())
    r_c, r_w = (float(level) for level in reward_levels(int(taken[table.correct].sum()), rollouts))
    q_pos = Range(low=min(p_pos, 1.0), high=max(min(1.0 - p_neg, 1.0), p_pos))
    a2, b2 = float((p[right] ** 2).sum()), float((p[wrong] ** 2).sum())
    # Every term is linear in Q_pos and in the two undrawn moments, so its extremes lie at the corners.
    q = np.array([q_pos.low, q_pos.low, q_pos.high, q_pos.high])
    u_pos2 = np.array([loose2, 0.0, loose2, 0.0])
    corners = surrogate_balance(
        Moments(
            p_pos=np.full(4, p_pos),
            p_neg=np.full(4, p_neg),
            q_pos=q,
            q_neg=1.0 - q,
            a2=np.full(4, a2),
            b2=np.full(4, b2),
            u_pos2=u_pos2,
            u_neg2=loose2 - u_pos2,
        ),
        r_correct=r_c,
        r_wrong=r_w,
        rollouts=rollouts,
    )
    push_right = r_c * float((p * taken)[right].sum()) / rollouts
    push_wrong = -r_w * float((p * taken)[wrong].sum()) / rollouts
    return Masses(
        p_pos=p_pos,
        p_neg=p_neg,
        a2=a2,
        b2=b2,
        unseen_mass=unseen,
        q_pos=q_pos,
        s_r=float(corners.s_r[0]),
        t1=_range(corners.t1),
        t2=_range(corners.t2),
        t3=_range(corners.t3),
        surrogate=_range(corners.delta),
        reinforce=_range((1.0 - q) * push_right + q * push_wrong),
        u2_bound=undrawn2,
        u2_estimate=undrawn_second_moment_estimate(p[seen], draws),
        certified=bool(corners.delta.min() > 0.0),
    )


def _range(corners: Array) -> Range:
    return Range(low=float(corners.min()), high=float(corners.max()))


def _path_sums(parents: NDArray[Any], values: Array) -> Array:
    sums = values.copy()
    for i, parent in enumerate(parents.tolist()):
        if parent >= 0:
            sums[i] += sums[parent]
    return sums


def _subtree_sizes(parents: NDArray[Any]) -> Counts:
    sizes = np.ones(len(parents), np.int64)
    for i in range(len(parents) - 1, -1, -1):
        if parents[i] >= 0:
            sizes[parents[i]] += sizes[i]
    return sizes
