"""Where a run stands, from its rollouts alone: pass rates, what N buys, what was lost, entropy, lengths.

Every figure is computed from what the source records; what it lacks is named, never guessed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brorl.errors import DataError
from brorl.evaluation.foreign import Rollouts
from brorl.group import ScoredGroup
from brorl.theory.curves import by_prompt, curve, node_growth, whole_groups
from brorl.theory.groups import group_table
from brorl.theory.pass_at_k import Interval, clustered_interval, pass_at_k

Figures = dict[str, Any]


def analyze(
    rollouts: Rollouts,
    *,
    base: Rollouts | None = None,
    records: Sequence[Mapping[str, Any]] = (),
    sizes: Sequence[int] | None = None,
    max_groups: int = 256,
    draws: int = 4,
) -> Figures:
    """The report as plain data.

    Args:
        rollouts: what to analyse.
        base: rollouts of the starting policy; by default each prompt's first visit in `rollouts`.
        records: metrics of the run they come from, for what its probe measured.
        sizes: N of the curves; powers of two by default.
        max_groups: the newest groups that the curves use (time grows with them).
        draws: sub-samples per group and size.

    Raises:
        DataError: no prompt with two scorable rollouts, an N below 2, or log-probabilities that sum to more than 1.
    """
    if any(size < 2 for size in sizes or ()):
        raise DataError("figures at N need N >= 2 rollouts: one rollout has nothing to be compared with")
    usable = rollouts.samples >= 2
    if not usable.any():
        raise DataError("no prompt has two scorable rollouts: nothing to analyse")
    groups = [g for g, ok in zip(rollouts.groups, usable, strict=False) if ok]
    whole, left_out = whole_groups(groups)
    newest = whole[-max_groups:]
    return {
        "source": {
            "layout": rollouts.layout,
            "prompts": len(set(rollouts.problems)),
            "groups": len(rollouts.groups),
            "rollouts": int(rollouts.samples.sum()) + rollouts.unscorable,
            "unscorable": rollouts.unscorable,
            "rollouts_per_prompt": whole[0].group.rollouts if whole else int(np.median(rollouts.samples)),
            "groups_of_other_size_left_out": left_out,
            "groups_in_curves": len(newest),
            "correct_threshold": rollouts.correct_threshold,
            "lacks": list(rollouts.lacks),
        },
        "pass_rates": _pass_rates(rollouts, usable),
        "by_rollouts": _by_rollouts(newest, rollouts, sizes, draws),
        "by_steps": _by_steps(rollouts, usable),
        "shrinkage": _shrinkage(rollouts, base),
        "entropy": _entropy(newest),
        "length": _length(newest, rollouts) if newest else None,
        "node_growth": _growth(newest) if rollouts.unit == "tokens" else None,
        "probe": [_update(record) for record in records if "probe" in record] or None,
    }


def _pass_rates(rollouts: Rollouts, usable: NDArray[np.bool_]) -> Figures:
    rates = rollouts.correct[usable] / rollouts.samples[usable]
    problems = [p for p, ok in zip(rollouts.problems, usable, strict=True) if ok]
    counts, _ = np.histogram(rates, np.linspace(0, 1, 11))
    return {
        "mean": _interval(_mean(problems, rates)),
        "share_all_wrong": _interval(_mean(problems, rates == 0)),
        "share_all_right": _interval(_mean(problems, rates == 1)),
        "share_kept": _interval(_mean(problems, (rates > 0) & (rates < 1))),
        "quantiles": {q: float(np.quantile(rates, float(q))) for q in ("0.1", "0.25", "0.5", "0.75", "0.9")},
        "histogram": counts.tolist(),
    }


def _by_steps(rollouts: Rollouts, usable: NDArray[np.bool_], spans: int = 5) -> list[Figures]:
    """The course of a run in equal spans of its steps; one entry where the source has one step only."""
    steps = np.array(rollouts.steps)[usable]
    rates = rollouts.correct[usable] / rollouts.samples[usable]
    groups = [g for g, ok in zip(rollouts.groups, usable, strict=False) if ok]
    distinct = np.array([g.group.distinct / g.group.rollouts for g in groups])
    found: list[Figures] = []
    for span in np.array_split(np.unique(steps), min(spans, len(np.unique(steps)))):
        inside = (steps >= span[0]) & (steps <= span[-1])
        found.append(
            {
                "first_step": int(span[0]),
                "last_step": int(span[-1]),
                "groups": int(inside.sum()),
                "pass_rate": float(rates[inside].mean()),
                "kept_share": float(((rates > 0) & (rates < 1))[inside].mean()),
                "distinct_response_share": float(distinct[inside].mean()) if groups else None,
            }
        )
    return found


def _update(record: Mapping[str, Any]) -> Figures:
    """One measured update: the probe's means, without the single prompts."""
    figures = {name: value for name, value in record["probe"].items() if name != "by_prompt"}
    return {"step": record["step"], "seconds": record["seconds"]["probe"], **figures}


