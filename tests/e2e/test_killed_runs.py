"""`kill -9` at any moment, inside every kind of write: a resumed run ends bit for bit as one that never stopped."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from brorl.rundir import RunDirectory
from brorl.seeding import generator
from brorl.storage import read_groups
from kill_moments import Forker
from tiny_policy import write_recipe

VOLATILE = ("seconds", "rollouts_per_second", "peak_memory_mib")
SETTINGS: dict[str, Any] = {
    "steps": 4,
    "rollouts": {"per_prompt": 16, "prompts_per_step": 4, "max_new_tokens": 4},
    "evaluation": {"every": 2, "heldout_prompts": 3, "training_prompts": 2, "rollouts": 8},
    "probe": {"every": 2, "prompts": 2, "rollouts": 16},
    "selection": {"oversample": 1.5, "carry_surplus": True},
    "reference": {"reset_every": 2},
    "checkpoint": {"keep_best": True},
}


@pytest.fixture(scope="module")
def forker() -> Iterator[Forker]:
    forker = Forker()
    yield forker
    forker.close()


def what_a_run_is(path: Path) -> dict[str, Any]:
    """Everything that must not depend on whether a run was stopped, down to the last bit."""
    run = RunDirectory.open(path)
    files = sorted(file.relative_to(path) for file in path.rglob("*") if file.is_file())
    groups = {str(f): read_groups(path / f) for f in files if f.suffix == ".parquet"}
    tensors = {str(f): load_file(path / f) for f in files if f.suffix == ".safetensors"}
    return {
        "files": files,
        "metrics": [{k: v for k, v in r.items() if k not in VOLATILE} for r in run.read_metrics()],
        "groups": {name: [_arrays(scored) for scored in found] for name, found in groups.items()},
        "tensors": {f"{f}:{name}": t.tobytes() for f, found in tensors.items() for name, t in found.items()},
        "evaluations": {
            str(f): (path / f).read_bytes() for f in files if f.parts[0] == "evals" and f.suffix == ".json"
        },
        "trainer": {str(f): (path / f).read_bytes() for f in files if f.name == "trainer.json"},
        "info": {key: run.read_info().get(key) for key in ("status", "best", "warnings")},
        "best": os.readlink(run.checkpoints / "best"),
    }


def _arrays(scored: Any) -> tuple[Any, ...]:
    group = scored.group
    arrays = (group.tokens, group.parents, group.counts, group.logprobs, group.undrawn2, group.ends, group.end_counts)
    return (group.prompt.id, scored.fate, *(np.asarray(a).tobytes() for a in (*arrays, scored.rewards)))


@pytest.mark.slow
def test_a_run_killed_at_twenty_moments_ends_as_if_undisturbed(tmp_path: Path, forker: Forker) -> None:
    recipe = write_recipe(tmp_path, **SETTINGS)
    whole = tmp_path / "whole"
    done = forker.run("train", recipe, "--run", whole, cwd=tmp_path, inside=whole)
    assert done["code"] == 0, done["text"]
    undisturbed = what_a_run_is(whole)
    rng = generator("moments of death")
    kills, turn = 0, 0
    while kills < 20:
        run = tmp_path / f"killed-{turn}"
        finished = False
        while not finished:
            # A run that was killed before it was one is started again.
            born = (run / "run.json").exists()
            arguments = ("train", "--resume", run) if born else ("train", recipe, "--run", run)
            moment = int(rng.integers(1, done["moments"] // 3)) if kills < 20 and kills % 4 else None
            seconds = float(rng.uniform(0.2, 2.0)) if kills < 20 and kills % 4 == 0 else None
            answer = forker.run(*arguments, cwd=tmp_path, inside=run, moment=moment, seconds=seconds)
            kills += answer["killed"]
            finished = not answer["killed"]
            assert answer["killed"] or answer["code"] == 0, answer["text"]
        assert what_a_run_is(run) == undisturbed
        turn += 1
