"""A checkpoint of a run as a model for others: weights, tokenizer and card, without anything of the trainer."""

import json
import shutil
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from brorl.errors import DataError, RunError
from brorl.evaluation.benchmark_run import RESULTS
from brorl.evaluation.policies import run_checkpoint, weights_fingerprint
from brorl.reports.model_card import model_card
from brorl.rundir import RunDirectory

MODEL_FILES = (
    "config.json", "generation_config.json", "model.safetensors", "model-*.safetensors", "model.safetensors.index.json",
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "vocab.txt", "merges.txt", "tokenizer.model", "spiece.model", "chat_template.*", "processor_config.json",
)  # fmt: skip
"""What makes a Hugging Face model directory, as patterns; everything else in a checkpoint is the trainer's."""


def export_model(
    run_path: Path, directory: Path, *, step: str | None = None, scores: Sequence[Path] = ()
) -> dict[str, Any]:
    """Write a Hugging Face model directory with a model card, whole or not at all.

    Args:
        step: a number of steps, ``last`` (default) or ``best``.
        scores: directories of `brorl eval` on this very checkpoint, for the card.

    Returns:
        ``directory``, ``checkpoint``, ``step``, ``files`` (names), ``mib``.

    Raises:
        RunError: `directory` holds something, the checkpoint is missing or damaged, or the disk is full.
        DataError: `scores` that are not of this checkpoint, or not finished.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise RunError(f"{directory}: already holds something; name a directory that is empty or not there")
    run = RunDirectory.open(run_path)
    checkpoint = run_checkpoint(run_path, step)
    number = int(checkpoint.name.removeprefix("step_"))
    results = [_results(path, checkpoint) for path in scores]
    training = [
        json.loads(file.read_text(encoding="utf-8")) for file in sorted(run.evals.glob(f"step_{number:06d}_*.json"))
    ]
    card = model_card(
        name=directory.resolve().name,
        step=number,
        recipe=run.recipe().model_dump(mode="json", exclude_none=True),
        info=run.read_info(),
        training=training,
        benchmarks=results,
    )
    files = [f for f in sorted(checkpoint.iterdir()) if any(fnmatch(f.name, pattern) for pattern in MODEL_FILES)]
    partial = directory.with_name(f".{directory.name}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for file in files:
            shutil.copyfile(file, partial / file.name)
        (partial / "README.md").write_text(card, encoding="utf-8")
        if directory.exists():
            directory.rmdir()
        partial.rename(directory)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise RunError(f"{directory}: cannot be written ({error.strerror})") from error
    return {
        "directory": str(directory),
        "checkpoint": str(checkpoint),
        "step": number,
        "files": [file.name for file in files] + ["README.md"],
        "mib": sum(file.stat().st_size for file in files) / 2**20,
    }


def _results(path: Path, checkpoint: Path) -> dict[str, Any]:
    try:
        found = json.loads((path / RESULTS).read_text(encoding="utf-8"))
        weights = found["policy"].get("weights")
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise DataError(f"{path}: no finished evaluation of brorl eval ({error})") from error
    if weights != weights_fingerprint(checkpoint):
        raise DataError(f"{path}: evaluates other weights than {checkpoint}: a card must not say what was not measured")
    return found
