"""Responses that no model wrote, through the path of every evaluation: golds must score 1, canaries 0."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from brorl.engines.pieces import Pieces, word_pieces
from brorl.engines.protocol import SampleRequest, Sampling
from brorl.errors import RunError
from brorl.evaluation.golds import gold_response
from brorl.group import Prompt, RolloutGroup

if TYPE_CHECKING:
    from torch import Tensor

CANARIES = (
    "",
    "I do not know.",
    "The answer is left to the reader.",
    "\\boxed{}",
    "\\boxed{\\text{unknown}}",
    "<answer></answer>",
    "Answer: A, B, C or D",
    "```python\npass\n```",
)
"""Answers that are none; a benchmark that pays for one has a broken verifier (or asks for next to nothing)."""


def gold_responses(prompt: Prompt) -> list[str]:
    """The reference answer in the form that the verifier reads; none where the benchmark has no reference answers."""
    gold = gold_response(prompt)
    return [] if gold is None else [gold]


def canary_responses(prompt: Prompt) -> list[str]:
    """The same wrong answers to everything."""
    return list(CANARIES)


FIXED = {"golds": gold_responses, "canary": canary_responses}
"""What `brorl eval` takes in place of a model."""


class FixedResponses:
    """A `RolloutEngine` that gives fixed texts, whatever is asked, in turn.

    Args:
        kind: a name in `FIXED`.
    """

    def __init__(self, kind: str, pieces: Pieces) -> None:
        self._responses = FIXED[kind]
        self._pieces = pieces

    @property
    def policy_version(self) -> int:
        """Always 0."""
        return 0

    def sample(self, requests: Sequence[SampleRequest], sampling: Sampling) -> Iterator[tuple[int, RolloutGroup]]:
        """Yield (index, group) in order; a prompt that has no response gets an empty one."""
        for index, request in enumerate(requests):
            texts = self._responses(request.prompt) or [""]
            drawn = [texts[i % len(texts)] for i in range(request.rollouts)]
            yield index, RolloutGroup.from_sequences(request.prompt, [self._pieces.ids(word_pieces(t)) for t in drawn])

    def load_weights(self, weights: "Mapping[str, Tensor]", version: int) -> None:
        """Refused.

        Raises:
            RunError: always.
        """
        raise RunError("fixed responses have no weights")
