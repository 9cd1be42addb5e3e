"""LoRA: an adapter trained on a frozen model is one policy in learner, engine and checkpoint."""

import sys
from pathlib import Path

import numpy as np
import peft
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from brorl.algorithms.weights import token_weights
from brorl.engines.local import LocalEngine
from brorl.engines.protocol import SampleRequest, Sampling
from brorl.errors import ModelError, RunError
from brorl.group import Prompt, RolloutGroup
from brorl.learner.checkpoint import load_checkpoint, save_checkpoint
from brorl.learner.learner import Learner, LearnerSettings
from brorl.learner.lora import Lora, copy_sharing
from brorl.learner.model import load_model
from brorl.learner.objective import Objective, TrainingGroup
from brorl.seeding import generator
from tiny_models import ARCHITECTURES, tiny_model
from tiny_policy import character_tokenizer, save_tiny_policy

SAMPLING = Sampling(max_new_tokens=9, stop_token_ids=(2,), temperature=0.8)
LORA = Lora(rank=4, alpha=8, seed=3)


def pair(architecture: str, dtype: torch.dtype, **settings) -> tuple[Learner, LocalEngine]:
    """A learner, and an engine on what they share of the model, as a run builds them."""
    model = tiny_model(architecture, dtype=dtype)
    sampled = copy_sharing(model, model.parameters())
    learner = Learner(model, LearnerSettings(temperature=0.8, max_nodes=16, lora=LORA, **settings))
    return learner, LocalEngine(sampled)


def sample(engine: LocalEngine, step: int) -> list[RolloutGroup]:
    prompts = [Prompt(id=str(i), text="", token_ids=np.arange(3, 6 + 2 * i, dtype=np.int32)) for i in range(2)]
    requests = [SampleRequest(prompt=p, rollouts=30, key=(1, step, i)) for i, p in enumerate(prompts)]
    groups = dict(engine.sample(requests, SAMPLING))
    return [groups[i] for i in range(len(prompts))]


def batch_of(learner: Learner, groups: list[RolloutGroup]) -> list[TrainingGroup]:
    weights = token_weights(groups, "token_mean")
    references = learner.logprobs(groups, reference=True) if learner.reference else [None] * len(groups)
    return [
        TrainingGroup(
            group=g, advantages=generator("lora test", i).normal(size=g.distinct), weights=w, ref_logprobs=ref
        )
        for i, (g, w, ref) in enumerate(zip(groups, weights, references, strict=True))
    ]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 3e-5), (torch.float64, 1e-6)])
def test_the_engine_with_merged_weights_is_the_learner(architecture: str, dtype: torch.dtype, tolerance: float) -> None:
    learner, engine = pair(architecture, dtype)
    frozen = {name: p.clone() for name, p in learner.model.named_parameters() if not p.requires_grad}
    groups = sample(engine, 0)
    first = learner.logprobs(groups)
    for _ in range(2):
        learner.step(batch_of(learner, groups), lr=1e-2)
    engine.load_weights(learner.weights(), learner.policy_version)
    for group, logprobs in zip(sample(engine, 1), learner.logprobs(sample(engine, 1)), strict=True):
        assert group.logprobs is not None
        np.testing.assert_allclose(logprobs, group.logprobs, rtol=0, atol=tolerance)
    moved = [np.abs(a - b).max() for a, b in zip(first, learner.logprobs(groups), strict=True)]
    assert min(moved) > 100 * tolerance
    for name, parameter in learner.model.named_parameters():
        if name in frozen:
            assert torch.equal(parameter, frozen[name]), name
    assert set(learner.trainable()) == {n for n, _ in learner.model.named_parameters() if ".lora_" in n}
    assert {name.rpartition("/")[0] for name in learner.optimizer_tensors()} == set(learner.trainable())


def flat_gradient(learner: Learner, batch: list[TrainingGroup]) -> dict[str, Tensor]:
    """REINFORCE on one plain forward pass per distinct response."""
    loss = torch.zeros((), dtype=learner.model.dtype)
    for item in batch:
        prompt = item.group.prompt.token_ids.tolist()
        for k, response in enumerate(item.group.responses()):
            ids = torch.tensor([[*prompt, *response.tolist()]])
            logits = learner.model(ids).logits[0, len(prompt) - 1 : -1] / learner.settings.temperature
            logprobs = torch.log_softmax(logits, -1).gather(1, ids[0, len(prompt) :, None])
            loss = loss - float(item.group.end_counts[k] * item.weights[k] * item.advantages[k]) * logprobs.sum()
    names, parameters = zip(*learner.trainable().items(), strict=True)
    return dict(zip(names, torch.autograd.grad(loss, parameters), strict=True))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("gradient_checkpointing", [False, True])
def test_the_gradient_on_the_trie_is_the_flat_one(architecture: str, gradient_checkpointing: bool) -> None:
    objective = Objective(loss="reinforce", kl_coefficient=0.0, correction="none")
    learner, engine = pair(
        architecture, torch.float64, objective=objective, gradient_checkpointing=gradient_checkpointing
    )
    batch = batch_of(learner, sample(engine, 0))
    learner.step(batch, lr=1e-2)  # B leaves zero, so that A has a gradient too
    found, expected = learner.gradient(batch), flat_gradient(learner, batch)
    assert found.keys() == expected.keys()
    for name in expected:
        assert expected[name].norm() > 0
        assert (found[name] - expected[name]).norm() < 1e-6 * expected[name].norm()


