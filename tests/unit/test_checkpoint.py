"""Checkpoints: complete or absent, and going on from one is bit for bit never having stopped."""

import json
import os
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from brorl.errors import ModelError, RunError
from brorl.group import Prompt, RolloutGroup
from brorl.learner.checkpoint import damage, latest_checkpoint, load_checkpoint, save_checkpoint
from brorl.learner.learner import Learner
from brorl.learner.model import load_model
from brorl.learner.objective import TrainingGroup
from brorl.seeding import generator
from tiny_policy import save_tiny_policy


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_policy(tmp_path_factory.mktemp("model"))


def new_learner(policy: Path) -> Learner:
    return Learner(load_model(policy)[0])


def train(learner: Learner, step: int) -> dict[str, float]:
    """One step on rollouts that depend on the step alone."""
    rng = generator("checkpoint test", step)
    prompt = Prompt(id="p", text="", token_ids=np.array([5, 6, 7], np.int32))
    rows = [rng.integers(4, 9, size=rng.integers(2, 8)).tolist() for _ in range(16)]
    group = RolloutGroup.from_sequences(prompt, rows, logprobs=[[-3.9] * len(row) for row in rows])
    advantages = rng.normal(size=group.distinct)
    weights = np.full(group.distinct, 1 / group.total_tokens)
    item = TrainingGroup(
        group=group,
        advantages=advantages,
        weights=weights,
        old_logprobs=learner.logprobs([group])[0],
        ref_logprobs=learner.logprobs([group], reference=True)[0],
    )
    return learner.step([item], lr=1e-2)


def save(root: Path, learner: Learner, step: int, policy: Path, keep: int | None = None) -> Path:
    tokenizer = AutoTokenizer.from_pretrained(policy)
    return save_checkpoint(root, step, learner, tokenizer, state={"cursor": step * 10}, keep=keep)


def test_going_on_equals_never_having_stopped(policy: Path, tmp_path: Path) -> None:
    unbroken = new_learner(policy)
    train(unbroken, 0)
    unbroken.reset_reference()
    train(unbroken, 1)
    first = [train(unbroken, step) for step in (2, 3)]

    learner = new_learner(policy)
    train(learner, 0)
    learner.reset_reference()
    train(learner, 1)
    save(tmp_path, learner, 2, policy)
    resumed = new_learner(policy)
    assert load_checkpoint(latest_checkpoint(tmp_path), resumed) == {"cursor": 20}
    assert resumed.policy_version == 2
    second = [train(resumed, step) for step in (2, 3)]

    assert first == second
    for name, weight in unbroken.weights().items():
        assert torch.equal(weight, resumed.weights()[name]), name
    assert unbroken.reference is not None
    assert resumed.reference is not None
    for name, weight in unbroken.reference.state_dict().items():
        assert torch.equal(weight, resumed.reference.state_dict()[name]), name


def test_the_reference_of_the_last_reset_is_restored(policy: Path, tmp_path: Path) -> None:
    learner = new_learner(policy)
    train(learner, 0)
    learner.reset_reference()
    at_reset = {name: weight.clone() for name, weight in learner.weights().items()}
    equal = save(tmp_path, learner, 1, policy)
    assert not (equal / "reference.state").exists()
    train(learner, 1)
    save(tmp_path, learner, 2, policy)
    for step in (1, 2):
        resumed = new_learner(policy)
        load_checkpoint(tmp_path / f"step_{step:06d}", resumed)
        assert resumed.reference is not None
        for name, weight in resumed.reference.state_dict().items():
            assert torch.equal(weight, at_reset[name])


def test_it_is_a_plain_model_directory(policy: Path, tmp_path: Path) -> None:
    learner = new_learner(policy)
    train(learner, 0)
    path = save(tmp_path, learner, 1, policy)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, learner.weights()[name])
    assert AutoTokenizer.from_pretrained(path).eos_token == "<eos>"
    assert load_model(path)[0].dtype == torch.float32


