"""brorl: RL from verifiable rewards with hundreds of rollouts per prompt. Importing it loads no torch."""

from brorl.group import Fate, Finish, Outcome, Prompt, RolloutGroup, ScoredGroup, merge
from brorl.seeding import derive_seed

__all__ = ["Fate", "Finish", "Outcome", "Prompt", "RolloutGroup", "ScoredGroup", "derive_seed", "merge"]
__version__ = "0.1.0"
