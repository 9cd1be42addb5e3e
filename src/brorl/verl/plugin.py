"""Advantage estimators and losses of brorl under the names and signatures of verl's registries (verl 0.9.1).

The arithmetic is that of `brorl.algorithms`; here rows of a padded batch become groups and weights. verl hides the
error of a plugin that does not load, so `check_registered` is run before a training starts.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from brorl.algorithms.advantages import ADVANTAGES, Estimator, GroupRewards, estimate
from brorl.algorithms.losses import LOG_RATIO_CLAMP, LOSSES, SEQUENCE_LEVEL, Loss, LossInputs, LossSettings
from brorl.algorithms.weights import SequenceTerms
from brorl.config import Ref
from brorl.errors import RunError
from brorl.resolving import resolve

F64 = NDArray[np.float64]


def registered_name(ref: Ref) -> str:
    """The name of a function in verl's registries: ``brorl_grpo``, ``brorl_grpo_ddof_0``."""
    return re.sub(r"\W+", "_", "_".join(["brorl", ref.name, *(f"{k}_{v}" for k, v in sorted(ref.args.items()))]))


def loss_name(ref: Ref) -> str:
    """The name of a loss. Its clip range is read from verl's actor configuration; only a dual clip has its own name."""
    return registered_name(Ref(name=ref.name)) + ("_dual" if ref.args.get("dual_clip") is not None else "")


def register(
    advantages: Sequence[Mapping[str, Any]] = (), losses: Sequence[str] = (), *, correct_threshold: float = 1.0
) -> None:
    """Put every estimator and loss of brorl into verl's registries, and the named ones with their arguments.

    Args:
        advantages: as in a recipe, ``{"name": "grpo", "ddof": 0}``.
        losses: names of functions of one's own, ``package.module:function``.
        correct_threshold: a reward at or above it is a success, for estimators that count successes.
    """
    core = import_module("verl.trainer.ppo.core_algos")
    for ref in [Ref(name=name) for name in ADVANTAGES] + [Ref(**settings) for settings in advantages]:
        estimator = resolve(ref, ADVANTAGES, "algorithm.advantage")
        if registered_name(ref) not in core.ADV_ESTIMATOR_REGISTRY:
            function = partial(token_advantages, estimator=estimator, correct_threshold=correct_threshold)
            core.register_adv_est(registered_name(ref))(function)
    for ref in [Ref(name=name) for name in (*LOSSES, *losses)]:
        loss = resolve(ref, LOSSES, "algorithm.loss")
        for dual in (False, True):
            function = partial(policy_loss, loss=loss, sequence_level=ref.name in SEQUENCE_LEVEL, dual=dual)
            core.register_policy_loss(registered_name(ref) + ("_dual" if dual else ""))(function)


def check_registered(advantage: str, loss: str) -> None:
    """Refuse to start where verl did not load the plugin.

    Raises:
        RunError: a name that is missing from verl's registries.
    """
    core = import_module("verl.trainer.ppo.core_algos")
    for name, table in ((advantage, core.ADV_ESTIMATOR_REGISTRY), (loss, core.POLICY_LOSS_REGISTRY)):
        if name not in table:
            raise RunError(
                f"verl does not know {name!r}: the plugin is not installed in this environment, or failed to load and "
                "verl hid why. `pip install --no-deps ./plugin`, then `python -c 'import brorl_verl_plugin'` shows the "
                "error; VERL_USE_EXTERNAL_PLUGINS must be unset or auto"
            )


