"""What N to choose: predictions of a pilot fit at each N beside what a step of it costs, and one recommendation."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np

from brorl.errors import DataError, ModelError
from brorl.evaluation.foreign import Rollouts
from brorl.rundir import RunDirectory
from brorl.theory.cost import ModelShape, StepShape, step_cost
from brorl.theory.curves import node_growth
from brorl.theory.planning import PassRateFit, fit_pass_rates, kept_share, pass_at_n, signal_to_noise, tail_miss

DRAWN_PER_TRAINED = 4.0
"""Dynamic sampling draws at most this many prompts per trained one; the trainer's default round limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What a step of the run to be planned is made of."""

    prompts_per_step: int
    prompt_tokens: float
    response_tokens: float
    node_alpha: float
    """nodes of a group ~ node_first * N^node_alpha; 1 means that responses share nothing"""
    node_first: float
    seconds_per_node: float | None
    """measured on the user's machine in the run; None: estimated from the model's size and the machine's rate"""
    model: ModelShape | None
    base_samples: int
    """samples per step that the present learning rate was tuned for"""
    assumptions: tuple[str, ...]

    def nodes(self, rollouts: int) -> float:
        """Trie nodes of one group, at most N whole responses."""
        return min(self.node_first * rollouts**self.node_alpha, rollouts * self.response_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """Predictions at one N; the interval is a 90 % one for the pilot's own prompts."""

    rollouts: int
    kept_share: float
    kept_share_low: float
    kept_share_high: float
    pass_at_n: float
    tail_miss: float
    """probability that a group is kept and misses a mode with a tenth of its correct mass"""
    signal_to_noise: float
    """of one group's gradient, in units of the distance of right and wrong scores over their spread"""
    nodes: float
    """distinct trie nodes of one group"""
    seconds: float | None
    """of one step with `prompts_per_step` trained prompts; None where no model and no timing is known"""
    memory_mib: float | None
    prompts_per_step: int
    learning_rate_factor: float
    """sqrt(samples per step / samples the learning rate was tuned for)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The N to choose, with the step that a budget allows."""

    row: PlanRow
    reason: str


def pilot(rollouts: Rollouts, *, draws: int = 2000) -> PassRateFit:
    """The fit of each prompt's latest pass rate.

    Raises:
        DataError: no prompt with a scorable sample.
    """
    latest = {rollouts.problems[i]: i for i in np.argsort(rollouts.steps, kind="stable").tolist()}
    rows = np.array([i for i in latest.values() if rollouts.samples[i]], np.int64)
    if len(rows) == 0:
        raise DataError("no prompt has a scorable sample: nothing to plan from")
    return fit_pass_rates(rollouts.samples[rows], rollouts.correct[rows], draws=draws)


def plan_rows(fit: PassRateFit, sizes: Sequence[int], workload: Workload) -> list[PlanRow]:
    """Predict each N.

    Raises:
        DataError: an N below 2.
    """
    if any(size < 2 for size in sizes):
        raise DataError("a plan needs N >= 2 rollouts per prompt: one rollout has nothing to be compared with")
    rate = _matrix_rate() if workload.model and workload.seconds_per_node is None else None
    return [_row(fit, size, workload, workload.prompts_per_step, rate) for size in sizes]


def recommend(
    fit: PassRateFit,
    rows: Sequence[PlanRow],
    workload: Workload,
    *,
    budget_rollouts: float | None = None,
    budget_seconds: float | None = None,
    enough: float = 0.95,
    fewest_prompts: int = 8,
) -> Recommendation:
    """The smallest N that keeps `enough` of the largest kept share which a step can afford.

    A rule of thumb, and said so: beyond that N more rollouts hardly bring more prompts with signal, while prompts per
    step, which a fixed budget pays for them with, keep the updates of different prompts from fighting each other.

    Args:
        budget_rollouts, budget_seconds: of one step, drawn rollouts of dropped groups included; no limit if None.
        fewest_prompts: an N for which a budget leaves fewer trained prompts per step is not affordable.

    Raises:
        DataError: a budget in seconds where the seconds are not known, or no N at all.
    """
    if not rows:
        raise DataError("no N to choose from")
    if budget_seconds is not None and rows[0].seconds is None:
        raise DataError("a budget in hours needs seconds: plan from a run, or name --model")
    fitted: list[PlanRow] = []
    for row in rows:
        drawn = row.rollouts * _drawn_per_trained(row.kept_share)
        limits = [budget_rollouts / drawn] if budget_rollouts is not None else []
        if budget_seconds is not None and row.seconds is not None:
            limits.append(budget_seconds / (row.seconds / row.prompts_per_step))
        prompts = int(min(limits)) if limits else row.prompts_per_step
        fitted.append(_resized(row, max(prompts, 1), workload))
    limited = budget_rollouts is not None or budget_seconds is not None
    affordable = [row for row in fitted if row.prompts_per_step >= fewest_prompts or not limited]
    if not affordable:
        row = max(fitted, key=lambda r: r.prompts_per_step)
        return Recommendation(
            row=row, reason=f"the budget leaves fewer than {fewest_prompts} prompts per step at every N; this has most"
        )
    most = max(row.kept_share for row in affordable)
    row = next(r for r in sorted(affordable, key=lambda r: r.rollouts) if r.kept_share >= enough * most)
    return Recommendation(
        row=row,
        reason=f"the smallest N within {1 - enough:.0%} of the largest {'affordable ' if limited else ''}kept share, "
        f"{most:.2f}" + ("" if limited else "; no budget was given"),
    )


def workload_of(
    rollouts: Rollouts,
    run: Path | None,
    *,
    model: Path | None,
    bundled: Path | None,
    prompt_tokens: float,
    response_tokens: float,
    prompts_per_step: int,
    base_samples: int,
) -> Workload:
    """Measured where the source allows it, stated as an assumption where not.

    Args:
        run: the run directory of one's own rollouts; its step times and sizes are used.
        model: a Hugging Face model directory, for its sizes; the run's own by default.
        bundled: the model inside the package, for want of another.
        prompt_tokens, response_tokens, prompts_per_step, base_samples: what is assumed where nothing is recorded.
    """
    assumptions: list[str] = []
    first, alpha = response_tokens, 1.0
    groups = [scored.group for scored in rollouts.groups if scored.group.rollouts >= 4]
    if rollouts.unit == "tokens" and groups:
        newest = groups[-32:]
        first, alpha = node_growth(newest)
        response_tokens = sum(g.total_tokens for g in newest) / sum(g.rollouts for g in newest)
        prompt_tokens = float(np.mean([len(g.prompt.token_ids) for g in newest]))
    else:
        assumptions.append(f"responses of {response_tokens:g} tokens that share no prefix (--response-tokens)")
    seconds_per_node = None
    if run is not None:
        directory = RunDirectory.open(run)
        recipe = directory.recipe()
        prompts_per_step = recipe.rollouts.prompts_per_step
        base_samples = recipe.optimizer.base_samples or recipe.samples_per_step
        trained = Path(recipe.model.path).expanduser()
        model = trained if model is None and (trained / "config.json").is_file() else model
        seconds_per_node = _seconds_per_node(directory)
    else:
        assumptions.append(f"{prompts_per_step} trained prompts per step (--prompts-per-step)")
        assumptions.append(f"a learning rate tuned for {base_samples} samples per step (--base-samples)")
    model = model or bundled
    shape = model_shape(model) if model is not None else None
    if seconds_per_node is None:
        assumptions.append(
            f"times from the size of {model} and this machine's matrix rate, right within a factor of two or three"
            if shape
            else "no time and memory: name a model with --model, or plan from a run"
        )
    return Workload(
        prompts_per_step=prompts_per_step,
        prompt_tokens=prompt_tokens,
        response_tokens=response_tokens,
        node_alpha=alpha,
        node_first=first,
        seconds_per_node=seconds_per_node,
        model=shape,
        base_samples=base_samples,
        assumptions=tuple(assumptions),
    )


def model_shape(directory: Path) -> ModelShape:
    """Sizes from config.json alone, for decoder-only models with gated feed-forward layers; loads no weights.

    Raises:
        ModelError: no config.json, or one that lacks the sizes.
    """
    try:
        data: dict[str, Any] = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise ModelError(f"{directory}: no readable config.json ({error})") from error
    config = data.get("text_config", data)
    try:
        layers, hidden, vocabulary = (config[k] for k in ("num_hidden_layers", "hidden_size", "vocab_size"))
        heads, inner = config["num_attention_heads"], config["intermediate_size"]
    except KeyError as error:
        raise ModelError(f"{directory}/config.json: no {error.args[0]}") from error
    size = config.get("head_dim") or hidden // heads
    kv_width = (config.get("num_key_value_heads") or heads) * size
    weights = layers * (2 * hidden * heads * size + 2 * hidden * kv_width + 3 * hidden * inner)
    tables = 1 if data.get("tie_word_embeddings", config.get("tie_word_embeddings", False)) else 2
    return ModelShape(
        weights=weights,
        parameters=weights + tables * vocabulary * hidden,
        layers=layers,
        hidden=hidden,
        kv_width=kv_width,
        vocabulary=vocabulary,
    )


def as_json(rows: Sequence[PlanRow]) -> list[dict[str, Any]]:
    """One object per N."""
    return [asdict(row) for row in rows]


def _seconds_per_node(run: RunDirectory) -> float | None:
    """Wall-clock seconds of the last 20 steps, probes left out, per trie node drawn; None before the first step."""
    steps = [record for record in run.read_metrics() if record.get("nodes")][-20:]
    if not steps:
        return None
    seconds = sum(record["seconds"]["total"] - record["seconds"].get("probe", 0.0) for record in steps)
    return seconds / sum(record["nodes"] for record in steps)


def _row(fit: PassRateFit, size: int, workload: Workload, prompts: int, rate: float | None) -> PlanRow:
    kept = kept_share(fit, size)
    nodes, seconds, memory = workload.nodes(size), None, None
    drawn = prompts * _drawn_per_trained(kept.value)
    if workload.seconds_per_node is not None:
        seconds = workload.seconds_per_node * nodes * drawn
    if workload.model is not None:
        shape = StepShape(
            prompts=prompts,
            rollouts=size,
            prompt_tokens=workload.prompt_tokens,
            response_tokens=workload.response_tokens,
            distinct_node_share=min(1.0, nodes / (size * workload.response_tokens)),
            drawn_prompts=drawn,
        )
        cost = step_cost(workload.model, shape, flops_per_second=rate or 1.0)
        memory, seconds = cost.memory_mib, cost.seconds if seconds is None else seconds
    return PlanRow(
        rollouts=size,
        kept_share=kept.value,
        kept_share_low=kept.low,
        kept_share_high=kept.high,
        pass_at_n=pass_at_n(fit, size).value,
        tail_miss=tail_miss(fit, size).value,
        signal_to_noise=signal_to_noise(fit, size).value,
        nodes=nodes,
        seconds=seconds,
        memory_mib=memory,
        prompts_per_step=prompts,
        learning_rate_factor=sqrt(prompts * size / workload.base_samples),
    )


def _resized(row: PlanRow, prompts: int, workload: Workload) -> PlanRow:
    """The row at another number of prompts per step; a step's time is proportional to them."""
    seconds = None if row.seconds is None else row.seconds * prompts / row.prompts_per_step
    factor = sqrt(prompts * row.rollouts / workload.base_samples)
    return PlanRow(**{**asdict(row), "prompts_per_step": prompts, "seconds": seconds, "learning_rate_factor": factor})


def _drawn_per_trained(kept: float) -> float:
    return min(1.0 / kept, DRAWN_PER_TRAINED) if kept > 0 else DRAWN_PER_TRAINED


def _matrix_rate(size: int = 1024, repeats: int = 4) -> float:
    """Floating-point operations per second of this machine's float32 matrix product, best of a few."""
    a = np.full((size, size), 0.5, np.float32)
    best = 0.0
    for _ in range(repeats):
        started = time.perf_counter()
        np.matmul(a, a)
        best = max(best, 2 * size**3 / (time.perf_counter() - started))
    return best