def test_keeps_the_newest(policy: Path, tmp_path: Path) -> None:
    learner = new_learner(policy)
    for step in (1, 2, 10):
        save(tmp_path, learner, step, policy, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step_000002", "step_000010"]


def test_saving_a_step_again_replaces_it(policy: Path, tmp_path: Path) -> None:
    learner = new_learner(policy)
    save(tmp_path, learner, 1, policy)
    train(learner, 0)
    path = save(tmp_path, learner, 1, policy)
    assert [entry.name for entry in tmp_path.iterdir()] == ["step_000001"]
    resumed = new_learner(policy)
    load_checkpoint(path, resumed)
    assert resumed.policy_version == 1


def test_extra_files_are_part_of_it(policy: Path, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(policy)
    path = save_checkpoint(
        tmp_path, 1, new_learner(policy), tokenizer, state={}, extra=lambda d: (d / "carried.txt").write_text("three")
    )
    assert damage(path) is None
    (path / "carried.txt").write_text("two")
    assert damage(path) == "carried.txt has 3 bytes instead of 5"


def truncate(path: Path) -> None:
    with (path / "model.safetensors").open("r+b") as file:
        file.truncate(1000)


def flip_a_byte(path: Path) -> None:
    with (path / "optimizer.state").open("r+b") as file:
        file.seek(-5, os.SEEK_END)
        byte = file.read(1)
        file.seek(-5, os.SEEK_END)
        file.write(bytes([byte[0] ^ 1]))


def lose_the_state(path: Path) -> None:
    (path / "trainer.json").unlink()


def empty_the_state(path: Path) -> None:
    (path / "trainer.json").write_text("{}")


def lose_the_manifest(path: Path) -> None:
    (path / "manifest.json").write_text("{")


@pytest.mark.parametrize("harm", [truncate, flip_a_byte, lose_the_state, empty_the_state, lose_the_manifest])
def test_a_damaged_newest_falls_back_loudly(policy: Path, tmp_path: Path, harm) -> None:
    learner = new_learner(policy)
    train(learner, 0)
    before = save(tmp_path, learner, 1, policy)
    newest = save(tmp_path, learner, 2, policy)
    harm(newest)
    with pytest.warns(UserWarning, match="step_000002: damaged checkpoint passed over"):
        assert latest_checkpoint(tmp_path) == before
    with pytest.raises(RunError, match="damaged checkpoint"):
        load_checkpoint(newest, new_learner(policy))
    harm(before)
    with pytest.warns(UserWarning, match="passed over"), pytest.raises(RunError, match="no sound checkpoint among 2"):
        latest_checkpoint(tmp_path)


def test_an_unfinished_write_is_not_a_checkpoint(policy: Path, tmp_path: Path) -> None:
    kept = save(tmp_path, new_learner(policy), 1, policy)
    (tmp_path / ".step_000002.partial").mkdir()
    assert latest_checkpoint(tmp_path) == kept
    # Killed between the two renames of a second save at one step.
    kept.rename(tmp_path / "step_000001.replaced")
    assert damage(latest_checkpoint(tmp_path)) is None


def test_weights_of_another_model_are_refused(policy: Path, tmp_path: Path) -> None:
    path = save(tmp_path, new_learner(policy), 1, policy)
    other = load_model(policy)[0]
    other.resize_token_embeddings(60)
    with pytest.raises(RunError, match=r"weights of another model: model\.embed_tokens\.weight"):
        load_checkpoint(path, Learner(other))


def test_the_optimizer_starts_warm_from_a_model_directory(policy: Path, tmp_path: Path) -> None:
    learner = new_learner(policy)
    train(learner, 0)
    path = save(tmp_path, learner, 1, policy)
    warm = new_learner(path)
    warm.load_optimizer(path)
    assert warm.reference is not None
    warm.reference.load_state_dict(learner.reference.state_dict())  # type: ignore[union-attr]
    assert train(warm, 1) == train(learner, 1)
    for name, weight in learner.weights().items():
        assert torch.equal(weight, warm.weights()[name])
    with pytest.raises(ModelError, match="no usable optimizer state"):
        warm.load_optimizer(policy)
    other = load_model(policy)[0]
    other.resize_token_embeddings(60)
    with pytest.raises(ModelError, match="optimizer state of another model"):
        Learner(other).load_optimizer(path)


@contextmanager
def no_file_longer_than(limit: int) -> Iterator[None]:
    """A disk on which every write past `limit` bytes of a file fails, by the operating system's own refusal."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("limit", [300, 40_000, 150_000], ids=["first file", "weights", "optimizer"])
def test_a_full_disk_is_one_message_and_loses_nothing(policy: Path, tmp_path: Path, limit: int) -> None:
    learner = new_learner(policy)
    train(learner, 0)
    save(tmp_path, learner, 1, policy)
    with no_file_longer_than(limit), pytest.raises(RunError) as caught:
        save(tmp_path, learner, 2, policy, keep=1)
    assert re.search("step_000002: the checkpoint could not be written .*Make room on this disk", str(caught.value))
    assert [path.name for path in tmp_path.iterdir()] == ["step_000001"]
    assert latest_checkpoint(tmp_path).name == "step_000001"
    assert save(tmp_path, learner, 2, policy).name == "step_000002"


def test_state_is_json_and_the_optimizer_is_by_name(policy: Path, tmp_path: Path) -> None:
    learner = new_learner(policy)
    train(learner, 0)
    path = save(tmp_path, learner, 1, policy)
    assert json.loads((path / "trainer.json").read_text())["learner"]["policy_version"] == 1
    names = {name.rpartition("/")[0] for name in load_file(path / "optimizer.state")}
    assert names == {name for name, _ in learner.model.named_parameters()}
