"""What the card of `brorl-tiny` says: its curve, whether that is flat, and what 4,096 rollouts per prompt show."""

import csv
import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brorl.config import Recipe
from brorl.group import RolloutGroup, ScoredGroup
from brorl.rundir import RunDirectory
from brorl.storage import read_groups
from brorl.theory.pass_at_k import pass_at_k
from brorl.theory.planning import measured_kept_share

FLAT_STEPS = 100
"""the curve has to be flat over this many last steps"""
FLAT_T = 1.645
"""flat: pass@1 on the fixed training prompts has not risen significantly, paired by prompt, one-sided at 5 %"""
EDGES = (0.0, 1e-4, 1e-3, 1e-2, 5e-2, 0.2, 0.5, 0.8, 0.95, 1.0)
"""of the histogram of pass rates; rates of exactly 0 and 1 have bins of their own"""
RARE = (1e-3, 5e-2)
KS = (1, 16, 64, 512)


def curve_rows(run: Path) -> list[dict[str, float]]:
    """One row per step of a run: its own metrics, and the evaluations where there was one after so many steps."""
    directory = RunDirectory.open(run)
    evaluations: dict[int, dict[str, float]] = {}
    for file in sorted(directory.evals.glob("*.json")):
        data = json.loads(file.read_text())
        for k, interval in data["pass_at"].items():
            evaluations.setdefault(data["step"], {})[f"{data['name']} pass@{k}"] = interval["value"]
    names = sorted({name for row in evaluations.values() for name in row})
    empty = dict.fromkeys(names, float("nan"))
    rows = []
    for record in directory.read_metrics():
        row = {"step": record["step"] + 1}
        row |= {key: record[key] for key in ("lr", "pass_at_1", "kept_share", "distinct_node_share", "rounds")}
        row |= {key: record.get(key, float("nan")) for key in ("entropy", "kl", "grad_norm")}
        rows.append(row | empty | evaluations.get(record["step"] + 1, {}))
    first = dict.fromkeys(rows[0], float("nan")) | {"step": 0} | evaluations.get(0, {})
    return [first, *rows]


def last_gain(run: Path) -> dict[str, Any]:
    """Pass rates of the fixed training prompts at the end of a run and FLAT_STEPS before.

    Raises:
        FileNotFoundError: the run was not evaluated then.
    """
    directory = RunDirectory.open(run)
    last = directory.read_metrics()[-1]["step"] + 1
    found: dict[str, Any] = {}
    for name, step in (("before", last - FLAT_STEPS), ("after", last)):
        groups = read_groups(directory.evals / f"step_{step:06d}_training.parquet")
        found[name] = {"step": step, "rates": [group.successes() / group.scored_rollouts for group in groups]}
    return found


def rise(gain: Mapping[str, Any]) -> tuple[float, float]:
    """Mean rise of pass@1 between two evaluations of the same prompts, and its t statistic over prompts."""
    difference = np.array(gain["after"]["rates"]) - np.array(gain["before"]["rates"])
    error = difference.std(ddof=1) / np.sqrt(len(difference))
    return float(difference.mean()), float(difference.mean() / error)


