"""What `brorl check` finds out: the recipe is loaded, a few reference answers are graded, nothing is trained."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from brorl.build import Parts, open_parts
from brorl.config import FileTask, Recipe
from brorl.errors import DataError, ModelError
from brorl.evaluation.golds import refused_golds
from brorl.group import Prompt
from brorl.learner.model import model_directory
from brorl.tasks.contamination import ContaminationReport
from brorl.tasks.records import records
from brorl.theory.cost import ModelShape, StepCost, StepShape, step_cost

GOLDS = 16
"""reference answers that are graded"""
SHARES = {"settled policy": 0.05, "middling": 0.25, "nothing shared": 1.0}
"""distinct-node shares the estimate is made for: what a policy's own share is, only sampling tells"""
_QWEN_1P5B = ModelShape(
    weights=1_310_340_608,
    parameters=1_777_088_000,
    layers=28,
    hidden=1536,
    kv_width=256,
    vocabulary=151_936,
)
SHAPES = {
    "DeepSeek-R1-Distill-Qwen-1.5B": _QWEN_1P5B,
    "Nemotron-Research-Reasoning-Qwen-1.5B": _QWEN_1P5B,
}
"""models whose cost can be estimated before they are here, by the name of their directory"""
_PROMPT_TOKENS = 256
_DRAWN = 1.5
"""groups drawn per group trained on, as in the paper's Table 2 at N = 512"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """A recipe that can run, and what a step of it is expected to cost."""

    recipe: Recipe
    first_prompt: Prompt
    mean_prompt_tokens: float
    parameters: int
    matrix_rate: float
    """measured floating-point operations per second of a large matrix product"""
    costs: dict[str, StepCost]
    golds_correct: int
    golds_graded: int
    contamination: ContaminationReport | None
    """None where the check is off"""

    def as_json(self) -> dict[str, Any]:
        worst = self.costs["nothing shared"]
        return {
            "recipe": self.recipe.name,
            "prompts_per_step": self.recipe.rollouts.prompts_per_step,
            "rollouts_per_prompt": self.recipe.rollouts.per_prompt,
            "samples_per_step": self.recipe.samples_per_step,
            "parameters": self.parameters,
            "tokens_per_step": worst.tokens,
            "memory_mib": worst.memory_mib,
            "seconds_per_step": {name: cost.seconds for name, cost in self.costs.items()},
            "costs": {name: cost.as_json() for name, cost in self.costs.items()},
            "matrix_gflops": self.matrix_rate / 1e9,
            "first_prompt": self.first_prompt.text,
            "golds_correct": self.golds_correct,
            "golds_graded": self.golds_graded,
            "contamination": self.contamination
            and {**self.contamination.as_json(), "overlaps": self.contamination.listed()},
        }

    def sections(self) -> list[tuple[str, str]]:
        """(title, text) for people."""
        prompt = self.first_prompt
        return [
            ("A step", step_text(self.recipe)),
            (
                "Estimate (one cost model; right within a factor of two or three)",
                cost_text(self.recipe, self.costs, self.parameters, self.matrix_rate),
            ),
            (f"The first prompt: {prompt.id}, {len(prompt.token_ids)} tokens, verifier {prompt.verifier}", prompt.text),
            (
                "Reference answers",
                f"{self.golds_correct} of {self.golds_graded} graded as correct"
                if self.golds_graded
                else "this verifier has no reference answer to grade",
            ),
            ("Contamination", self.contamination.text() if self.contamination else "not checked (contamination.ngram)"),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a step of a recipe costs where model or data are absent."""

    recipe: Recipe
    text: str
    costs: dict[str, StepCost]

    def as_json(self) -> dict[str, Any]:
        return {
            "recipe": self.recipe.name,
            "prompts_per_step": self.recipe.rollouts.prompts_per_step,
            "rollouts_per_prompt": self.recipe.rollouts.per_prompt,
            "samples_per_step": self.recipe.samples_per_step,
            "costs": {name: cost.as_json() for name, cost in self.costs.items()},
        }


def estimate_without(recipe: Recipe) -> Estimate:
    """The cost of a step from the shape of a model that is known by its name; prompts are taken as 256 tokens long."""
    shape = SHAPES.get(Path(recipe.model.path).name)
    if shape is None:
        return Estimate(recipe=recipe, text="none: it needs the model", costs={})
    rate = matrix_rate()
    tokens = min(_PROMPT_TOKENS, recipe.prompt.max_tokens or _PROMPT_TOKENS)
    costs = {
        name: step_cost(shape, step_shape(recipe, tokens, share), flops_per_second=rate)
        for name, share in SHARES.items()
    }
    return Estimate(recipe=recipe, text=cost_text(recipe, costs, shape.parameters, rate), costs=costs)


def missing_parts(recipe: Recipe) -> list[str]:
    """What a recipe names and this machine does not have, one sentence each."""
    missing: list[str] = []
    try:
        model_directory(recipe.model.path)
    except ModelError as error:
        missing.append(str(error))
    paths = [path for task in recipe.tasks if isinstance(task, FileTask) for path in (task.path, task.heldout_path)]
    for path in (*paths, *recipe.contamination.against):
        try:
            if path is not None:
                next(iter(records(path)), None)
        except DataError as error:
            missing.append(str(error))
    return missing


def step_text(recipe: Recipe) -> str:
    """How large a step is, in words."""
    rollouts = recipe.rollouts
    return (
        f"{rollouts.prompts_per_step} prompts x {rollouts.per_prompt} rollouts = {recipe.samples_per_step} "
        f"samples, at most {rollouts.max_new_tokens} new tokens each; {recipe.algorithm.minibatches} "
        f"mini-batches; {recipe.steps} steps"
    )


