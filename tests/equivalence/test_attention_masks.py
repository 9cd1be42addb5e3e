"""flex_attention's `BlockMask`, which GPUs take, says what the additive mask says, and attends alike."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import BlockMask, create_mask, flex_attention

from brorl.group import Prompt, RolloutGroup
from brorl.learner.attention import (
    BLOCKS,
    FLEX,
    attention_masks,
    block_mask,
    use_flex_attention,
    use_trie_attention,
)
from brorl.learner.logprobs import node_logprobs
from brorl.learner.tree import MicroBatch, additive_mask, micro_batches, visible
from tiny_models import ARCHITECTURES, tiny_model

ROWS = st.lists(st.lists(st.integers(0, 3), max_size=12), min_size=1, max_size=12)
GROUPS = st.lists(st.tuples(st.integers(1, 6), ROWS), min_size=1, max_size=4)


def batches(raw: list[tuple[int, list[list[int]]]], max_nodes: int) -> list[MicroBatch]:
    groups = [
        RolloutGroup.from_sequences(Prompt(id=str(i), text="", token_ids=np.arange(length, dtype=np.int32)), rows)
        for i, (length, rows) in enumerate(raw)
    ]
    return micro_batches(groups, max_nodes, 64)


@settings(deadline=None, max_examples=30)
@given(GROUPS, st.integers(1, 20), st.sampled_from([None, 1, 3]))
def test_it_sees_what_the_mask_sees(raw: list[tuple[int, list[list[int]]]], max_nodes: int, window: int | None) -> None:
    for batch in batches(raw, max_nodes):
        last, positions = torch.from_numpy(batch.last), torch.from_numpy(batch.positions)
        mask = block_mask(last, positions, window)
        rows, length = last.shape
        assert mask.shape == (rows, 1, length, length)
        dense = create_mask(mask.mask_mod, rows, 1, length, length, device="cpu")
        assert torch.equal(dense[:, 0], visible(last, positions, window))


def long_batch() -> MicroBatch:
    """Rows of several blocks of 128."""
    rng = np.random.Generator(np.random.Philox(key=3))
    rows = [rng.integers(0, 4, 40).tolist() for _ in range(40)]
    batch = batches([(50, rows)], 400)[0]
    assert batch.tokens.shape[1] > 256
    return batch


@pytest.mark.parametrize("window", [None, 20])
def test_attention_is_the_same(window: int | None) -> None:
    batch = long_batch()
    last, positions = torch.from_numpy(batch.last), torch.from_numpy(batch.positions)
    generator = torch.Generator().manual_seed(0)
    query, key, value = torch.randn(3, len(last), 4, last.shape[1], 16, generator=generator)
    expected = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=additive_mask(visible(last, positions, window), torch.float32)
    )
    found = flex_attention(query, key, value, block_mask=block_mask(last, positions, window))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_blocks_of_other_branches_are_skipped() -> None:
    branches = [[first, *[3] * 255] for first in range(4)]  # two blocks each
    batch = batches([(128, branches)], 2000)[0]
    mask = block_mask(torch.from_numpy(batch.last), torch.from_numpy(batch.positions))
    assert batch.tokens.shape[1] == 128 + 4 * 255  # leaves take no place
    assert mask.full_kv_num_blocks is not None
    computed = int(mask.kv_num_blocks.sum()) + int(mask.full_kv_num_blocks.sum())
    assert computed <= 27  # of the 45 on and below the diagonal


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_model_takes_the_form_of_its_attention(architecture: str) -> None:
    batch = long_batch()
    last, positions = torch.from_numpy(batch.last), torch.from_numpy(batch.positions)
    model = tiny_model(architecture, width=64)
    dense = attention_masks(model, last, positions)
    use_flex_attention(model)
    flex = attention_masks(model, last, positions)
    assert model.get_decoder().config._attn_implementation == FLEX
    kinds = {"all": (flex, dense)}
    if isinstance(flex, dict) and isinstance(dense, dict):
        kinds = {kind: (flex[kind], dense[kind]) for kind in dense}
    for blocks, additive in kinds.values():
        assert isinstance(blocks, BlockMask)
        assert isinstance(additive, torch.Tensor)
        seen = create_mask(blocks.mask_mod, *blocks.shape[:2], *last.shape[1:] * 2, device="cpu")
        assert torch.equal(seen, additive.eq(0))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_blocks_of_queries_are_the_whole(architecture: str) -> None:
    """Log-probabilities and gradient of rows longer than a block, in float64."""
    batch = long_batch()
    found: list[tuple[torch.Tensor, list[torch.Tensor]]] = []
    for in_blocks in (False, True):
        model = tiny_model(architecture, vocab_size=64, dtype=torch.float64, width=64)
        if in_blocks:
            use_trie_attention(model)
            assert model.get_decoder().config._attn_implementation == BLOCKS
        logprobs, _ = node_logprobs(model, batch, 1.0)
        logprobs.square().sum().backward()
        found.append((logprobs.detach(), [p.grad for p in model.parameters() if p.grad is not None]))
    (plain, gradients), (blocks, gradients_of_blocks) = found
    torch.testing.assert_close(blocks, plain, rtol=0, atol=1e-12)
    for one, other in zip(gradients_of_blocks, gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
