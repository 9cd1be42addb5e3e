"""How near to this machine's matrix rate sampling and learning come, at N = 16 and N = 512.

`ratio` is (floating-point operations that the distinct nodes need) / (seconds x sgemm rate). The operations are counted
for prompt tokens and distinct nodes that have children (what predicts something), once each: 2 a weight and token
forward and 4 backward, attention over the node's own path, the output layer once per distinct prefix. Paths repeated
between pieces, padding and recomputation count as lost. The rate is the best of several products of one stated large
shape, taken in the same process. Run it on an otherwise idle machine.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measuring import HERE, RESULTS, environment, summary, write_rows

from brorl.build import Parts, open_parts
from brorl.engines.protocol import SampleRequest
from brorl.group import RolloutGroup
from brorl.inspection import model_shape
from brorl.phases import Phases
from brorl.recipe_file import load_recipe
from brorl.theory.cost import ModelShape
from brorl.updating import update_policy

WIDTHS = (16, 512)
SHAPE = (2048, 2048, 2048)
BACKWARD = 2.0
"""operations of a backward pass over those of a forward pass"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--recipe", type=Path, default=HERE.parent / "recipes" / "smollm2.yaml")
    arguments.add_argument("--set", action="append", default=[], dest="overrides", help="as in brorl train")
    arguments.add_argument("--prompts", type=int, default=4)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--aim", type=float, default=0.5)
    arguments.add_argument("--out", type=Path, default=RESULTS / "roofline.json")
    options = arguments.parse_args()
    torch.set_num_threads(2)
    changes = [f"rollouts.prompts_per_step={options.prompts}", "algorithm.minibatches=1", *options.overrides]
    recipe = load_recipe(options.recipe, changes)
    found: dict[int, list[dict[str, float]]] = {width: [] for width in WIDTHS}
    with open_parts(recipe) as parts:
        for number in range(-1, options.rounds):
            for width in WIDTHS:
                step = measure(parts, recipe, width, number + 1)
                print(f"round {number}, N = {width}: {step}", flush=True)
                if number >= 0:
                    found[width].append(step)
    facts = {"recipe": options.recipe.name, "prompts": options.prompts, "sgemm_shape": SHAPE, **environment(2)}
    write_rows(
        options.out, [row(found, w, part, options.aim, facts) for w in WIDTHS for part in ("sampling", "learning")]
    )


def row(
    found: dict[int, list[dict[str, float]]], width: int, part: str, aim: float, facts: dict[str, Any]
) -> dict[str, Any]:
    values = summary([step[part] for step in found[width]])
    return {
        "name": f"{part} at N = {width}: share of the matrix rate",
        "ratio": values["median"],
        "aim": f">= {aim:g}" if width == WIDTHS[-1] else "reported",
        "spread": values["spread"],
        "medians": {key: summary([step[key] for step in found[width]])["median"] for key in found[width][0]},
        **facts,
    }


def measure(parts: Parts, recipe: Any, width: int, number: int) -> dict[str, float]:
    """One step at N = `width`; learning at rate 0, so that every round meets the same policy."""
    size = recipe.rollouts.prompts_per_step
    prompts = [p for i in range(size) if (p := parts.data.prompt_at(number * size + i)) is not None]
    requests = [SampleRequest(prompt=p, rollouts=width, key=(0, "roofline", number, i)) for i, p in enumerate(prompts)]
    rate, phases = sgemm_rate(), Phases()
    groups = parts.rollouts.draw(requests, parts.sampling, phases)
    update_policy(parts.learner, groups, recipe, parts.advantage, 0.0, phases)
    forward = sum(forward_operations(model_shape(parts.learner.model), g.group) for g in groups)
    passes = 1 + BACKWARD + (recipe.algorithm.kl_weight > 0)
    seconds = {
        "sampling": phases.seconds["sampling"],
        "learning": phases.seconds["log-probabilities"] + phases.seconds["update"],
    }
    return {
        "sampling": forward / (seconds["sampling"] * rate),
        "learning": passes * forward / (seconds["learning"] * rate),
        "sampling_seconds": seconds["sampling"],
        "learning_seconds": seconds["learning"],
        "gigaflops_per_second": rate / 1e9,
        "nodes": float(sum(g.group.nodes for g in groups)),
        "distinct_node_share": sum(g.group.nodes for g in groups) / sum(g.group.total_tokens for g in groups),
    }


def forward_operations(shape: ModelShape, group: RolloutGroup) -> float:
    """Of one forward pass over the prompt of a group and its nodes that have children."""
    prompt = len(group.prompt.token_ids)
    inner = np.unique(group.parents[group.parents >= 0])
    seen = np.concatenate([np.arange(1, prompt + 1), prompt + 1 + group.depths()[inner]])
    prefixes = len(inner) + 1  # each predicts its children from one distribution
    attention = 4.0 * shape.layers * shape.hidden * float(seen.sum())
    return 2.0 * shape.weights * len(seen) + attention + 2.0 * shape.hidden * shape.vocabulary * prefixes


def sgemm_rate(shape: Sequence[int] = SHAPE, repeats: int = 5) -> float:
    """Operations a second of a float32 matrix product of this shape, the best of some."""
    m, k, n = shape
    a, b = torch.randn(m, k), torch.randn(k, n)
    best = 0.0
    for _ in range(repeats + 1):
        started = time.perf_counter()
        torch.mm(a, b)
        best = max(best, 2.0 * m * k * n / (time.perf_counter() - started))
    return best


if __name__ == "__main__":
    main()
