"""The supervised warm-up: next-token training on worked examples, loss on the response only."""

import math
from collections.abc import Iterator, Sequence

import torch
from tiny_tokenizer import EOS, PAD
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from brorl.seeding import derive_seed, generator

Row = tuple[list[int], int]
"""token ids of prompt and response, and the length of the prompt"""


def new_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> LlamaForCausalLM:
    """A random Llama of about a million parameters."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=256,
        initializer_range=0.08,  # about 1 / sqrt(hidden size); the usual 0.02 learns slowly at this width
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.convert_tokens_to_ids(EOS),
        pad_token_id=tokenizer.convert_tokens_to_ids(PAD),  # type: ignore[arg-type]
    )
    with torch.random.fork_rng():
        torch.manual_seed(derive_seed(seed, "weights"))
        return LlamaForCausalLM(config)


def encode(tokenizer: PreTrainedTokenizerFast, pairs: Sequence[tuple[str, str]]) -> list[Row]:
    """Rows of (question, newline, response, stop token)."""
    prompts = tokenizer([question + "\n" for question, _ in pairs], add_special_tokens=False)["input_ids"]
    responses = tokenizer([text for _, text in pairs], add_special_tokens=False)["input_ids"]
    return [(p + r + [tokenizer.eos_token_id], len(p)) for p, r in zip(prompts, responses, strict=True)]  # type: ignore[operator]


WINDOW = 32
"""batches are cut from windows of this many, sorted by length: little padding, the order of the rows nearly kept"""


def batches(rows: Sequence[Row], size: int, seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Batches of rows of like length: ids i64[size, T] padded at the end, targets with -100 on prompt and padding."""
    rng = generator(seed, "batches")
    for first in range(0, len(rows) - size + 1, WINDOW * size):
        window = sorted(rows[first : first + WINDOW * size], key=lambda row: len(row[0]))
        for start in (rng.permutation(len(window) // size) * size).tolist():
            chosen = window[start : start + size]
            width = max(len(ids) for ids, _ in chosen)
            ids = torch.zeros(size, width, dtype=torch.long)
            targets = torch.full((size, width), -100)
            for i, (row, prompt) in enumerate(chosen):
                ids[i, : len(row)] = torch.tensor(row)
                targets[i, prompt : len(row)] = ids[i, prompt : len(row)]
            yield ids, targets


def train(model: LlamaForCausalLM, rows: Sequence[Row], *, batch: int, peak: float, seed: int) -> Iterator[float]:
    """One pass over `rows`: AdamW, linear warm-up of 5 %, cosine to a tenth. Yields the loss of each step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    steps = len(rows) // batch
    for step, (ids, targets) in enumerate(batches(rows, batch, seed)):
        progress = step / steps
        rate = peak * min(progress / 0.05, 0.1 + 0.9 * (1 + math.cos(math.pi * progress)) / 2)
        for group in optimizer.param_groups:
            group["lr"] = rate
        logits = model(ids).logits[:, :-1]
        loss = functional.cross_entropy(logits.flatten(0, 1), targets[:, 1:].flatten(), ignore_index=-100)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        yield float(loss.detach())