def _by_rollouts(
    groups: Sequence[ScoredGroup], rollouts: Rollouts, sizes: Sequence[int] | None, draws: int
) -> list[Figures]:
    if groups:
        return _group_curve(groups, rollouts, sizes, draws)
    return [] if rollouts.groups else _count_curve(rollouts, sizes)  # groups, all of them stopped: nothing to draw from


def _group_curve(
    groups: Sequence[ScoredGroup], rollouts: Rollouts, sizes: Sequence[int] | None, draws: int
) -> list[Figures]:
    tables = [group_table(scored, correct_threshold=rollouts.correct_threshold) for scored in groups]
    largest = max(scored.scored_rollouts for scored in groups)
    try:
        points = curve(tables, sizes or _powers(largest), draws=draws)
    except ValueError as error:  # log-probabilities that are none
        raise DataError(str(error)) from error
    return [asdict(point) for point in points]


def _count_curve(rollouts: Rollouts, sizes: Sequence[int] | None) -> list[Figures]:
    points: list[Figures] = []
    for size in sizes or _powers(int(rollouts.samples.max())):
        enough = rollouts.samples >= size
        if enough.sum() < 2:
            continue
        n, c = rollouts.samples[enough], rollouts.correct[enough]
        right, wrong = pass_at_k(n, c, size), pass_at_k(n, n - c, size)
        points.append(
            {
                "rollouts": size,
                "prompts": int(enough.sum()),
                "kept_share": _interval(clustered_interval(right + wrong - 1.0)),
                "pass_at_n": _interval(clustered_interval(right)),
            }
        )
    return points


def _shrinkage(now: Rollouts, base: Rollouts | None) -> Figures | None:
    """Correct answers of the start that the latest group no longer shows; None where nothing can be compared.

    The start is `base`, or each prompt's first visit. A prompt is lost if it was solved at the start and not once now;
    `expected_by_chance` is how many would look lost with unchanged pass rates, since N rollouts miss rare answers.
    """
    latest = {now.problems[i]: i for i in np.argsort(now.steps, kind="stable").tolist()}
    origin = now if base is None else base
    first = {origin.problems[i]: i for i in np.argsort(origin.steps, kind="stable").tolist()[::-1]}
    pairs = [(first[p], latest[p]) for p in first if p in latest and (base is not None or first[p] != latest[p])]
    pairs = [(i, j) for i, j in pairs if origin.samples[i] and now.samples[j]]
    if not pairs:
        return None
    before, after = np.array(pairs).T
    c0, n0, c1, n1 = origin.correct[before], origin.samples[before], now.correct[after], now.samples[after]
    figures: Figures = {
        "prompts_compared": len(pairs),
        "start_step": int(min(origin.steps[i] for i in before)),
        "prompts_solved_at_start": int((c0 > 0).sum()),
        "prompts_lost": int(((c0 > 0) & (c1 == 0)).sum()),
        "prompts_lost_expected_by_chance": float(((1 - c0 / n0) ** n1)[c0 > 0].sum()),
        "prompts_gained": int(((c0 == 0) & (c1 > 0)).sum()),
    }
    if origin.groups and now.groups and origin.unit == now.unit:
        old = [_correct_answers(origin.groups[i], now.correct_threshold) for i in before]
        new = [_correct_answers(now.groups[j], now.correct_threshold) for j in after]
        figures["correct_answers_at_start"] = sum(len(answers) for answers in old)
        figures["correct_answers_drawn_again"] = sum(len(a & b) for a, b in zip(old, new, strict=True))
    return figures


