"""What `brorl selftest` finds out: whether the equivalences that a run rests on hold on the user's own model.

Each check compares two computations that must agree and measures by how much they do not. Advantages are made up, so
that every response has a gradient whatever it earned. Nothing is kept: the update and the checkpoint that the last
checks need are made in memory and in a temporary folder.
"""

import hashlib
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brorl.algorithms.weights import token_weights
from brorl.build import Parts, open_parts
from brorl.config import Recipe
from brorl.engines.protocol import SampleRequest
from brorl.errors import DataError
from brorl.group import Floats, Prompt, RolloutGroup
from brorl.learner.checkpoint import load_checkpoint, save_checkpoint
from brorl.learner.learner import Learner
from brorl.learner.objective import TrainingGroup
from brorl.learner.tree import cut
from brorl.phases import Report, silent
from brorl.seeding import generator

TOLERANCES: dict[torch.dtype, dict[str, float]] = {
    torch.float64: {"gradient": 1e-6, "logprobs": 1e-6, "ratio": 1e-6},  # norms compute in float32 even here
    torch.float32: {"gradient": 3e-4, "logprobs": 3e-4, "ratio": 1e-4},
    torch.bfloat16: {"gradient": 0.1, "logprobs": 0.1, "ratio": 0.05},
}
"""By what matrix products are computed in: the relative error of a gradient, the root mean square difference of
log-probabilities in nats, the distance of a ratio from 1. What must be equal to the last bit has tolerance 0."""
CHECKS = ("micro-batches", "trie cuts", "engine", "ratio", "learning rate 0", "engine after an update", "checkpoint")
_PIECES = 5  # the largest trie is cut into at least
_RATES = (1e-4, 1e-3, 1e-2)  # tried until an update shows
_SHOWS = 5  # times the tolerance that log-probabilities must move for an update to show


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One comparison."""

    name: str
    what: str
    """what was compared, and in which unit"""
    measured: float
    tolerance: float
    seconds: float

    @property
    def passed(self) -> bool:
        return self.measured <= self.tolerance  # not for NaN

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "passed": self.passed}


@dataclass(slots=True, kw_only=True)
class _Subject:
    """What is tested, and what it drew."""

    parts: Parts
    recipe: Recipe
    prompts: Sequence[Prompt]
    rollouts: int
    groups: list[RolloutGroup]
    batch: list[TrainingGroup]
    tolerance: Mapping[str, float]

    @property
    def learner(self) -> Learner:
        return self.parts.learner


def run_selftest(recipe: Recipe, *, prompts: int = 4, rollouts: int = 64, report: Report = silent) -> Iterator[Check]:
    """Check the recipe's model on its first prompts; yields each check as it is done, in the order of `CHECKS`.

    Args:
        recipe: what is to be trained.
        prompts: how many prompts are drawn.
        rollouts: per prompt; at most the recipe's.
        report: progress.

    Raises:
        UserError: whatever of the recipe cannot be used.
    """
    quiet = {"evaluation": {"heldout_prompts": 0, "training_prompts": 0}, "probe": {"every": 0, "snr_every": 0}}
    changed = {name: getattr(recipe, name).model_copy(update=update) for name, update in quiet.items()}
    with open_parts(recipe.model_copy(update=changed)) as parts:
        report(CHECKS[0], 0, len(CHECKS))
        subject = _subject(parts, recipe, prompts, min(rollouts, recipe.rollouts.per_prompt))
        checks = (
            _micro_batches,
            _trie_cuts,
            _engine,
            _ratio,
            _learning_rate_0,
            _engine_after_an_update,
            _checkpoint,
        )
        for done, (name, check) in enumerate(zip(CHECKS, checks, strict=True)):
            report(name, done, len(CHECKS))
            started = time.perf_counter()
            what, measured, tolerance = check(subject)
            yield Check(
                name=name, what=what, measured=measured, tolerance=tolerance, seconds=time.perf_counter() - started
            )


def computes_in(learner: Learner) -> torch.dtype:
    """The dtype of matrix products, which decides the tolerances."""
    return learner.settings.compute_dtype or learner.model.dtype


def _subject(parts: Parts, recipe: Recipe, wanted: int, rollouts: int) -> _Subject:
    found = (parts.data.prompt_at(position) for position in range(20 * wanted))
    prompts = [prompt for prompt in found if prompt is not None][:wanted]
    if not prompts:
        raise DataError(f"all of the first {20 * wanted} prompts are over prompt.max_tokens: raise the limit")
    groups = _draw(parts, prompts, rollouts, (recipe.seed, "selftest", "start"))
    with_reference = parts.learner.reference is not None
    reference = parts.learner.logprobs(groups, reference=True) if with_reference else [None] * len(groups)
    weights = token_weights(groups, recipe.algorithm.aggregation, max_new_tokens=recipe.rollouts.max_new_tokens)
    batch = [
        TrainingGroup(
            group=group,
            advantages=generator(recipe.seed, "selftest advantages", slot).normal(size=group.distinct),
            weights=weight,
            ref_logprobs=ref,
        )
        for slot, (group, weight, ref) in enumerate(zip(groups, weights, reference, strict=True))
    ]
    tolerance = TOLERANCES[computes_in(parts.learner)]
    return _Subject(
        parts=parts,
        recipe=recipe,
        prompts=prompts,
        rollouts=rollouts,
        groups=groups,
        batch=batch,
        tolerance=tolerance,
    )


def _draw(parts: Parts, prompts: Sequence[Prompt], rollouts: int, key: tuple[Any, ...]) -> list[RolloutGroup]:
    requests = [SampleRequest(prompt=p, rollouts=rollouts, key=(*key, slot)) for slot, p in enumerate(prompts)]
    groups = dict(parts.rollouts.engine.sample(requests, parts.sampling))
    return [groups[slot] for slot in range(len(prompts))]


def _micro_batches(subject: _Subject) -> tuple[str, float, float]:
    learner = subject.learner
    with _limits(learner, learner.max_nodes, learner.max_tokens):
        together = learner.gradient(subject.batch)
    with _limits(learner, learner.max_nodes, 1):
        one_by_one = learner.gradient(subject.batch)
    what = "gradient of all rows together against one row at a time, relative error"
    return what, _relative_error(one_by_one, together), subject.tolerance["gradient"]


def _trie_cuts(subject: _Subject) -> tuple[str, float, float]:
    learner = subject.learner
    most = max(group.nodes for group in subject.groups)
    large = learner.max_nodes
    small = max(1, min(large // 2, most // _PIECES))
    gradients = []
    for size in (large, small):
        with _limits(learner, size, learner.max_tokens):
            gradients.append(learner.gradient(subject.batch))
    pieces = [sum(1 for g in subject.groups for _ in cut(0, g, size)) for size in (large, small)]
    what = f"gradient of the tries in {pieces[0]} pieces against {pieces[1]}, relative error"
    return what, _relative_error(gradients[1], gradients[0]), subject.tolerance["gradient"]


def _engine(subject: _Subject) -> tuple[str, float, float]:
    found = _mismatch(subject.groups, subject.learner)
    nodes = sum(group.nodes for group in subject.groups)
    what = f"log-probabilities of {nodes:,} nodes, engine against learner, root mean square in nats"
    return what, found, subject.tolerance["logprobs"]


def _ratio(subject: _Subject) -> tuple[str, float, float]:
    learner = subject.learner
    old = learner.logprobs(subject.groups)
    figures = learner.step([replace(item, old_logprobs=lp) for item, lp in zip(subject.batch, old, strict=True)], 0.0)
    what = "ratio of the first update to 1, mean and largest"
    return what, max(abs(figures["ratio"] - 1), abs(figures["ratio_max"] - 1)), subject.tolerance["ratio"]


def _learning_rate_0(subject: _Subject) -> tuple[str, float, float]:
    before = _fingerprints(subject.learner.model.named_parameters())
    subject.learner.step(subject.batch, 0.0)
    after = _fingerprints(subject.learner.model.named_parameters())
    return f"of {len(before)} weight tensors, changed by an update at learning rate 0", _changed(before, after), 0.0


def _engine_after_an_update(subject: _Subject) -> tuple[str, float, float]:
    learner, parts = subject.learner, subject.parts
    before, moved = learner.logprobs(subject.groups), 0.0
    for lr in _RATES:
        learner.step(subject.batch, lr)
        moved = _rms(before, learner.logprobs(subject.groups))
        if moved > _SHOWS * subject.tolerance["logprobs"]:
            break
    parts.rollouts.engine.load_weights(learner.weights(), learner.policy_version)
    groups = _draw(parts, subject.prompts, subject.rollouts, (subject.recipe.seed, "selftest", "updated"))
    what = f"the same for new rollouts after an update that moved log-probabilities by {moved:.2g}"
    # An update that moves nothing would leave a stale engine unnoticed.
    shows = moved > _SHOWS * subject.tolerance["logprobs"]
    return what, _mismatch(groups, learner) if shows else float("nan"), subject.tolerance["logprobs"]


def _checkpoint(subject: _Subject) -> tuple[str, float, float]:
    learner = subject.learner
    before, counters = _state(learner), learner.counters()
    with tempfile.TemporaryDirectory(prefix="brorl-selftest-") as folder:
        directory = save_checkpoint(Path(folder), 1, learner, subject.parts.tokenizer, state={})
        _forget(learner)
        load_checkpoint(directory, learner)
    changed = _changed(before, _state(learner)) + (learner.counters() != counters)
    what = f"of {len(before)} tensors of weights, optimizer and reference, different after saving and loading"
    return what, float(changed), 0.0


@contextmanager
def _limits(learner: Learner, max_nodes: int, max_tokens: int) -> Iterator[None]:
    before = learner.max_nodes, learner.max_tokens
    learner.max_nodes, learner.max_tokens = max_nodes, max_tokens
    try:
        yield
    finally:
        learner.max_nodes, learner.max_tokens = before


def _relative_error(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    """NaN where there is no gradient: nothing was compared then."""
    if found.keys() != expected.keys():
        return float("nan")
    difference = sum(float((found[name] - expected[name]).double().square().sum()) for name in expected)
    size = sum(float(gradient.double().square().sum()) for gradient in expected.values())
    return (difference / size) ** 0.5 if size > 0 else float("nan")


def _mismatch(groups: Sequence[RolloutGroup], learner: Learner) -> float:
    drawn = [group.logprobs for group in groups if group.logprobs is not None]
    return _rms(drawn, learner.logprobs(groups)) if len(drawn) == len(groups) else float("nan")


def _rms(first: Sequence[Floats], second: Sequence[Floats]) -> float:
    return float(np.sqrt(np.mean((np.concatenate(first).astype(np.float64) - np.concatenate(second)) ** 2)))


def _state(learner: Learner) -> dict[str, str]:
    tensors = [*learner.model.named_parameters(), *learner.optimizer_tensors().items()]
    if learner.reference is not None:
        tensors += [(f"reference {name}", p) for name, p in learner.reference.named_parameters()]
    return _fingerprints(tensors)


def _fingerprints(tensors: Iterable[tuple[str, Tensor]]) -> dict[str, str]:
    """A hash of each tensor's bytes: equal to the last bit, and no second copy of a large model."""
    return {
        name: hashlib.blake2b(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data).hexdigest()
        for name, tensor in tensors
    }


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> float:
    return float(sum(before.get(name) != after.get(name) for name in before.keys() | after.keys()))


@torch.no_grad()
def _forget(learner: Learner) -> None:
    """Lose all that a checkpoint must bring back."""
    trained = learner.trainable()
    for model in (learner.model, learner.reference):
        for name, parameter in model.named_parameters() if model is not None else ():
            if name in trained:
                parameter.zero_()
    learner.clear_optimizer()
    learner.set_counters(dict.fromkeys(learner.counters(), 0) | {"max_nodes": 1, "max_tokens": 1})
