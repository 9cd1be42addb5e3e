"""The learner's log-probabilities are those of a plain forward pass, and are computed without a (nodes, V) array."""

import math

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import GPT2Config, GPT2LMHeadModel

from brorl.group import Prompt, RolloutGroup
from brorl.learner.learner import Learner, LearnerSettings
from brorl.learner.objective import Objective, TrainingGroup
from brorl.seeding import generator
from flat_rollouts import PROMPTS, flat_rollouts, perturbed
from tiny_models import ARCHITECTURES, tiny_model


def without_reference(**changes) -> LearnerSettings:
    return LearnerSettings(objective=Objective(kl_coefficient=0.0, correction="none"), **changes)


def flat_of(model, group: RolloutGroup) -> list[np.ndarray]:
    prompt = group.prompt.token_ids.tolist()
    found = []
    for response in group.responses():
        ids = torch.tensor([[*prompt, *response.tolist()]])
        with torch.no_grad():
            logprobs = model(ids).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        found.append(logprobs.gather(1, ids[0, len(prompt) :, None])[:, 0].numpy())
    return found


@pytest.mark.parametrize("max_nodes", [8, 32, 10**9])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_equal_a_plain_forward_pass(architecture: str, max_nodes: int) -> None:
    flat = flat_rollouts(architecture, torch.float64)
    learner = Learner(flat.model, without_reference(temperature=flat.temperature, max_nodes=max_nodes, logit_rows=5))
    groups = flat.groups()
    for i, (group, logprobs) in enumerate(zip(groups, learner.logprobs(groups), strict=True)):
        expected = {r: v.detach().numpy() for r, v in zip(flat.sequences[i], flat.logprobs[i], strict=True)}
        for path, response in zip(group.paths(), group.responses(), strict=True):
            assert logprobs[path] == pytest.approx(expected[tuple(response.tolist())], abs=1e-10)
    assert len(groups) == len(PROMPTS)


def test_absolute_positions_and_dropout() -> None:
    """GPT-2: learned positions, and dropout that must be off."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = GPT2LMHeadModel(
            GPT2Config(vocab_size=40, n_positions=64, n_embd=32, n_layer=2, n_head=4, initializer_range=0.3)
        )
    rng = generator("gpt2")
    rows = [rng.integers(3, 6, size=rng.integers(1, 9)).tolist() for _ in range(20)]
    groups = [
        RolloutGroup.from_sequences(Prompt(id="a", text="", token_ids=np.array(ids, np.int32)), rows)
        for ids in ([7, 8, 9, 10, 11], [7])
    ]
    learner = Learner(model.train(), without_reference(max_nodes=12))
    for group, logprobs in zip(groups, learner.logprobs(groups), strict=True):
        for path, expected in zip(group.paths(), flat_of(model.eval(), group), strict=True):
            assert logprobs[path] == pytest.approx(expected, abs=1e-4)


def test_the_soft_cap_of_the_logits_counts() -> None:
    model = tiny_model("gemma3", dtype=torch.float64)
    model.config.final_logit_softcapping = 1.5
    rows = [[3, 4, 5], [3, 4, 6], [9]]
    group = RolloutGroup.from_sequences(Prompt(id="a", text="", token_ids=np.array([7, 8], np.int32)), rows)
    (logprobs,) = Learner(model, without_reference()).logprobs([group])
    for path, expected in zip(group.paths(), flat_of(model, group), strict=True):
        assert logprobs[path] == pytest.approx(expected, abs=1e-6)


class LargestTensor(TorchDispatchMode):
    """Records the largest number of elements any operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[override]
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(value, torch.Tensor):
                self.elements = max(self.elements, value.numel())
        return result


def wide_group(vocabulary: int) -> RolloutGroup:
    rng = generator("wide")
    rows = [rng.integers(3, vocabulary, size=4).tolist() for _ in range(150)]
    return RolloutGroup.from_sequences(Prompt(id="w", text="", token_ids=np.array([5, 6], np.int32)), rows)


def test_never_hold_the_vocabulary_for_a_whole_group() -> None:
    vocabulary = 8000
    model = tiny_model("llama", vocab_size=vocabulary)
    group = wide_group(vocabulary)
    learner = Learner(model, without_reference(max_nodes=10**9, max_tokens=10**9, logit_rows=64))
    item = TrainingGroup(
        group=group, advantages=np.ones(group.distinct), weights=np.full(group.distinct, 1 / group.total_tokens)
    )
    with LargestTensor() as whole:
        learner.logprobs([group])
        learner.step([item], lr=1e-3)
    bound = group.nodes * vocabulary
    largest_else = max(64 * vocabulary, 4 * (group.nodes + 2) ** 2)  # a chunk of logits; attention scores of 4 heads
    assert whole.elements <= largest_else < bound
    unchunked = Learner(model, without_reference(max_nodes=10**9, max_tokens=10**9, logit_rows=10**9))
    with LargestTensor() as held:
        unchunked.logprobs([group])
    assert held.elements > whole.elements  # the recorder does see logits


def test_siblings_share_one_distribution() -> None:
    """Only distinct parents reach the output layer: one row for 30 children."""
    model = tiny_model("llama", vocab_size=100)
    group = RolloutGroup.from_sequences(
        Prompt(id="s", text="", token_ids=np.array([5], np.int32)), [[token] for token in range(30)]
    )
    rows: list[int] = []
    head = model.get_output_embeddings()
    assert head is not None
    handle = head.register_forward_hook(lambda _module, args, _output: rows.append(args[0].shape[0]))
    (logprobs,) = Learner(model, without_reference()).logprobs([group])
    handle.remove()
    assert rows == [1]
    assert np.exp(logprobs).sum() < 1


def test_entropy_is_that_of_the_visited_distributions() -> None:
    model = tiny_model("qwen3", dtype=torch.float64)
    rows = [[3, 4], [3, 5], [3, 5], [6]]
    group = RolloutGroup.from_sequences(Prompt(id="e", text="", token_ids=np.array([7, 8], np.int32)), rows)
    weights = np.full(group.distinct, 1 / group.total_tokens)
    item = TrainingGroup(group=group, advantages=np.zeros(group.distinct), weights=weights)
    found = Learner(model, without_reference()).step([item], lr=0.0)["entropy"]
    expected = 0.0
    for row in rows:
        with torch.no_grad():
            logprobs = model(torch.tensor([[7, 8, *row]])).logits[0, 1:-1].log_softmax(-1)
        expected += float(-(logprobs.exp() * logprobs).sum()) / group.total_tokens
    assert found == pytest.approx(expected, rel=1e-6)
    assert 0 < found < math.log(48)


def test_perturbed_models_differ() -> None:
    """The flat side compares different policies, not one with itself."""
    model = tiny_model("llama")
    moved = perturbed(model, 0.06, "old")
    assert not torch.equal(model.get_input_embeddings().weight, moved.get_input_embeddings().weight)  # type: ignore
