"""What a study says in words, by a rule that was written before its runs.

The observations are seeds: two runs of one arm differ by their draws, and that difference decides how much of a gain
is luck. Tests by prompt take two runs as they are; they say something about these runs, not about the arms.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from brorl.theory.agreement import mean_interval
from brorl.theory.comparison import holm, paired_t

RULE = (
    "Score: held-out pass@1 at the end of the budget. Arms are paired by seed. A difference counts where the 95 % "
    "t interval of its mean over seeds leaves out 0. Broad above the baseline and above the control: N helps beyond "
    "batch size. Broad above the baseline and not above the control: batch size explains it. Broad below the baseline: "
    "worse. Else: no difference at this budget. Fewer than two whole seeds: no verdict."
)
LEVEL = 0.95

Words = Literal[
    "N helps beyond batch size",
    "batch size explains it",
    "broad helps; without a control, N and batch size cannot be told apart",
    "no difference at this budget",
    "worse",
    "not enough whole seeds",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One arm against another, paired by seed."""

    mean: float
    low: float | None
    """of the 95 % t interval over seeds; None with one seed"""
    high: float | None
    p_two_sided: float | None
    """of the paired t-test over seeds; None with one seed, or where all differences are equal"""
    seeds: int

    @property
    def direction(self) -> int:
        """1 above, -1 below, 0 where the interval holds 0 or there is none."""
        if self.low is None or self.high is None:
            return 0
        return int(self.low > 0) - int(self.high < 0)


def difference(base: Mapping[int, float], other: Mapping[int, float]) -> Difference:
    """`other` less `base`, scores by seed, over the seeds that both have.

    Raises:
        ValueError: no seed in common.
    """
    seeds = sorted(base.keys() & other.keys())
    if not seeds:
        raise ValueError("no seed in common")
    values = np.array([other[seed] - base[seed] for seed in seeds])
    interval = mean_interval(values, LEVEL)
    test = interval and paired_t(values)
    return Difference(
        mean=float(values.mean()),
        low=interval and interval.low,
        high=interval and interval.high,
        p_two_sided=test and test.p_two_sided,
        seeds=len(values),
    )


def verdict(over_baseline: Difference | None, over_control: Difference | None, *, has_control: bool) -> Words:
    """`RULE` in code.

    Args:
        over_baseline: broad against the baseline; None without a whole seed of both.
        over_control: broad against the control.
        has_control: whether the study names one.
    """
    if over_baseline is None or over_baseline.seeds < 2:
        return "not enough whole seeds"
    if over_baseline.direction < 0:
        return "worse"
    if over_baseline.direction == 0:
        return "no difference at this budget"
    if not has_control:
        return "broad helps; without a control, N and batch size cannot be told apart"
    if over_control is None or over_control.seeds < 2:
        return "not enough whole seeds"
    return "N helps beyond batch size" if over_control.direction > 0 else "batch size explains it"


def adjusted(differences: Sequence[Difference]) -> list[float | None]:
    """p values of several arms against one baseline, by Holm; None stays None."""
    known = [d.p_two_sided for d in differences if d.p_two_sided is not None]
    values = iter(holm(known))
    return [None if d.p_two_sided is None else next(values) for d in differences]
