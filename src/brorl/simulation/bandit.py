"""The paper's bandit: 128,000 actions, 10,000 correct, N draws a step, one softmax policy (BroRL section 4.1).

The loss is the mean-baseline surrogate -(1/N) sum_j r_j p_j over the draws, multiplicity counted; its gradient on the
logits is p_k (sum_i w_i p_i - w_k) with w_k the summed centred reward of action k over N. Everything is exact in
float64; nothing is approximated by symmetry, since actions of one kind drift apart as they are drawn.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from brorl.seeding import generator

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Actions, the first `correct` of them right, and the starting logits."""

    actions: int = 128_000
    correct: int = 10_000
    correct_logit: float = 3.0
    """starting logit of correct actions; wrong ones start at 0"""
    anchor_logit: float | None = 5.0
    """starting logit of action 0, a correct one; None: no anchor"""

    def __post_init__(self) -> None:
        if not 0 < self.correct < self.actions:
            raise ValueError(f"the world needs 0 < correct < actions, not {self.correct} of {self.actions}")

    def start_logits(self) -> Array:
        """f64[actions]"""
        logits = np.zeros(self.actions)
        logits[: self.correct] = self.correct_logit
        if self.anchor_logit is not None:
            logits[0] = self.anchor_logit
        return logits


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """How the logits follow the gradient. The defaults are the paper's (AdamW, 1e-3; the rest PyTorch's defaults)."""

    name: Literal["adamw", "gradient"] = "adamw"
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """One run: four metrics, each f64[steps + 1]; entry t is after t updates."""

    rollouts: int
    seed: int
    correct_mass: Array
    """Q_pos"""
    improved_share: Array
    """share of correct actions above their starting probability"""
    worst_drop: Array
    """most negative change of one correct action's probability, 0 if none fell"""
    retained_mass: Array
    """1 - sum max(0, p_0 - p_t) / sum p_0 over correct actions (F-GRPO)"""


def softmax(logits: Array) -> Array:
    """f64[V] probabilities."""
    weights = np.exp(logits - logits.max())
    weights /= weights.sum()
    return weights


def draw(p: Array, rollouts: int, rng: np.random.Generator) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """N independent draws from p as (distinct actions, how often each)."""
    cumulative = np.cumsum(p)
    # Sorted keys walk the cumulative sums in order; each draw is as independent as before.
    keys = np.sort(rng.random(rollouts)) * cumulative[-1]
    actions = np.searchsorted(cumulative, keys, side="right")
    return np.unique(np.minimum(actions, len(p) - 1), return_counts=True)


def surrogate_gradient(p: Array, actions: NDArray[np.intp], counts: NDArray[np.intp], correct: int) -> Array:
    """Gradient of the mean-baseline surrogate on the logits, f64[V], for rewards +1 (the first `correct`) and -1."""
    rollouts = int(counts.sum())
    reward = np.where(actions < correct, 1.0, -1.0)
    centred = reward - float(reward @ counts) / rollouts
    weights = centred * counts / rollouts
    drawn = p[actions]
    gradient = p * float(weights @ drawn)
    gradient[actions] -= drawn * weights
    return gradient


def simulate(world: World, optimizer: Optimizer, *, rollouts: int, steps: int = 1000, seed: int = 0) -> Curves:
    """One run of the bandit, `rollouts` draws a step.

    Raises:
        ValueError: fewer than two rollouts (one has no baseline), or no step.
    """
    if rollouts < 2:
        raise ValueError(f"the simulation needs N >= 2 rollouts, not {rollouts}: one rollout has no baseline")
    if steps < 1:
        raise ValueError("the simulation needs at least one step")
    rng = generator(seed, "bandit", rollouts)
    logits = world.start_logits()
    step = _adamw(optimizer, world.actions) if optimizer.name == "adamw" else _plain(optimizer)
    p = softmax(logits)
    start = p[: world.correct].copy()
    metrics = np.empty((4, steps + 1))
    metrics[:, 0] = _metrics(start, start)
    for t in range(1, steps + 1):
        actions, counts = draw(p, rollouts, rng)
        step(logits, surrogate_gradient(p, actions, counts, world.correct), t)
        p = softmax(logits)
        metrics[:, t] = _metrics(start, p[: world.correct])
    return Curves(
        rollouts=rollouts,
        seed=seed,
        correct_mass=metrics[0],
        improved_share=metrics[1],
        worst_drop=metrics[2],
        retained_mass=metrics[3],
    )


def _metrics(start: Array, now: Array) -> tuple[float, float, float, float]:
    change = now - start
    lost = float(np.minimum(change, 0.0).sum())
    return float(now.sum()), float((change > 0).mean()), min(0.0, float(change.min())), 1.0 + lost / float(start.sum())


def _plain(optimizer: Optimizer) -> Callable[[Array, Array, int], None]:
    def step(logits: Array, gradient: Array, t: int) -> None:
        logits *= 1.0 - optimizer.learning_rate * optimizer.weight_decay
        logits -= optimizer.learning_rate * gradient

    return step


def _adamw(optimizer: Optimizer, size: int) -> Callable[[Array, Array, int], None]:
    """AdamW as in torch.optim.AdamW (Loshchilov and Hutter 2019, algorithm 2), in place on preallocated arrays."""
    first, second, scratch = np.zeros(size), np.zeros(size), np.zeros(size)
    lr, beta1, beta2 = optimizer.learning_rate, optimizer.beta1, optimizer.beta2

    def step(logits: Array, gradient: Array, t: int) -> None:
        nonlocal first, second, scratch
        logits *= 1.0 - lr * optimizer.weight_decay
        first *= beta1
        first += np.multiply(gradient, 1.0 - beta1, out=scratch)
        second *= beta2
        second += np.multiply(gradient * (1.0 - beta2), gradient, out=scratch)
        np.sqrt(second, out=scratch)
        scratch *= 1.0 / np.sqrt(1.0 - beta2**t)
        scratch += optimizer.eps
        np.divide(first, scratch, out=scratch)
        scratch *= lr / (1.0 - beta1**t)
        logits -= scratch

    return step
