"""From a group of rollouts to a scored group, while the next group is already being sampled."""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np

from brorl.group import Finish, Outcome, RolloutGroup, ScoredGroup, merge
from brorl.verifiers.pool import VerifierPool
from brorl.verifiers.score import Score

_TRUNCATED = Score(outcome=Outcome.TRUNCATED, reward=0.0, note="reached the length limit")


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingGroup:
    """A group whose responses are being graded."""

    group: RolloutGroup
    verdicts: tuple[Future[Score] | Score, ...]
    """K, in the order of `group.ends`"""

    def done(self) -> bool:
        """Every response is graded."""
        return all(isinstance(v, Score) or v.done() for v in self.verdicts)

    def scores(self) -> list[Score]:
        """The K scores; waits for them.

        Raises:
            RunError: the pool was closed meanwhile.
        """
        return [v if isinstance(v, Score) else v.result() for v in self.verdicts]

    def result(self) -> ScoredGroup:
        """The scored group; waits for the last verdict."""
        return scored(self.group, self.scores())


def submit_group(pool: VerifierPool, group: RolloutGroup, texts: Sequence[str]) -> PendingGroup:
    """Start grading the K distinct responses of a group, given as text in the order of `group.ends`.

    Truncated responses score 0 without being graded (stop properly: ProRLv2). Different token sequences that read the
    same are graded once.

    Raises:
        ValueError: not one text per distinct response.
    """
    if len(texts) != group.distinct:
        raise ValueError(f"prompt {group.prompt.id}: {len(texts)} texts for {group.distinct} distinct responses")
    truncated = group.finish == Finish.LENGTH
    verdicts = tuple(
        _TRUNCATED if cut else pool.submit(group.prompt, text) for cut, text in zip(truncated, texts, strict=True)
    )
    return PendingGroup(group=group, verdicts=verdicts)


def score_group(pool: VerifierPool, group: RolloutGroup, texts: Sequence[str]) -> ScoredGroup:
    """Grade the K distinct responses of a group and wait for the verdicts; see `submit_group`."""
    return submit_group(pool, group, texts).result()


def scored(group: RolloutGroup, scores: Sequence[Score]) -> ScoredGroup:
    """Put K scores into the arrays of a `ScoredGroup`; a part that a score does not name is NaN there."""
    names = sorted({name for score in scores for name in score.parts})
    return ScoredGroup(
        group=group,
        rewards=np.array([score.reward for score in scores], np.float32),
        outcomes=np.array([score.outcome for score in scores], np.uint8),
        parts={name: np.array([s.parts.get(name, np.nan) for s in scores], np.float32) for name in names},
    )


def merge_scored(first: ScoredGroup, second: ScoredGroup) -> ScoredGroup:
    """All rollouts of two scored groups of one prompt and policy version; a response in both keeps a verdict it has.

    Raises:
        ValueError: as `brorl.group.merge`.
    """
    group = merge(first.group, second.group)
    found: dict[tuple[bytes, int], tuple[ScoredGroup, int]] = {}
    for scored in (first, second):
        keys = zip(scored.group.responses(), scored.group.finish.tolist(), strict=True)
        for k, (ids, finish) in enumerate(keys):
            known = found.get((ids.tobytes(), finish))
            if known is None or not known[0].scorable[known[1]]:
                found[ids.tobytes(), finish] = (scored, k)
    sources = [
        found[ids.tobytes(), finish] for ids, finish in zip(group.responses(), group.finish.tolist(), strict=True)
    ]
    names = sorted({*first.parts, *second.parts})
    return ScoredGroup(
        group=group,
        rewards=np.array([scored.rewards[k] for scored, k in sources], np.float32),
        outcomes=np.array([scored.outcomes[k] for scored, k in sources], np.uint8),
        parts={
            name: np.array([s.parts[name][k] if name in s.parts else np.nan for s, k in sources], np.float32)
            for name in names
        },
    )