def token_advantages(
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: NDArray[Any],
    *,
    estimator: Estimator,
    correct_threshold: float,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """Advantages and returns [B, T] in verl's signature; a reward of NaN is left out of every mean and gets 0.

    Rows of one `index` are one group. A row without response tokens is verl's padding and counts for nothing.
    """
    mask = response_mask.bool()
    lengths = mask.sum(-1).cpu().numpy().astype(np.int64)
    rewards = token_level_rewards.sum(-1).double().cpu().numpy()
    values = row_advantages(estimator, np.where(lengths > 0, rewards, np.nan), lengths, index, correct_threshold)
    rows = torch.as_tensor(values, dtype=token_level_rewards.dtype, device=token_level_rewards.device)
    advantages = rows[:, None] * mask
    return advantages, advantages


def row_advantages(
    estimator: Estimator, rewards: F64, lengths: NDArray[np.int64], index: NDArray[Any], correct_threshold: float
) -> F64:
    """f64[B], the advantage of each row; rows of one `index` are one group."""
    _, member = np.unique(np.asarray(index).astype(str), return_inverse=True)
    order = np.argsort(member, kind="stable")
    rows = np.split(order, np.flatnonzero(np.diff(member[order])) + 1)
    groups = [
        GroupRewards(
            rewards=rewards[at],
            counts=np.ones(len(at), np.int64),
            lengths=lengths[at],
            correct=rewards[at] >= correct_threshold,
        )
        for at in rows
    ]
    values = np.zeros(len(rewards))
    for at, advantages in zip(rows, estimate(estimator, groups), strict=True):
        values[at] = advantages
    return values


def policy_loss(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: Tensor | None = None,
    *,
    loss: Loss,
    sequence_level: bool = False,
    dual: bool = False,
) -> tuple[Tensor, dict[str, float]]:
    """A loss of brorl in verl's signature, all tensors [B, T]; the clip range and aggregation are verl's settings."""
    mask = response_mask.bool()
    weights = _token_weights(log_prob, mask, loss_agg_mode, config.global_batch_info)
    settings = LossSettings(
        eps_low=config.clip_ratio_low,
        eps_high=config.clip_ratio_high,
        dual_clip=config.clip_ratio_c if dual else None,
    )
    terms = None
    if sequence_level:
        terms = _sequence_terms(log_prob.detach() - old_log_prob, advantages, weights, mask, settings)
    signed = (weights * advantages)[mask]
    inputs = LossInputs(
        logprobs=log_prob[mask],
        old_logprobs=old_log_prob[mask],
        correction=torch.ones_like(signed) if rollout_is_weights is None else rollout_is_weights[mask],
        positive=signed.clamp(min=0),
        negative=signed.clamp(max=0),
        total=weights[mask],
        sequence=terms,
    )
    value, sums = loss(inputs, settings)
    # verl averages a loss's metrics over micro-batches, so each is a mean within its own.
    trained, moved = float(weights.sum()) or 1.0, float(signed.abs().sum()) or 1.0
    scales = {"ratio": trained, "ratio_max": 1.0}
    return value, {f"actor/{name}": float(total) / scales.get(name, moved) for name, total in sums.items()}


def _token_weights(log_prob: Tensor, mask: Tensor, mode: str, info: Mapping[str, Any]) -> Tensor:
    """[B, T], how much each token weighs: verl's own aggregation is linear, and these are its coefficients."""
    core = import_module("verl.trainer.ppo.core_algos")
    with torch.enable_grad():
        probe = torch.zeros_like(log_prob, requires_grad=True)
        total = core.agg_loss(loss_mat=probe, loss_mask=mask, loss_agg_mode=mode, **info)
        return torch.autograd.grad(total, probe)[0] * mask


def _sequence_terms(
    log_ratios: Tensor, advantages: Tensor, weights: Tensor, mask: Tensor, settings: LossSettings
) -> SequenceTerms[Tensor]:
    """`brorl.algorithms.weights.sequence_terms` where a row is a response, as values of its tokens."""
    means = (log_ratios * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)
    ratio = means.clamp(-LOG_RATIO_CLAMP, LOG_RATIO_CLAMP).exp().expand_as(weights)
    signed = weights * advantages
    high = (signed > 0) & (ratio > 1 + settings.eps_high)
    low = (signed < 0) & (ratio < 1 - settings.eps_low)
    bounded = torch.where(high, 1 + settings.eps_high, torch.where(low, 1 - settings.eps_low, ratio))
    return SequenceTerms(
        coefficients=(signed * ratio * ~(high | low))[mask],
        objective=(signed * bounded)[mask],
        ratio=(weights * ratio)[mask],
        clipped_high=(signed * high)[mask],
        clipped_low=(-signed * low)[mask],
        largest_ratio=ratio[mask],
    )
