"""Attention over a shared prompt and a row's own tokens, for any transformers model, exactly.

A row is an open node of a trie. Its keys and values are in two places: those of the prompt, held once for all rows of
the group, and those of its own path, contiguous per row. Scores against both go through one softmax, so the result is
ordinary causal attention. Rows are dense: row r is slot r, and only new branches and the rows that fill holes are
copied when the trie branches.

transformers calls `trie_attention` in place of its own attention, under the name `brorl_trie`, with a `Pass` as the
extra keyword argument `trie`.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AttentionInterface

from brorl.errors import ModelError

ATTENTION = "brorl_trie"


@dataclass(slots=True)
class KeyValues:
    """Keys and values of up to `rows` rows of up to `length` tokens: two tensors [rows, kv heads, length, d] a layer.

    Layers are allocated when the model first writes to them, so that the shape is the model's own business.
    """

    rows: int
    length: int
    zeroed: bool = False
    """whether tokens never written read as zero; otherwise they are whatever the memory held"""
    layers: dict[int, list[Tensor]] = field(default_factory=dict)

    def write(self, layer: int, rows: slice, start: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Store [r, kv heads, q, d] from token `start` on; returns views of those rows from token 0 to the end."""
        if layer not in self.layers:
            self.layers[layer] = [self._empty(key), self._empty(value)]
        end = start + key.shape[2]
        keys, values = (stored[rows, :, :end] for stored in self.layers[layer])
        keys[:, :, start:] = key
        values[:, :, start:] = value
        return keys, values

    def _empty(self, like: Tensor) -> Tensor:
        shape = (self.rows, like.shape[1], self.length, like.shape[3])
        return like.new_zeros(shape) if self.zeroed else like.new_empty(shape)

    def grow(self, rows: int, length: int, *, used_rows: int, used_length: int) -> None:
        """Make room for `rows` rows of `length` tokens, one tensor at a time, keeping the used part."""
        self.rows, self.length = rows, length
        if used_rows == 0 or used_length == 0:
            self.layers.clear()
        for pair in self.layers.values():
            for i in range(len(pair)):
                grown = self._empty(pair[i])
                grown[:used_rows, :, :used_length] = pair[i][:used_rows, :, :used_length]
                pair[i] = grown

    def copy_rows(self, source: NDArray[np.integer[Any]], target: NDArray[np.integer[Any]], length: int) -> None:
        """Copy the first `length` tokens of rows `source` to rows `target`; the two sets are disjoint."""
        if len(source) == 0 or length == 0:
            return
        for pair in self.layers.values():
            device = pair[0].device
            read, write = torch.from_numpy(source).to(device), torch.from_numpy(target).to(device)
            for stored in pair:
                used = stored[:, :, :length]
                used[write] = used[read]

    def bytes_per_token(self) -> int:
        """Bytes that one token of one row takes over all layers written so far."""
        return sum(t.shape[1] * t.shape[3] * t.element_size() for pair in self.layers.values() for t in pair)


