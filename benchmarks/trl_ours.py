"""Our side of `vs_trl.py`: one whole optimizer step per line of standard input."""

import json
import sys
import time
from dataclasses import replace

import torch
from beside import answer
from trl_scenario import Scenario, randomise

from brorl.build import open_parts
from brorl.engines.protocol import SampleRequest
from brorl.phases import Phases
from brorl.updating import update_policy


def main() -> None:
    torch.set_num_threads(2)
    scenario = Scenario(**json.loads(sys.argv[1]))
    recipe = scenario.as_recipe()
    with open_parts(recipe) as parts:
        sampling, learner = parts.sampling, parts.learner
        if scenario.random_weights:
            randomise(learner.model)
            learner.reset_reference()
            sampling = replace(sampling, stop_token_ids=())

        def step(number: int) -> dict[str, float]:
            prompts = [parts.data.prompt_at(number * scenario.prompts + slot) for slot in range(scenario.prompts)]
            requests = [
                SampleRequest(prompt=prompt, rollouts=scenario.rollouts, key=(0, "vs_trl", number, slot))
                for slot, prompt in enumerate(prompts)
                if prompt is not None
            ]
            started, phases = time.perf_counter(), Phases()
            groups = parts.rollouts.draw(requests, sampling, phases)
            update_policy(learner, groups, recipe, parts.advantage, 0.0, phases)
            seconds = time.perf_counter() - started
            rollouts, tokens = len(groups) * scenario.rollouts, sum(g.group.total_tokens for g in groups)
            return {
                "seconds": seconds,
                **phases.seconds,
                "distinct_node_share": sum(g.group.nodes for g in groups) / tokens,
                "mean_tokens": tokens / rollouts,
                "reward": sum(float(g.rewards @ g.group.end_counts) for g in groups) / rollouts,
            }

        answer(step)


if __name__ == "__main__":
    main()
