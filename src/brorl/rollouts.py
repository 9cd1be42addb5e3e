"""Draw groups and have them graded, both at once: a group is verified while the next ones are still being sampled."""

from collections.abc import Iterator, Sequence

from brorl.engines.protocol import RolloutEngine, SampleRequest, Sampling
from brorl.group import Decoder, ScoredGroup
from brorl.phases import Phases
from brorl.verifiers.grading import PendingGroup, submit_group
from brorl.verifiers.pool import VerifierPool


class Rollouts:
    """A rollout engine and a verifier pool at work on the same requests."""

    def __init__(self, engine: RolloutEngine, pool: VerifierPool, decoder: Decoder) -> None:
        self.engine = engine
        self.pool = pool
        self.decoder = decoder

    def draw(
        self, requests: Sequence[SampleRequest], sampling: Sampling, phases: Phases | None = None
    ) -> list[ScoredGroup]:
        """One scored group per request, in the order of the requests."""
        phases = phases or Phases()
        pending: dict[int, PendingGroup] = {}
        with phases.timed("sampling"):
            for index, group in self.stream(requests, sampling):
                pending[index] = group
                phases.report("sampling", len(pending), len(requests))
        if sorted(pending) != list(range(len(requests))):
            raise RuntimeError(f"the rollout engine answered {len(pending)} of {len(requests)} requests")
        with phases.timed("verification"):  # only what sampling did not cover
            return [pending[index].result() for index in range(len(requests))]

    def stream(self, requests: Sequence[SampleRequest], sampling: Sampling) -> Iterator[tuple[int, PendingGroup]]:
        """Yield (index into `requests`, group being graded) as groups complete."""
        for index, group in self.engine.sample(requests, sampling):
            yield index, submit_group(self.pool, group, group.texts(self.decoder))
