"""The objective on the nodes of a micro-batch: policy loss, KL term and their metrics, all as sums."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from brorl.algorithms.losses import (
    CORRECTIONS,
    LOSSES,
    SEQUENCE_LEVEL,
    CorrectionSettings,
    Loss,
    LossInputs,
    LossSettings,
    Metrics,
    kl_estimator,
)
from brorl.algorithms.weights import SequenceTerms, edge_weights, sequence_terms
from brorl.group import Floats, RolloutGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingGroup:
    """A group with everything its loss needs, fixed for the whole update."""

    group: RolloutGroup
    advantages: NDArray[np.float64]
    """f64[K], not read where the weight is 0"""
    weights: NDArray[np.float64]
    """f64[K] from `brorl.algorithms.weights.token_weights`, 0 for a response that is not trained on"""
    old_logprobs: Floats | None = None
    """[M], the learner's at the start of the step; None: nothing has moved since, so they are the current ones"""
    ref_logprobs: Floats | None = None
    """[M], the reference policy's; needed where the KL coefficient is above 0"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What is minimised; the defaults are ProRLv2's public configuration."""

    loss: str | Loss = "clipped"
    """a name in `brorl.algorithms.losses.LOSSES`, or a function of one's own"""
    clip: LossSettings = field(default_factory=LossSettings)
    kl: str = "k2"
    kl_coefficient: float = 1e-4
    """0 trains without a reference policy"""
    correction: str = "icepop"
    """train/inference correction, a name in `brorl.algorithms.losses.CORRECTIONS`"""
    band: CorrectionSettings = field(default_factory=CorrectionSettings)

    def __post_init__(self) -> None:
        if isinstance(self.loss, str) and self.loss not in LOSSES:
            raise ValueError(f"unknown loss {self.loss!r}; there are {', '.join(LOSSES)}")
        if self.correction not in CORRECTIONS:
            raise ValueError(f"unknown correction {self.correction!r}; there are {', '.join(CORRECTIONS)}")
        kl_estimator(self.kl)
        if self.kl_coefficient < 0:
            raise ValueError(f"kl_coefficient must be 0 or more, got {self.kl_coefficient}")

    @property
    def sequence_level(self) -> bool:
        """Whether the loss needs the sequence ratios of a first pass."""
        return self.loss in SEQUENCE_LEVEL


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTensors:
    """Values [M] over the nodes of all groups of an update, numbered through; a micro-batch picks those it owns."""

    positive: Tensor
    negative: Tensor
    total: Tensor
    old: Tensor | None
    rollout: Tensor | None
    reference: Tensor | None
    sequence: SequenceTerms[Tensor] | None


def node_tensors(
    batch: Sequence[TrainingGroup],
    objective: Objective,
    device: torch.device,
    dtype: torch.dtype,
    current: Sequence[Floats] | None = None,
) -> NodeTensors:
    """Bring an update's groups to the device.

    Args:
        batch: all groups of the update.
        objective: what is minimised.
        device: of the learner.
        dtype: of the learner's weights.
        current: [M] per group, log-probabilities now, for the first pass of a sequence-level loss.

    Raises:
        ValueError: log-probabilities that the objective needs are missing, from all or from some groups.
    """

    def tensor(arrays: Sequence[Floats]) -> Tensor:
        return torch.from_numpy(np.concatenate(arrays)).to(device=device, dtype=dtype)

    def optional(arrays: Sequence[Floats | None], what: str, *, needed: bool) -> Tensor | None:
        missing = [item.group.prompt.id for item, array in zip(batch, arrays, strict=True) if array is None]
        if missing and (needed or len(missing) < len(batch)):
            raise ValueError(f"{what}: missing for {len(missing)} of {len(batch)} groups, first prompt {missing[0]}")
        return None if missing else tensor([array for array in arrays if array is not None])

    edges = [edge_weights(item.group, item.advantages, item.weights) for item in batch]
    correcting = objective.correction != "none"
    advice = f"rollout log-probabilities for correction {objective.correction!r} (an engine without them needs 'none')"
    return NodeTensors(
        positive=tensor([e.positive for e in edges]),
        negative=tensor([e.negative for e in edges]),
        total=tensor([e.total for e in edges]),
        old=optional([item.old_logprobs for item in batch], "old_logprobs", needed=False),
        rollout=optional([item.group.logprobs for item in batch], advice, needed=True) if correcting else None,
        reference=optional([item.ref_logprobs for item in batch], "ref_logprobs for the KL term", needed=True)
        if objective.kl_coefficient > 0
        else None,
        sequence=None if current is None else _sequence_tensors(batch, objective, current, device, dtype),
    )