def write_curve(path: Path, rows: Sequence[Mapping[str, float]]) -> None:
    """The curve as CSV, empty where nothing was measured."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(rows[0])
        for row in rows:
            writer.writerow("" if np.isnan(value) else f"{value:.6g}" for value in row.values())


def measure(groups: Sequence[ScoredGroup]) -> dict[str, Any]:
    """Figures of a policy from many rollouts of a fixed set of prompts."""
    n = np.array([group.scored_rollouts for group in groups])
    c = np.array([group.successes() for group in groups])
    rates = c / n
    tokens = sum(group.group.total_tokens for group in groups)
    inner, _ = np.histogram(rates[(rates > 0) & (rates < 1)], bins=EDGES)
    tasks: dict[str, list[float]] = {}
    for group, rate in zip(groups, rates.tolist(), strict=True):
        tasks.setdefault(_level(group.group.prompt.meta), []).append(rate)
    return {
        "prompts": len(groups),
        "rollouts": int(n.max()),
        "pass_at": {str(k): float(pass_at_k(n, c, k).mean()) for k in KS},
        "histogram": [int((rates == 0).sum()), *inner.tolist(), int((rates == 1).sum())],
        "rare_share": _rare_share(rates),
        "kept_share": {str(k): float(measured_kept_share(n, c, k).mean()) for k in KS[1:]},
        "distinct_node_share": {str(k): _node_share(groups, k) for k in (16, 512, int(n.max()))},
        # Sampled tokens estimate the entropy of the next-token distribution without bias.
        "entropy": -sum(_logprob_sum(group.group) for group in groups) / tokens,
        "mean_length": tokens / int(n.sum()),
        "tasks": {task: _summary(np.array(tasks[task])) for task in sorted(tasks)},
        "rates": {group.group.prompt.id: rate for group, rate in zip(groups, rates.tolist(), strict=True)},
    }


def _summary(rates: NDArray[np.float64]) -> dict[str, float]:
    return {
        "prompts": len(rates),
        "pass@1": float(rates.mean()),
        "median": float(np.median(rates)),
        "rare_share": _rare_share(rates),
    }


def _rare_share(rates: NDArray[np.float64]) -> float:
    """Share of the prompts where sixteen rollouts rarely show a success, and hundreds do."""
    return float(np.mean((rates >= RARE[0]) & (rates <= RARE[1])))


def _logprob_sum(group: RolloutGroup) -> float:
    """Over every token of every rollout."""
    if group.logprobs is None:
        raise ValueError(f"prompt {group.prompt.id}: these rollouts carry no log-probabilities")
    return float(group.counts @ group.logprobs.astype(np.float64))


def _level(meta: Mapping[str, Any]) -> str:
    config = meta["config"]
    spans = [f"{config['min_' + key[4:]]}-{value} {key[4:]}" for key, value in config.items() if key.startswith("max_")]
    return f"{meta['task']}, {', '.join(spans).replace('_', ' ')}"


def _node_share(groups: Sequence[ScoredGroup], rollouts: int) -> float:
    """Trie nodes over flat tokens if each prompt had so many rollouts (a sub-sample)."""
    rng = np.random.default_rng(rollouts)
    smaller = [group.group.subsample(min(rollouts, group.group.rollouts), rng) for group in groups]
    return sum(group.nodes for group in smaller) / sum(group.total_tokens for group in smaller)


def card(
    recipe: Recipe, rows: Sequence[Mapping[str, float]], losses: Sequence[float], figures: Mapping[str, Any]
) -> str:
    """The model card in Markdown."""
    training, held_out = figures["training"], figures["held-out"]
    gain, t = rise(figures["last_gain"])
    return CARD.format(
        steps=recipe.steps,
        lr=recipe.optimizer.lr,
        prompts_per_step=recipe.rollouts.prompts_per_step,
        kl_weight=recipe.algorithm.kl_weight,
        reset_every=recipe.reference.reset_every,
        flat_steps=FLAT_STEPS,
        flat_t=FLAT_T,
        gain=gain,
        t=t,
        flat_prompts=len(figures["last_gain"]["after"]["rates"]),
        verdict="flat." if t <= FLAT_T else "**not flat yet**, 16 rollouts per prompt still help a little.",
        first_loss=losses[0],
        last_loss=losses[-1],
        prompts=training["prompts"],
        rollouts=training["rollouts"],
        figures=_figures(training, held_out),
        rare_share=training["rare_share"],
        histogram=_histogram(training, held_out),
        tasks=_tasks(training),
        curve=_curve(rows),
    )


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    return "\n".join(["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *body)])


def _figures(training: Mapping[str, Any], held_out: Mapping[str, Any]) -> str:
    sets = (training, held_out)
    body = [[f"pass@{k}", *(f"{s['pass_at'][str(k)]:.3f}" for s in sets)] for k in KS]
    body += [[f"kept share at N = {k}", *(f"{s['kept_share'][str(k)]:.3f}" for s in sets)] for k in KS[1:]]
    shares = training["distinct_node_share"]
    body += [[f"distinct-node share at N = {k}", *(f"{s['distinct_node_share'][k]:.3f}" for s in sets)] for k in shares]
    body += [
        ["prompts between 0.1 % and 5 %", *(f"{s['rare_share']:.1%}" for s in sets)],
        ["entropy per token, nats", *(f"{s['entropy']:.3f}" for s in sets)],
        ["tokens per response", *(f"{s['mean_length']:.1f}" for s in sets)],
    ]
    return _table(["", "training prompts", "held-out prompts"], body)


def _histogram(training: Mapping[str, Any], held_out: Mapping[str, Any]) -> str:
    bins = ["0", *(f"{low:g} to {high:g}" for low, high in pairwise(EDGES)), "1"]
    rows = zip(bins, training["histogram"], held_out["histogram"], strict=True)
    return _table(["pass rate", "training prompts", "held-out prompts"], [[b, str(t), str(h)] for b, t, h in rows])


def _tasks(training: Mapping[str, Any]) -> str:
    body = [
        [task, str(f["prompts"]), f"{f['pass@1']:.3f}", f"{f['median']:.4f}", f"{f['rare_share']:.0%}"]
        for task, f in training["tasks"].items()
    ]
    return _table(["task", "prompts", "pass@1", "median rate", "between 0.1 % and 5 %"], body)


def _curve(rows: Sequence[Mapping[str, float]]) -> str:
    names = [name for name in rows[0] if " pass@" in name]
    measured = [row for row in rows if not np.isnan(row["training pass@1"])]
    return _table(
        ["step", *names], [[f"{row['step']:.0f}", *(f"{row[name]:.3f}" for name in names)] for row in measured]
    )


CARD = """\
# brorl-tiny

