"""The engine that samples and the learner that trains are one policy: same log-probabilities, also after an update."""

import numpy as np
import pytest
import torch

from brorl.algorithms.weights import token_weights
from brorl.engines.local import LocalEngine
from brorl.engines.protocol import SampleRequest, Sampling
from brorl.group import Prompt, RolloutGroup
from brorl.learner.learner import Learner, LearnerSettings
from brorl.learner.objective import Objective, TrainingGroup
from tiny_models import ARCHITECTURES, tiny_model

SAMPLING = Sampling(max_new_tokens=9, stop_token_ids=(2,), temperature=0.8)


def sample(engine: LocalEngine, step: int) -> list[RolloutGroup]:
    prompts = [Prompt(id=str(i), text="", token_ids=np.arange(3, 6 + 2 * i, dtype=np.int32)) for i in range(3)]
    requests = [SampleRequest(prompt=p, rollouts=40, key=(1, step, i)) for i, p in enumerate(prompts)]
    groups = dict(engine.sample(requests, SAMPLING))
    return [groups[i] for i in range(len(prompts))]


def assert_same_policy(groups: list[RolloutGroup], learner: Learner, tolerance: float) -> None:
    for group, logprobs in zip(groups, learner.logprobs(groups), strict=True):
        assert group.logprobs is not None
        np.testing.assert_allclose(logprobs, group.logprobs, rtol=0, atol=tolerance)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.float64, 1e-11)])
def test_before_and_after_an_update(architecture: str, dtype: torch.dtype, tolerance: float) -> None:
    model = tiny_model(architecture, dtype=dtype)
    learner = Learner(model, LearnerSettings(temperature=0.8, objective=Objective(kl_coefficient=0.0), max_nodes=16))
    engine = LocalEngine(model)
    groups = sample(engine, step=0)
    assert_same_policy(groups, learner, tolerance)
    batch = [
        TrainingGroup(group=group, advantages=np.linspace(-1, 1, group.distinct), weights=weights)
        for group, weights in zip(groups, token_weights(groups, "token_mean"), strict=True)
    ]
    figures = learner.step(batch, lr=1e-2)
    assert figures["ratio"] == pytest.approx(1.0, abs=1e-6)  # step 0
    assert figures["correction_zero"] == 0.0
    engine.load_weights(learner.weights(), learner.policy_version)
    after = sample(engine, step=1)
    assert {group.policy_version for group in after} == {1}
    assert_same_policy(after, learner, tolerance)
    for now, group in zip(learner.logprobs(groups), groups, strict=True):
        assert group.logprobs is not None
        assert np.abs(now - group.logprobs).max() > 100 * tolerance


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("gradient_checkpointing", [False, True])
def test_in_bfloat16_both_compute_alike(architecture: str, gradient_checkpointing: bool) -> None:
    """Closer to each other than either is to float32: what is left is the order of sums, for TIS or icepop to take."""
    model = tiny_model(architecture)
    settings = LearnerSettings(
        temperature=0.8,
        objective=Objective(kl_coefficient=0.0),
        compute_dtype=torch.bfloat16,
        gradient_checkpointing=gradient_checkpointing,
    )
    learner, exact = Learner(model, settings), Learner(tiny_model(architecture), LearnerSettings(temperature=0.8))
    groups = sample(LocalEngine(model, compute_dtype=torch.bfloat16), step=0)
    drawn = np.concatenate([group.logprobs for group in groups if group.logprobs is not None])
    scored, truth = np.concatenate(learner.logprobs(groups)), np.concatenate(exact.logprobs(groups))
    assert drawn.dtype == scored.dtype == np.float32
    assert 1e-4 < np.abs(scored - drawn).mean() < min(0.05, np.abs(truth - drawn).mean())


def test_an_engine_of_its_own_follows_the_learner() -> None:
    """The engine holds another copy of the model, as on another device: loading the weights makes them one again."""
    learner = Learner(tiny_model("qwen2"), LearnerSettings(temperature=0.8))  # tied embeddings
    engine = LocalEngine(tiny_model("qwen2", seed=9))
    engine.load_weights(learner.weights(), version=5)
    groups = sample(engine, step=0)
    assert_same_policy(groups, learner, 2e-5)
    assert groups[0].policy_version == 5
