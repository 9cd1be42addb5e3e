"""One step's change of correct probability mass: BroRL's Theorem 1, and the same balance for REINFORCE.

One decision over V actions with probabilities p (on real groups an action is a whole response). Both balances are
first order in the step size and exact in float64; they belong to *different* updates and are never equal:

- the paper's surrogate -(1/N) sum R_i p_i over the *set* of drawn actions, undrawn reward 0, has three terms, the third
  of which couples undrawn actions to the batch;
- REINFORCE (a log-probability gradient; also PPO and GRPO at ratio 1) has two terms with a mean baseline, both >= 0.

Leading axes of every array are batch axes.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Coding = Literal["01", "pm1"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """Masses and second moments of drawn and undrawn actions (BroRL section 1.1), f64[...] each."""

    p_pos: Array
    """mass of drawn correct actions"""
    p_neg: Array
    """mass of drawn wrong actions"""
    q_pos: Array
    """mass of all correct actions"""
    q_neg: Array
    """mass of all wrong actions"""
    a2: Array
    """sum of p^2 over drawn correct actions"""
    b2: Array
    """sum of p^2 over drawn wrong actions"""
    u_pos2: Array
    """sum of p^2 over undrawn correct actions"""
    u_neg2: Array
    """sum of p^2 over undrawn wrong actions"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SurrogateBalance:
    """Theorem 1 for the drawn-set surrogate: ``delta = step_size / N * (t1 + t2 + t3)``."""

    s_r: Array
    """probability-weighted net reward of the drawn set, R_c P_pos + R_w P_neg"""
    t1: Array
    """drawn correct actions pushed up, >= 0 where R_w <= 0 <= R_c"""
    t2: Array
    """drawn wrong actions pushed down, >= 0 where R_w <= 0 <= R_c"""
    t3: Array
    """coupling of the undrawn actions, of any sign"""
    delta: Array
    """first-order change of Q_pos"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReinforceBalance:
    """The balance of one REINFORCE step: ``delta = step_size * (gain_correct + gain_wrong + coupling)``."""

    gain_correct: Array
    """Q_neg * sum of p w over correct actions, >= 0 where R_c >= 0"""
    gain_wrong: Array
    """-Q_pos * sum of p w over wrong actions, >= 0 where R_w <= 0"""
    coupling: Array
    """mean reward times the total second moments; 0 with a mean baseline"""
    delta: Array
    """first-order change of Q_pos"""


def reward_levels(
    successes: ArrayLike, rollouts: ArrayLike, *, coding: Coding = "01", baseline: ArrayLike | None = None
) -> tuple[Array, Array]:
    """(R_c, R_w): the reward of a correct and of a wrong draw, less a baseline (BroRL section 1.6).

    Args:
        successes: correct draws of each group, multiplicity counted.
        rollouts: N >= 2.
        coding: "01" for rewards {0, 1}, "pm1" for {-1, +1}.
        baseline: what is subtracted; the group mean by default, 0 for raw rewards.

    Raises:
        ValueError: N < 2, successes outside 0..N, or an unknown coding.
    """
    n, c = _rollout_count(rollouts), np.asarray(successes, np.float64)
    if bool(np.any(c < 0)) or bool(np.any(c > n)):
        raise ValueError("successes must lie between 0 and the number of rollouts")
    if coding not in ("01", "pm1"):
        raise ValueError(f'unknown reward coding "{coding}": choose "01" or "pm1"')
    high, low = (1.0, 0.0) if coding == "01" else (1.0, -1.0)
    subtract = low + (high - low) * c / n if baseline is None else np.asarray(baseline, np.float64)
    return np.asarray(high - subtract, np.float64), np.asarray(low - subtract, np.float64)


def moments(p: ArrayLike, correct: ArrayLike, drawn: ArrayLike) -> Moments:
    """Masses and second moments from full distributions.

    Args:
        p: f64[..., V] probabilities, each row summing to 1.
        correct: bool[..., V].
        drawn: bool[..., V] or counts; multiplicity is dropped, as in the paper.

    Raises:
        ValueError: probabilities that are negative, not finite or do not sum to 1; an empty draw.
    """
    probabilities, right = _distribution(p), np.asarray(correct, bool)
    seen = np.asarray(drawn) > 0
    if not bool(np.all(seen.any(axis=-1))):
        raise ValueError("empty group: no action was drawn")
    square = probabilities * probabilities

    def total(values: Array, *masks: NDArray[np.bool_]) -> Array:
        return np.asarray(np.where(np.logical_and.reduce(np.broadcast_arrays(*masks)), values, 0.0).sum(axis=-1))

    return Moments(
        p_pos=total(probabilities, right, seen),
        p_neg=total(probabilities, ~right, seen),
        q_pos=total(probabilities, right),
        q_neg=total(probabilities, ~right),
        a2=total(square, right, seen),
        b2=total(square, ~right, seen),
        u_pos2=total(square, right, ~seen),
        u_neg2=total(square, ~right, ~seen),
    )


def surrogate_balance(
    m: Moments, *, r_correct: ArrayLike, r_wrong: ArrayLike, rollouts: ArrayLike, step_size: float = 1.0
) -> SurrogateBalance:
    """The mass-balance equation of the drawn-set surrogate (BroRL Theorem 1, section 1.3).

    Args:
        m: from `moments`, or measured on a group.
        r_correct, r_wrong: R_c and R_w, such as `reward_levels` gives.
        rollouts: N >= 2, the divisor of the surrogate.
        step_size: eta of a plain gradient step on the logits.

    Raises:
        ValueError: N < 2.
    """
    n = _rollout_count(rollouts)
    r_c, r_w = np.asarray(r_correct, np.float64), np.asarray(r_wrong, np.float64)
    s_r = r_c * m.p_pos + r_w * m.p_neg
    t1 = (r_c - s_r) * m.q_neg * m.a2
    t2 = (s_r - r_w) * m.q_pos * m.b2
    t3 = s_r * (m.q_pos * m.u_neg2 - m.q_neg * m.u_pos2)
    return SurrogateBalance(s_r=s_r, t1=t1, t2=t2, t3=t3, delta=step_size / n * (t1 + t2 + t3))


def reinforce_balance(
    p: ArrayLike,
    correct: ArrayLike,
    counts: ArrayLike,
    *,
    r_correct: ArrayLike,
    r_wrong: ArrayLike,
    step_size: float = 1.0,
) -> ReinforceBalance:
    """The balance of REINFORCE, logit step eta (w - mean(r) p) with w the summed reward share of each action.

    Two terms, both non-negative, when the rewards are centred on the group mean; any other baseline adds the coupling
    mean(r) * (Q_pos sum_wrong p^2 - Q_neg sum_correct p^2) (BroRL section 1.7, item 3).

    Args:
        p: f64[..., V] probabilities, each row summing to 1.
        correct: bool[..., V].
        counts: int[..., V], how often each action was drawn; N is their sum, at least 2.

    Raises:
        ValueError: bad probabilities, negative counts, or N < 2.
    """
    probabilities, right = _distribution(p), np.asarray(correct, bool)
    times = np.asarray(counts, np.float64)
    if bool(np.any(times < 0)):
        raise ValueError("counts of draws cannot be negative")
    n = _rollout_count(times.sum(axis=-1))[..., None]
    reward = np.where(right, np.asarray(r_correct, np.float64)[..., None], np.asarray(r_wrong, np.float64)[..., None])
    weight = times * reward / n
    mean_reward = weight.sum(axis=-1)
    # A centred batch sums to zero by construction; what floating point leaves is no coupling.
    mean_reward = np.where(np.abs(mean_reward) <= 1e-14 * np.abs(weight).sum(axis=-1), 0.0, mean_reward)
    square = probabilities * probabilities
    q_pos = np.where(right, probabilities, 0.0).sum(axis=-1)
    q_neg = np.where(right, 0.0, probabilities).sum(axis=-1)
    gain_correct = q_neg * np.where(right, probabilities * weight, 0.0).sum(axis=-1)
    gain_wrong = -q_pos * np.where(right, 0.0, probabilities * weight).sum(axis=-1)
    coupling = mean_reward * (
        q_pos * np.where(right, 0.0, square).sum(axis=-1) - q_neg * np.where(right, square, 0.0).sum(axis=-1)
    )
    return ReinforceBalance(
        gain_correct=gain_correct,
        gain_wrong=gain_wrong,
        coupling=coupling,
        delta=step_size * (gain_correct + gain_wrong + coupling),
    )


def _distribution(p: ArrayLike) -> Array:
    probabilities = np.asarray(p, np.float64)
    if probabilities.ndim == 0 or probabilities.shape[-1] == 0:
        raise ValueError("probabilities need at least one action on their last axis")
    if not bool(np.isfinite(probabilities).all()) or bool(np.any(probabilities < 0)):
        raise ValueError("probabilities must be finite and not negative")
    sums = probabilities.sum(axis=-1)
    if not bool(np.all(np.abs(sums - 1.0) <= 1e-9)):
        worst = float(np.ravel(sums)[np.argmax(np.abs(np.ravel(sums) - 1.0))])
        raise ValueError(f"probabilities must sum to 1 on the last axis; one row sums to {worst:.9g}")
    return probabilities


def _rollout_count(rollouts: ArrayLike) -> NDArray[Any]:
    n = np.asarray(rollouts)
    if bool(np.any(n < 2)):
        raise ValueError(f"the balance needs N >= 2 rollouts, not {int(np.min(n))}: one rollout has no baseline")
    return n