def cost_text(recipe: Recipe, costs: Mapping[str, StepCost], parameters: int, rate: float) -> str:
    """The estimate as a table, a line per distinct-node share."""
    row = "{:>26} {:>17} {:>17} {:>11} {:>15} {:>10}".format
    lines = [row("distinct-node share", "tokens", "nodes", "memory MiB", "seconds a step", "the run")]
    for name, cost in costs.items():
        lines.append(
            row(
                f"{SHARES[name]:.0%} ({name})",
                f"{cost.tokens:,.0f}",
                f"{cost.nodes:,.0f}",
                f"{cost.memory_mib:,.0f}",
                f"{cost.seconds:,.1f}",
                _duration(cost.seconds * recipe.steps),
            )
        )
    lines.append(f"{parameters:,} parameters; matrix products here: {rate / 1e9:,.0f} GFLOP/s")
    assumed = "responses of full length"
    if recipe.selection.drop_constant:
        assumed += f", {_DRAWN} prompts drawn per prompt trained on"
    if recipe.selection.allocation.name != "uniform":
        assumed += ", each with all of its rollouts (what giving prompts up saves depends on their pass rates)"
    lines.append(f"assumed: {assumed}")
    return "\n".join(lines)


def inspect_recipe(recipe: Recipe) -> Inspection:
    """Load all that the recipe names, and estimate a step.

    Raises:
        UserError: whatever cannot be used; also where the verifier refuses its own reference answers.
    """
    with open_parts(recipe) as parts:
        sample = _first_prompts(parts, max(GOLDS, recipe.rollouts.prompts_per_step))
        correct, graded = _grade_golds(parts, sample[:GOLDS])
        model = parts.learner.model
        shape, rate = model_shape(model), matrix_rate()
        adapter = sum(p.numel() for p in parts.learner.trainable().values())
        lengths = float(np.mean([len(prompt.token_ids) for prompt in sample]))
        return Inspection(
            recipe=recipe,
            first_prompt=sample[0],
            mean_prompt_tokens=lengths,
            parameters=shape.parameters,
            matrix_rate=rate,
            costs={
                name: step_cost(shape, step_shape(recipe, lengths, share, adapter), flops_per_second=rate)
                for name, share in SHARES.items()
            },
            golds_correct=correct,
            golds_graded=graded,
            contamination=parts.data.contamination,
        )


def _first_prompts(parts: Parts, wanted: int) -> list[Prompt]:
    found = [prompt for position in range(wanted) if (prompt := parts.data.prompt_at(position)) is not None]
    if not found:
        raise DataError(f"all of the first {wanted} prompts are over prompt.max_tokens: raise the limit")
    return found


def _grade_golds(parts: Parts, prompts: list[Prompt]) -> tuple[int, int]:
    # What a user's own verifier makes of a bare reference answer says nothing.
    graded, refused = refused_golds(parts.rollouts.pool, [p for p in prompts if ":" not in p.verifier])
    if graded and len(refused) == graded:
        first = refused[0]
        raise DataError(
            f"verifier {first.prompt.verifier!r} accepts none of the first {graded} reference answers; the first is "
            f"{first.prompt.answer!r} of {first.prompt.id}: {first.reason}"
        )
    return graded - len(refused), graded


def step_shape(recipe: Recipe, prompt_tokens: float, share: float, adapter_parameters: int = 0) -> StepShape:
    """A step of the recipe, with responses taken at their full length; `adapter_parameters` count with LoRA only."""
    rollouts = recipe.rollouts
    drawn = rollouts.prompts_per_step * (_DRAWN if recipe.selection.drop_constant else 1.0)
    return StepShape(
        prompts=rollouts.prompts_per_step,
        rollouts=rollouts.per_prompt,
        prompt_tokens=prompt_tokens,
        response_tokens=rollouts.max_new_tokens,
        distinct_node_share=share,
        drawn_prompts=drawn,
        with_reference=recipe.algorithm.kl_weight > 0,
        minibatches=recipe.algorithm.minibatches,
        kv_budget_mib=rollouts.kv_budget_mib,
        micro_batch_tokens=recipe.optimizer.max_tokens,
        trained_rollouts=recipe.selection.downsample,
        adapter_parameters=adapter_parameters if recipe.model.lora else None,
        gradient_checkpointing=recipe.model.gradient_checkpointing,
    )


def model_shape(model: PreTrainedModel) -> ModelShape:
    """The sizes of a model that decide its cost."""
    config = model.config.get_text_config()
    settings = config.to_dict()
    heads = settings.get("num_key_value_heads") or config.num_attention_heads
    size = settings.get("head_dim") or config.hidden_size // config.num_attention_heads
    parameters = sum(p.numel() for p in model.parameters())
    embedding = sum(p.numel() for p in model.get_input_embeddings().parameters())
    tied = bool(settings.get("tie_word_embeddings"))
    return ModelShape(
        weights=parameters - embedding * (1 if tied else 2),
        parameters=parameters,
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        kv_width=heads * size,
        vocabulary=config.vocab_size,
        bytes_per_number=torch.finfo(model.dtype).bits // 8,
    )


def matrix_rate(size: int = 1024, repeats: int = 5) -> float:
    """Floating-point operations per second of this machine's float32 matrix product, best of a few."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    best = 0.0
    for _ in range(repeats + 1):
        started = time.perf_counter()
        torch.mm(a, b)
        best = max(best, 2 * size**3 / (time.perf_counter() - started))
    return best


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:,.1f} h"
