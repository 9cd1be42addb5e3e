"""Weights of the policy loss: per token of a response, then summed on the edges of the trie.

All weights of an update are computed here once, after all masks and before the update is split into micro-batches or
over ranks, so that the parts of a step only add up (a mean of means would weigh short micro-batches too much).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from brorl.group import RolloutGroup

F64 = NDArray[np.float64]
Array = TypeVar("Array")
"""A NumPy array, or a tensor once the values are on the learner's device."""


def _token_mean(counts: list[F64], lengths: list[F64], _: int | None) -> list[F64]:
    tokens = sum(float(n @ length) for n, length in zip(counts, lengths, strict=True))
    return [(n > 0) / max(tokens, 1.0) for n in counts]


def _sequence_mean(counts: list[F64], lengths: list[F64], _: int | None) -> list[F64]:
    rollouts = sum(float(n.sum()) for n in counts)
    return [(n > 0) / (max(rollouts, 1.0) * np.maximum(length, 1)) for n, length in zip(counts, lengths, strict=True)]


def _prompt_mean(counts: list[F64], lengths: list[F64], _: int | None) -> list[F64]:
    tokens = [float(n @ length) for n, length in zip(counts, lengths, strict=True)]
    groups = sum(t > 0 for t in tokens)
    return [(n > 0) / (max(groups, 1) * max(t, 1.0)) for n, t in zip(counts, tokens, strict=True)]


def _constant(counts: list[F64], _: list[F64], max_new_tokens: int | None) -> list[F64]:
    if max_new_tokens is None or max_new_tokens < 1:
        raise ValueError("aggregation 'constant' divides by max_new_tokens: give the length limit of a response")
    rollouts = sum(float(n.sum()) for n in counts)
    return [(n > 0) / (max(rollouts, 1.0) * max_new_tokens) for n in counts]


AGGREGATIONS: dict[str, Callable[[list[F64], list[F64], int | None], list[F64]]] = {
    "token_mean": _token_mean,
    "sequence_mean": _sequence_mean,
    "prompt_mean": _prompt_mean,
    "constant": _constant,
}


