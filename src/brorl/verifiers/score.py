"""What a verifier returns."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from brorl.group import Outcome, Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The verdict on one response."""

    outcome: Outcome
    reward: float
    """in [0, 1]; NaN where the outcome is UNSCORABLE or ERROR"""
    extracted: str = ""
    """the answer as found in the response, for people to look at"""
    parts: Mapping[str, float] = field(default_factory=dict[str, float])
    """named components, such as the share of tests passed"""
    seconds: float = 0.0
    """wall-clock time of the grading, set by the pool"""
    note: str = ""
    """why, in a few words: the reason of an error, the isolation level of a code run"""


Verifier = Callable[[Prompt, str], Score]
