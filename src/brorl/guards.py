"""Guards over a run: what has gone wrong, or is about to, told with advice.

A guard is a function of the run's records so far (lines of metrics.jsonl, the step just done last) and a threshold of
the recipe's section ``guards``, where none turns it off. It returns a finding or nothing. The trainer says each
warning once per run; a finding that stops ends the run, saved and resumable.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

RECENT = 3
"""steps over which a rate is averaged, so that one odd step is no alarm"""

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a guard has to say."""

    guard: str
    stop: bool = False
    message: str
    advice: str

    def __str__(self) -> str:
        return f"{self.message}. {self.advice}"


def skipped_steps(records: Sequence[Record], limit: float) -> Finding | None:
    """Optimizer steps skipped for a gradient that is not finite, or exploding; stops after `limit` steps in a row."""
    row = 0
    for record in reversed(records):
        if not record.get("skipped"):
            break
        row += 1
    if not row:
        return None
    stop = row >= limit
    return Finding(
        guard="skipped_steps",
        stop=stop,
        message=f"the gradient was not finite or exploding in {row} steps in a row"
        if stop
        else "a gradient was not finite or exploding; the optimizer steps it would have made are skipped and counted",
        advice="Lower optimizer.lr, raise algorithm.kl_weight, or train in float32",
    )


def empty_steps(records: Sequence[Record], limit: float) -> Finding | None:
    """`limit` steps in a row without one group that carries signal; stops."""
    row = 0
    for record in reversed(records):
        if record.get("fate_trained", 1):
            break
        row += 1
    if row < limit:
        return None
    return Finding(
        guard="empty_steps",
        stop=True,
        message=f"{row} steps in a row without one group that carries signal: every prompt is solved or hopeless for "
        "this policy",
        advice="Choose other tasks or more rollouts per prompt",
    )


def entropy(records: Sequence[Record], share: float) -> Finding | None:
    """Entropy per token of the last steps below `share` of what it was in the first ones."""
    known = [value for record in records if (value := _number(record, "entropy")) is not None]
    if len(known) < 2 * RECENT:
        return None
    first, now = _mean(known[:RECENT]), _mean(known[-RECENT:])
    if now >= share * first:
        return None
    return Finding(
        guard="entropy",
        message=f"entropy has collapsed: {now:.3g} nats per token, {now / first:.0%} of the {first:.3g} of the first "
        "steps",
        advice="Raise the loss's eps_high or algorithm.kl_weight, reset the reference more rarely, or broaden "
        "rollouts.per_prompt; a collapsed policy explores nothing",
    )


def clipped(records: Sequence[Record], limit: float) -> Finding | None:
    """Share of the absolute advantage whose ratio is clipped above `limit`."""
    share = _recent(records, "clip_high") + _recent(records, "clip_low")
    if not share > limit:
        return None
    return Finding(
        guard="clipped",
        message=f"{share:.0%} of the advantage is clipped away",
        advice="The policy moves too far within a step: lower optimizer.lr or algorithm.minibatches",
    )


def truncated(records: Sequence[Record], limit: float) -> Finding | None:
    """Share of the rollouts cut at the length limit above `limit`."""
    share = _recent(records, "truncated_share")
    if not share > limit:
        return None
    return Finding(
        guard="truncated",
        message=f"{share:.0%} of the rollouts are cut at rollouts.max_new_tokens",
        advice="Raise it; where answers do not need the room, look at prompt and chat template (brorl check): the "
        "policy may not know where to end",
    )


def duplicates(records: Sequence[Record], least: float) -> Finding | None:
    """Fewer than `least` distinct responses per group on average; groups that small are not judged."""
    last = records[-1]
    if not last.get("groups") or last["rollouts"] / last["groups"] < 4 * least:
        return None
    per_group = last["rollouts"] / last["groups"]
    distinct = _recent(records, "distinct_response_share") * per_group
    if not distinct < least:
        return None
    return Finding(
        guard="duplicates",
        message=f"{per_group:,.0f} rollouts of a prompt hold only {distinct:.2g} distinct responses",
        advice="The policy has collapsed onto single answers: more rollouts find nothing. Raise rollouts.temperature, "
        "go back to an earlier checkpoint, or choose harder prompts",
    )


def mismatch(records: Sequence[Record], limit: float) -> Finding | None:
    """Mean distance of the engine's log-probabilities from the learner's above `limit`, in nats per token."""
    distance = _recent(records, "mismatch")
    if not distance > limit:
        return None
    return Finding(
        guard="mismatch",
        message=f"engine and learner disagree by {distance:.2g} nats per token on the same tokens",
        advice="Look for stale weights, another precision or another temperature in the engine (brorl selftest); the "
        "correction hides it only in part",
    )


GUARDS: dict[str, Callable[[Sequence[Record], float], Finding | None]] = {
    "skipped_steps": skipped_steps,
    "empty_steps": empty_steps,
    "entropy": entropy,
    "clipped": clipped,
    "truncated": truncated,
    "duplicates": duplicates,
    "mismatch": mismatch,
}
"""every guard that judges records; ``exploding_gradient`` works in the learner, ``disk`` is `nearly_full`"""


def check_records(records: Sequence[Record], thresholds: Mapping[str, float | None]) -> list[Finding]:
    """The findings of every guard that is on, after a step; none before the first."""
    if not records:
        return []
    on = [(guard, limit) for name, guard in GUARDS.items() if (limit := thresholds.get(name)) is not None]
    return [finding for guard, limit in on if (finding := guard(records, limit)) is not None]


def nearly_full(free_bytes: int, checkpoint_bytes: int, copies: float | None) -> Finding | None:
    """Less room on the disk than `copies` more checkpoints need; stops. None turns it off."""
    if copies is None or free_bytes >= copies * checkpoint_bytes:
        return None
    return Finding(
        guard="disk",
        stop=True,
        message=f"the disk is nearly full: {free_bytes / 2**20:,.0f} MiB are free, and a checkpoint takes "
        f"{checkpoint_bytes / 2**20:,.0f} MiB",
        advice="Make room or lower checkpoint.keep, and resume",
    )


def _number(record: Record, key: str) -> float | None:
    value = record.get(key)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _recent(records: Sequence[Record], key: str) -> float:
    """Mean over the last steps that have the figure; NaN, which is above and below nothing, where none has it."""
    known = [value for record in records[-RECENT:] if (value := _number(record, key)) is not None]
    return _mean(known) if known else math.nan
