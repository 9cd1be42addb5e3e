"""The flat side of the equivalence tests: N separate sequences, a plain forward pass on each, losses token by token.

Nothing here knows of tries; it follows the published per-token formulas.
"""

import copy
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from brorl.group import Prompt, RolloutGroup
from brorl.seeding import derive_seed, generator
from tiny_models import tiny_model

PROMPTS = ((5, 6, 7), (9,), (4, 4, 11, 30, 2))
"""One holds the end-of-sequence token: nothing may be masked by value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatRollouts:
    """Three prompts with N rollouts each, repeats included, and every per-token quantity of a loss."""

    model: PreTrainedModel
    temperature: float
    sequences: list[list[tuple[int, ...]]]
    logprobs: list[list[Tensor]]
    """with graph"""
    old: list[list[Tensor]]
    reference: list[list[Tensor]]
    rollout: list[list[Tensor]]
    advantages: list[dict[tuple[int, ...], float]]
    """by response: equal responses have equal rewards"""
    dropped: list[set[tuple[int, ...]]]
    """responses that are not trained on"""

    def groups(self) -> list[RolloutGroup]:
        """The same rollouts as tries."""
        return [
            RolloutGroup.from_sequences(
                Prompt(id=str(i), text="", token_ids=np.array(PROMPTS[i], np.int32)),
                rows,
                logprobs=[values.numpy() for values in self.rollout[i]],
            )
            for i, rows in enumerate(self.sequences)
        ]


@cache
def flat_rollouts(architecture: str, dtype: torch.dtype, rollouts: int = 14, temperature: float = 0.8) -> FlatRollouts:
    """Rollouts whose old, reference and engine log-probabilities all differ, so that clips and masks are met."""
    model = tiny_model(architecture, dtype=dtype)
    if dtype == torch.float64:
        _norms_in_float64(model)
    rng = generator("flat rollouts", architecture)
    # A short alphabet: long shared prefixes, repeats, and answers that are prefixes of others.
    sequences = [
        [tuple(rng.choice([2, 3, 8], size=rng.integers(1, 10), p=[0.1, 0.75, 0.15]).tolist()) for _ in range(rollouts)]
        for _ in PROMPTS
    ]
    old, reference = perturbed(model, 0.06, "old"), perturbed(model, 0.1, "reference")
    with torch.no_grad():
        old_values = [_flat_logprobs(old, p, rows, temperature) for p, rows in zip(PROMPTS, sequences, strict=True)]
        ref_values = [
            _flat_logprobs(reference, p, rows, temperature) for p, rows in zip(PROMPTS, sequences, strict=True)
        ]
    responses = [sorted(set(rows)) for rows in sequences]
    return FlatRollouts(
        model=model,
        temperature=temperature,
        sequences=sequences,
        logprobs=[_flat_logprobs(model, p, rows, temperature) for p, rows in zip(PROMPTS, sequences, strict=True)],
        old=old_values,
        reference=ref_values,
        rollout=[
            # A group holds an engine's log-probabilities in float32.
            [(value + _engine_noise(row, value)).float().to(dtype) for row, value in zip(rows, values, strict=True)]
            for rows, values in zip(sequences, old_values, strict=True)
        ],
        advantages=[{r: float(rng.normal()) for r in distinct} for distinct in responses],
        dropped=[set(distinct[1::5]) for distinct in responses],
    )


class _Float64Norm(nn.Module):
    def __init__(self, weight: Any, eps: Any, offset: float) -> None:
        super().__init__()
        self.weight, self.eps, self.offset = weight, eps, offset

    def forward(self, x: Tensor) -> Tensor:
        return x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt() * (self.offset + self.weight)


def _norms_in_float64(model: PreTrainedModel) -> None:
    """Transformers computes RMS norms in float32 whatever the model's dtype, which hides errors below 1e-7."""
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if type(child).__name__ == "Gemma3RMSNorm":
                setattr(parent, name, _Float64Norm(child.weight, child.eps, 1.0))
            elif type(child).__name__.endswith("RMSNorm"):
                setattr(parent, name, _Float64Norm(child.weight, child.variance_epsilon, 0.0))


def perturbed(model: PreTrainedModel, scale: float, name: str) -> PreTrainedModel:
    """A copy whose every weight has moved a little."""
    moved = copy.deepcopy(model)
    noise = torch.Generator().manual_seed(derive_seed("perturbed", name))
    with torch.no_grad():
        for parameter in moved.parameters():
            parameter.add_(scale * torch.randn(parameter.shape, generator=noise).to(parameter) * parameter.abs().mean())
    return moved


