"""The gradient on the trie is the gradient of the N flat sequences."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from brorl.algorithms.losses import LOSSES, LossSettings
from brorl.algorithms.weights import AGGREGATIONS, token_weights
from brorl.group import Floats, RolloutGroup
from brorl.learner.learner import Learner, LearnerSettings
from brorl.learner.objective import Objective, TrainingGroup
from flat_rollouts import FlatRollouts, flat_loss, flat_rollouts
from tiny_models import ARCHITECTURES

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
MICRO_BATCHES = {"8 nodes": (8, 150), "32 nodes": (32, 150), "whole": (10**9, 10**9)}
MAX_NEW_TOKENS = 10


def on_nodes(group: RolloutGroup, rows: Sequence[tuple[int, ...]], values: Sequence[Tensor]) -> Floats:
    """Per-token values of flat rollouts as [M], read at the first rollout that holds each prefix."""
    by_prefix = {
        row[: t + 1]: float(value)
        for row, tokens in zip(rows, values, strict=True)
        for t, value in enumerate(tokens.detach())
    }
    found = np.zeros(group.nodes)
    for path, response in zip(group.paths(), group.responses(), strict=True):
        for t, node in enumerate(path):
            found[node] = by_prefix[tuple(response[: t + 1].tolist())]
    return found


def training_groups(flat: FlatRollouts, aggregation: str) -> list[TrainingGroup]:
    groups = flat.groups()
    responses = [[tuple(r.tolist()) for r in group.responses()] for group in groups]
    keep = [np.array([r not in flat.dropped[i] for r in rows]) for i, rows in enumerate(responses)]
    weights = token_weights(groups, aggregation, keep=keep, max_new_tokens=MAX_NEW_TOKENS)
    return [
        TrainingGroup(
            group=group,
            # A response that is not trained on may well have no advantage.
            advantages=np.where(keep[i], [flat.advantages[i][r] for r in responses[i]], np.nan),
            weights=weights[i],
            old_logprobs=on_nodes(group, flat.sequences[i], flat.old[i]),
            ref_logprobs=on_nodes(group, flat.sequences[i], flat.reference[i]),
        )
        for i, group in enumerate(groups)
    ]


def relative_error(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    assert found.keys() == expected.keys()
    difference = sum(float((found[name] - expected[name]).double().square().sum()) for name in expected)
    size = sum(float(gradient.double().square().sum()) for gradient in expected.values())
    assert size > 0
    return (difference / size) ** 0.5


def check(
    flat: FlatRollouts,
    micro_batch: str,
    *,
    loss: str = "clipped",
    aggregation: str = "token_mean",
    kl: str = "k2",
    kl_coefficient: float = 0.1,
    correction: str = "icepop",
    dual_clip: float | None = None,
) -> None:
    expected_loss = flat_loss(
        flat,
        loss=loss,
        aggregation=aggregation,
        max_new_tokens=MAX_NEW_TOKENS,
        kl=kl,
        kl_coefficient=kl_coefficient,
        correction=correction,
        dual_clip=dual_clip,
    )
    names, parameters = zip(*flat.model.named_parameters(), strict=True)
    gradients = torch.autograd.grad(expected_loss, parameters, retain_graph=True)
    max_nodes, max_tokens = MICRO_BATCHES[micro_batch]
    settings = LearnerSettings(
        objective=Objective(
            loss=loss,
            clip=LossSettings(dual_clip=dual_clip),
            kl=kl,
            kl_coefficient=kl_coefficient,
            correction=correction,
        ),
        temperature=flat.temperature,
        max_nodes=max_nodes,
        max_tokens=max_tokens,
        logit_rows=7,
    )
    found = Learner(flat.model, settings).gradient(training_groups(flat, aggregation))
    error = relative_error(found, dict(zip(names, gradients, strict=True)))
    assert error < TOLERANCE[flat.model.dtype]


def every_combination() -> Iterator[Any]:
    """Architecture, dtype, loss, aggregation, micro-batch; a cross-section is fast, all of them are slow together."""
    for architecture, dtype, loss, aggregation, micro_batch in product(
        ARCHITECTURES, TOLERANCE, LOSSES, AGGREGATIONS, MICRO_BATCHES
    ):
        plainest = aggregation == "token_mean" and micro_batch != "whole"
        one_model = architecture == "llama" and micro_batch == "32 nodes"
        fast = dtype == torch.float64 and (plainest or one_model)
        yield pytest.param(architecture, dtype, loss, aggregation, micro_batch, marks=() if fast else pytest.mark.slow)


@pytest.mark.parametrize(("architecture", "dtype", "loss", "aggregation", "micro_batch"), every_combination())
def test_equals_the_flat_gradient(
    architecture: str, dtype: torch.dtype, loss: str, aggregation: str, micro_batch: str
) -> None:
    check(flat_rollouts(architecture, dtype), micro_batch, loss=loss, aggregation=aggregation)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_equals_the_flat_gradient_in_float32(architecture: str, loss: str) -> None:
    check(flat_rollouts(architecture, torch.float32), "32 nodes", loss=loss)


@pytest.mark.parametrize("dual_clip", [None, 1.05, 3.0])
@pytest.mark.parametrize("correction", ["none", "tis", "icepop"])
@pytest.mark.parametrize("kl", ["k2", "k3"])
def test_equals_the_flat_gradient_for_every_option(kl: str, correction: str, dual_clip: float | None) -> None:
    flat = flat_rollouts("llama", torch.float64)
    check(flat, "8 nodes", kl=kl, correction=correction, dual_clip=dual_clip)
    check(flat, "32 nodes", kl=kl, correction=correction, dual_clip=dual_clip, kl_coefficient=0.0)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_rollouts_meet_clips_masks_and_sharing(architecture: str) -> None:
    flat = flat_rollouts(architecture, torch.float64)
    ratios = torch.cat(
        [
            torch.exp(now.detach() - old)
            for g in range(3)
            for now, old in zip(flat.logprobs[g], flat.old[g], strict=True)
        ]
    )
    assert 0.02 < (ratios > 1.27).double().mean() < 0.9
    assert 0.02 < (ratios < 0.8).double().mean() < 0.9
    corrections = torch.cat(
        [(o - r).exp() for g in range(3) for o, r in zip(flat.old[g], flat.rollout[g], strict=True)]
    )
    assert 0.05 < ((corrections < 0.5) | (corrections > 5)).double().mean() < 0.5
    for group in flat.groups():
        assert group.nodes < 0.8 * group.total_tokens
    assert any(group.distinct < group.rollouts for group in flat.groups())
    assert any(group.nodes > 32 for group in flat.groups())
