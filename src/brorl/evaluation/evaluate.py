"""Held-out scores of a policy: pass@1 and pass@k on a fixed set of prompts, every response kept as a group."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from brorl.engines.protocol import SampleRequest, Sampling
from brorl.group import Prompt, ScoredGroup
from brorl.phases import Phases
from brorl.rollouts import Rollouts
from brorl.theory.pass_at_k import Interval, mean_pass_at_k


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Scores of one set of prompts."""

    name: str
    prompts: int
    rollouts: int
    """per prompt"""
    pass_at: dict[int, Interval]
    """k -> unbiased pass@k averaged over prompts, with a 95 % interval clustered by prompt"""
    mean_length: float
    truncated_share: float
    unscorable: int
    """rollouts without a verdict; they are in no figure"""

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "pass_at": {str(k): asdict(v) for k, v in self.pass_at.items()}}

    @staticmethod
    def from_json(data: dict[str, Any]) -> "Evaluation":
        return Evaluation(**{**data, "pass_at": {int(k): Interval(**v) for k, v in data["pass_at"].items()}})


def evaluate(
    rollouts: Rollouts,
    prompts: Sequence[Prompt],
    *,
    name: str,
    per_prompt: int,
    ks: Sequence[int],
    sampling: Sampling,
    seed: int,
    correct_threshold: float = 1.0,
    phases: Phases | None = None,
) -> tuple[Evaluation, list[ScoredGroup]]:
    """Draw `per_prompt` rollouts of every prompt and score them.

    Draws depend on `seed`, `name` and the prompt's id alone, so two policies are compared on common random numbers.

    Raises:
        ValueError: fewer than two prompts, or some k above the scored rollouts of a prompt.
    """
    requests = [
        SampleRequest(prompt=prompt, rollouts=per_prompt, key=(seed, "evaluation", name, prompt.id))
        for prompt in prompts
    ]
    groups = rollouts.draw(requests, sampling, phases)
    return summarise(groups, name=name, ks=ks, correct_threshold=correct_threshold), groups


def summarise(
    groups: Sequence[ScoredGroup], *, name: str, ks: Sequence[int], correct_threshold: float = 1.0
) -> Evaluation:
    """The scores of groups drawn before."""
    scored = [g for g in groups if g.scored_rollouts]
    n = [g.scored_rollouts for g in scored]
    c = [g.successes(correct_threshold) for g in scored]
    total = sum(g.group.rollouts for g in groups)
    return Evaluation(
        name=name,
        prompts=len(groups),
        rollouts=max((g.group.rollouts for g in groups), default=0),
        pass_at={k: mean_pass_at_k(n, c, k) for k in ks},
        mean_length=sum(g.group.total_tokens for g in groups) / total,
        truncated_share=sum(int(g.group.end_counts[g.group.finish == 1].sum()) for g in groups) / total,
        unscorable=total - sum(n),
    )
