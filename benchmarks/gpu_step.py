"""A step at N = 512 on a device, beside plain `generate` and training on the flat rollouts.

The model has the shape of Qwen2-1.5B and random weights; matrix products are in bfloat16, weights and AdamW in float32,
on both sides. Two policies: as initialised, near uniform, so that nothing is shared but the prompt; and with sharper
logits, so that rollouts share prefixes. The objective is the policy term alone, with advantages that alternate over
responses: nothing is graded. Needs torch, transformers and numpy alone; not run here, where there is no GPU.

    PYTHONPATH=src python benchmarks/gpu_step.py
    PYTHONPATH=src python benchmarks/gpu_step.py --device cpu --toy
"""

import argparse
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measuring import RESULTS, environment, peak_memory_mib, summary, write_rows
from torch import Tensor
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from brorl.algorithms.weights import token_weights
from brorl.engines.local import LocalEngine
from brorl.engines.protocol import SampleRequest, Sampling
from brorl.group import Prompt, RolloutGroup
from brorl.learner.attention import use_trie_attention
from brorl.learner.learner import Learner, LearnerSettings
from brorl.learner.logprobs import head_logits
from brorl.learner.objective import Objective, TrainingGroup

QWEN2_1P5B = {
    "vocab_size": 151_936, "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28,
    "num_attention_heads": 12, "num_key_value_heads": 2, "max_position_embeddings": 4096,
}  # fmt: skip
TOY = {
    "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
}  # fmt: skip
POLICIES = {"nothing shared": 1.0, "rollouts that share": 6.0}
"""standard deviation of the logits"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What both sides do in a step."""

    device: torch.device
    prompts: int
    prompt_tokens: int
    rollouts: int
    new_tokens: int
    rounds: int
    flat_rows: int
    """sequences in a forward and backward pass of the flat side"""
    max_tokens: int
    """tokens in one of ours"""
    matrix: int
    """side of the square matrices whose product is the machine's rate"""
    vocabulary: int

    def token_ids(self, number: int) -> np.ndarray:
        """i32[prompts, prompt_tokens]; other prompts each round."""
        rng = np.random.Generator(np.random.Philox(key=number + 1))
        return rng.integers(3, self.vocabulary, (self.prompts, self.prompt_tokens), dtype=np.int32)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--device", default="cuda")
    arguments.add_argument("--toy", action="store_true", help="a tiny model and little work: does it run?")
    arguments.add_argument("--out", type=Path, default=RESULTS / "gpu.json")
    options = arguments.parse_args()
    device = torch.device(options.device)
    shape = TOY if options.toy else QWEN2_1P5B
    sizes = (2, 12, 32, 6, 1, 16, 512, 256) if options.toy else (8, 150, 512, 64, 2, 32, 16_384, 8192)
    names = ("prompts", "prompt_tokens", "rollouts", "new_tokens", "rounds", "flat_rows", "max_tokens", "matrix")
    work = Work(device=device, vocabulary=shape["vocab_size"], **dict(zip(names, sizes, strict=True)))
    rows: list[dict[str, Any]] = []
    for name, spread in POLICIES.items():
        found: dict[str, list[dict[str, float]]] = {}
        for side, step_of in {"ours": ours, "plain": plain}.items():
            try:
                found[side] = measure(f"{name}, {side}", work, shape, spread, step_of)
            except Exception:  # the other figures are still worth having
                traceback.print_exc()
        if found:
            rows.append(row(name, work, shape, found))
            write_rows(options.out, rows)


def measure(
    label: str, work: Work, shape: dict[str, int], spread: float, step_of: Callable[[Work, PreTrainedModel], Any]
) -> list[dict[str, float]]:
    """The rounds of one side, after one to warm up, on a model of its own."""
    model = random_model(shape, spread, work.device)
    step, found = step_of(work, model), []
    for number in range(-1, work.rounds):
        reset_peak(work.device)
        figures = step(work.token_ids(number)) | {"peak_memory_gib": peak_gib(work.device)}
        print(f"{label}, {'warm-up' if number < 0 else f'round {number}'}: {figures}", flush=True)
        if number >= 0:
            found.append(figures)
    return found