def _engine_noise(row: tuple[int, ...], like: Tensor) -> Tensor:
    """The same for every copy of a prefix; large enough that icepop masks some tokens."""
    noise = [float(generator("engine", *row[: t + 1]).normal()) for t in range(len(row))]
    return 0.7 * torch.tensor(noise).to(like)


def _flat_logprobs(
    model: PreTrainedModel, prompt: tuple[int, ...], rows: list[tuple[int, ...]], temperature: float
) -> list[Tensor]:
    found = []
    for row in rows:
        ids = torch.tensor([[*prompt, *row]])
        logits = model(ids).logits[0, len(prompt) - 1 : -1] / temperature
        found.append(logits.log_softmax(-1).gather(1, ids[0, len(prompt) :, None])[:, 0])
    return found


def flat_weights(rollouts: FlatRollouts, aggregation: str, max_new_tokens: int) -> list[list[float]]:
    """Per rollout, the weight of each of its tokens; 0 for a dropped one."""
    kept = [
        [row not in dropped for row in rows] for rows, dropped in zip(rollouts.sequences, rollouts.dropped, strict=True)
    ]
    pairs = list(zip(rollouts.sequences, kept, strict=True))
    lengths = [[len(row) * keep for row, keep in zip(rows, keeps, strict=True)] for rows, keeps in pairs]
    sequences = sum(keep for keeps in kept for keep in keeps)
    result = []
    for rows, keeps in pairs:
        own = sum(len(row) for row, keep in zip(rows, keeps, strict=True) if keep)
        for_row = {
            "token_mean": lambda _: 1 / sum(map(sum, lengths)),
            "sequence_mean": lambda length: 1 / sequences / length,
            "prompt_mean": lambda _, own=own: 1 / len(PROMPTS) / own,
            "constant": lambda _: 1 / (sequences * max_new_tokens),
        }[aggregation]
        result.append([for_row(len(row)) if keep else 0.0 for row, keep in zip(rows, keeps, strict=True)])
    return result


def flat_policy_loss(
    loss: str, now: Tensor, old: Tensor, advantage: float, correction: Tensor, dual_clip: float | None
) -> Tensor:
    """Token losses of one rollout [T], unweighted: clipped as in DAPO, with dual clip, REINFORCE, or GSPO-token."""
    if loss == "reinforce":
        return -correction * advantage * now
    ratio = (now - old).exp()
    if loss == "gspo":
        ratio = ratio.log().mean().exp().detach() * (now - now.detach()).exp()
    value = torch.maximum(-advantage * ratio, -advantage * ratio.clamp(0.8, 1.27))
    if dual_clip is not None and advantage < 0:
        value = torch.minimum(value, torch.full_like(value, -advantage * dual_clip))
    return correction * value


def flat_correction(name: str, old: Tensor, rollout: Tensor) -> Tensor:
    """The train/inference correction of one rollout's tokens, band [0.5, 5]."""
    ratio = (old - rollout).exp()
    if name == "none":
        return torch.ones_like(ratio)
    return ratio.clamp(max=5.0) if name == "tis" else ratio * ((ratio >= 0.5) & (ratio <= 5.0))


def flat_kl(name: str, now: Tensor, reference: Tensor) -> Tensor:
    """The KL term of one rollout's tokens; k3 contributes 10 at most."""
    difference = reference - now
    return 0.5 * difference**2 if name == "k2" else (difference.exp() - 1 - difference).clamp(max=10.0)


def flat_loss(
    rollouts: FlatRollouts,
    *,
    loss: str,
    aggregation: str,
    max_new_tokens: int,
    kl: str,
    kl_coefficient: float,
    correction: str,
    dual_clip: float | None = None,
) -> Tensor:
    """The objective, summed over every token of every rollout."""
    weights = flat_weights(rollouts, aggregation, max_new_tokens)
    total = torch.zeros((), dtype=rollouts.model.dtype)
    for g, rows in enumerate(rollouts.sequences):
        for j, row in enumerate(rows):
            now, old = rollouts.logprobs[g][j], rollouts.old[g][j]
            factor = flat_correction(correction, old, rollouts.rollout[g][j])
            policy = flat_policy_loss(loss, now, old, rollouts.advantages[g][row], factor, dual_clip)
            token_losses = policy + kl_coefficient * flat_kl(kl, now, rollouts.reference[g][j])
            total = total + weights[g][j] * token_losses.sum()
    return total
