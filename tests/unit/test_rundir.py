"""The run directory: whole files or none, the first free name, cutting back, and recipes that come back."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from brorl.errors import RunError
from brorl.group import Prompt, RolloutGroup, ScoredGroup
from brorl.recipe_file import parse_recipe
from brorl.rundir import RunDirectory, check_output, write_text
from brorl.storage import read_groups

RECIPE = parse_recipe({"name": "r", "steps": 2, "tasks": [{"kind": "gym", "task": "chain_sum"}]})


def group() -> ScoredGroup:
    return ScoredGroup(
        group=RolloutGroup.from_sequences(Prompt(id="p", text=""), [[1], [2]]),
        rewards=np.zeros(2, np.float32),
        outcomes=np.zeros(2, np.uint8),
    )


def test_first_free_number(tmp_path: Path) -> None:
    first, second = (RunDirectory.create(RECIPE, parent=tmp_path / "runs") for _ in range(2))
    assert (first.path.name, second.path.name) == ("r-1", "r-2")
    first.config.unlink()
    assert RunDirectory.create(RECIPE, parent=tmp_path / "runs").path.name == "r-3"


def test_a_used_directory_is_refused_an_empty_one_is_not(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    run = RunDirectory.create(RECIPE, path=tmp_path / "empty")
    assert run.recipe() == RECIPE
    with pytest.raises(RunError, match="already holds a run"):
        RunDirectory.create(RECIPE, path=tmp_path / "empty")
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunError):
        RunDirectory.create(RECIPE, path=tmp_path / "file")


def test_an_unwritable_place_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunError, match="cannot write a run there"):
        RunDirectory.create(RECIPE, parent=tmp_path / "file" / "runs")


def test_cut_back_leaves_what_came_before(tmp_path: Path) -> None:
    run = RunDirectory.create(RECIPE, path=tmp_path / "run")
    for step in range(4):
        run.append_metrics({"step": step, "value": float("nan")})
        run.write_step(step, [group()])
    for step in (0, 2, 4):
        write_text(run.evals / f"step_{step:06d}_held-out.json", "{}")
    with run.metrics.open("a") as file:
        file.write('{"step": 4, "val')  # killed in the middle of a line
    (run.groups / "step_000009.parquet.partial").write_bytes(b"half")
    (run.checkpoints / ".step_000004.partial").mkdir()
    run.cut_back(2)
    assert [r["step"] for r in run.read_metrics()] == [0, 1]
    assert sorted(p.name for p in run.groups.iterdir()) == ["step_000000.parquet", "step_000001.parquet"]
    assert sorted(p.name for p in run.evals.iterdir()) == ["step_000000_held-out.json", "step_000002_held-out.json"]
    assert not list(run.checkpoints.iterdir())
    assert len(read_groups(run.group_file(1))) == 1
    run.append_metrics({"step": 2})
    assert [r["step"] for r in run.read_metrics()] == [0, 1, 2]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "\ud800")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_what_is_no_plain_file_stays_what_it_is(tmp_path: Path) -> None:
    """`--json /dev/null` as root must not put a file in its place."""
    pipe, link, real = tmp_path / "pipe", tmp_path / "link", tmp_path / "real"
    os.mkfifo(pipe)
    real.write_text("old")
    link.symlink_to(real)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for path in (pipe, link):
        check_output(path)
        write_text(path, "new")
    assert os.read(reader, 10) == b"new"
    os.close(reader)
    assert pipe.is_fifo()
    assert link.is_symlink()
    assert real.read_text() == "new"


def test_an_output_is_no_file_that_the_command_reads(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("{}")
    check_output(tmp_path / "out", rows, None)
    with pytest.raises(RunError, match="reads it"):
        check_output(tmp_path / "." / "rows.jsonl", rows)
    with pytest.raises(RunError, match="cannot be written"):
        check_output(tmp_path / "absent" / "out")


def test_open_wants_a_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not a run directory"):
        RunDirectory.open(tmp_path)


def test_what_a_killed_start_left_behind_is_free(tmp_path: Path) -> None:
    run = RunDirectory.create(RECIPE, path=tmp_path / "run")
    run.info.rename(tmp_path / "run" / "run.json.partial")  # killed just before the rename that makes it a run
    again = RunDirectory.create(RECIPE, path=tmp_path / "run")
    assert again.read_info()["status"] == "created"
    again.info.unlink()
    again.write_step(0, [group()])
    with pytest.raises(RunError, match="already holds a run"):
        RunDirectory.create(RECIPE, path=tmp_path / "run")


HOLD = """
import os, sys, time
import os
import subprocess
import sys
from pathlib import Path
from brorl.rundir import RunDirectory
with RunDirectory(Path(sys.argv[1])).locked():
    print(os.getpid(), flush=True)
    sys.stdin.read()
"""


def test_one_trainer_at_a_time(tmp_path: Path) -> None:
    run = RunDirectory.create(RECIPE, path=tmp_path / "run")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        pid = holder.stdout.readline().strip()
        with pytest.raises(RunError, match=rf"another process is training this run \(process {pid} on"), run.locked():
            pass
        holder.kill()
    with run.locked():  # the lock of a killed process is gone
        assert run.lock.read_text().startswith(f"process {os.getpid()} on")


def test_damaged_records_are_a_message(tmp_path: Path) -> None:
    run = RunDirectory.create(RECIPE, path=tmp_path / "run")
    run.metrics.write_text('{"step": 0}\n{"step\n{"step": 2}\n')
    with pytest.raises(RunError, match=r"metrics\.jsonl, line 2: damaged"):
        run.read_metrics()
    run.info.write_text("{")
    with pytest.raises(RunError, match=r"run\.json: damaged"):
        run.read_info()