def _correct_answers(scored: ScoredGroup, threshold: float) -> set[bytes]:
    correct = scored.scorable & (scored.rewards >= threshold)
    return {ids.tobytes() for ids, right in zip(scored.group.responses(), correct.tolist(), strict=True) if right}


def _entropy(groups: Sequence[ScoredGroup]) -> Figures | None:
    """Mean -log p of drawn tokens: an unbiased estimate of the policy's entropy along its own rollouts."""
    rows = [(g.group.prompt.id, g.group) for g in groups if g.group.logprobs is not None and g.group.total_tokens]
    if len({prompt for prompt, _ in rows}) < 2:
        return None
    ids = [prompt for prompt, _ in rows]
    totals = [-float(g.counts @ np.asarray(g.logprobs, np.float64)) for _, g in rows]
    per_token = [total / g.total_tokens for total, (_, g) in zip(totals, rows, strict=True)]
    per_response = [total / g.rollouts for total, (_, g) in zip(totals, rows, strict=True)]
    return {
        "nats_per_token": _interval(_mean(ids, np.array(per_token))),
        "nats_per_response": _interval(_mean(ids, np.array(per_response))),
    }


def _length(groups: Sequence[ScoredGroup], rollouts: Rollouts) -> Figures:
    rows: list[tuple[str, float, float]] = []
    for scored in groups:
        lengths = scored.parts["characters"] if rollouts.unit == "characters" else scored.group.lengths()
        counts = scored.group.end_counts
        right = scored.scorable & (scored.rewards >= rollouts.correct_threshold)
        wrong = scored.scorable & ~right
        rows.append((scored.group.prompt.id, _weighted(lengths, counts, right), _weighted(lengths, counts, wrong)))
    correct, incorrect = np.array([r for _, r, _ in rows]), np.array([w for _, _, w in rows])
    both = ~np.isnan(correct) & ~np.isnan(incorrect)
    ids = [prompt for (prompt, _, _), ok in zip(rows, both, strict=True) if ok]

    def mean(values: NDArray[np.float64]) -> float | None:
        return float(np.nanmean(values)) if not np.isnan(values).all() else None

    return {
        "unit": rollouts.unit,
        "correct": mean(correct),
        "wrong": mean(incorrect),
        "wrong_minus_correct_within_prompt": _interval(_mean(ids, (incorrect - correct)[both])),
    }


def _weighted(values: NDArray[Any], counts: NDArray[Any], mask: NDArray[np.bool_]) -> float:
    total = int(counts[mask].sum())
    return float(values[mask] @ counts[mask]) / total if total else float("nan")


def _growth(groups: Sequence[ScoredGroup]) -> Figures | None:
    large = [scored.group for scored in groups if scored.group.rollouts >= 4 and scored.group.nodes]
    if not large:
        return None
    first, alpha = node_growth(large[-32:])
    return {"nodes_of_one_rollout": first, "alpha": alpha}


def _powers(largest: int) -> list[int]:
    powers = [1 << i for i in range(1, largest.bit_length()) if 1 << i < largest]
    return [*powers, largest] if largest >= 2 else powers


def _mean(problems: Sequence[str], values: NDArray[Any]) -> Interval | None:
    return by_prompt(problems, values) if len(set(problems)) > 1 else None


def _interval(value: Interval | None) -> Figures | None:
    return None if value is None else asdict(value)
