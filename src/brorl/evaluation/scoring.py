"""Grading a file of responses, and what the verdicts come to: outcomes, pass@1, pass@k."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from brorl.errors import DataError
from brorl.evaluation.responses import Response
from brorl.group import Outcome
from brorl.theory.pass_at_k import clustered_interval, pass_at_k
from brorl.verifiers.pool import PoolCounters, VerifierPool
from brorl.verifiers.score import Score

_LEFT_OUT = (Outcome.UNSCORABLE, Outcome.ERROR)
_IN_FLIGHT = 20_000  # gradings handed to the pool at a time: keeps memory bounded on long files
_TRUNCATED = Score(outcome=Outcome.TRUNCATED, reward=0.0, note="reached the length limit")


def outcome_name(outcome: Outcome) -> str:
    """The outcome as people read it: "no answer" for NO_ANSWER."""
    return outcome.name.lower().replace("_", " ")


def grade(
    pool: VerifierPool, responses: Sequence[Response], progress: Callable[[int], None] | None = None
) -> list[Score]:
    """The scores of all responses, in their order; truncated ones are not graded and score 0.

    Args:
        progress: called with 1 after each response, in order.
    """
    scores: list[Score] = []
    for start in range(0, len(responses), _IN_FLIGHT):
        part = responses[start : start + _IN_FLIGHT]
        pending = [None if r.truncated else pool.submit(r.prompt, r.text) for r in part]
        for future in pending:
            scores.append(_TRUNCATED if future is None else future.result())
            if progress is not None:
                progress(1)
    return scores


def with_verifier(responses: Sequence[Response], verifier: str) -> list[Response]:
    """The same responses for another verifier; rows that share a prompt go on sharing it."""
    prompts = {id(r.prompt): replace(r.prompt, verifier=verifier) for r in responses}
    return [replace(r, prompt=prompts[id(r.prompt)]) for r in responses]


def as_line(response: Response, score: Score) -> dict[str, Any]:
    """One JSON line of `brorl score --json`."""
    return {
        "id": response.id,
        "outcome": outcome_name(score.outcome),
        "reward": _number(score.reward),
        "extracted": score.extracted,
        "parts": {name: _number(value) for name, value in score.parts.items()},
        "seconds": score.seconds,
        "note": score.note,
    }


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def summarise_scores(
    responses: Sequence[Response], scores: Sequence[Score], ks: Sequence[int] | None = None
) -> dict[str, Any]:
    """The figures that `brorl score` prints.

    Keys: ``rows``, ``problems``, ``outcomes`` (name -> rows), ``pass_at`` (k -> value, low, high, level, problems; low
    and high None for a single problem), ``mean_reward`` (likewise), ``samples_per_problem`` (fewest and most scorable),
    ``unscored_problems`` (without one scorable row: they are in no average).

    Args:
        ks: by default 1, 2, 4 ... and the fewest scorable samples of a problem.

    Raises:
        DataError: some k above the scorable samples of a problem.
    """
    counts = Counter(score.outcome for score in scores)
    problems: dict[str, list[Score]] = {}
    for response, score in zip(responses, scores, strict=True):
        problems.setdefault(response.problem, []).append(score)
    scorable = {name: [s for s in group if s.outcome not in _LEFT_OUT] for name, group in problems.items()}
    scored = {name: group for name, group in scorable.items() if group}
    n = np.array([len(group) for group in scored.values()], np.int64)
    c = np.array([sum(s.outcome is Outcome.CORRECT for s in group) for group in scored.values()], np.int64)
    fewest = int(n.min()) if len(n) else 0
    if ks is None:
        ks = sorted({1 << i for i in range(fewest.bit_length())} | ({fewest} if fewest else set()))
    else:
        _refuse_large_k(ks, {name: len(group) for name, group in scored.items()}, "scorable responses")
    rewards = [float(np.mean([s.reward for s in group])) for group in scored.values()]
    return {
        "rows": len(scores),
        "problems": len(problems),
        "unscored_problems": len(problems) - len(scored),
        "samples_per_problem": {"fewest": fewest, "most": int(n.max()) if len(n) else 0},
        "outcomes": {outcome_name(outcome): counts.get(outcome, 0) for outcome in Outcome},
        "pass_at": {str(k): interval_of(pass_at_k(n, c, k).tolist()) for k in ks} if len(n) else {},
        "mean_reward": interval_of(rewards) if rewards else None,
    }


def check_ks(responses: Sequence[Response], ks: Sequence[int]) -> None:
    """Before anything is graded: is every k within the number of responses of each problem?

    Raises:
        DataError: it is not.
    """
    _refuse_large_k(ks, Counter(response.problem for response in responses), "responses")


def _refuse_large_k(ks: Sequence[int], sizes: Mapping[str, int], what: str) -> None:
    k = max(ks, default=0)
    short = {name: size for name, size in sizes.items() if size < k}
    if short:
        name, size = min(short.items(), key=lambda item: item[1])
        raise DataError(
            f"pass@{k} needs {k} {what} to each problem, and {len(short)} of {len(sizes)} have fewer ({name!r} has "
            f"{size}): draw more or lower --k"
        )


def interval_of(values: Sequence[float]) -> dict[str, Any]:
    """The mean over problems with its interval, as JSON; ``low`` and ``high`` are None for a single problem."""
    if len(values) < 2:
        return {"value": values[0], "low": None, "high": None, "level": 0.95, "problems": len(values)}
    return asdict(clustered_interval(values))


def throughput(counters: PoolCounters) -> dict[str, Any]:
    """What the pool did; gradings that were answered from an earlier equal one are counted apart."""
    return {**asdict(counters), "per_second": counters.per_second}
