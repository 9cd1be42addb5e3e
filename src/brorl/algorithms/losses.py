"""Losses on the nodes of a trie: each returns a sum and its metrics, never a mean.

The normalisation is in the weights (`brorl.algorithms.weights`), so micro-batches and ranks only add up. A
clipped-ratio loss depends on a node only through its log-probability and the summed positive and negative weights, and
therefore equals the loss of the N flat sequences term by term.

A loss is a plain function ``(LossInputs, LossSettings) -> (sum, metrics)``; a user's own has the same shape. Metrics
are sums over nodes too; those named ``*_max`` combine by maximum.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from brorl.algorithms.weights import SequenceTerms

LOG_RATIO_CLAMP = 20.0
"""Log-ratios are clamped to +-20 before `exp`, as the public trainers do: exp(25) already overflows half precision."""
K2_LOG_RATIO_CLAMP = 10.0
"""ProRL v2 clamps the log-ratio of k2 to +-10: a token contributes at most 50, and no gradient beyond."""
K3_VALUE_CLAMP = 10.0
"""k3 grows like exp: a token contributes at most 10 (log-ratio clamp 20), and no gradient beyond."""

Metrics = dict[str, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSettings:
    """The numbers of the policy loss; defaults are ProRLv2's (NeMo RL and OpenRLHF configurations)."""

    eps_low: float = 0.2
    eps_high: float = 0.27
    dual_clip: float | None = None
    """c > 1: the ratio of a token with negative advantage counts as c at most (arXiv 1912.09729); 3 is usual"""

    def __post_init__(self) -> None:
        if not 0 <= self.eps_low < 1 or self.eps_high < 0:
            raise ValueError(
                f"clip range needs 0 <= eps_low < 1 and eps_high >= 0, got {self.eps_low}, {self.eps_high}"
            )
        if self.dual_clip is not None and self.dual_clip <= 1:
            raise ValueError(f"dual_clip must be above 1, got {self.dual_clip}; 3 is usual, None turns it off")


@dataclass(frozen=True, slots=True, kw_only=True)
class LossInputs:
    """Aligned tensors [n] over the nodes of a micro-batch; only `logprobs` carries gradient."""

    logprobs: Tensor
    """log p(token | prefix) under the current policy"""
    old_logprobs: Tensor
    """the learner's own, at the start of the step"""
    correction: Tensor
    """c_i, the train/inference correction"""
    positive: Tensor
    """A+_i"""
    negative: Tensor
    """A-_i"""
    total: Tensor
    """W_i"""
    sequence: SequenceTerms[Tensor] | None = None
    """the first pass of a sequence-level loss"""


def clipped(inputs: LossInputs, settings: LossSettings) -> tuple[Tensor, Metrics]:
    """Clipped-ratio loss, ``- sum_i c_i [A+_i min(rho_i, 1 + eps_high) + A-_i max(rho_i, 1 - eps_low)]``.

    Asymmetric clipping is DAPO's clip-higher (arXiv 2503.14476). With `dual_clip` the second bracket is capped at c.
    """
    ratio = _ratio(inputs)
    rising = ratio.clamp(max=1 + settings.eps_high)
    falling = ratio.clamp(min=1 - settings.eps_low)
    if settings.dual_clip is not None:
        falling = falling.clamp(max=settings.dual_clip)
    loss = -(inputs.correction * (inputs.positive * rising + inputs.negative * falling)).sum()
    now = ratio.detach()
    metrics = _ratio_metrics(now, inputs)
    metrics["clip_high"] = (inputs.positive * (now > 1 + settings.eps_high)).sum()
    metrics["clip_low"] = -(inputs.negative * (now < 1 - settings.eps_low)).sum()
    if settings.dual_clip is not None:
        metrics["clip_dual"] = -(inputs.negative * (now > settings.dual_clip)).sum()
    return loss, metrics


def reinforce(inputs: LossInputs, settings: LossSettings) -> tuple[Tensor, Metrics]:
    """Plain policy gradient, ``- sum_i c_i (A+_i + A-_i) logprob_i``; no ratio, so no clip (`settings` is not read)."""
    loss = -(inputs.correction * (inputs.positive + inputs.negative) * inputs.logprobs).sum()
    return loss, _ratio_metrics(_ratio(inputs).detach(), inputs)


def gspo(inputs: LossInputs, settings: LossSettings) -> tuple[Tensor, Metrics]:
    """Clipped sequence-level ratio, length-normalised (GSPO, arXiv 2507.18071), from its first pass.

    The clip range is applied in that pass (`settings` is not read here). GSPO's own range is far narrower than a
    token-level one (3e-4 and 4e-4).

    Raises:
        ValueError: the first pass is missing.
    """
    terms = inputs.sequence
    if terms is None:
        raise ValueError("gspo needs the sequence ratios of a first pass (brorl.algorithms.weights.sequence_terms)")
    slope = inputs.correction * terms.coefficients * inputs.logprobs
    # The value is the clipped objective, the gradient that of the unclipped responses.
    loss = -(slope - slope.detach() + inputs.correction * terms.objective).sum()
    metrics = {
        "ratio": terms.ratio.sum(),
        "ratio_max": _largest(terms.largest_ratio),
        "clip_high": terms.clipped_high.sum(),
        "clip_low": terms.clipped_low.sum(),
    }
    return loss, metrics


