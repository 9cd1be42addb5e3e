"""The learner's step: what moves, what must not, and what happens when something fails."""

import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pytest
import torch

from brorl.algorithms.losses import LossInputs, LossSettings, Metrics, clipped
from brorl.algorithms.weights import token_weights
from brorl.errors import ModelError, RunError
from brorl.group import Prompt, RolloutGroup
from brorl.learner.learner import Learner, LearnerSettings
from brorl.learner.objective import Objective, TrainingGroup
from brorl.seeding import generator
from tiny_models import tiny_model

PLAIN = Objective(kl_coefficient=0.0, correction="none")


def some_groups(count: int = 3, rollouts: int = 20) -> list[RolloutGroup]:
    rng = generator("learner test")
    return [
        RolloutGroup.from_sequences(
            Prompt(id=str(i), text="", token_ids=rng.integers(3, 40, size=3 + i).astype(np.int32)),
            [rng.integers(3, 6, size=rng.integers(1, 8)).tolist() for _ in range(rollouts)],
        )
        for i in range(count)
    ]


def some_batch(groups: list[RolloutGroup], **fields) -> list[TrainingGroup]:
    rng = generator("learner test advantages")
    weights = token_weights(groups, "token_mean")
    return [
        TrainingGroup(group=g, advantages=rng.normal(size=g.distinct), weights=w, **fields)
        for g, w in zip(groups, weights, strict=True)
    ]


def tokens_of(group: RolloutGroup) -> np.ndarray:
    """[K], tokens of all copies of each response."""
    return group.end_counts * group.lengths()


def learner(**settings) -> Learner:
    return Learner(tiny_model("llama"), LearnerSettings(**{"objective": PLAIN, **settings}))


def weights_of(subject: Learner) -> dict[str, torch.Tensor]:
    return {name: weight.clone() for name, weight in subject.weights().items()}


def test_the_first_ratio_is_1_and_the_gradient_is_not_0() -> None:
    groups = some_groups()
    subject = learner()
    centred = [
        TrainingGroup(
            group=item.group,
            advantages=item.advantages - np.average(item.advantages, weights=tokens_of(item.group)),
            weights=item.weights,
            old_logprobs=old,
        )
        for item, old in zip(some_batch(groups), subject.logprobs(groups), strict=True)
    ]
    figures = subject.step(centred, lr=0.0)
    assert figures["ratio"] == pytest.approx(1.0, abs=1e-6)
    assert figures["ratio_max"] == pytest.approx(1.0, abs=1e-5)
    assert figures["loss"] == pytest.approx(0.0, abs=1e-6)
    assert figures["grad_norm"] > 1e-3
    assert figures["clip_high"] == figures["clip_low"] == 0.0


