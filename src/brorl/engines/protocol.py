"""What the trainer asks of a rollout engine, whichever it is."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from brorl.group import Prompt, RolloutGroup
from brorl.seeding import Key

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How rollouts are drawn. `top_p` and `top_k` are for evaluation only: training samples unchanged."""

    max_new_tokens: int
    stop_token_ids: tuple[int, ...]
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """0 means no limit"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRequest:
    """N rollouts of one prompt, drawn with randomness that depends on `key` and the node path alone."""

    prompt: Prompt
    rollouts: int
    key: tuple[Key, ...]
    """such as (run seed, step, slot, round): two requests with one key repeat each other's draws"""


class RolloutEngine(Protocol):
    """Draws groups under the policy it was last given."""

    @property
    def policy_version(self) -> int:
        """Version of the weights in use; every group is stamped with it."""
        ...

    def sample(self, requests: Sequence[SampleRequest], sampling: Sampling) -> Iterator[tuple[int, RolloutGroup]]:
        """Yield (index into `requests`, group) as groups complete, in any order, each exactly once."""
        ...

    def load_weights(self, weights: "Mapping[str, Tensor]", version: int) -> None:
        """Use these weights, named as in the model's `state_dict`, for every request from now on."""
        ...
