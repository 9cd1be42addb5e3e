"""The in-process engine: exact sampling on the trie with any Hugging Face causal language model.

All open nodes of all prompts in flight make one forward pass. A node through which c rollouts pass draws c tokens from
its next-token distribution at once and opens one child per distinct token; this is the distribution of c independent
rollouts, exactly, at the cost of distinct prefixes.

Keys and values in flight stay within a budget. When the frontier outgrows it, whole groups first go on, and the rest is
parked without keys and values, which are computed again from the tokens when its turn comes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from brorl.engines.draws import Draws, concatenate, draw
from brorl.engines.frontier import Frontier, Ints, Record, Slots, as_group
from brorl.engines.protocol import SampleRequest, Sampling
from brorl.engines.trie_attention import KeyValues
from brorl.engines.trie_model import TrieModel
from brorl.errors import DataError, ModelError
from brorl.group import RolloutGroup
from brorl.seeding import derive_seed

_FIRST_LENGTH = 16  # tokens per row that the cache starts with; it doubles from there
_KEPT_ROWS = 512  # rows that keep a forward pass busy, where memory for whole responses is scarce


@dataclass(slots=True)
class _Flight:
    """Groups that are sampled together."""

    requests: list[tuple[int, SampleRequest]]
    prompts: KeyValues
    prompt_lengths: Ints
    """i64[groups], tokens held in `prompts`: all but the last prompt token"""
    capacity: int
    """tokens of rows that may be held at once"""
    record: Record
    open_rows: Ints
    """i64[groups], open nodes, parked ones included"""
    parked: list[Frontier]
    cache: KeyValues = field(default_factory=lambda: KeyValues(0, 0))
    active: Frontier | None = None
    cached: int = 0
    """tokens of the active paths that are in the cache"""


class LocalEngine:
    """A `RolloutEngine` on an in-process model, which it may share with a learner.

    Args:
        model: any causal language model of transformers whose attention goes through its `AttentionInterface`. Its
            attention implementation and training mode are as before whenever the engine is not computing.
        kv_budget_mib: memory for keys and values, prompts included, in MiB. Results do not depend on it; one row and
            one prompt are always allowed.
        policy_version: version of the weights that the model holds now.
        compute_dtype: of matrix products, by autocast, as the learner's; None is that of the weights.

    Raises:
        ModelError: the model's logits differ from those of its own forward pass, in a short check.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        kv_budget_mib: float = 1024,
        policy_version: int = 0,
        compute_dtype: torch.dtype | None = None,
    ) -> None:
        self.model = model
        self._policy_version = policy_version
        self._trie = TrieModel(model, compute_dtype)
        self._capacity = int(kv_budget_mib * 2**20) // self._trie.bytes_per_token

    @property
    def policy_version(self) -> int:
        """Version of the weights in use."""
        return self._policy_version

    def sample(self, requests: Sequence[SampleRequest], sampling: Sampling) -> Iterator[tuple[int, RolloutGroup]]:
        """Yield (index into `requests`, group) as groups complete.

        Raises:
            ValueError: a request or a sampling setting that makes no sense.
            DataError: a prompt without tokens, or longer than the model's context.
            RunError: logits that are not numbers.
            RuntimeError: new weights were loaded before the last group was taken.
        """
        _check_sampling(sampling)
        for request in requests:
            _check_request(request, sampling, self.model.config.get_text_config().to_dict())
        return self._sample(requests, sampling)

    def load_weights(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Use these weights, named as in the model's `state_dict`, for every request from now on.

        Tensors that are the model's own are left alone; others replace the model's without a copy, unless dtype or
        device differ. Tied weights stay tied, and may be missing.

        Raises:
            ModelError: names or shapes that are not the model's; nothing is loaded then.
        """
        own = self.model.state_dict()
        _check_weights(own, weights, set(self.model.all_tied_weights_keys))
        if any(weights[name].data_ptr() != own[name].data_ptr() for name in weights):
            moved = {name: tensor.to(own[name].device, own[name].dtype) for name, tensor in weights.items()}
            self.model.load_state_dict(moved, strict=False, assign=True)
            self.model.tie_weights()
        self._policy_version = version

    def _sample(self, requests: Sequence[SampleRequest], sampling: Sampling) -> Iterator[tuple[int, RolloutGroup]]:
        version = self._policy_version
        for cohort in self._cohorts(requests):
            flight = self._take_off(cohort)
            while flight.parked or flight.active is not None:
                if self._policy_version != version:
                    raise RuntimeError("new weights were loaded while groups were being sampled")
                for group, arrays in self._advance(flight, sampling).items():
                    index, request = flight.requests[group]
                    yield index, as_group(request.prompt, version, arrays)

    def _cohorts(self, requests: Sequence[SampleRequest]) -> Iterator[list[tuple[int, SampleRequest]]]:
        """Consecutive requests whose prompts take at most half of the memory, each cohort by length of the prompt."""
        cohort: list[tuple[int, SampleRequest]] = []
        longest = 0
        for entry in enumerate(requests):
            longest = max(longest, len(entry[1].prompt.token_ids))
            if cohort and 2 * longest * (len(cohort) + 1) > self._capacity:
                yield sorted(cohort, key=lambda e: len(e[1].prompt.token_ids))
                cohort, longest = [], len(entry[1].prompt.token_ids)
            cohort.append(entry)
        if cohort:
            yield sorted(cohort, key=lambda e: len(e[1].prompt.token_ids))

    def _take_off(self, cohort: list[tuple[int, SampleRequest]]) -> _Flight:
        prompts = [np.asarray(request.prompt.token_ids, np.int64) for _, request in cohort]
        size = len(prompts)
        cache = self._trie.prompt_cache([ids[:-1] for ids in prompts])
        roots = Frontier(
            groups=np.arange(size),
            nodes=np.full(size, -1, np.int64),
            counts=np.array([request.rollouts for _, request in cohort], np.int64),
            hashes=np.array([derive_seed(*request.key) for _, request in cohort], np.uint64),
            paths=np.array([ids[-1:] for ids in prompts], np.int64),
        )
        return _Flight(
            requests=cohort,
            prompts=cache,
            prompt_lengths=np.array([len(ids) - 1 for ids in prompts], np.int64),
            capacity=max(1, self._capacity - cache.rows * cache.length),
            record=Record(np.zeros(size, np.int64)),
            open_rows=np.ones(size, np.int64),
            parked=[roots],
        )

    @torch.inference_mode()
    def _advance(self, flight: _Flight, sampling: Sampling):
        """Extend the active frontier by one token; returns the arrays of the groups that this completes."""
        frontier = flight.active
        if frontier is None:
            frontier = self._resume(flight, sampling)
        parts: list[Draws] = []
        for rows, logits in self._trie.row_logits(
            frontier, flight.cached, flight.cache, flight.prompts, flight.prompt_lengths
        ):
            parts.append(draw(logits, frontier.counts[rows], frontier.hashes[rows], sampling, first_row=rows.start))
        draws = parts[0] if len(parts) == 1 else concatenate(parts)
        flight.cached = frontier.length
        numbers = flight.record.add(frontier, draws)
        stopped = np.isin(draws.tokens, sampling.stop_token_ids)
        over = stopped if frontier.length < sampling.max_new_tokens else np.ones_like(stopped)
        flight.record.end(frontier, draws, numbers, stopped, over)
        children = frontier.children(draws, numbers, ~over)
        groups = len(flight.open_rows)
        flight.open_rows += np.bincount(children.groups, minlength=groups)
        flight.open_rows -= np.bincount(frontier.groups, minlength=groups)
        self._branch(flight, children, draws.rows[~over], len(frontier), sampling)
        completed = np.unique(frontier.groups)
        completed = completed[flight.open_rows[completed] == 0]
        return flight.record.take(completed) if len(completed) else {}

    def _resume(self, flight: _Flight, sampling: Sampling) -> Frontier:
        parked = flight.parked.pop()
        kept, rest = _fit(parked, flight.capacity, sampling.max_new_tokens)
        if len(rest):
            flight.parked.append(parked.take(rest))
            parked = parked.take(kept)
        flight.cached = 0
        _reserve(flight, parked, 0, sampling.max_new_tokens)
        return parked

    def _branch(self, flight: _Flight, children: Frontier, parents: Ints, rows: int, sampling: Sampling) -> None:
        """Make the children the active frontier, with their keys and values in order; park what does not fit."""
        kept, rest = _fit(children, flight.capacity, sampling.max_new_tokens)
        if len(rest):
            flight.parked.append(children.take(rest))
            children, parents = children.take(kept), parents[kept]
        if len(children) == 0:
            flight.active = None
            return
        if len(children) > flight.cache.rows:
            _reserve(flight, children, rows, sampling.max_new_tokens)
        slots = Slots.of(parents)
        flight.cache.copy_rows(slots.source, slots.target, flight.cached)
        if children.length > flight.cache.length:
            _reserve(flight, children, len(children), sampling.max_new_tokens)
        flight.active = children.take(slots.order)


def _fit(frontier: Frontier, capacity: int, max_new_tokens: int) -> tuple[Ints, Ints]:
    """The rows that go on and the rows to park, so that the next forward pass stays within `capacity` tokens.

    Where rows must be parked, so many go on as can reach full length together, whole groups first: they will hardly
    need to be parked again, and groups complete early.
    """
    rows = np.arange(len(frontier))
    if len(frontier) * frontier.length <= capacity:
        return rows, rows[:0]
    keep = max(1, capacity // max_new_tokens, min(capacity // (2 * frontier.length), _KEPT_ROWS))
    order = np.argsort(frontier.groups, kind="stable")
    return np.sort(order[:keep]), np.sort(order[keep:])


def _reserve(flight: _Flight, frontier: Frontier, used_rows: int, max_new_tokens: int) -> None:
    """Make the cache large enough, with room to grow where the budget allows, keeping the rows in use.

    A frontier can grow to one row per rollout. Room for that is asked for at once: what is not used is not touched.
    """
    cache = flight.cache
    rows, length, most_rows = len(frontier), frontier.length, int(frontier.counts.sum())
    if rows <= cache.rows and length <= cache.length:
        return
    longer = min(max_new_tokens, max(_FIRST_LENGTH, 2 * length))
    length = max(length, min(longer, flight.capacity // rows))
    rows = max(rows, min(most_rows, flight.capacity // length))
    cache.grow(rows, length, used_rows=used_rows, used_length=flight.cached)


def _check_sampling(sampling: Sampling) -> None:
    if sampling.max_new_tokens < 1:
        raise ValueError(f"max_new_tokens must be at least 1, not {sampling.max_new_tokens}")
    if not sampling.temperature > 0:
        raise ValueError(f"temperature must be above 0, not {sampling.temperature}; top_k=1 takes the likeliest token")
    if not 0 < sampling.top_p <= 1 or sampling.top_k < 0:
        raise ValueError(f"top_p must be in (0, 1] and top_k >= 0, not {sampling.top_p} and {sampling.top_k}")


def _check_request(request: SampleRequest, sampling: Sampling, config: Mapping[str, object]) -> None:
    length = len(request.prompt.token_ids)
    if request.rollouts < 1:
        raise ValueError(f"prompt {request.prompt.id}: {request.rollouts} rollouts were asked for")
    if length == 0:
        raise DataError(f"prompt {request.prompt.id} has no tokens; a tokenizer that adds no BOS needs some text")
    context = config.get("max_position_embeddings")
    if isinstance(context, int) and length + sampling.max_new_tokens > context:
        raise DataError(
            f"prompt {request.prompt.id} has {length} tokens; with {sampling.max_new_tokens} new tokens it does not "
            f"fit the model's context of {context}. Shorten or drop the prompt, or lower max_new_tokens."
        )


def _check_weights(own: Mapping[str, Tensor], weights: Mapping[str, Tensor], tied: set[str]) -> None:
    missing = own.keys() - weights.keys() - tied
    unknown = weights.keys() - own.keys()
    if missing or unknown:
        raise ModelError(
            f"these weights are not the model's: {len(missing)} missing ({', '.join(sorted(missing)[:3])}), "
            f"{len(unknown)} unknown ({', '.join(sorted(unknown)[:3])})"
        )
    for name, tensor in weights.items():
        if tensor.shape != own[name].shape:
            raise ModelError(f"weight {name} has shape {tuple(tensor.shape)}, the model's is {tuple(own[name].shape)}")


def stop_token_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """All tokens that end a response, in increasing order: those of the generation config, the config, the tokenizer.

    Raises:
        ModelError: none of them names one.
    """
    generation = model.generation_config
    named = [
        None if generation is None else generation.eos_token_id,
        model.config.get_text_config().eos_token_id,
        tokenizer.eos_token_id,
    ]
    found = {int(i) for ids in named if ids is not None for i in np.atleast_1d(np.asarray(ids, np.int64))}
    if not found:
        raise ModelError(
            f"{model.config.name_or_path or type(model).__name__}: neither the model nor its tokenizer names an "
            "end-of-sequence token, so no response would ever end. Set eos_token_id in its generation_config.json."
        )
    return tuple(sorted(found))
