"""Reward shaping: what a response earns beside being right. Plain functions from the responses of a group to an addend.

Shaping comes after selection, which looks at unshaped rewards, and before the advantage. `shape` adds up what the
recipe names and then holds truncated responses at or below every finished one of their group, so that no combination,
a user's own function included, pays for not finishing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Responses:
    """What a shaping function sees of one group."""

    rewards: Array
    """f64[K], unshaped; NaN where there is no verdict"""
    lengths: NDArray[np.int64]
    """i64[K], tokens, the stop token included"""
    truncated: NDArray[np.bool_]
    """bool[K], cut at the length limit"""
    step: int
    """0-based; the only thing a schedule depends on"""
    max_new_tokens: int
    """the length limit"""


Shaping = Callable[[Responses], Array]


def cosine(
    responses: Responses,
    *,
    weight: float = 0.1,
    low: float = 0.0,
    high: float = 1.0,
    on: int = 100,
    off: int = 500,
    limit: int | None = None,
) -> Array:
    """f64[K], weight * (low + (high - low) (1 + cos(pi t / T)) / 2) of the length t, while the cycle is on.

    Args:
        weight: lambda; ``weight * (high - low)`` stays below 1, or a short wrong answer would beat a long right one.
        low: value at the limit.
        high: value at length 0.
        on: steps with the reward, from step 0.
        off: steps without it, then the cycle begins again; 0 leaves it on.
        limit: T in tokens; by default the length limit.

    Raises:
        ValueError: values that would reward length, or pay more for brevity than for being right; an empty cycle; a
            limit that no response can reach.

    Source: ProRL v2 post (paper notes 3.2), which gives the cycle and not the values.
    """
    limit = responses.max_new_tokens if limit is None else limit
    if not (weight > 0 and low < high and weight * (high - low) < 1):
        raise ValueError(
            f"cosine needs weight > 0, low < high and weight * (high - low) < 1, got {weight}, {low}, {high}: "
            "else it rewards length, or pays more for brevity than for being right"
        )
    if on < 1 or off < 0:
        raise ValueError(f"cosine is on for at least 1 step and off for 0 or more, got on {on}, off {off}")
    if not 1 <= limit <= responses.max_new_tokens:
        raise ValueError(
            f"cosine: limit {limit} is not within 1 to rollouts.max_new_tokens = {responses.max_new_tokens}: "
            "no response could reach it"
        )
    if responses.step % (on + off) >= on:
        return np.zeros(len(responses.rewards))
    share = np.minimum(responses.lengths / limit, 1.0)
    return weight * (low + 0.5 * (high - low) * (1.0 + np.cos(np.pi * share)))


def overlong(responses: Responses, *, buffer: int | None = None, factor: float = 1.0) -> Array:
    """f64[K], -factor * min(tokens over (limit - buffer), buffer) / buffer: a linear ramp up to the length limit.

    Args:
        buffer: tokens before the limit in which the penalty grows; by default three quarters of the limit, as in
            OpenRLHF's ProRLv2 (6,144 of 8,192).
        factor: the penalty at the limit.

    Raises:
        ValueError: a buffer as long as the limit, or a penalty that is none.

    Source: DAPO, arXiv 2503.14476, soft overlong punishment.
    """
    limit = responses.max_new_tokens
    buffer = max(1, 3 * limit // 4) if buffer is None else buffer
    if not 1 <= buffer < limit:
        raise ValueError(f"overlong: buffer {buffer} is not within 1 to rollouts.max_new_tokens - 1 = {limit - 1}")
    if factor <= 0:
        raise ValueError(f"overlong: factor must be above 0, not {factor}")
    return -factor * np.clip(responses.lengths - (limit - buffer), 0, buffer) / buffer


def stop_properly(responses: Responses, *, coefficient: float = -0.5) -> Array:
    """f64[K], what makes a truncated response score `coefficient`, whatever its answer was worth.

    ProRLv2's public configurations use 0: right but unfinished earns nothing, which is what `algorithm.truncated: zero`
    already does.

    Raises:
        ValueError: a coefficient above 0, which would pay for not finishing.
    """
    if coefficient > 0:
        raise ValueError(f"stop_properly: coefficient {coefficient} would pay for not finishing; use 0 or less")
    return np.where(responses.truncated, coefficient - np.nan_to_num(responses.rewards), 0.0)


SHAPINGS: dict[str, Callable[..., Array]] = {"cosine": cosine, "overlong": overlong, "stop_properly": stop_properly}


def shape(responses: Responses, shapings: Mapping[str, Shaping]) -> tuple[Array, dict[str, Array]]:
    """f64[K] shaped rewards, and each shaping's addend.

    A truncated response never scores above the lowest finished one of its group.

    Raises:
        ValueError: an addend that is not one finite number per response.
    """
    addends: dict[str, Array] = {}
    for name, shaping in shapings.items():
        addend = np.asarray(shaping(responses), np.float64)
        if addend.shape != responses.rewards.shape or not np.isfinite(addend).all():
            raise ValueError(f"shaping {name!r} did not give one finite number per response")
        addends[name] = addend
    shaped = sum(addends.values(), start=responses.rewards)
    finished = ~responses.truncated & ~np.isnan(shaped)
    if finished.any():
        shaped = np.where(responses.truncated, np.minimum(shaped, shaped[finished].min()), shaped)
    return shaped, addends
