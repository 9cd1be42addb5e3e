"""One full optimizer step beside TRL's GRPOTrainer: sampling, verification, reference log-probabilities, update.

Both sides do the same work in turn, step after step: model, prompts, number of rollouts, temperature, response length,
verifier, loss; learning rate 0, so that every step meets the same policy (AdamW still runs); float32, two threads.
TRL belongs into the same environment: pip install -c constraints.txt -e ".[trl]". Run it on an otherwise idle machine.

    python benchmarks/vs_trl.py --bundled runs/quickstart-1/checkpoints/step_000020 --smollm2 smollm2
"""

import argparse
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from beside import Side, in_turn
from measuring import HERE, RESULTS, environment, ratio, summary, write_rows
from trl_scenario import Scenario

RECIPES = HERE.parent / "recipes"


def scenarios(bundled: Path, smollm2: Path | None) -> dict[str, Scenario]:
    """By name; those on SmolLM2 only where its directory is given."""
    quickstart = Scenario(
        recipe=str(RECIPES / "quickstart.yaml"),
        model=str(bundled),
        rollouts=512,
        prompts=8,
        new_tokens=16,
        micro_batch=256,
        rounds=5,
        aim=10,
    )
    found = {
        "bundled": quickstart,
        "nothing shared": replace(quickstart, prompts=4, new_tokens=64, aim=1.2, random_weights=True),
    }
    if smollm2 is not None:
        short = replace(
            quickstart,
            recipe=str(RECIPES / "smollm2.yaml"),
            model=str(smollm2),
            prompts=2,
            new_tokens=6,
            micro_batch=32,
            aim=15,
            memory_aim=0.5,
        )
        found["SmolLM2, N = 128"] = replace(short, rollouts=128, rounds=3)
        found["SmolLM2, N = 512"] = replace(short, rounds=2)
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--bundled", type=Path, required=True, help="checkpoint of the bundled model after the demo")
    arguments.add_argument("--smollm2", type=Path, help="directory of the converted SmolLM2")
    arguments.add_argument("--only", help="scenarios whose name contains this")
    for name in ("rounds", "prompts", "rollouts", "new_tokens", "micro_batch"):
        arguments.add_argument(f"--{name.replace('_', '-')}", type=int, help="in place of the scenario's own")
    arguments.add_argument("--out", type=Path, default=RESULTS / "vs_trl.json")
    options = arguments.parse_args()
    names = ("rounds", "prompts", "rollouts", "new_tokens", "micro_batch")
    given = {name: value for name in names if (value := getattr(options, name)) is not None}
    rows: list[dict[str, Any]] = []
    for name, scenario in scenarios(options.bundled, options.smollm2).items():
        if options.only is None or options.only in name:
            rows += measure(name, replace(scenario, **given))
            write_rows(options.out, rows)


def measure(name: str, scenario: Scenario) -> list[dict[str, Any]]:
    """A row for time and a row for memory."""
    settings = asdict(scenario)
    sides = {side: Side(sys.executable, HERE / f"trl_{side}.py", settings) for side in ("ours", "theirs")}
    steps = in_turn(sides, scenario.rounds, name)
    seconds = {side: [step["seconds"] for step in found] for side, found in steps.items()}
    memory = {side: max(step["peak_memory_mib"] for step in found) for side, found in steps.items()}
    facts = {
        "scenario": settings,
        "distinct_node_share": summary([step["distinct_node_share"] for step in steps["ours"]]),
        "mean_tokens": {side: summary([step["mean_tokens"] for step in found]) for side, found in steps.items()},
        "mean_reward": {side: summary([step["reward"] for step in found]) for side, found in steps.items()},
        **environment(2, ("brorl", "torch", "transformers", "trl")),
    }
    return [
        {
            "name": f"{name}: TRL's seconds a step over ours",
            **ratio(seconds["theirs"], seconds["ours"]),
            "aim": f">= {scenario.aim:g}",
            "seconds": {side: summary(values) for side, values in seconds.items()},
            **facts,
        },
        {
            "name": f"{name}: our peak memory over TRL's",
            "ratio": memory["ours"] / memory["theirs"],
            "aim": f"<= {scenario.memory_aim:g}",
            "peak_memory_mib": memory,
            **facts,
        },
    ]


if __name__ == "__main__":
    main()
