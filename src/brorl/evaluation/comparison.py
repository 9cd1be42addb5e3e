"""`brorl compare`: two or more evaluations of the same problems, paired problem by problem.

The first evaluation is the base; every other one is compared with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brorl.errors import DataError
from brorl.evaluation.benchmark_run import differences
from brorl.evaluation.scoring import interval_of
from brorl.evaluation.stored import StoredBenchmark, StoredEvaluation
from brorl.evaluation.token_efficiency import token_efficiency
from brorl.group import ScoredGroup
from brorl.theory.comparison import holm, lost_by_chance, paired_t, permutation_p
from brorl.theory.pass_at_k import pass_at_k

Figures = dict[str, Any]

T_TEST_ASSUMES = "problems are independent of each other and their mean difference is normal"


def compare(
    evaluations: Sequence[StoredEvaluation], *, ks: Sequence[int] | None = None, caps: Sequence[int] = ()
) -> Figures:
    """Every evaluation against the first.

    Keys: ``base``, ``evaluations`` (labels), ``comparisons`` (one for each other evaluation: ``base``, ``other``,
    ``benchmarks`` and, with several of them, ``pooled`` over all problems; see `_compared`), ``token_efficiency``
    (label -> benchmark -> figures), ``t_test_assumes``.

    Raises:
        DataError: fewer than two evaluations, or evaluations of different problems, definitions or sampling; the
            message names the difference.
    """
    if len(evaluations) < 2:
        raise DataError("a comparison needs two evaluations of the same problems")
    base = evaluations[0]
    for other in evaluations[1:]:
        check_comparable(base, other)
    comparisons = [_pair(base, other, ks) for other in evaluations[1:]]
    for name in {name for comparison in comparisons for name in comparison["benchmarks"]}:
        adjusted = holm([c["benchmarks"][name]["permutation_p"] for c in comparisons])
        for comparison, p in zip(comparisons, adjusted, strict=True):
            comparison["benchmarks"][name]["permutation_p_holm"] = p
    return {
        "base": base.label,
        "evaluations": [e.label for e in evaluations],
        "comparisons": comparisons,
        "t_test_assumes": T_TEST_ASSUMES,
        "token_efficiency": {
            e.label: {
                name: token_efficiency(b.groups, caps, e.correct_threshold) for name, b in e.benchmarks.items()
            }
            for e in evaluations
        },
    }  # fmt: skip


def check_comparable(first: StoredEvaluation, second: StoredEvaluation) -> None:
    """Refuse what would compare two things at once.

    Raises:
        DataError: other benchmarks, versions, problems, prompts or sampling; named.
    """
    between = f"{first.label} and {second.label} cannot be compared"
    if set(first.benchmarks) != set(second.benchmarks):
        only = [f"{n} only in {e.label}" for e, o in ((first, second), (second, first)) for n in e.benchmarks
                if n not in o.benchmarks]  # fmt: skip
        raise DataError(f"{between}: {'; '.join(only)}. Choose what both have by --benchmark")
    if first.correct_threshold != second.correct_threshold:
        raise DataError(f"{between}: correct from {first.correct_threshold} and from {second.correct_threshold} up")
    for name, one in first.benchmarks.items():
        other = second.benchmarks[name]
        found = differences(one.definition, other.definition, name)
        if one.definition.get("data") != other.definition.get("data"):
            found = [f for f in found if not f.startswith(f"{name}.data:")] + [_problems_apart(name, one, other)]
        if found:
            raise DataError(f"{between}: {'; '.join(found).replace(', now ', ' and ')}")


def _problems_apart(name: str, first: StoredBenchmark, second: StoredBenchmark) -> str:
    ids = [{g.group.prompt.id for g in b.groups} for b in (first, second)]
    apart = sorted(ids[0] ^ ids[1])
    if not apart:
        return f"{name}: problems of the same names have other texts or answers"
    shown = ", ".join(apart[:3]) + (f" and {len(apart) - 3} more" if len(apart) > 3 else "")
    return f"{name}: other problems ({len(ids[0])} and {len(ids[1])}; not in both: {shown})"


def _pair(base: StoredEvaluation, other: StoredEvaluation, ks: Sequence[int] | None) -> Figures:
    tables = {name: _Table(base, other, name) for name in base.benchmarks}
    figures: Figures = {
        "base": base.label,
        "other": other.label,
        "benchmarks": {name: _compared(table, ks) for name, table in tables.items()},
    }
    if len(tables) > 1:
        values = np.concatenate([table.values[1] - table.values[0] for table in tables.values()])
        figures["pooled"] = {"problems": len(values), **_tests(values)}
    return figures


class _Table:
    """Two evaluations of one benchmark, problem by problem: those that both scored."""

    def __init__(self, base: StoredEvaluation, other: StoredEvaluation, name: str) -> None:
        sides = [{g.group.prompt.id: g for g in e.benchmarks[name].groups if g.scored_rollouts} for e in (base, other)]
        self.ids = [i for i in sides[0] if i in sides[1]]
        if not self.ids:
            raise DataError(f"{name}: no problem has a scorable response in both {base.label} and {other.label}")
        self.groups = [[side[i] for i in self.ids] for side in sides]
        self.left_out = len(base.benchmarks[name].groups) - len(self.ids)
        self.evaluations = (base, other)
        threshold = base.correct_threshold
        self.samples = [np.array([g.scored_rollouts for g in groups], np.int64) for groups in self.groups]
        self.correct = [np.array([g.successes(threshold) for g in groups], np.int64) for groups in self.groups]
        self.score = base.benchmarks[name].score
        if self.score == "reward":
            self.values = [np.array([_mean_reward(g) for g in groups]) for groups in self.groups]
        else:
            self.values = [c / n for c, n in zip(self.correct, self.samples, strict=True)]


def _mean_reward(group: ScoredGroup) -> float:
    kept = group.scorable
    counts = group.group.end_counts[kept]
    return float(counts @ group.rewards[kept].astype(np.float64) / counts.sum())


def _compared(table: _Table, ks: Sequence[int] | None) -> Figures:
    """Keys: ``problems``, ``left_out`` (without a scorable response on one side), ``score`` (what ``difference`` and
    the tests are of: pass@1, or the mean reward), ``base``, ``other``, ``difference``, ``permutation_p``, ``t_test``,
    ``pass_at`` (k -> base, other, difference), ``mean_tokens`` (likewise), ``wins``, ``losses`` (problems, largest
    difference first), ``ties``, ``lost``, ``gained`` (problems whose right answers went to 0, or left 0, and how many
    that would happen to by chance), ``retained`` (distinct right responses of the base drawn again)."""
    fewest = int(min(n.min() for n in table.samples))
    chosen = sorted({1 << i for i in range(fewest.bit_length())} | {fewest}) if ks is None else list(ks)
    if max(chosen) > fewest:
        raise DataError(f"pass@{max(chosen)} needs as many responses to each problem, and one has {fewest}: lower --k")
    tokens = [np.array([g.group.total_tokens / g.group.rollouts for g in groups]) for groups in table.groups]
    difference = table.values[1] - table.values[0]
    return {
        "problems": len(table.ids),
        "left_out": table.left_out,
        "score": table.score,
        **_sides(*table.values),
        **_tests(difference),
        "pass_at": {
            str(k): _sides(*(pass_at_k(n, c, k) for n, c in zip(table.samples, table.correct, strict=True)))
            for k in chosen
        },
        "mean_tokens": _sides(*tokens),
        **_wins_and_losses(table, difference),
        **_lost_and_gained(table),
        "retained": _retained(table),
    }


def _sides(base: NDArray[np.float64], other: NDArray[np.float64]) -> Figures:
    return {
        "base": interval_of(base.tolist()),
        "other": interval_of(other.tolist()),
        "difference": interval_of((other - base).tolist()),
    }


def _tests(difference: NDArray[np.float64]) -> Figures:
    test = paired_t(difference) if len(difference) > 1 else None
    return {
        "difference": interval_of(difference.tolist()),
        "permutation_p": permutation_p(difference),
        "t_test": None if test is None else asdict(test),
    }


def _wins_and_losses(table: _Table, difference: NDArray[np.float64]) -> Figures:
    order = np.argsort(-np.abs(difference), kind="stable").tolist()
    rows = [
        {"id": table.ids[i], "base": float(table.values[0][i]), "other": float(table.values[1][i])}
        for i in order
        if difference[i] != 0
    ]
    return {
        "wins": [row for row in rows if row["other"] > row["base"]],
        "losses": [row for row in rows if row["other"] < row["base"]],
        "ties": len(difference) - len(rows),
    }


def _lost_and_gained(table: _Table) -> Figures:
    (c0, c1), (n0, n1) = table.correct, table.samples

    def side(chosen: NDArray[np.bool_], expected: float) -> Figures:
        return {"problems": [table.ids[i] for i in np.flatnonzero(chosen)], "expected_by_chance": expected}

    return {
        "solved": {"base": int((c0 > 0).sum()), "other": int((c1 > 0).sum())},
        "lost": side((c0 > 0) & (c1 == 0), lost_by_chance(c0, n0, n1)),
        "gained": side((c0 == 0) & (c1 > 0), lost_by_chance(c1, n1, n0)),
    }


def _retained(table: _Table) -> Figures | None:
    """Distinct right responses of either side, and those in both; None where the two have no tokens in common."""
    base, other = table.evaluations
    found = [_right_responses(table, side, e) for side, e in enumerate((base, other))]
    if any(answers is None for answers in found) or (base.pieces is None) is not (other.pieces is None):
        return None
    first, second = found
    assert first is not None
    assert second is not None
    return {
        "base": sum(len(answers) for answers in first),
        "other": sum(len(answers) for answers in second),
        "both": sum(len(a & b) for a, b in zip(first, second, strict=True)),
    }


def _right_responses(table: _Table, side: int, evaluation: StoredEvaluation) -> list[set[bytes]] | None:
    result: list[set[bytes]] = []
    for group, counterpart in zip(table.groups[side], table.groups[1 - side], strict=True):
        same = np.array_equal(group.group.prompt.token_ids, counterpart.group.prompt.token_ids)
        if evaluation.pieces is None and not same:
            return None  # another tokenizer or chat template
        right = group.scorable & (group.rewards >= evaluation.correct_threshold)
        if evaluation.pieces is None:
            texts = [ids.tobytes() for ids in group.group.responses()]
        else:
            texts = [text.encode("utf-8", "replace") for text in group.group.texts(evaluation.pieces)]
        result.append({text for text, ok in zip(texts, right.tolist(), strict=True) if ok})
    return result


def chosen_benchmarks(evaluation: StoredEvaluation, names: Sequence[str]) -> Mapping[str, StoredBenchmark]:
    """Some of an evaluation's benchmarks; all without names.

    Raises:
        DataError: it has none of that name.
    """
    for name in names:
        if name not in evaluation.benchmarks:
            raise DataError(f"{evaluation.label}: nothing called {name!r} in it; there are: "
                            f"{', '.join(evaluation.benchmarks)}")  # fmt: skip
    return {name: evaluation.benchmarks[name] for name in names} if names else evaluation.benchmarks
