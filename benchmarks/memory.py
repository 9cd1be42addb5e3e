"""Peak memory of a whole step, each in a process of its own.

1. The bundled model with random weights and no end of sequence, 16 prompts, 64 tokens, nothing shared but the prompt:
   the largest trie that so many rollouts can make.
2. From N = 16 to 512 at the same micro-batch: what a further node costs, and, at a temperature at which more rollouts
   open hardly a node, what further rollouts cost when nodes do not grow.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from measuring import HERE, RESULTS, environment, peak_memory_mib, write_rows

RECIPE = HERE.parent / "recipes" / "quickstart.yaml"
WIDTHS = (16, 64, 256, 512)
COLD = 0.05


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--prompts", type=int, default=16)
    arguments.add_argument("--widths", type=int, nargs="+", default=list(WIDTHS))
    arguments.add_argument("--out", type=Path, default=RESULTS / "memory.json")
    arguments.add_argument("--step", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.step:
        print(json.dumps(step(**json.loads(options.step))))
        return
    widths, facts = options.widths, {"prompts": options.prompts, **environment(2)}
    flat = measured(prompts=options.prompts, width=widths[-1], tokens=64, random_weights=True, temperature=1.0)
    warm = {n: measured(options.prompts, n, 48, False, 1.0) for n in widths}
    cold = {n: measured(options.prompts, n, 48, False, COLD) for n in widths}
    first, last = widths[0], widths[-1]
    added = warm[last]["peak_mib"] - warm[first]["peak_mib"]
    nodes = warm[last]["nodes"] - warm[first]["nodes"]
    write_rows(
        options.out,
        [
            {
                "name": f"{options.prompts} x {last} x 64 tokens, nothing shared: peak memory over 1 GiB",
                "ratio": flat["peak_mib"] / 1024,
                "aim": "<= 1",
                **flat,
                **facts,
            },
            {
                "name": f"peak memory at N = {last} over N = {first}, nodes hardly growing (temperature {COLD})",
                "ratio": cold[last]["peak_mib"] / cold[first]["peak_mib"],
                "aim": "<= 1.1",
                "widths": cold,
                **facts,
            },
            {
                "name": f"KiB for a further node, N = {first} to {last}, at temperature 1",
                "ratio": added * 1024 / nodes,
                "aim": "reported",
                "widths": warm,
                **facts,
            },
        ],
    )


def measured(prompts: int, width: int, tokens: int, random_weights: bool, temperature: float) -> dict[str, Any]:
    """`step` in a fresh process."""
    settings = json.dumps(
        {
            "prompts": prompts,
            "width": width,
            "tokens": tokens,
            "random_weights": random_weights,
            "temperature": temperature,
        }
    )
    command = [sys.executable, __file__, "--step", settings]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    print(f"N = {width}, temperature {temperature}, random weights {random_weights}: {found}", flush=True)
    return found


def step(prompts: int, width: int, tokens: int, random_weights: bool, temperature: float) -> dict[str, Any]:
    """One whole step, and the most memory that it took."""
    from dataclasses import replace

    import torch
    from trl_scenario import randomise

    from brorl.build import open_parts
    from brorl.engines.protocol import SampleRequest
    from brorl.phases import Phases
    from brorl.recipe_file import load_recipe
    from brorl.updating import update_policy

    torch.set_num_threads(2)
    changes = [
        f"rollouts.per_prompt={width}",
        f"rollouts.prompts_per_step={prompts}",
        f"rollouts.max_new_tokens={tokens}",
        f"rollouts.temperature={temperature}",
        "rollouts.kv_budget_mib=128",
        "selection.drop_constant=false",
    ]
    recipe = load_recipe(RECIPE, changes)
    with open_parts(recipe) as parts:
        sampling = parts.sampling
        if random_weights:
            randomise(parts.learner.model)
            parts.learner.reset_reference()
            sampling = replace(sampling, stop_token_ids=())
        drawn = [p for i in range(prompts) if (p := parts.data.prompt_at(i)) is not None]
        requests = [SampleRequest(prompt=p, rollouts=width, key=(0, "memory", i)) for i, p in enumerate(drawn)]
        before = peak_memory_mib()
        groups = parts.rollouts.draw(requests, sampling, Phases())
        update_policy(parts.learner, groups, recipe, parts.advantage, 1e-6, Phases())
        nodes, flat = sum(g.group.nodes for g in groups), sum(g.group.total_tokens for g in groups)
        return {
            "peak_mib": peak_memory_mib(),
            "before_the_step_mib": before,
            "nodes": nodes,
            "distinct_node_share": nodes / flat,
        }


if __name__ == "__main__":
    main()
