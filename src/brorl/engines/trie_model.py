"""A causal language model, evaluated at the nodes of tries instead of on sequences."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from brorl.engines.frontier import Frontier, Ints
from brorl.engines.trie_attention import ATTENTION, KeyValues, Pass, Tiles
from brorl.errors import ModelError

_PASS_TOKENS = 2048  # in one forward pass
_PASS_ELEMENTS = 2**24  # of logits, or of attention scores, in one forward pass


class TrieModel:
    """Forward passes of a transformers model over prompts and over frontiers.

    The model's attention implementation and training mode are as before whenever no pass is under way.

    Args:
        model: a causal language model.
        compute_dtype: of matrix products, by autocast; None is that of the weights.

    Raises:
        ModelError: the logits differ from those of the model's own forward pass, in a short check.
    """

    def __init__(self, model: PreTrainedModel, compute_dtype: torch.dtype | None = None) -> None:
        self.model = model
        self.compute_dtype = compute_dtype
        self.bytes_per_token = _check_exactness(self)
        """Bytes of keys and values that one token takes over all layers."""

    @torch.inference_mode()
    def prompt_cache(self, prompts: list[Ints]) -> KeyValues:
        """Keys and values of prompts, which are in order of length (0 allowed)."""
        longest = len(prompts[-1])
        cache = KeyValues(len(prompts), longest, zeroed=True)
        start = next((i for i, ids in enumerate(prompts) if len(ids)), len(prompts))
        while start < len(prompts):
            end = start + 1
            while end < len(prompts) and (end + 1 - start) * len(prompts[end]) <= _PASS_TOKENS:
                end += 1
            ids = np.zeros((end - start, len(prompts[end - 1])), np.int64)
            for row, prompt in enumerate(prompts[start:end]):
                ids[row, : len(prompt)] = prompt
            positions = np.tile(np.arange(ids.shape[1]), (len(ids), 1))
            self._forward(ids, positions, Pass(cache, slice(start, end), 0), logits=False)
            start = end
        return cache

    def _forward(self, tokens: Ints, positions: Ints, trie: Pass, *, logits: bool) -> Tensor:
        """[R, V], the logits after each row's last token; without `logits`, only keys and values are computed."""
        model = self.model
        device = model.device
        inputs = {
            "input_ids": torch.from_numpy(tokens).to(device),
            "position_ids": torch.from_numpy(positions).to(device),
            "use_cache": False,
            "trie": trie,
        }
        with _trie_attention_of(model), self.autocast():
            if not logits:
                return model.get_decoder()(**inputs).last_hidden_state
            last = model(**inputs, logits_to_keep=1).logits[:, -1]
            return last if self.compute_dtype is None else last.float()

    def autocast(self) -> AbstractContextManager[object]:
        """The context in which the model computes."""
        dtype = self.compute_dtype
        return nullcontext() if dtype is None else torch.autocast(self.model.device.type, dtype=dtype)

    def row_logits(
        self, frontier: Frontier, cached: int, cache: KeyValues, prompts: KeyValues, prompt_lengths: Ints
    ) -> Iterator[tuple[slice, Tensor]]:
        """The logits [r, V] at each node of the frontier, some rows at a time.

        Row r is slot r of `cache`, which holds the first `cached` tokens of each path and then all of them.
        """
        config = self.model.config.get_text_config()
        new = frontier.length - cached
        scores = config.num_attention_heads * new * (frontier.length + prompts.length)
        step = max(1, min(_PASS_TOKENS // new, _PASS_ELEMENTS // max(scores, config.vocab_size)))
        for start in range(0, len(frontier), step):
            rows = slice(start, min(start + step, len(frontier)))
            groups = frontier.groups[rows]
            trie = Pass(
                cache,
                rows,
                cached,
                prompts=prompts,
                prompt_lengths=prompt_lengths,
                groups=groups,
                tiles=Tiles.of(groups, len(prompt_lengths), self.model.device),
            )
            positions = prompt_lengths[groups][:, None] + np.arange(cached, frontier.length)
            yield rows, self._forward(frontier.paths[rows, cached:], positions, trie, logits=True)


@contextmanager
def _trie_attention_of(model: PreTrainedModel) -> Iterator[None]:
    """The model in evaluation mode with the trie's attention; afterwards everything is as it was."""
    config = model.get_decoder().config
    implementation, training = config._attn_implementation, model.training
    config._attn_implementation = ATTENTION
    if training:
        model.eval()
    try:
        yield
    finally:
        config._attn_implementation = implementation
        if training:
            model.train()


@torch.inference_mode()
def _check_exactness(trie: TrieModel) -> int:
    """Compare the engine's logits with the model's own on two short prompts; returns bytes per token of the cache."""
    model = trie.model
    config = model.config.get_text_config()
    rng = np.random.Generator(np.random.Philox(key=0))
    ids = rng.integers(0, config.vocab_size, (2, 12))
    prompt_lengths = np.array([4, 7])
    paths = np.stack([ids[0, 4:9], ids[1, 7:12]])
    device_ids = torch.from_numpy(ids).to(model.device)
    training = model.training
    model.eval()
    with trie.autocast():
        expected = torch.stack([model(device_ids[:1, :9]).logits[0, -2:], model(device_ids[1:]).logits[0, -2:]])
    model.train(training)
    prompts = trie.prompt_cache([ids[0, :4], ids[1, :7]])
    if not prompts.layers:
        raise ModelError(
            f"{type(model).__name__}: its attention does not go through transformers' AttentionInterface, "
            "so the local engine cannot sample from it"
        )
    cache = KeyValues(2, 5)
    rows = np.arange(2)
    got: list[Tensor] = []
    for cached, length in ((0, 4), (4, 5)):  # some tokens at once, then one more
        frontier = Frontier(
            groups=rows, nodes=rows, counts=rows, hashes=rows.astype(np.uint64), paths=paths[:, :length]
        )
        got += [logits for _, logits in trie.row_logits(frontier, cached, cache, prompts, prompt_lengths)]
    worst = float((torch.stack(got, 1) - expected).abs().max())
    allowed = torch.finfo(trie.compute_dtype or expected.dtype).eps ** 0.5 * max(1.0, float(expected.abs().max()))
    if not worst <= allowed:
        raise ModelError(
            f"{type(model).__name__}: the local engine's logits differ from the model's by {worst:.2g} "
            f"(allowed {allowed:.2g}), so it would not sample from this model's distribution"
        )
    return cache.bytes_per_token()
