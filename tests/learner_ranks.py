"""Ranks of a sharded learner in processes of their own, which meet over gloo, and the work they are given."""

import copy
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.multiprocessing.spawn import spawn
from transformers import PreTrainedModel

from brorl.algorithms.weights import token_weights
from brorl.group import Prompt, RolloutGroup
from brorl.learner.fsdp import ShardedLearner
from brorl.learner.learner import Learner, LearnerSettings
from brorl.learner.objective import TrainingGroup
from brorl.seeding import generator
from flat_rollouts import flat_rollouts

Work = Callable[..., Any]


def on_ranks(world: int, directory: Path, work: Work, *arguments: Any) -> list[Any]:
    """What ``work(*arguments)`` returns on each of `world` ranks of one process group."""
    directory.mkdir()
    spawn(_rank, (world, directory, work, arguments), nprocs=world)
    return [torch.load(directory / f"{rank}.pt", weights_only=False) for rank in range(world)]


def _rank(rank: int, world: int, directory: Path, work: Work, arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    os.environ["LOCAL_RANK"] = str(rank)
    dist.init_process_group("gloo", init_method=f"file://{directory / 'meet'}", rank=rank, world_size=world)
    torch.save(work(*arguments), directory / f"{rank}.pt")
    dist.destroy_process_group()


def sharded(model: PreTrainedModel, settings: LearnerSettings) -> ShardedLearner:
    """This rank's part of a learner over all ranks."""
    return ShardedLearner(model, settings, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))


def small_model(architecture: str, dtype: torch.dtype, *, tied: bool) -> PreTrainedModel:
    """A tiny model, whole in `dtype`, its output layer the embedding or apart from it."""
    model = copy.deepcopy(flat_rollouts(architecture, dtype).model)
    embedding: Any = model.get_input_embeddings()
    head: Any = model.get_output_embeddings()
    model.config.tie_word_embeddings = tied
    head.weight = embedding.weight if tied else nn.Parameter(embedding.weight.detach().flip(0))
    return model


def small_groups(architecture: str, dtype: torch.dtype) -> list[RolloutGroup]:
    """Three groups of different sizes."""
    return flat_rollouts(architecture, dtype).groups()


def one_node(architecture: str) -> list[RolloutGroup]:
    """A group that one rank alone can work on."""
    prompt = Prompt(id="short", text="", token_ids=np.array([5, 6], np.int32))
    return [RolloutGroup.from_sequences(prompt, [[3], [3]], logprobs=[[-1.0], [-1.0]])]


def batch_of(groups: list[RolloutGroup], key: str = "") -> list[TrainingGroup]:
    """Groups to train on, their old and reference log-probabilities a little off the engine's."""
    weights = token_weights(groups, "token_mean")
    found: list[TrainingGroup] = []
    for index, (group, weight) in enumerate(zip(groups, weights, strict=True)):
        rng = generator("sharded learner test", key, index)
        assert group.logprobs is not None
        old, reference = (group.logprobs + rng.normal(scale=0.3, size=group.nodes) for _ in range(2))
        found.append(
            TrainingGroup(
                group=group,
                advantages=rng.normal(size=group.distinct),
                weights=weight,
                old_logprobs=old,
                ref_logprobs=reference,
            )
        )
    return found


def gradients(make: Callable[..., Learner], cases: list[tuple[str, bool, torch.dtype, str, LearnerSettings]]) -> Any:
    """Per case the gradient by name, and the log-probabilities, of a learner that `make` makes."""
    found: list[Any] = []
    for architecture, tied, dtype, what, settings in cases:
        learner = make(small_model(architecture, dtype, tied=tied), settings)
        groups = one_node(architecture) if what == "one node" else small_groups(architecture, dtype)
        found.append((learner.gradient(batch_of(groups)), learner.logprobs(groups)))
    return found


def three_steps(make: Callable[..., Learner], settings: LearnerSettings, *, tied: bool, dtype: torch.dtype) -> Any:
    """Metrics of three steps with a reference reset between, and the weights after them."""
    learner = make(small_model("qwen2", dtype, tied=tied), settings)
    groups = small_groups("qwen2", dtype)
    figures = [learner.step(batch_of(groups, "0"), lr=1e-2)]
    learner.reset_reference()
    figures.append(learner.step(batch_of(groups[:2], "1"), lr=1e-2))
    figures.append(learner.step(batch_of(one_node("qwen2"), "2"), lr=1e-2))
    return figures, dict(learner.weights()), learner.logprobs(groups, reference=True), learner.counters()