def test_missing_old_logprobs_are_the_current_ones() -> None:
    groups, subject = some_groups(), learner()
    batch = some_batch(groups)
    explicit = [
        TrainingGroup(group=b.group, advantages=b.advantages, weights=b.weights, old_logprobs=old)
        for b, old in zip(batch, subject.logprobs(groups), strict=True)
    ]
    first, second = subject.gradient(batch), subject.gradient(explicit)
    for name, gradient in first.items():
        torch.testing.assert_close(gradient, second[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("loss", ["clipped", "reinforce", "gspo"])
def test_a_learning_rate_of_0_changes_nothing(loss: str) -> None:
    subject = learner(objective=Objective(loss=loss, correction="none"), weight_decay=0.1)
    groups = some_groups()
    before = weights_of(subject)
    reference = subject.logprobs(groups, reference=True)
    batch = [
        TrainingGroup(group=b.group, advantages=b.advantages, weights=b.weights, ref_logprobs=ref)
        for b, ref in zip(some_batch(groups), reference, strict=True)
    ]
    figures = [subject.step(batch, lr=0.0) for _ in range(3)]
    assert figures[0] == figures[1] == figures[2]
    assert figures[0]["grad_norm"] > 0
    assert figures[0]["kl"] == pytest.approx(0.0, abs=1e-9)
    for name, weight in subject.weights().items():
        assert torch.equal(weight, before[name])


@pytest.mark.parametrize("loss", ["clipped", "reinforce", "gspo"])
def test_the_parts_of_an_update_add_up(loss: str) -> None:
    """Weights are fixed before the split: the gradient of a batch is the sum over its groups, with no averaging."""
    model = tiny_model("qwen2", dtype=torch.float64)
    subject = Learner(model, LearnerSettings(objective=Objective(loss=loss, kl_coefficient=0.0, correction="none")))
    batch = some_batch(some_groups())
    whole = subject.gradient(batch)
    parts = [subject.gradient([item]) for item in batch]
    for name, gradient in whole.items():
        torch.testing.assert_close(sum(part[name] for part in parts), gradient, rtol=1e-5, atol=1e-7)


def test_512_rollouts_need_no_divisor() -> None:
    """One group of 512 in micro-batches of a few nodes: the same step as in one piece."""
    (group,) = some_groups(1, rollouts=512)
    (item,) = some_batch([group])
    small = learner(max_nodes=8, max_tokens=50).gradient([item])
    large = learner(max_nodes=10**6, max_tokens=10**6).gradient([item])
    for name, gradient in large.items():
        torch.testing.assert_close(small[name], gradient, rtol=1e-3, atol=1e-6)


def test_training_makes_a_rewarded_response_likelier() -> None:
    groups = some_groups(1)
    subject = learner()
    advantages = np.where(np.arange(groups[0].distinct) == 0, 1.0, -0.1)
    item = TrainingGroup(
        group=groups[0], advantages=advantages, weights=np.full(groups[0].distinct, 1 / groups[0].total_tokens)
    )
    path = next(groups[0].paths())
    before = subject.logprobs(groups)[0][path].sum()
    for _ in range(5):
        subject.step([item], lr=1e-2)
    assert subject.logprobs(groups)[0][path].sum() > before + 0.5
    assert subject.policy_version == 5


def test_a_gradient_that_is_not_finite_is_skipped_and_counted() -> None:
    def poisoned(inputs: LossInputs, settings: LossSettings) -> tuple[torch.Tensor, Metrics]:
        loss, metrics = clipped(inputs, settings)
        return loss * float("nan"), metrics

    subject = learner(objective=Objective(loss=poisoned, kl_coefficient=0.0, correction="none"))
    before = weights_of(subject)
    with pytest.warns(UserWarning, match="this step is skipped"):
        figures = subject.step(some_batch(some_groups()), lr=1.0)
    assert figures["skipped"] == 1.0
    assert (subject.skipped_steps, subject.policy_version) == (1, 0)
    assert not subject.optimizer_tensors()
    for name, weight in subject.weights().items():
        assert torch.equal(weight, before[name])


def test_the_gradient_is_clipped_and_its_norm_reported() -> None:
    """With plain sums the first AdamW step ignores scale, so the clip shows in the first moment."""
    batch = some_batch(some_groups())
    free, bound = learner(max_grad_norm=1e9), learner(max_grad_norm=1e-3)
    norm = free.step(batch, lr=1e-3)["grad_norm"]
    assert bound.step(batch, lr=1e-3)["grad_norm"] == pytest.approx(norm)

    def moment(subject: Learner) -> float:
        moments = [v for k, v in subject.optimizer_tensors().items() if k.endswith("/exp_avg")]
        return float(sum(m.square().sum() for m in moments) ** 0.5) / 0.1

    assert moment(free) == pytest.approx(norm, rel=1e-4)
    assert moment(bound) == pytest.approx(1e-3, rel=1e-2)


def test_gradient_checkpointing_changes_memory_only() -> None:
    batch = some_batch(some_groups())
    plain, checkpointed = learner().gradient(batch), learner(gradient_checkpointing=True).gradient(batch)
    for name, gradient in plain.items():
        torch.testing.assert_close(checkpointed[name], gradient, rtol=1e-5, atol=1e-7)


def test_gradient_checkpointing_refuses_dropout() -> None:
    model = tiny_model("llama")
    model.config.attention_dropout = 0.1
    with pytest.raises(ModelError, match="attention_dropout"):
        Learner(model, LearnerSettings(gradient_checkpointing=True))


def test_half_precision_computes_on_float32_master_weights() -> None:
    batch = some_batch(some_groups())
    half = Learner(tiny_model("llama", dtype=torch.bfloat16), LearnerSettings(objective=PLAIN))
    full = learner()
    assert {weight.dtype for weight in half.weights().values()} == {torch.float32}
    assert half.settings.compute_dtype == torch.bfloat16
    exact, found = full.gradient(batch), half.gradient(batch)
    cosine = torch.nn.functional.cosine_similarity(
        torch.cat([g.flatten() for g in exact.values()]), torch.cat([found[name].flatten() for name in exact]), dim=0
    )
    assert cosine > 0.98
    before = weights_of(half)
    half.step(batch, lr=1e-6)  # far below what bfloat16 could hold
    assert any(not torch.equal(weight, before[name]) for name, weight in half.weights().items())


def test_the_reference_moves_only_when_reset() -> None:
    groups = some_groups()
    subject = learner(objective=Objective(kl_coefficient=0.1, correction="none"))
    start = subject.logprobs(groups, reference=True)
    batch = some_batch(groups)
    batch = [
        TrainingGroup(group=b.group, advantages=b.advantages, weights=b.weights, ref_logprobs=ref)
        for b, ref in zip(batch, start, strict=True)
    ]
    subject.step(batch, lr=1e-2)
    assert all(np.array_equal(a, b) for a, b in zip(subject.logprobs(groups, reference=True), start, strict=True))
    subject.reset_reference()
    for now, reference in zip(subject.logprobs(groups), subject.logprobs(groups, reference=True), strict=True):
        assert np.array_equal(now, reference)
    assert subject.optimizer_tensors()
    subject.reset_reference(clear_optimizer=True)
    assert not subject.optimizer_tensors()


def test_what_is_missing_is_named() -> None:
    groups = some_groups()
    with pytest.raises(ValueError, match="ref_logprobs for the KL term: missing for 3 of 3 groups"):
        learner(objective=Objective(correction="none")).step(some_batch(groups), lr=0.0)
    with pytest.raises(ValueError, match="rollout log-probabilities for correction 'icepop'"):
        learner(objective=Objective(kl_coefficient=0.0)).step(some_batch(groups), lr=0.0)
    mixed = [*some_batch(groups[:1], old_logprobs=np.zeros(groups[0].nodes)), *some_batch(groups[1:])]
    with pytest.raises(ValueError, match="old_logprobs: missing for 2 of 3 groups"):
        learner().step(mixed, lr=0.0)
    with pytest.raises(ValueError, match="at least one group"):
        learner().step([], lr=0.0)
    with pytest.raises(RunError, match="no reference policy"):
        learner().logprobs(groups, reference=True)
    with pytest.raises(RunError, match="no reference policy"):
        learner().reset_reference()
    with pytest.raises(ValueError, match="unknown loss 'ppo'; there are clipped"):
        Objective(loss="ppo")


def test_weights_are_not_copies() -> None:
    subject = learner()
    name, parameter = next(iter(subject.model.named_parameters()))
    assert subject.weights()[name].data_ptr() == parameter.data_ptr()


def test_an_error_that_is_not_about_memory_is_not_swallowed() -> None:
    def broken(inputs: LossInputs, settings: LossSettings) -> tuple[torch.Tensor, Metrics]:
        raise RuntimeError("shapes do not match")

    subject = learner(objective=Objective(loss=broken, kl_coefficient=0.0, correction="none"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeError, match="shapes do not match"):
            subject.step(some_batch(some_groups()), lr=0.0)


OUT_OF_MEMORY = """
    import resource, warnings
    import numpy as np, torch
    from brorl.learner.learner import Learner, LearnerSettings
    from brorl.learner.objective import Objective, TrainingGroup
    from brorl.group import Prompt, RolloutGroup
    from brorl.seeding import generator
    from tiny_models import tiny_model

    torch.set_num_threads(1)
    rng = generator("memory")
    prompt = Prompt(id="m", text="", token_ids=np.array([5, 6], np.int32))
    group = RolloutGroup.from_sequences(prompt, [rng.integers(3, 48, size=4).tolist() for _ in range(2500)])
    item = TrainingGroup(
        group=group, advantages=rng.normal(size=group.distinct), weights=np.full(group.distinct, 1 / group.total_tokens)
    )

    def subject(**limits):
        objective = Objective(kl_coefficient=0.0, correction="none")
        return Learner(tiny_model("llama"), LearnerSettings(objective=objective, **limits))

    expected = subject(max_nodes=256, max_tokens=512).gradient([item])
    pages = int(open("/proc/self/statm").read().split()[0])
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 80 * 2**20, hard))
    greedy = subject(max_nodes=10**5, max_tokens=10**5)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = greedy.gradient([item])
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-3, atol=1e-6)
    print(group.nodes, greedy.max_nodes, sum("out of memory: repeating" in str(w.message) for w in caught))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space as Linux does")
def test_out_of_memory_halves_and_repeats() -> None:
    """A real refusal by the allocator; the gradient afterwards is that of the whole batch, counted once."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(OUT_OF_MEMORY)],
        env={"PYTHONPATH": f"{__file__}/../../", "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    nodes, max_nodes, warned = map(int, done.stdout.split())
    assert warned >= 1
    assert max_nodes < nodes
    assert max_nodes == 10**5 // 2**warned
