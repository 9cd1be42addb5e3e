"""What both sides of `vs_trl.py` do, as data."""

from dataclasses import dataclass

import torch

from brorl.config import Recipe
from brorl.recipe_file import load_recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One comparison; it travels to the sides as JSON."""

    recipe: str
    """file of the recipe whose prompts, template and verifier are used"""
    model: str
    rollouts: int
    prompts: int
    new_tokens: int
    micro_batch: int
    """TRL's sequences per forward pass in training"""
    rounds: int
    aim: float
    memory_aim: float = 1.0
    """ours over theirs"""
    random_weights: bool = False
    """the model's shape with random weights and no end of sequence: nothing is shared but the prompt"""

    def as_recipe(self) -> Recipe:
        """Our settings; the loss is the one that TRL computes: GRPO advantages, clipped ratio, k3, token mean."""
        changes = {
            "model.path": self.model,
            "model.warm_optimizer": "false",
            "rollouts.per_prompt": self.rollouts,
            "rollouts.prompts_per_step": self.prompts,
            "rollouts.max_new_tokens": self.new_tokens,
            "selection.drop_constant": "false",
            "algorithm.minibatches": 1,
            "algorithm.advantage": "grpo",
            "algorithm.loss": "{name: clipped, eps_low: 0.2, eps_high: 0.27}",
            "algorithm.aggregation": "token_mean",
            "algorithm.correction": "none",
            "algorithm.kl": "k3",
            "algorithm.kl_weight": 1e-3,
        }
        return load_recipe(self.recipe, [f"{key}={value}" for key, value in changes.items()])


def randomise(model: torch.nn.Module) -> None:
    """Random weights from a fixed seed."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0.0, 0.02, generator=generator)
