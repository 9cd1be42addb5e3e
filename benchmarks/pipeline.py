"""Where a step's time goes, and what dynamic sampling keeps, at N = 16 and N = 512 (the paper's Table 2).

Whole runs of `brorl train`, files and checkpoints included, no evaluation. `pipeline` is the share of a step's time in
which neither the model samples nor the learner works. Kept samples are those of groups that are trained on; both widths
see the same prompts per step. Steps alternate between the widths by whole runs. Run it on an otherwise idle machine.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from measuring import HERE, RESULTS, environment, summary, write_rows

WIDTHS = (16, 512)
COMPUTING = ("sampling", "log-probabilities", "update")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--recipe", type=Path, default=HERE.parent / "recipes" / "quickstart.yaml")
    arguments.add_argument("--set", action="append", default=[], dest="overrides", help="as in brorl train")
    arguments.add_argument("--steps", type=int, default=6, help="the first of each run warms up and is left out")
    arguments.add_argument("--runs", type=int, default=1, help="of each width, in turn")
    arguments.add_argument("--out", type=Path, default=RESULTS / "pipeline.json")
    options = arguments.parse_args()
    steps: dict[int, list[dict[str, Any]]] = {width: [] for width in WIDTHS}
    for _ in range(options.runs):
        for width in WIDTHS:
            steps[width] += train(options.recipe, width, options.steps, options.overrides)[1:]
    facts = {"recipe": options.recipe.name, "overrides": options.overrides, **environment(2)}
    write_rows(options.out, [*pipeline_rows(steps, facts), *table_2_rows(steps, facts)])


def train(recipe: Path, width: int, steps: int, overrides: list[str]) -> list[dict[str, Any]]:
    """The metrics of a fresh run, a dictionary per step."""
    with tempfile.TemporaryDirectory() as parent:
        run = Path(parent) / "run"
        settings = [
            f"rollouts.per_prompt={width}",
            f"steps={steps}",
            "evaluation.heldout_prompts=0",
            "evaluation.training_prompts=0",
            *overrides,
        ]
        command = [sys.executable, "-m", "brorl", "train", str(recipe), "--run", str(run)]
        subprocess.run([*command, *(part for s in settings for part in ("-s", s))], check=True)
        return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def pipeline_rows(steps: dict[int, list[dict[str, Any]]], facts: dict[str, Any]) -> list[dict[str, Any]]:
    """The share of a step not covered by sampling or learning."""
    rows: list[dict[str, Any]] = []
    for width, found in steps.items():
        shares = [1 - sum(s["seconds"].get(key, 0.0) for key in COMPUTING) / s["seconds"]["total"] for s in found]
        phases = sorted({key for s in found for key in s["seconds"]})
        rows.append(
            {
                "name": f"pipeline: share of a step outside sampling and learning, N = {width}",
                "ratio": summary(shares)["median"],
                "aim": "<= 0.1" if width == WIDTHS[-1] else "reported",
                "spread": summary(shares)["spread"],
                "seconds": {key: summary([s["seconds"].get(key, 0.0) for s in found]) for key in phases},
                **facts,
            }
        )
    return rows


def table_2_rows(steps: dict[int, list[dict[str, Any]]], facts: dict[str, Any]) -> list[dict[str, Any]]:
    """Kept share and samples a second, N = 512 over N = 16; the paper reports 41 -> 62 % and 36.5 -> 72.4 samples/s."""

    def figures(found: list[dict[str, Any]]) -> dict[str, list[float]]:
        drawing = [s["seconds"]["sampling"] + s["seconds"].get("verification", 0.0) for s in found]
        total = [s["seconds"]["total"] for s in found]
        generated = [float(s["rollouts"]) for s in found]
        kept = [s["rollouts"] * s["kept_share"] for s in found]
        return {
            "kept share": [s["kept_share"] for s in found],
            "generated samples/s, generation only": [g / t for g, t in zip(generated, drawing, strict=True)],
            "kept samples/s, generation only": [k / t for k, t in zip(kept, drawing, strict=True)],
            "generated samples/s, end to end": [g / t for g, t in zip(generated, total, strict=True)],
            "kept samples/s, end to end": [k / t for k, t in zip(kept, total, strict=True)],
            "wasted samples a step": [g - k for g, k in zip(generated, kept, strict=True)],
            "distinct-node share": [s["distinct_node_share"] for s in found],
        }

    by_width = {width: figures(found) for width, found in steps.items()}
    narrow, wide = by_width[WIDTHS[0]], by_width[WIDTHS[-1]]
    return [
        {
            "name": f"dynamic sampling: {name}, N = {WIDTHS[-1]} over N = {WIDTHS[0]}",
            "ratio": summary(wide[name])["median"] / max(summary(narrow[name])["median"], 1e-12),
            "aim": "reported",
            "widths": {str(width): summary(found[name]) for width, found in by_width.items()},
            **facts,
        }
        for name in narrow
    ]


if __name__ == "__main__":
    main()