A Llama of 0.9 million parameters (4 layers, hidden size 128, vocabulary 512, one token per digit) that answers
Reasoning Gym questions through a short working, such as `57+87=441-70=47<answer>74</answer>`. It was trained with 16
rollouts per prompt for as long as the curve below shows, and is the starting point of `recipes/quickstart.yaml`.
Licence: Apache-2.0. It is a test bed for training methods and useful for nothing else.

Numbers inside a working are written last digit first: each digit of a sum or product then follows from digits that are
already there (Lee et al. 2023, arXiv 2307.03381). The answer is written as usual.

## How it was made

`make base-model` (scripts/base_model.py, all seeds fixed):

1. Supervised warm-up on worked examples of chain_sum, products, gcd, lcm and spell_backward; loss on the response
   {first_loss:.2f} -> {last_loss:.2f} nats per token. No held-out question is among the examples.
2. ProRLv2 at N = 16 by `recipe.yaml` beside this card: {steps} steps of {prompts_per_step} prompts from an
   endless stream, REINFORCE++-baseline, clip 0.2 / 0.27, k2 KL {kl_weight:g} with the reference
   reset every {reset_every} steps, dynamic sampling, AdamW at a constant learning rate of {lr:g} with a warm-up.

Flat means: over the last {flat_steps} steps pass@1 on the {flat_prompts} fixed training prompts (64 rollouts each)
has not risen significantly, paired by prompt, one-sided at 5 % (t < {flat_t}).
Measured: {gain:+.4f}, t = {t:.2f}: {verdict}

`curve.csv` holds every step, `measured.json` the pass rate of every prompt, and `optimizer.state` AdamW's state
at the end, so that a continuation starts with a warm optimizer.

{curve}

## What is left to find

{rollouts:,} rollouts of each prompt at temperature 1. The training prompts are the first {prompts} of the stream.

{figures}

{rare_share:.1%} of the training prompts succeed between 0.1 % and 5 % of the time: sixteen rollouts rarely show a
success there, hundreds do.

{histogram}

{tasks}
"""
