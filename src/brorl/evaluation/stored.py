"""Evaluations as they lie on disk: of `brorl eval`, or made during training; each as groups of benchmarks."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brorl.engines.pieces import Pieces
from brorl.errors import DataError, RunError
from brorl.evaluation.benchmark_run import SPEC, VOCABULARY
from brorl.group import ScoredGroup
from brorl.rundir import RunDirectory
from brorl.storage import read_groups
from brorl.tasks.rows import fingerprint


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBenchmark:
    """One set of problems, as one policy answered it."""

    groups: Sequence[ScoredGroup]
    definition: Mapping[str, Any]
    """what must be equal in two evaluations: version, data, template, verifier, sampling"""
    score: str
    """``pass@1`` or ``reward``"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvaluation:
    """One policy's answers."""

    label: str
    benchmarks: Mapping[str, StoredBenchmark]
    correct_threshold: float = 1.0
    pieces: Pieces | None = None
    """the vocabulary, where responses came as text"""


def read_evaluation(target: str) -> StoredEvaluation:
    """The evaluation in a directory of `brorl eval`, or the one that a run made at its newest step, or at ``RUN:STEP``.

    Raises:
        DataError: neither; or an evaluation that is not finished.
        RunError: a run without such an evaluation; the message lists those there are.
    """
    path = Path(target).expanduser()
    if (path / SPEC).is_file():
        return _of_eval(path)
    head, colon, step = target.rpartition(":")
    if colon and (Path(head).expanduser() / "run.json").is_file():
        return _of_run(Path(head).expanduser(), step)
    if (path / "run.json").is_file():
        return _of_run(path, None)
    raise DataError(
        f"{target}: no evaluation: give a directory that brorl eval made, the directory of a run, or RUN:STEP"
    )


def _of_eval(path: Path) -> StoredEvaluation:
    try:
        spec = json.loads((path / SPEC).read_text(encoding="utf-8"))
        benchmarks: dict[str, StoredBenchmark] = {}
        for name, definition in spec["benchmarks"].items():
            file = path / f"{name.replace('/', '-')}.parquet"
            if not file.is_file():
                raise DataError(f"{path}: its evaluation on {name} is not finished: give its command again to go on")
            sampling = {key: value for key, value in definition["sampling"].items() if key != "seed"}
            shown = {key: definition[key] for key in ("version", "data", "template", "verifier")}
            benchmarks[name] = StoredBenchmark(
                groups=read_groups(file), definition={**shown, "sampling": sampling}, score=definition["score"]
            )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path / SPEC}: not readable as an evaluation ({error!r})") from error
    pieces = None
    if (path / VOCABULARY).exists():
        pieces = Pieces()
        pieces.continue_from(path / VOCABULARY)
    return StoredEvaluation(label=path.resolve().name, benchmarks=benchmarks, pieces=pieces)


def _of_run(path: Path, step: str | None) -> StoredEvaluation:
    run = RunDirectory.open(path)
    recipe = run.recipe()
    found: dict[int, dict[str, Path]] = {}
    for file in sorted(run.evals.glob("step_*.parquet")):
        number, _, name = file.stem.removeprefix("step_").partition("_")
        if number.isdecimal() and file.with_suffix(".json").exists():
            found.setdefault(int(number), {})[name] = file
    there = ", ".join(map(str, sorted(found))) or "none"
    if step is not None and not (step.isdecimal() and int(step) in found):
        raise RunError(f"{path}: no evaluation at step {step!r}; there are: {there}")
    if not found:
        raise RunError(
            f"{path}: it made no evaluation (evaluation.heldout_prompts); evaluate it with brorl eval {path}"
        )
    number = max(found) if step is None else int(step)
    sampling = {
        "samples": recipe.evaluation.rollouts,
        "max_new_tokens": recipe.rollouts.max_new_tokens,
        "temperature": recipe.evaluation.temperature,
        "top_p": recipe.evaluation.top_p,
    }
    benchmarks: dict[str, StoredBenchmark] = {}
    for name, file in found[number].items():
        groups = read_groups(file)
        asked = [[g.group.prompt.id, g.group.prompt.text, g.group.prompt.answer] for g in groups]
        benchmarks[name] = StoredBenchmark(
            groups=groups, definition={"data": fingerprint(asked), "sampling": sampling}, score="pass@1"
        )
    return StoredEvaluation(
        label=f"{path.resolve().name}:{number}",
        benchmarks=benchmarks,
        correct_threshold=recipe.verification.correct_threshold,
    )