def ours(work: Work, model: PreTrainedModel) -> Callable[[np.ndarray], dict[str, float]]:
    """Sampling and learning on the trie."""
    use_trie_attention(model)
    objective = Objective(kl_coefficient=0.0, correction="none")
    settings = LearnerSettings(
        objective=objective, compute_dtype=torch.bfloat16, max_nodes=work.max_tokens, max_tokens=work.max_tokens
    )
    learner = Learner(model, settings)
    engine = LocalEngine(model, kv_budget_mib=32_768, compute_dtype=torch.bfloat16)
    sampling = Sampling(max_new_tokens=work.new_tokens, stop_token_ids=())
    rate = matrix_rate(work)

    def step(token_ids: np.ndarray) -> dict[str, float]:
        seconds: dict[str, float] = {}
        prompts = [Prompt(id=str(i), text="", token_ids=ids) for i, ids in enumerate(token_ids)]
        requests = [
            SampleRequest(prompt=p, rollouts=work.rollouts, key=("gpu", int(p.token_ids[0]), i))
            for i, p in enumerate(prompts)
        ]
        with timed(seconds, "sampling", work.device):
            groups = [group for _, group in engine.sample(requests, sampling)]
        with timed(seconds, "learning", work.device):
            batch = [
                TrainingGroup(group=g, advantages=alternating(g.distinct), weights=w)
                for g, w in zip(groups, token_weights(groups, "token_mean"), strict=True)
            ]
            learner.step(batch, 1e-6)
            engine.load_weights(learner.weights(), learner.policy_version)
        return rates(work, seconds) | shares(work, model, seconds, groups, rate)

    return step