def _sequence_tensors(
    batch: Sequence[TrainingGroup],
    objective: Objective,
    current: Sequence[Floats],
    device: torch.device,
    dtype: torch.dtype,
) -> SequenceTerms[Tensor]:
    terms = [
        sequence_terms(
            item.group,
            item.advantages,
            item.weights,
            np.zeros(item.group.nodes) if item.old_logprobs is None else now - item.old_logprobs,
            eps_low=objective.clip.eps_low,
            eps_high=objective.clip.eps_high,
        )
        for item, now in zip(batch, current, strict=True)
    ]

    def tensor(arrays: Sequence[Floats]) -> Tensor:
        return torch.from_numpy(np.concatenate(arrays)).to(device=device, dtype=dtype)

    return SequenceTerms(
        coefficients=tensor([t.coefficients for t in terms]),
        objective=tensor([t.objective for t in terms]),
        ratio=tensor([t.ratio for t in terms]),
        clipped_high=tensor([t.clipped_high for t in terms]),
        clipped_low=tensor([t.clipped_low for t in terms]),
        largest_ratio=tensor([t.largest_ratio for t in terms]),
    )


def pick(terms: SequenceTerms[Tensor], nodes: Tensor) -> SequenceTerms[Tensor]:
    """The terms of the owned nodes."""
    return SequenceTerms(
        coefficients=terms.coefficients[nodes],
        objective=terms.objective[nodes],
        ratio=terms.ratio[nodes],
        clipped_high=terms.clipped_high[nodes],
        clipped_low=terms.clipped_low[nodes],
        largest_ratio=terms.largest_ratio[nodes],
    )


def objective_sum(
    objective: Objective, values: NodeTensors, nodes: Tensor, logprobs: Tensor, entropies: Tensor
) -> tuple[Tensor, Metrics]:
    """The objective summed over owned nodes: ``policy loss + beta sum_i W_i kl_i``, and its metrics as sums.

    Args:
        objective: what is minimised.
        values: of all nodes of the update.
        nodes: i64[n], those owned by this micro-batch.
        logprobs: [n], with gradient.
        entropies: [n], of the distribution that each node was drawn from.
    """
    now = logprobs.detach()
    old = now if values.old is None else values.old[nodes]
    total = values.total[nodes]
    log_mismatch = torch.zeros_like(now) if values.rollout is None else old - values.rollout[nodes]
    correction = CORRECTIONS[objective.correction](log_mismatch, objective.band)
    inputs = LossInputs(
        logprobs=logprobs,
        old_logprobs=old,
        correction=correction,
        positive=values.positive[nodes],
        negative=values.negative[nodes],
        total=total,
        sequence=None if values.sequence is None else pick(values.sequence, nodes),
    )
    policy_loss = LOSSES[objective.loss] if isinstance(objective.loss, str) else objective.loss
    loss, metrics = policy_loss(inputs, objective.clip)
    metrics["policy_loss"] = loss.detach()
    if values.reference is not None:
        kl = (total * kl_estimator(objective.kl)(logprobs, values.reference[nodes])).sum()
        loss = loss + objective.kl_coefficient * kl
        metrics["kl"] = kl.detach()
    metrics["loss"] = loss.detach()
    metrics["weight"] = total.sum()
    metrics["advantage_mass"] = (inputs.positive - inputs.negative).sum()
    metrics["entropy"] = (total * entropies).sum()
    metrics["correction"] = (total * correction).sum()
    metrics["correction_zero"] = (total * (correction == 0)).sum()
    metrics["mismatch"] = (total * log_mismatch.abs()).sum()
    return loss, metrics


def add_metrics(into: dict[str, float], metrics: Mapping[str, Tensor] | Mapping[str, float]) -> None:
    """Add a micro-batch's sums, or a rank's; names that end in ``_max`` combine by maximum."""
    for name, value in metrics.items():
        number = float(value)
        if name.endswith("_max"):
            into[name] = max(into.get(name, number), number)
        else:
            into[name] = into.get(name, 0.0) + number


_SUMS = frozenset({"loss", "policy_loss"})
_SHARES_OF_ADVANTAGE = frozenset({"clip_high", "clip_low", "clip_dual"})


def mean_metrics(sums: Mapping[str, float]) -> dict[str, float]:
    """Turn the sums of a whole update into means over its token weights, and clip sums into shares of |advantage|."""
    weight, mass = sums["weight"], sums["advantage_mass"]
    result: dict[str, float] = {}
    for name, value in sums.items():
        if name in ("weight", "advantage_mass"):
            continue
        if name in _SUMS or name.endswith("_max"):
            result[name] = value
        else:
            scale = mass if name in _SHARES_OF_ADVANTAGE else weight
            result[name] = value / scale if scale > 0 else 0.0
    return result
