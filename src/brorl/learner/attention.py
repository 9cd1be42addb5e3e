"""Ancestors-only attention over the rows of a micro-batch, in the form that device and architecture take.

On a CPU it is an additive mask for scaled dot products, taken in blocks of queries: no query sees a later key, so that
half of the keys need not be looked at. On a GPU it is a `BlockMask` for flex_attention, which skips the blocks of other
branches too. (The GPU path was not run here: its masks are tested against the additive ones on a CPU.)
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.flex_attention import flex_attention_forward
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, flex_attention_mask, sdpa_mask

from brorl.errors import ModelError
from brorl.learner.tree import additive_mask, visible

FLEX, BLOCKS = "trie_flex", "trie_blocks"
"""the attention of models on a GPU and on a CPU, by name among transformers' implementations"""

_QUERIES = 256  # in a block
_NARROWEST = 16  # head width of flex_attention's kernels

Mask = Tensor | BlockMask
MaskOf = Callable[[int | None], Mask]
"""the mask of layers with this window; None sees all of the prefix"""


def use_trie_attention(model: PreTrainedModel) -> None:
    """Give the model the attention of its device; on a GPU it then takes a `BlockMask`.

    Models with heads below 16 wide keep additive masks, and so do those whose attention is not scaled dot products.
    """
    config = model.config.get_text_config()
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if model.device.type == "cuda" and width >= _NARROWEST:
        use_flex_attention(model)
    elif config._attn_implementation == "sdpa":
        AttentionInterface.register(BLOCKS, _blocks_of_queries)
        AttentionMaskInterface.register(BLOCKS, sdpa_mask)
        model.set_attn_implementation(BLOCKS)


def use_flex_attention(model: PreTrainedModel) -> None:
    """From now on the model's layers take a `BlockMask`, whatever the device."""
    AttentionInterface.register(FLEX, _flex_attention)
    AttentionMaskInterface.register(FLEX, flex_attention_mask)
    model.set_attn_implementation(FLEX)


def attention_masks(model: PreTrainedModel, last: Tensor, positions: Tensor) -> Mask | dict[str, Mask]:
    """Ancestors-only masks in the form the architecture takes: one, or one per kind of layer.

    Args:
        model: decides the form: additive [B, 1, T, T], or a `BlockMask` after `use_flex_attention`.
        last: i64[B, T] of a `MicroBatch`.
        positions: i64[B, T] of a `MicroBatch`.

    Raises:
        ModelError: layers that mix tokens in another way than full or sliding-window attention.
    """
    config = model.config.to_dict()
    window, kinds = config.get("sliding_window"), set(config.get("layer_types") or ())
    if not kinds <= {"full_attention", "sliding_attention"}:
        raise ModelError(
            f"{config.get('model_type')} has layers of kind {', '.join(sorted(kinds))}; training on a trie needs "
            "full or sliding-window attention: choose a model of another architecture"
        )
    flex = model.get_decoder().config._attn_implementation == FLEX

    def mask(window: int | None) -> Mask:
        if flex:
            return block_mask(last, positions, window)
        return additive_mask(visible(last, positions, window), model.dtype)

    if "sliding_attention" in kinds:
        return {"full_attention": mask(None), "sliding_attention": mask(window)}
    # Without a list of layer kinds, a window applies to all layers (Mistral); with it, to none here.
    return mask(None if kinds else window)


def block_mask(last: Tensor, positions: Tensor, window: int | None = None) -> BlockMask:
    """What `visible` says, as the blocks of 128 x 128 that hold anything seen, and a rule inside them."""

    def seen(row: Tensor, _: Tensor, query: Tensor, key: Tensor) -> Tensor:
        found = (key <= query) & (query < last[row, key])
        return found if window is None else found & (positions[row, query] - positions[row, key] < window)

    rows, length = last.shape
    return create_block_mask(seen, rows, None, length, length, device=last.device)


def _blocks_of_queries(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **settings: Any
) -> tuple[Tensor, None]:
    """Scaled dot products where no query sees a later key, as in every causal mask."""
    length = query.shape[2]
    if attention_mask is None or length <= _QUERIES or key.shape[2] != length:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **settings)
    found: list[Tensor] = []
    for start in range(0, length, _QUERIES):
        stop = min(start + _QUERIES, length)
        mask = attention_mask[:, :, start:stop, :stop]
        block = query[:, :, start:stop], key[:, :, :stop], value[:, :, :stop]
        found.append(sdpa_attention_forward(module, *block, mask, **settings)[0])
    return torch.cat(found, dim=1), None


def _flex_attention(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Mask, **settings: Any
) -> tuple[Tensor, Tensor | None]:
    # Under autocast values come in half precision and rotated queries and keys do not; flex_attention wants one dtype.
    return flex_attention_forward(module, query.to(value.dtype), key.to(value.dtype), value, attention_mask, **settings)