def plain(work: Work, model: PreTrainedModel) -> Callable[[np.ndarray], dict[str, float]]:
    """`generate` and a pass over every rollout."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
    generate: Callable[..., Tensor] = model.generate  # pyright: ignore[reportAssignmentType]

    def step(token_ids: np.ndarray) -> dict[str, float]:
        seconds: dict[str, float] = {}
        flat = torch.from_numpy(token_ids.astype(np.int64)).to(work.device)
        with timed(seconds, "sampling", work.device), torch.no_grad(), autocast(work.device):
            drawn = [
                generate(
                    ids[None], attention_mask=torch.ones_like(ids[None]), do_sample=True, top_k=0,
                    num_return_sequences=work.rollouts, max_new_tokens=work.new_tokens, eos_token_id=None,
                    pad_token_id=0,
                )
                for ids in flat
            ]  # fmt: skip
        sequences = torch.cat(drawn)
        with timed(seconds, "learning", work.device):
            advantages = torch.from_numpy(alternating(len(sequences))).to(work.device, torch.float32)
            for first in range(0, len(sequences), work.flat_rows):
                rows = slice(first, first + work.flat_rows)
                chosen = response_logprobs(model, sequences[rows], work)
                (-(advantages[rows, None] * chosen).sum() / (len(sequences) * work.new_tokens)).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return rates(work, seconds)

    return step


def response_logprobs(model: PreTrainedModel, sequences: Tensor, work: Work) -> Tensor:
    """[rows, new_tokens], with gradient."""
    with autocast(work.device):
        hidden = model.get_decoder()(input_ids=sequences, use_cache=False).last_hidden_state
        logits = head_logits(model, hidden[:, work.prompt_tokens - 1 : -1])
    targets = sequences[:, work.prompt_tokens :]
    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="none")
    return -losses.view_as(targets)


def shares(
    work: Work, model: PreTrainedModel, seconds: dict[str, float], groups: list[RolloutGroup], rate: float
) -> dict[str, float]:
    """Of the matrix rate, what the distinct nodes need: one pass to sample, and to learn forward and backward."""
    inner = sum(len(np.unique(g.parents)) for g in groups)  # what predicts something, the prompts' last tokens included
    weights = sum(p.numel() for name, p in model.named_parameters() if "embed" not in name)
    head = model.config.hidden_size * model.config.vocab_size
    # Attention is left out: beside these it is small.
    forward = 2.0 * weights * (work.prompts * work.prompt_tokens + inner) + 2.0 * head * inner
    return {
        "distinct_node_share": sum(g.nodes for g in groups) / sum(g.total_tokens for g in groups),
        "sampling_share_of_rate": forward / seconds["sampling"] / rate,
        "learning_share_of_rate": 3 * forward / seconds["learning"] / rate,
        "matrix_tflops": rate / 1e12,
    }


def rates(work: Work, seconds: dict[str, float]) -> dict[str, float]:
    tokens = work.prompts * work.rollouts * work.new_tokens
    return {
        "seconds": sum(seconds.values()),
        **{f"{part}_seconds": value for part, value in seconds.items()},
        **{f"{part}_tokens_per_second": tokens / value for part, value in seconds.items()},
    }


def row(name: str, work: Work, shape: dict[str, int], found: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """One result; a side that failed leaves the ratio empty."""
    medians = {
        side: {key: summary([step[key] for step in steps])["median"] for key in steps[0]}
        for side, steps in found.items()
    }
    ratio = medians["plain"]["seconds"] / medians["ours"]["seconds"] if len(medians) == 2 else float("nan")
    return {
        "name": f"{name}: seconds a step of generate and flat training over ours, N = {work.rollouts}",
        "ratio": ratio,
        "aim": "reported",
        "medians": medians,
        "shape": shape,
        "work": {key: getattr(work, key) for key in ("prompts", "prompt_tokens", "rollouts", "new_tokens")},
        "device": torch.cuda.get_device_name(work.device) if work.device.type == "cuda" else "cpu",
        **environment(torch.get_num_threads(), ("torch", "transformers")),
    }


def random_model(shape: dict[str, int], spread: float, device: torch.device) -> PreTrainedModel:
    """Qwen2 with random weights, whose logits have this standard deviation."""
    torch.manual_seed(0)
    settings: dict[str, Any] = {**shape, "tie_word_embeddings": True, "eos_token_id": None}
    with torch.device(device):
        model = Qwen2ForCausalLM(Qwen2Config(**settings))
    with torch.no_grad():
        now = model(torch.arange(3, 35, device=device)[None]).logits.float().std()
        model.get_parameter("model.norm.weight").mul_(spread / now)
    return model.eval()


def alternating(count: int) -> np.ndarray:
    """Advantages +1, -1, +1 ..."""
    return np.where(np.arange(count) % 2, -1.0, 1.0)


def matrix_rate(work: Work) -> float:
    """Operations a second of a bfloat16 product of two square matrices, the best of five."""
    a = torch.randn(work.matrix, work.matrix, device=work.device, dtype=torch.bfloat16)
    best = 0.0
    for _ in range(6):
        seconds: dict[str, float] = {}
        with timed(seconds, "product", work.device):
            torch.mm(a, a)
        best = max(best, 2.0 * work.matrix**3 / seconds["product"])
    return best


def autocast(device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, dtype=torch.bfloat16)


@contextmanager
def timed(seconds: dict[str, float], part: str, device: torch.device) -> Iterator[None]:
    """Seconds until the device has done it all."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    started = time.perf_counter()
    yield
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    seconds[part] = time.perf_counter() - started


def reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_gib(device: torch.device) -> float:
    """The most memory held since `reset_peak`; on a CPU, of the process so far."""
    return torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else peak_memory_mib() / 1024


if __name__ == "__main__":
    main()
