"""Cost against breadth: seconds and trie nodes per prompt at N = 16, 64, 256, 512, at the recipe's prompts per step.

A timing is one whole step without file writes: sampling, verification, log-probabilities, and the update (at learning
rate 0, so that every timing meets the same policy). The widths are timed in turn, round after round, and `ratio` is the
median over rounds of (seconds per prompt at 512) / (seconds per prompt at 16); each round has prompts of its own.
Run it on an otherwise idle machine.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from measuring import HERE, RESULTS, environment, ratio, summary, write_rows

from brorl.build import Parts, open_parts
from brorl.config import Recipe
from brorl.engines.protocol import SampleRequest
from brorl.phases import Phases
from brorl.recipe_file import load_recipe, parse_recipe
from brorl.updating import update_policy

WIDTHS = (16, 64, 256, 512)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--recipe", type=Path, default=HERE.parent / "recipes" / "quickstart.yaml")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--aim", type=float, default=6.0)
    arguments.add_argument("--out", type=Path, default=RESULTS / "cost_growth.json")
    options = arguments.parse_args()
    torch.set_num_threads(2)
    recipe = load_recipe(options.recipe)
    timings: dict[int, list[dict[str, float]]] = {width: [] for width in WIDTHS}
    with open_parts(recipe) as parts:
        for width in (WIDTHS[0], WIDTHS[-1]):  # warm-up
            time_step(parts, recipe, width, round_number=-1)
        for round_number in range(options.rounds):
            for width in WIDTHS:
                timings[width].append(time_step(parts, recipe, width, round_number))
                print(f"round {round_number} N={width}: {timings[width][-1]}", flush=True)
    write_rows(options.out, [summarise(recipe, timings, options.aim)])


def time_step(parts: Parts, recipe: Recipe, width: int, round_number: int) -> dict[str, float]:
    """One step at N = `width` on prompts of the round's own, so that no verdict is remembered from the round before."""
    data = recipe.model_dump(mode="json")
    data["rollouts"]["per_prompt"] = width
    narrow = parse_recipe(data)
    size = recipe.rollouts.prompts_per_step
    prompts = [parts.data.prompt_at((round_number + 1) * size + slot) for slot in range(size)]
    requests = [
        SampleRequest(prompt=prompt, rollouts=width, key=(recipe.seed, "cost_growth", round_number, slot))
        for slot, prompt in enumerate(prompts)
        if prompt is not None
    ]
    started, phases = time.perf_counter(), Phases()
    groups = parts.rollouts.draw(requests, parts.sampling, phases)
    update_policy(parts.learner, groups, narrow, parts.advantage, 0.0, phases)
    seconds = time.perf_counter() - started
    tokens, nodes = sum(g.group.total_tokens for g in groups), sum(g.group.nodes for g in groups)
    return {
        "seconds_per_prompt": seconds / len(requests),
        "nodes_per_prompt": nodes / len(requests),
        "distinct_node_share": nodes / tokens,
        **phases.seconds,
    }


def summarise(recipe: Recipe, timings: dict[int, list[dict[str, float]]], aim: float) -> dict[str, Any]:
    seconds = {width: [t["seconds_per_prompt"] for t in rows] for width, rows in timings.items()}
    return {
        "name": f"cost growth, {recipe.name}: seconds per prompt at N = {WIDTHS[-1]} over N = {WIDTHS[0]}",
        **ratio(seconds[WIDTHS[-1]], seconds[WIDTHS[0]]),
        "aim": f"<= {aim:g}",
        "prompts_per_step": recipe.rollouts.prompts_per_step,
        "widths": {
            str(width): {key: summary([row[key] for row in rows]) for key in rows[0]} for width, rows in timings.items()
        },
        **environment(torch.get_num_threads()),
    }


if __name__ == "__main__":
    main()
