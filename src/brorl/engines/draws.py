"""Draws from next-token distributions: N samples at a node in one go, with randomness that depends on the node alone.

A node is named by a 64-bit hash of its request's key and its path. Draw j at a node uses the j-th output of SplitMix64
(Steele, Lea and Flood, OOPSLA 2014) started at that hash, so it does not matter what else is in the batch, in which
order nodes are visited, or how the batch is cut.

Probabilities become integer weights in units of 2^-50. Integer sums are exact in any order, so one flat cumulative
array serves every row of a chunk, and a token of weight zero can never be drawn.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from brorl.engines.protocol import Sampling
from brorl.errors import RunError

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_CHILD = np.uint64(0xD1B54A32D192ED03)
_UNIT = 2.0**50
_ROW_SHIFT = 51  # a row's weights sum to about 2^50; 12 bits are left for the row
_CHUNK_ROWS = 4096
_CHUNK_ELEMENTS = 2**20


def mix(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The SplitMix64 output function, elementwise: a bijection of 64-bit words that spreads every input bit."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def child_hashes(parents: NDArray[np.uint64], tokens: NDArray[np.integer[Any]]) -> NDArray[np.uint64]:
    """u64[R], the hash of each child from its parent's hash and its token."""
    return mix(mix(parents ^ _CHILD) + (tokens.astype(np.uint64) + np.uint64(1)) * _GOLDEN)


def uniforms(hashes: NDArray[np.uint64], counts: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
    """f64[sum of counts] in [0, 1) on a grid of 2^-53: `counts[r]` numbers for row r, row after row."""
    ends = np.cumsum(counts)
    draw = np.arange(1, ends[-1] + 1) - np.repeat(ends - counts, counts)
    words = mix(np.repeat(hashes, counts) + draw.astype(np.uint64) * _GOLDEN)
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """What was drawn at R nodes: one entry for each distinct (node, token), sorted by node, then token."""

    rows: NDArray[np.int64]
    """i64[C], in 0..R-1, non-decreasing"""
    tokens: NDArray[np.int64]
    """i64[C]"""
    counts: NDArray[np.int64]
    """i64[C]"""
    logprobs: NDArray[np.floating[Any]]
    """[C], log p of the token under the distribution drawn from; float64 for float64 logits, else float32"""
    undrawn2: NDArray[np.floating[Any]]
    """[R], sum of p^2 over the tokens not drawn at the node"""


def draw(
    logits: Tensor,
    counts: NDArray[np.integer[Any]],
    hashes: NDArray[np.uint64],
    sampling: Sampling,
    *,
    first_row: int = 0,
) -> Draws:
    """Draw `counts[r]` tokens from softmax(logits[r] / temperature), truncated by top-k and then top-p.

    Args:
        logits: [R, V].
        counts: [R], at least 1 each.
        hashes: u64[R], the names of the nodes.
        first_row: added to the row numbers of the result, where these are rows of a larger whole.

    Raises:
        RunError: logits that are not numbers.
    """
    rows = max(1, min(_CHUNK_ROWS, _CHUNK_ELEMENTS // logits.shape[1]))
    starts = range(0, len(logits), rows)
    parts = [
        _draw_chunk(logits[i : i + rows], counts[i : i + rows], hashes[i : i + rows], sampling, first_row + i)
        for i in starts
    ]
    return parts[0] if len(parts) == 1 else concatenate(parts)


def concatenate(parts: list[Draws]) -> Draws:
    """Draws of consecutive chunks of rows as one (row numbers are already those of the whole)."""
    return Draws(
        rows=np.concatenate([part.rows for part in parts]),
        tokens=np.concatenate([part.tokens for part in parts]),
        counts=np.concatenate([part.counts for part in parts]),
        logprobs=np.concatenate([part.logprobs for part in parts]),
        undrawn2=np.concatenate([part.undrawn2 for part in parts]),
    )


def _draw_chunk(
    logits: Tensor,
    counts: NDArray[np.integer[Any]],
    hashes: NDArray[np.uint64],
    sampling: Sampling,
    first_row: int,
) -> Draws:
    size = logits.shape[1]
    probabilities = _probabilities(logits, sampling)
    flat, totals = _cumulative_weights(probabilities)
    row_of_draw = np.repeat(np.arange(len(counts)), counts)
    within = (uniforms(hashes, counts) * totals[row_of_draw]).astype(np.int64)
    targets = (row_of_draw << _ROW_SHIFT) + np.minimum(within, totals[row_of_draw] - 1)
    found = torch.searchsorted(flat, torch.from_numpy(targets).to(flat.device), right=True)
    places, drawn_counts = np.unique(found.cpu().numpy(), return_counts=True)
    rows, tokens = np.divmod(places, size)
    drawn = torch.from_numpy(places).to(flat.device)
    drawn_probabilities = probabilities.view(-1)[drawn]
    # The drawn ones are zeroed and the rest summed: a difference of two sums near 1 would cancel.
    probabilities.view(-1)[drawn] = 0
    return Draws(
        rows=rows + first_row,
        tokens=tokens,
        counts=drawn_counts,
        logprobs=drawn_probabilities.log().cpu().numpy(),
        undrawn2=probabilities.square_().sum(-1).cpu().numpy(),
    )


def _probabilities(logits: Tensor, sampling: Sampling) -> Tensor:
    """[rows, V], the distribution that is drawn from, in float64 or float32."""
    logits = logits if logits.dtype == torch.float64 else logits.float()
    if sampling.temperature != 1.0:
        logits = logits / sampling.temperature
    probabilities = torch.softmax(logits, -1)
    if sampling.top_k > 0 or sampling.top_p < 1.0:
        probabilities = _truncated(probabilities, sampling.top_k, sampling.top_p)
    return probabilities


def _truncated(probabilities: Tensor, top_k: int, top_p: float) -> Tensor:
    """The `top_k` likeliest tokens, of those the fewest that hold `top_p` of their mass, made to sum to one."""
    ordered, tokens = torch.sort(probabilities, dim=-1, descending=True, stable=True)
    if top_k > 0:
        ordered[:, top_k:] = 0
        ordered /= ordered.sum(-1, keepdim=True)
    if top_p < 1.0:
        before = ordered.cumsum(-1) - ordered
        ordered[before >= top_p] = 0
        ordered /= ordered.sum(-1, keepdim=True)
    return torch.zeros_like(probabilities).scatter_(-1, tokens, ordered)


def _cumulative_weights(probabilities: Tensor) -> tuple[Tensor, NDArray[np.int64]]:
    """i64[rows * V], increasing over all rows (row r is shifted by r * 2^51), and i64[rows], the sum of each row."""
    weights = (probabilities * _UNIT).to(torch.int64)
    shift = torch.arange(len(weights), device=weights.device) << _ROW_SHIFT
    weights[:, 0] += shift
    cumulative = torch.cumsum(weights, -1, out=weights)
    totals = (cumulative[:, -1] - shift).cpu().numpy()
    if (np.abs(totals - _UNIT) > 0.01 * _UNIT).any():
        raise RunError(
            "sampling: the model's next-token distribution is not finite (NaN or infinite logits). "
            "The weights may be damaged, or training may have diverged."
        )
    return cumulative.view(-1), totals
