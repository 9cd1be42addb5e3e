"""Token efficiency: what a score costs in tokens, at the length it was drawn with and at shorter caps.

A cap is applied to the responses that were drawn: one that is longer counts as truncated there, hence wrong, and costs
the cap. That is what sampling with a lower limit would have given, as responses do not depend on the limit.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brorl.evaluation.scoring import interval_of
from brorl.group import ScoredGroup

Figures = dict[str, Any]


def token_efficiency(groups: Sequence[ScoredGroup], caps: Sequence[int], correct_threshold: float = 1.0) -> Figures:
    """Score, tokens and their ratios at each cap, and the lengths of right and wrong responses.

    Keys: ``caps``, a list of ``cap`` (None: as drawn), ``score`` and ``mean_tokens`` (means over problems with
    intervals), ``score_per_1k_tokens``, ``tokens_per_correct`` (all tokens over right responses; None without one),
    ``truncated_share``; ``lengths`` -> ``correct``, ``incorrect`` (mean tokens of such responses; None without one),
    ``incorrect_minus_correct`` (within problems that have both, with an interval; None with fewer than two).
    Responses without a verdict are left out. Method: BroRL's token efficiency (NVIDIA's blog of BroRL; paper.md 6).
    """
    arrays = [_responses(group, correct_threshold) for group in groups]
    arrays = [found for found in arrays if len(found[0])]
    if not arrays:
        return {"caps": [], "lengths": None}
    return {"caps": [_at(arrays, cap) for cap in (None, *sorted(set(caps), reverse=True))], "lengths": _lengths(arrays)}


_Arrays = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]


def _responses(group: ScoredGroup, threshold: float) -> _Arrays:
    """Of the scorable distinct responses: length in tokens, how often drawn, right, truncated."""
    kept = group.scorable
    return (
        group.group.lengths()[kept].astype(np.int64),
        group.group.end_counts[kept].astype(np.int64),
        (group.rewards >= threshold)[kept],
        (group.group.finish == 1)[kept],
    )


def _at(arrays: Sequence[_Arrays], cap: int | None) -> Figures:
    scores: list[float] = []
    means: list[float] = []
    total = right = cut = drawn = 0
    for lengths, counts, correct, truncated in arrays:
        limit = int(lengths.max()) if cap is None else cap
        within = correct & (lengths <= limit)
        tokens = np.minimum(lengths, limit)
        scores.append(float(counts @ within / counts.sum()))
        means.append(float(counts @ tokens / counts.sum()))
        total += int(counts @ tokens)
        right += int(counts @ within)
        cut += int(counts @ (truncated | (lengths > limit)))
        drawn += int(counts.sum())
    score, tokens_mean = interval_of(scores), interval_of(means)
    return {
        "cap": cap,
        "score": score,
        "mean_tokens": tokens_mean,
        "score_per_1k_tokens": 1000 * score["value"] / tokens_mean["value"] if tokens_mean["value"] else None,
        "tokens_per_correct": total / right if right else None,
        "truncated_share": cut / drawn,
    }


def _lengths(arrays: Sequence[_Arrays]) -> Figures:
    sums = {True: [0, 0], False: [0, 0]}
    gaps: list[float] = []
    for lengths, counts, correct, _ in arrays:
        for value, rows in ((True, correct), (False, ~correct)):
            sums[value][0] += int(counts[rows] @ lengths[rows])
            sums[value][1] += int(counts[rows].sum())
        if correct.any() and not correct.all():
            means = [float(counts[r] @ lengths[r] / counts[r].sum()) for r in (~correct, correct)]
            gaps.append(means[0] - means[1])
    mean = {value: total / count if count else None for value, (total, count) in sums.items()}
    return {
        "correct": mean[True],
        "incorrect": mean[False],
        "incorrect_minus_correct": interval_of(gaps) if len(gaps) > 1 else None,
    }