def token_weights(
    groups: Sequence[RolloutGroup],
    aggregation: str,
    *,
    keep: Sequence[NDArray[np.bool_]] | None = None,
    max_new_tokens: int | None = None,
) -> list[F64]:
    """f64[K] per group: the weight w_k of every token of response k, over the groups of one update.

    ``token_mean`` is 1 over all kept response tokens of the update; ``sequence_mean`` the mean over rollouts of the
    mean over tokens; ``prompt_mean`` the mean over groups of the mean over a group's tokens; ``constant`` is
    1 / (rollouts x max_new_tokens), the Dr.GRPO denominator (arXiv 2503.20783).

    Args:
        groups: every group of the update, and no other.
        aggregation: a name in `AGGREGATIONS`.
        keep: bool[K] per group, False for a response that is not trained on (truncated, unscorable). It leaves the
            numerator and the denominator. An empty response has no token and leaves both too.
        max_new_tokens: the length limit, for ``constant`` only.

    Raises:
        ValueError: unknown aggregation, or ``constant`` without a length limit.
    """
    if aggregation not in AGGREGATIONS:
        raise ValueError(f"unknown aggregation {aggregation!r}; there are {', '.join(AGGREGATIONS)}")
    lengths = [group.lengths().astype(np.float64) for group in groups]
    kept = [np.ones(group.distinct, bool) for group in groups] if keep is None else list(keep)
    counts = [
        np.where(mask & (length > 0), group.end_counts, 0).astype(np.float64)
        for group, mask, length in zip(groups, kept, lengths, strict=True)
    ]
    return AGGREGATIONS[aggregation](counts, lengths, max_new_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeWeights:
    """What the policy loss needs to know of the responses that pass through each node."""

    positive: F64
    """f64[M], A+ = sum n_k w_k max(A_k, 0)"""
    negative: F64
    """f64[M], A- = sum n_k w_k min(A_k, 0)"""
    total: F64
    """f64[M], W = sum n_k w_k"""


def edge_weights(group: RolloutGroup, advantages: NDArray[np.floating[Any]], weights: F64) -> EdgeWeights:
    """Sum advantages and weights over the responses through each node (design of the exact loss on the trie).

    Args:
        group: N rollouts as a trie.
        advantages: f64[K]; not read where the weight is 0.
        weights: f64[K] from `token_weights`.

    Raises:
        ValueError: lengths that are not K, or a trained response without a finite advantage.
    """
    share = _shares(group, advantages, weights)
    signed = share * np.where(share > 0, advantages, 0.0)
    sums = sum_through(group, np.stack([np.maximum(signed, 0.0), np.minimum(signed, 0.0), share], axis=1))
    return EdgeWeights(positive=sums[:, 0], negative=sums[:, 1], total=sums[:, 2])


def _shares(group: RolloutGroup, advantages: NDArray[np.floating[Any]], weights: F64) -> F64:
    """f64[K], n_k w_k, checked against the advantages."""
    if len(advantages) != group.distinct or len(weights) != group.distinct:
        raise ValueError(
            f"prompt {group.prompt.id}: {group.distinct} distinct responses need as many advantages "
            f"({len(advantages)}) and weights ({len(weights)})"
        )
    share = group.end_counts * weights
    if not np.isfinite(advantages[share > 0]).all():
        raise ValueError(f"prompt {group.prompt.id}: a response that is trained on has no finite advantage")
    return share


def sum_through(group: RolloutGroup, values: F64) -> F64:
    """f64[M, C], for each node the sum of `values` f64[K, C] over the responses through it."""
    sums = np.zeros((group.nodes, values.shape[1]))
    at_node = group.ends >= 0
    np.add.at(sums, group.ends[at_node], values[at_node])
    depths = group.depths()
    # From the deepest level up. A difference of running sums would be shorter, and leave residues where a sum is 0.
    order = np.argsort(depths, kind="stable")
    for level in reversed(np.split(order, np.flatnonzero(np.diff(depths[order])) + 1)[1:]):
        np.add.at(sums, group.parents[level], sums[level])
    return sums


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceTerms(Generic[Array]):
    """The first pass of a sequence-level loss, as constants on the nodes."""

    coefficients: Array
    """f64[M], sum n_k w_k A_k s_k over the unclipped responses: the gradient with respect to the log-probability"""
    objective: Array
    """f64[M], sum n_k w_k A_k s_k over all responses, the clipped at their bound: the value"""
    ratio: Array
    """f64[M], sum n_k w_k s_k"""
    clipped_high: Array
    """f64[M], sum n_k w_k A_k over responses clipped above"""
    clipped_low: Array
    """f64[M], sum n_k w_k |A_k| over responses clipped below"""
    largest_ratio: Array
    """f64[M], the largest s_k"""


def sequence_terms(
    group: RolloutGroup,
    advantages: NDArray[np.floating[Any]],
    weights: F64,
    log_ratios: NDArray[np.floating[Any]],
    *,
    eps_low: float,
    eps_high: float,
) -> SequenceTerms[F64]:
    """Length-normalised sequence ratios and what they leave on each node (GSPO, arXiv 2507.18071).

    s_k = exp(mean over the path of `log_ratios`). A sub-trie cut changes nothing, because everything a node needs from
    the rest of its responses is in the coefficient.

    Args:
        group: N rollouts as a trie.
        advantages: f64[K]; not read where the weight is 0.
        weights: f64[K] from `token_weights`; being per token, they hold the 1 / L_k of the length normalisation.
        log_ratios: [M], log-probability now less `old_logprobs`.
        eps_low: the ratio is clipped at 1 - eps_low where the advantage is negative.
        eps_high: the ratio is clipped at 1 + eps_high where the advantage is positive.
    """
    share = _shares(group, advantages, weights)
    signed = share * np.where(share > 0, advantages, 0.0)
    means = np.array([log_ratios[path].mean() if len(path) else 0.0 for path in group.paths()], np.float64)
    ratio = np.exp(np.clip(means, -20.0, 20.0))
    high = (signed > 0) & (ratio > 1 + eps_high)
    low = (signed < 0) & (ratio < 1 - eps_low)
    bounded = np.where(high, 1 + eps_high, np.where(low, 1 - eps_low, ratio))
    columns = [signed * ratio * ~(high | low), signed * bounded, share * ratio, signed * high, -signed * low]
    sums = sum_through(group, np.stack(columns, axis=1))
    return SequenceTerms(
        coefficients=sums[:, 0],
        objective=sums[:, 1],
        ratio=sums[:, 2],
        clipped_high=sums[:, 3],
        clipped_low=sums[:, 4],
        largest_ratio=np.full(group.nodes, ratio[share > 0].max(initial=0.0)),
    )