@dataclass(frozen=True, slots=True)
class Tiles:
    """Rows of the same group in tiles of `size` rows, so that one batched product meets each group's prompt.

    A tile holds rows of one group only; the empty places of its last tile repeat row 0, and nothing reads them.
    """

    size: int
    rows: Tensor
    """i64[tiles * size], the row in each place"""
    places: Tensor
    """i64[rows], the place of each row"""
    groups: Tensor | None
    """i64[tiles], the group of each tile; None where tile g is group g"""

    @staticmethod
    def of(groups: NDArray[np.integer[Any]], group_count: int, device: torch.device) -> "Tiles":
        """Tiles for rows of the given groups, of a size that wastes little on groups with few rows."""
        sizes = np.bincount(groups, minlength=group_count)
        present = int((sizes > 0).sum())
        size = int(sizes.max())
        if size * present > 2 * len(groups):
            size = 1 << int(np.log2(len(groups) / present) + 0.5)
        tiles = -(-sizes // size)
        if tiles.max() == 1 and 2 * present > group_count:
            tiles[:] = 1  # an empty tile costs less than picking out the other groups' prompts
        order = np.argsort(groups, kind="stable")
        first = (np.cumsum(tiles) - tiles) * size - (np.cumsum(sizes) - sizes)
        place = np.arange(len(groups)) + first[groups[order]]
        places = np.empty(len(groups), np.int64)
        places[order] = place
        rows = np.zeros(int(tiles.sum()) * size, np.int64)
        rows[place] = order
        tile_groups = None
        if (tiles != 1).any():
            tile_groups = torch.from_numpy(np.repeat(np.arange(group_count), tiles)).to(device)
        return Tiles(size, torch.from_numpy(rows).to(device), torch.from_numpy(places).to(device), tile_groups)

    def with_heads(self, heads: int) -> tuple[Tensor, Tensor]:
        """How [rows, heads] becomes [tiles, heads, size], flat, and back."""
        head = torch.arange(heads, device=self.rows.device)
        into = self.rows.view(-1, 1, self.size) * heads + head[:, None]
        tile, within = self.places // self.size, self.places % self.size
        back = (tile[:, None] * heads + head) * self.size + within[:, None]
        return into.flatten(), back.flatten()


@dataclass(slots=True)
class Pass:
    """What attention needs to know in one forward pass: rows `rows` of `cache`, from token `start` of their own."""

    cache: KeyValues
    rows: slice
    start: int
    prompts: KeyValues | None = None
    """keys and values of the groups' prompts; None while the prompts themselves are computed"""
    prompt_lengths: NDArray[np.int64] | None = None
    """i64[groups]"""
    groups: NDArray[np.integer[Any]] | None = None
    """[rows], the group of each row"""
    tiles: Tiles | None = None
    masks: dict[int | None, tuple[Tensor | None, Tensor | None]] = field(default_factory=dict)
    """by sliding window: the mask over prompt tokens and the mask over own tokens"""
    orders: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    """by number of key heads: `Tiles.with_heads`"""


def trie_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    trie: Pass,
    scaling: float,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Causal attention of q new tokens in each of R rows; the signature is that of transformers' AttentionInterface.

    Args:
        query: [R, heads, q, d].
        key: [R, kv heads, q, d], rotated already; `value` likewise.

    Returns:
        [R, q, heads, d], and None for the attention weights.

    Raises:
        ModelError: attention with a soft cap on its scores (Gemma 2), which this does not compute.
    """
    if softcap is not None:
        raise ModelError(f"attn_logit_softcapping = {softcap}: the trie sampler does not support it")
    key, value = trie.cache.write(int(module.layer_idx), trie.rows, trie.start, key, value)  # type: ignore[arg-type]
    if trie.prompts is None:
        out = _prompt_attention(query, key, value, scaling, sliding_window)
    else:
        out = _row_attention(trie, int(module.layer_idx), query, key, value, scaling, sliding_window)  # type: ignore[arg-type]
    return out.transpose(1, 2).contiguous(), None


AttentionInterface.register(ATTENTION, trie_attention)


def _prompt_attention(query: Tensor, key: Tensor, value: Tensor, scaling: float, window: int | None) -> Tensor:
    length = query.shape[2]
    mask = None
    if window is not None and window < length:
        mask = torch.ones(length, length, dtype=torch.bool, device=query.device).tril().triu(1 - window)
    return F.scaled_dot_product_attention(
        query, key, value, mask, is_causal=mask is None, scale=scaling, enable_gqa=query.shape[1] != key.shape[1]
    )


def _row_attention(
    trie: Pass, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float, window: int | None
) -> Tensor:
    assert trie.prompts is not None
    rows, heads, length, d = query.shape
    kv_heads = key.shape[1]
    query = (query * scaling).reshape(rows, kv_heads, -1, d)  # the queries that share a key head, then the q tokens
    if window not in trie.masks:
        trie.masks[window] = _masks(trie, length, window, query)
    prompt_mask, own_mask = trie.masks[window]
    scores = query @ key.transpose(2, 3)
    if own_mask is not None:
        scores.view(rows, kv_heads, -1, length, key.shape[2]).add_(own_mask)
    if trie.prompts.length == 0:
        out = torch.softmax(scores, -1) @ value
        return out.view(rows, heads, length, -1)
    prompt_key, prompt_value = trie.prompts.layers[layer]
    prompt_scores = _in_tiles(trie, query, prompt_key.transpose(2, 3), prompt_mask)
    weights = torch.softmax(torch.cat([prompt_scores, scores], -1), -1)
    prompt_weights, own_weights = weights.split([prompt_key.shape[2], key.shape[2]], -1)
    out = own_weights @ value
    out += _in_tiles(trie, prompt_weights, prompt_value, None)
    return out.view(rows, heads, length, -1)


def _in_tiles(trie: Pass, left: Tensor, right: Tensor, mask: Tensor | None) -> Tensor:
    """Each row's [kv heads, m, x] times its group's [kv heads, x, y]: [R, kv heads, m, y]."""
    tiles = trie.tiles
    assert tiles is not None
    rows, kv_heads, m, x = left.shape
    right = right if tiles.groups is None else right.index_select(0, tiles.groups)
    if kv_heads not in trie.orders:
        trie.orders[kv_heads] = tiles.with_heads(kv_heads)
    into, back = trie.orders[kv_heads]
    product = left.reshape(rows * kv_heads, m * x).index_select(0, into).view(*right.shape[:2], -1, x) @ right
    if mask is not None:
        length = mask.shape[1]
        product.view(len(right), -1, length, product.shape[3]).add_(mask[:, None])
    return product.view(-1, m * product.shape[3]).index_select(0, back).view(rows, kv_heads, m, -1)


def _masks(trie: Pass, length: int, window: int | None, like: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Additive masks: [tiles, q, prompt tokens] and [q, own tokens]; None where everything is visible."""
    assert trie.prompts is not None
    assert trie.prompt_lengths is not None
    assert trie.tiles is not None
    tiles = trie.tiles
    end = trie.start + length
    asking = torch.arange(trie.start, end, device=like.device)
    own = torch.arange(end, device=like.device)
    own_visible = own <= asking[:, None]
    lengths = torch.from_numpy(trie.prompt_lengths).to(like.device)
    lengths = (lengths if tiles.groups is None else lengths[tiles.groups])[:, None, None]
    prompt = torch.arange(trie.prompts.length, device=like.device)
    prompt_visible = (prompt < lengths).expand(-1, length, -1)
    if window is not None:
        own_visible = own_visible & (own > asking[:, None] - window)
        prompt_visible = prompt_visible & (prompt > lengths + asking[:, None] - window)
    return _additive(prompt_visible, like), _additive(own_visible, like)


def _additive(visible: Tensor, like: Tensor) -> Tensor | None:
    if bool(visible.all()):
        return None
    return torch.zeros(visible.shape, dtype=like.dtype, device=like.device).masked_fill_(~visible, -torch.inf)