def _ratio(inputs: LossInputs) -> Tensor:
    log_ratio = inputs.logprobs - inputs.old_logprobs
    return log_ratio.clamp(-LOG_RATIO_CLAMP, LOG_RATIO_CLAMP).exp()


def _ratio_metrics(ratio: Tensor, inputs: LossInputs) -> Metrics:
    trained = inputs.total > 0
    return {"ratio": (inputs.total * ratio).sum(), "ratio_max": _largest(ratio * trained)}


def _largest(values: Tensor) -> Tensor:
    return values.max() if values.numel() else values.new_zeros(())


Loss = Callable[[LossInputs, LossSettings], tuple[Tensor, Metrics]]

LOSSES: dict[str, Loss] = {"clipped": clipped, "reinforce": reinforce, "gspo": gspo}
SEQUENCE_LEVEL = frozenset({"gspo"})
"""Losses that need `sequence_terms`, a pass over whole responses before the gradient."""


def k2(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """[n], ``(logprob - ref)^2 / 2``: as a loss, its on-policy gradient is that of the reverse KL (ProRL v2 default).

    The log-ratio is clamped to +-10.
    """
    log_ratio = (ref_logprobs - logprobs).clamp(-K2_LOG_RATIO_CLAMP, K2_LOG_RATIO_CLAMP)
    return log_ratio.square() / 2


def k3(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """[n], ``exp(x) - x - 1`` with x = ref - logprob: unbiased as a value, low variance (Schulman 2020).

    x is clamped to +-20, then the value to at most 10.
    """
    log_ratio = (ref_logprobs - logprobs).clamp(-LOG_RATIO_CLAMP, LOG_RATIO_CLAMP)
    return (log_ratio.exp() - log_ratio - 1).clamp(max=K3_VALUE_CLAMP)


KL_ESTIMATORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"k2": k2, "k3": k3}


def kl_estimator(name: str) -> Callable[[Tensor, Tensor], Tensor]:
    """The named KL estimator, to be used as a loss.

    Raises:
        ValueError: unknown name; or ``k1``, whose gradient as a loss is zero in expectation.
    """
    if name == "k1":
        raise ValueError(
            "kl 'k1' cannot be a loss: its gradient, the score function, is zero in expectation, so it adds noise and "
            "no pull towards the reference; use k2 (default) or k3"
        )
    if name not in KL_ESTIMATORS:
        raise ValueError(f"unknown kl {name!r}; there are {', '.join(KL_ESTIMATORS)}")
    return KL_ESTIMATORS[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectionSettings:
    """The band of pi_train_old / pi_engine per token (OpenRLHF and NeMo RL configurations of ProRLv2)."""

    low: float = 0.5
    high: float = 5.0

    def __post_init__(self) -> None:
        if not 0 <= self.low < self.high:
            raise ValueError(f"the band of a correction needs 0 <= low < high, got {self.low}, {self.high}")


def no_correction(log_ratio: Tensor, settings: CorrectionSettings) -> Tensor:
    """[n], ones."""
    return torch.ones_like(log_ratio)


def tis(log_ratio: Tensor, settings: CorrectionSettings) -> Tensor:
    """[n], truncated importance sampling: the ratio of old to engine probability, clamped above at `high`."""
    return log_ratio.clamp(-LOG_RATIO_CLAMP, LOG_RATIO_CLAMP).exp().clamp(max=settings.high)


def icepop(log_ratio: Tensor, settings: CorrectionSettings) -> Tensor:
    """[n], the ratio of old to engine probability inside [low, high], and 0 outside: such a token is not trained on."""
    ratio = log_ratio.clamp(-LOG_RATIO_CLAMP, LOG_RATIO_CLAMP).exp()
    return torch.where((ratio >= settings.low) & (ratio <= settings.high), ratio, torch.zeros_like(ratio))


CORRECTIONS: dict[str, Callable[[Tensor, CorrectionSettings], Tensor]] = {
    "none": no_correction,
    "tis": tis,
    "icepop": icepop,
}

UNREAD: dict[str, frozenset[str]] = {
    "reinforce": frozenset({"eps_low", "eps_high", "dual_clip"}),
    "gspo": frozenset({"dual_clip"}),
    "none": frozenset({"low", "high"}),
    "tis": frozenset({"low"}),
}
"""Settings that a loss or correction does not read: a recipe that sets one is refused."""
