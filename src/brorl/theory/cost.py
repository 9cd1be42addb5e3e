"""What a step costs in tokens, memory and seconds: one model behind `brorl check`, `brorl plan` and sizing.

Counts floating-point operations of distinct trie nodes (2 per weight and node forward, 4 backward; attention and the
output layer apart) and divides by a machine's measured matrix rate times an efficiency. It does not see Python
overhead, cache misses or other programs on the machine; treat seconds as right within a factor of two or three.
"""

from dataclasses import asdict, dataclass
from typing import Any

MIB = 2.0**20


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The sizes of a causal language model that decide its cost."""

    weights: int
    """of the matrices a token is multiplied with, output layer left out"""
    parameters: int
    """all of them, as stored"""
    layers: int
    hidden: int
    kv_width: int
    """key heads times head size: numbers per token, layer and side of the cache"""
    vocabulary: int
    bytes_per_number: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShape:
    """What one step draws and trains on."""

    prompts: int
    """P, trained on; with dynamic sampling more are drawn, see `drawn_prompts`"""
    rollouts: int
    """N per prompt"""
    prompt_tokens: float
    response_tokens: float
    distinct_node_share: float
    """trie nodes over flat tokens, in (0, 1]"""
    drawn_prompts: float
    with_reference: bool = True
    minibatches: int = 4
    kv_budget_mib: int = 1024
    micro_batch_tokens: int = 4096
    trained_rollouts: int | None = None
    """per prompt, where down-sampling leaves some out"""
    adapter_parameters: int | None = None
    """trained beside a frozen model, of which the engine has a merged copy; None trains the model"""
    gradient_checkpointing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """The estimate; times in seconds, memory in MiB."""

    samples: int
    tokens: float
    """response tokens of the drawn rollouts, written out flat"""
    nodes: float
    """distinct ones: what is computed"""
    sampling_seconds: float
    learning_seconds: float
    weights_mib: float
    """policy, gradient, two AdamW moments and reference; with an adapter, the model twice and these of it"""
    kv_cache_mib: float
    activations_mib: float
    memory_mib: float

    @property
    def seconds(self) -> float:
        return self.sampling_seconds + self.learning_seconds

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "seconds": self.seconds}


def step_cost(model: ModelShape, step: StepShape, *, flops_per_second: float, efficiency: float = 0.35) -> StepCost:
    """Estimate one step.

    Args:
        flops_per_second: the machine's matrix rate, as measured on a large product.
        efficiency: the share of it that sampling and learning reach.

    Raises:
        ValueError: a share outside (0, 1], or nothing to do.
    """
    if not 0 < step.distinct_node_share <= 1:
        raise ValueError(f"the distinct-node share lies in (0, 1], not {step.distinct_node_share}")
    if min(step.prompts, step.rollouts) < 1 or step.response_tokens <= 0 or flops_per_second <= 0:
        raise ValueError("a step needs prompts, rollouts, response tokens and a machine that computes")
    rate = flops_per_second * efficiency
    flat = step.drawn_prompts * step.rollouts * step.response_tokens
    nodes = max(flat * step.distinct_node_share, step.drawn_prompts * step.response_tokens)
    kept = step.trained_rollouts or step.rollouts
    trained = min(nodes * step.prompts / step.drawn_prompts, step.prompts * kept * step.response_tokens)
    prompt_tokens = step.drawn_prompts * step.prompt_tokens
    context = step.prompt_tokens + step.response_tokens / 2
    forward = 2.0 * (model.weights + model.layers * context * model.hidden * 2 + model.hidden * model.vocabulary)
    # Forward and backward, of which a frozen model spares the gradient of the weights; then the log-probabilities.
    passes = 3.0 if step.adapter_parameters is None else 2.0
    passes += float(step.with_reference) + float(step.gradient_checkpointing) + (1.0 - 1.0 / step.minibatches)
    trained_prompts = step.prompts * step.prompt_tokens
    kv_token = 2.0 * model.layers * model.kv_width * model.bytes_per_number / MIB
    kv_cache = min(step.kv_budget_mib, kv_token * (nodes + prompt_tokens))
    copies = 4.0 + (1.0 if step.with_reference else 0.0)
    numbers = copies * model.parameters
    if step.adapter_parameters is not None:
        numbers = 2.0 * model.parameters + copies * step.adapter_parameters
    weights = numbers * model.bytes_per_number / MIB
    layers_held = 1.0 + model.layers / 32.0 if step.gradient_checkpointing else float(model.layers)
    activations = step.micro_batch_tokens * model.bytes_per_number * (layers_held * 32.0 * model.hidden) / MIB
    return StepCost(
        samples=step.prompts * step.rollouts,
        tokens=flat,
        nodes=nodes,
        sampling_seconds=forward * (nodes + prompt_tokens) / rate,
        learning_seconds=passes * forward * (trained + trained_prompts) / rate,
        weights_mib=weights,
        kv_cache_mib=kv_cache,
        activations_mib=activations,
        memory_mib=weights + activations + kv_cache + 300.0,  # Python, torch and the tokenizer
    )