def test_the_reference_is_the_frozen_model_until_it_is_reset() -> None:
    learner, engine = pair("qwen2", torch.float32)
    groups = sample(engine, 0)
    plain = Learner(tiny_model("qwen2"), LearnerSettings(temperature=0.8, max_nodes=16)).logprobs(groups)
    assert learner.reference is not None
    own = dict(learner.model.named_parameters())
    for name, parameter in learner.reference.named_parameters():
        assert (parameter is own[name]) == (".lora_" not in name)  # the frozen weights are there once
        assert not parameter.requires_grad
    for _ in range(2):
        figures = learner.step(batch_of(learner, groups), lr=1e-2)
        for a, b in zip(learner.logprobs(groups, reference=True), plain, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)
    assert figures["kl"] > 0
    learner.reset_reference()
    for a, b in zip(learner.logprobs(groups), learner.logprobs(groups, reference=True), strict=True):
        np.testing.assert_array_equal(a, b)
    before = learner.logprobs(groups, reference=True)
    learner.step(batch_of(learner, groups), lr=1e-2)
    for a, b in zip(before, learner.logprobs(groups, reference=True), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_adapter_is_drawn_by_its_seed_alone() -> None:
    def first(seed: int) -> Tensor:
        torch.rand(7)
        learner = Learner(tiny_model("llama"), LearnerSettings(lora=Lora(rank=4, seed=seed)))
        return next(p for name, p in learner.trainable().items() if ".lora_A." in name).detach()

    assert torch.equal(first(1), first(1))
    assert not torch.equal(first(1), first(2))
    assert first(1).abs().max() <= 32**-0.5
    assert first(1).std() == pytest.approx(32**-0.5 / 3**0.5, rel=0.2)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_policy(tmp_path_factory.mktemp("model"))


def adapted(directory: Path) -> Learner:
    return Learner(load_model(directory)[0], LearnerSettings(lora=LORA))


def train(learner: Learner, step: int) -> dict[str, float]:
    rng = generator("lora checkpoint test", step)
    prompt = Prompt(id="p", text="", token_ids=np.array([5, 6, 7], np.int32))
    rows = [rng.integers(4, 9, size=rng.integers(2, 8)).tolist() for _ in range(16)]
    group = RolloutGroup.from_sequences(prompt, rows, logprobs=[[-3.9] * len(row) for row in rows])
    return learner.step(batch_of(learner, [group]), lr=1e-2)


def test_going_on_from_a_checkpoint_equals_never_having_stopped(policy: Path, tmp_path: Path) -> None:
    unbroken, stopped = adapted(policy), adapted(policy)
    for learner in (unbroken, stopped):
        train(learner, 0)
        learner.reset_reference()
        train(learner, 1)
    path = save_checkpoint(tmp_path, 2, stopped, character_tokenizer(), state={})
    resumed = adapted(policy)
    load_checkpoint(path, resumed)
    assert [train(unbroken, s) for s in (2, 3)] == [train(resumed, s) for s in (2, 3)]
    for name, weight in unbroken.weights().items():
        assert torch.equal(weight, resumed.weights()[name]), name
    assert len(load_file(path / "reference.state")) == len(resumed.trainable())


def test_a_checkpoint_is_a_plain_model_and_an_adapter(policy: Path, tmp_path: Path) -> None:
    learner = adapted(policy)
    train(learner, 0)
    path = save_checkpoint(tmp_path, 1, learner, character_tokenizer(), state={})
    ids = torch.arange(4, 20)[None]
    expected = learner.model(ids).logits
    plain = AutoModelForCausalLM.from_pretrained(path)
    assert not any("lora" in name for name, _ in plain.named_parameters())
    torch.testing.assert_close(plain(ids).logits, expected, rtol=1e-5, atol=1e-5)
    on_base = peft.PeftModel.from_pretrained(load_model(policy)[0], str(path / "adapter"))
    torch.testing.assert_close(on_base(ids).logits, expected, rtol=1e-5, atol=1e-5)
    # Trained on as a model of its own, it is one like any other.
    full = Learner(load_model(path)[0])
    torch.testing.assert_close(full.model(ids).logits, expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(ModelError, match="no usable adapter"):
        load_checkpoint(save_checkpoint(tmp_path, 2, full, character_tokenizer(), state={}), adapted(policy))


def test_a_frozen_model_that_changed_is_refused(policy: Path, tmp_path: Path) -> None:
    learner = adapted(policy)
    train(learner, 0)
    path = save_checkpoint(tmp_path, 1, learner, character_tokenizer(), state={})
    other = save_tiny_policy(tmp_path / "other")
    tensors = load_file(other / "model.safetensors")
    tensors["model.norm.weight"] += 0.01
    save_file(tensors, other / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(RunError, match=r"has changed since: .*model\.norm\.weight"):
        load_checkpoint(path, adapted(other))


@pytest.mark.parametrize("targets", [("q_proj", "zebra"), ("lm_head",), ("embed_tokens",)])
def test_targets_that_are_no_linear_layers(targets: tuple[str, ...]) -> None:
    with pytest.raises(ModelError, match=f"{targets[-1]} is no linear layer .* there are down_proj, gate_proj, k_proj"):
        Learner(tiny_model("qwen2"), LearnerSettings(lora=Lora(targets=targets)))


def test_only_the_targets_get_an_adapter() -> None:
    learner = Learner(tiny_model("qwen3"), LearnerSettings(lora=Lora(rank=2, targets=("q_proj", "v_proj"))))
    assert {name.split(".lora_")[0].rpartition(".")[2] for name in learner.trainable()} == {"q_proj", "v_proj"}


def test_without_peft_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ModelError, match=r"pip install 'brorl\[lora\]'"):
        Learner(tiny_model("llama"), LearnerSettings(lora=LORA))
