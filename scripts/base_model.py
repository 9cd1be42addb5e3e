"""Make the bundled model `brorl-tiny` from nothing: `make base-model`.

    1  supervised   tokenizer and warm-up on worked examples          -> OUT/supervised
    2  reinforced   ProRLv2 at N = 16, recipes/base_model.yaml        -> OUT/run
    3  measured     4,096 rollouts of each of 256 training prompts    -> OUT/measured.json
    4  packaged     model, optimizer state, curve and card            -> src/brorl/models/brorl-tiny

Each stage is skipped where its output exists, and stage 2 goes on where it was stopped: delete OUT to start again.
Every seed is fixed.
"""

import argparse
import json
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from model_card import FLAT_STEPS, FLAT_T, card, curve_rows, last_gain, measure, rise, write_curve
from supervised import encode, new_model, train
from tiny_tokenizer import train_tokenizer
from worked_examples import LESSONS, examples, wording

from brorl.build import open_parts, open_trainer
from brorl.config import Recipe
from brorl.engines.protocol import SampleRequest
from brorl.learner.checkpoint import latest_checkpoint
from brorl.learner.model import BUNDLED
from brorl.recipe_file import dump_recipe, load_recipe
from brorl.rundir import RunDirectory, write_json
from brorl.seeding import derive_seed

ROOT = Path(__file__).resolve().parents[1]
SEED = 0
VOCABULARY = 512
BATCH = 32
COURSES = ((160_000, 3e-3, True), (112_000, 2e-3, False))
"""supervised examples, peak learning rate, and whether harder lessons come in little by little"""
LONGEST = 48
"""tokens of a response that is taught, the stop token included"""
ROLLOUTS = 4096
"""of each training prompt, for the card"""


def make_supervised(directory: Path) -> None:
    """Tokenizer and supervised model; the loss of every hundred steps goes to `loss.json`."""
    tokenizer = train_tokenizer(wording(LESSONS, 300, SEED), VOCABULARY)
    model = new_model(tokenizer, SEED)
    losses: list[float] = []
    started = time.perf_counter()
    for course, (count, peak, gradual) in enumerate(COURSES):
        seed = derive_seed(SEED, "course", course)
        pairs = list(examples(LESSONS, count, seed, gradual=gradual))
        rows = [row for row in encode(tokenizer, pairs) if len(row[0]) - row[1] <= LONGEST]
        for loss in train(model, rows, batch=BATCH, peak=peak, seed=seed):
            losses.append(loss)
            if len(losses) % 100 == 0:
                mean, seconds = sum(losses[-100:]) / 100, time.perf_counter() - started
                print(f"supervised step {len(losses)}  loss {mean:.3f}  {seconds:.0f} s", flush=True)
    means = [sum(losses[i : i + 100]) / len(losses[i : i + 100]) for i in range(0, len(losses), 100)]
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    write_json(directory / "loss.json", means)


def reinforce(recipe: Recipe, run: Path) -> None:
    """Train by the recipe, or go on where the run was stopped."""
    resume = run if run.exists() else None
    with open_trainer(recipe, resume=resume, path=None if resume else run) as trainer:
        for record in trainer.train():
            print(
                f"step {record['step']}  pass@1 {record['pass_at_1']:.3f}  kept {record['kept_share']:.2f}  "
                f"nodes {record['distinct_node_share']:.3f}  {record['seconds']['total']:.1f} s",
                flush=True,
            )


def measured(recipe: Recipe, model: Path) -> dict[str, Any]:
    """The figures of the card, from the recipe's fixed training prompts and its held-out prompts."""
    settings = recipe.model_copy(update={"model": recipe.model.model_copy(update={"path": str(model)})})
    found: dict[str, Any] = {}
    with open_parts(settings) as parts:
        for name, prompts in parts.data.evaluation_sets.items():
            requests = [
                SampleRequest(prompt=prompt, rollouts=ROLLOUTS, key=(SEED, "card", name, prompt.id))
                for prompt in prompts
            ]
            started = time.perf_counter()
            groups = parts.rollouts.draw(requests, parts.sampling)
            found[name] = measure(groups)
            print(f"{name}: {len(prompts)} prompts x {ROLLOUTS} in {time.perf_counter() - started:.0f} s", flush=True)
    return found


def package(recipe: Recipe, run: Path, supervised: Path, figures: Mapping[str, Any], target: Path) -> None:
    """Copy the final checkpoint, and write the curve and the card beside it."""
    checkpoint = latest_checkpoint(RunDirectory.open(run).checkpoints)
    target.mkdir(parents=True, exist_ok=True)
    for file in sorted(checkpoint.iterdir()):
        if file.suffix in (".json", ".safetensors", ".state") and file.name not in NOT_PACKAGED:
            shutil.copyfile(file, target / file.name)
    rows = curve_rows(run)
    write_curve(target / "curve.csv", rows)
    write_json(target / "measured.json", figures)
    itself = recipe.model_copy(update={"model": recipe.model.model_copy(update={"path": BUNDLED})})
    (target / "recipe.yaml").write_text(dump_recipe(itself), encoding="utf-8")
    losses = json.loads((supervised / "loss.json").read_text())
    (target / "README.md").write_text(card(recipe, rows, losses, figures), encoding="utf-8")


NOT_PACKAGED = ("trainer.json", "manifest.json", "reference.state")
"""parts of a checkpoint that belong to its run"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "base_model")
    parser.add_argument("--target", type=Path, default=ROOT / "src" / "brorl" / "models" / "brorl-tiny")
    parser.add_argument("--recipe", type=Path, default=ROOT / "recipes" / "base_model.yaml")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--accept-rise", action="store_true", help="package a curve that still rises; the card says so")
    arguments = parser.parse_args()
    out: Path = arguments.out
    torch.set_num_threads(arguments.threads)

    supervised, run, figures = out / "supervised", out / "run", out / "measured.json"
    if not (supervised / "loss.json").exists():
        make_supervised(supervised)
    recipe = load_recipe(arguments.recipe, [f"model.path={supervised}"])
    if not run.exists() or len(RunDirectory.open(run).read_metrics()) < recipe.steps:
        reinforce(recipe, run)
    gain, t = rise(last_gain(run))
    if t > FLAT_T and not arguments.accept_rise:
        raise SystemExit(
            f"pass@1 on the training prompts rose by {gain:.4f} over the last {FLAT_STEPS} steps, t = {t:.2f} (flat: "
            f"at most {FLAT_T}): raise `steps` in recipes/base_model.yaml and go on"
        )
    if not figures.exists():
        checkpoint = latest_checkpoint(RunDirectory.open(run).checkpoints)
        write_json(figures, {"last_gain": last_gain(run), **measured(recipe, checkpoint)})
    package(recipe, run, supervised, json.loads(figures.read_text()), arguments.target)
    print(f"the bundled model is in {arguments.target}")


if __name__ == "__main__":
    main()
