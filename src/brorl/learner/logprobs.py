"""Log-probabilities of trie nodes: one forward pass over a micro-batch, the vocabulary only ever a chunk at a time.

A node's log-normaliser belongs to its parent's distribution, so it is computed once per distinct parent and shared by
all its children, and so is the entropy.
"""

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from brorl.errors import ModelError
from brorl.learner.attention import attention_masks
from brorl.learner.tree import MicroBatch, on_device

LOGIT_ROWS = 512
"""Distributions held at once: (rows, V) is the largest tensor of the output layer."""


def node_logprobs(
    model: PreTrainedModel, batch: MicroBatch, temperature: float, *, logit_rows: int = LOGIT_ROWS
) -> tuple[Tensor, Tensor]:
    """log p(token | prefix) and the entropy of that distribution, for every owned node, at the sampling temperature.

    Args:
        model: a causal language model whose attention takes a 4-D mask.
        batch: rows of tries.
        temperature: logits are divided by it.
        logit_rows: distributions held at once.

    Returns:
        logprobs [n] with gradient where it is enabled, and entropies [n] without, in nats; ordered as `batch.nodes`.
        Where no gradient is enabled, entropies are not computed, and empty.
    """
    hidden = _hidden_states(model, batch)
    sources = on_device(batch.sources, hidden.device)
    rows = hidden.flatten(0, 1)[sources]
    parents = on_device(batch.parents, hidden.device)
    targets = on_device(batch.targets, hidden.device)
    starts = torch.arange(0, max(1, len(rows)), logit_rows)  # an empty row passes the output layer too
    edges = [*torch.searchsorted(torch.from_numpy(batch.parents), starts).tolist(), len(batch.parents)]
    logprobs: list[Tensor] = []
    entropies: list[Tensor] = []
    for start, first, stop in zip(starts.tolist(), edges[:-1], edges[1:], strict=True):
        chunk = (model, rows[start : start + logit_rows], parents[first:stop] - start, targets[first:stop], temperature)
        if torch.is_grad_enabled():
            values, spread = checkpoint(_chunk, *chunk, use_reentrant=False, preserve_rng_state=False)
            entropies.append(spread)
        else:
            values = _distributions(*chunk[:2], temperature)[chunk[2], chunk[3]]
        logprobs.append(values)
    return torch.cat(logprobs), torch.cat(entropies) if entropies else torch.empty(0)


def _chunk(
    model: PreTrainedModel, rows: Tensor, parents: Tensor, targets: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    distributions = _distributions(model, rows, temperature)
    logprobs = distributions[parents, targets]
    # Last, so that the recomputation of the backward pass stops before it.
    with torch.no_grad():
        entropy = -distributions.exp().mul_(distributions).sum(dim=-1)
    return logprobs, entropy[parents]


def _distributions(model: PreTrainedModel, rows: Tensor, temperature: float) -> Tensor:
    """[S, V], log-probabilities."""
    logits = head_logits(model, rows)
    return (logits if temperature == 1.0 else logits / temperature).log_softmax(dim=-1)


def head_logits(model: PreTrainedModel, hidden: Tensor) -> Tensor:
    """[..., V] in float32 at least: the output layer, and Gemma's soft cap where the configuration has one."""
    head = model.get_output_embeddings()
    if head is None:
        raise ModelError(f"{type(model).__name__} has no output layer: load it as a causal language model")
    logits = head(hidden)
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    cap = model.config.to_dict().get("final_logit_softcapping")
    return logits if cap is None else torch.tanh(logits / cap) * cap


def _hidden_states(model: PreTrainedModel, batch: MicroBatch) -> Tensor:
    """[B, T, H], the decoder's last hidden states."""
    device = model.device
    positions = on_device(batch.positions, device)
    masks = attention_masks(model, on_device(batch.last, device), positions)
    decoder: nn.Module = model.get_decoder()
    tokens = on_device(batch.tokens, device)
    output = decoder(input_ids=tokens, attention_mask=masks, position_ids=positions, use_cache=False)
    return output.last_hidden_state
