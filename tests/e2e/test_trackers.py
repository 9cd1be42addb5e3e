"""Real TensorBoard and real W&B (offline), read back from their files: every figure once, also after a resume."""

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from brorl.metrics import flatten
from brorl.recipe_file import parse_recipe
from brorl.rundir import RunDirectory
from brorl.trackers import open_trackers
from command_line import brorl, refused
from tiny_policy import write_recipe

pytest.importorskip("tensorboard")
pytest.importorskip("wandb")

RECIPE = {"name": "r", "steps": 2, "tasks": [{"kind": "gym", "task": "chain_sum"}]}


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tracked run of three steps that lost its last checkpoint and was resumed."""
    home = tmp_path_factory.mktemp("tracked")
    recipe = write_recipe(
        home,
        steps=3,
        trackers=["tensorboard", "wandb"],
        evaluation={"every": 2, "heldout_prompts": 2, "training_prompts": 0, "rollouts": 8},
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        brorl("train", recipe, "--run", home / "run", cwd=home)
        newest = max((home / "run" / "checkpoints").iterdir())
        (newest / "trainer.json").unlink()
        brorl("train", "--resume", home / "run", cwd=home)
    return home / "run"


def expected(run: Path) -> dict[str, dict[int, float]]:
    """Dotted name -> step -> value, from the run's own files."""
    opened = RunDirectory.open(run)
    found: dict[str, dict[int, float]] = {}
    lines: list[tuple[int, dict[str, Any]]] = [(r["step"], r) for r in opened.read_metrics()]
    lines += [(s, {"evaluation": {"held-out": data}}) for s, data in opened.read_scores("held-out").items()]
    for step, line in lines:
        for name, value in flatten(line).items():
            found.setdefault(name, {})[step] = value
    return found


def test_tensorboard_has_every_figure_once(resumed: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(resumed / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    found = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    wanted = expected(resumed)
    assert set(found) == set(wanted)
    assert {"pass_at_1", "seconds.total", "evaluation.held-out.pass_at.1.value"} <= set(found)
    for name, points in found.items():
        assert [step for step, _ in points] == sorted(wanted[name]), name
        assert [value for _, value in points] == pytest.approx([wanted[name][s] for s, _ in points], nan_ok=True), name


def wandb_records(path: Path) -> list[Any]:
    """The records of a ``.wandb`` file: protocol buffers in LevelDB's log format, behind a header of 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record  # pyright: ignore[reportAttributeAccessIssue]  # made at run time

    data, position, records, parts = path.read_bytes(), 7, [], b""
    while position + 7 <= len(data):
        left = 32768 - position % 32768
        if left < 7:
            position += left
            continue
        _, length, kind = struct.unpack("<IHB", data[position : position + 7])
        chunk = data[position + 7 : position + 7 + length]
        position += 7 + length
        parts = chunk if kind in (1, 2) else parts + chunk  # whole or first; middle or last
        if kind in (1, 4):
            record = Record()
            record.ParseFromString(parts)
            records.append(record)
    return records


def test_wandb_goes_on_with_the_same_run(resumed: Path) -> None:
    sessions = [wandb_records(file) for file in sorted(resumed.glob("wandb/offline-run-*/*.wandb"))]
    assert len(sessions) == 2
    kinds = [[r.WhichOneof("record_type") for r in records] for records in sessions]
    assert all("exit" in kind for kind in kinds)
    identity = RunDirectory.open(resumed).read_info()["wandb"]
    runs = [r.run for records in sessions for r in records if r.WhichOneof("record_type") == "run"]
    assert {run.run_id for run in runs} == {identity}
    assert {run.display_name for run in runs} == {"run"}
    lines = [
        [
            (r.history.step.num, {i.key or ".".join(i.nested_key): json.loads(i.value_json) for i in r.history.item})
            for r in records
            if r.WhichOneof("record_type") == "history"
        ]
        for records in sessions
    ]
    assert [[step for step, _ in session] for session in lines] == [[0, 1, 2, 3], [2, 3]]
    assert lines[0][0][1]["evaluation.held-out.pass_at.1.value"] >= 0
    wanted = expected(resumed)
    for step, figures in lines[1]:
        for name, values in wanted.items():
            if step in values and values[step] == values[step]:
                assert figures[name] == pytest.approx(values[step]), name


def test_neither_package_is_loaded_unasked(tmp_path: Path) -> None:
    program = (
        "import sys, brorl.build, brorl.cli.train; sys.exit(any(m in sys.modules for m in ('wandb', 'tensorboard')))"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_missing_package_is_refused_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = write_recipe(tmp_path, trackers=["wandb"])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    refused("train", recipe, cwd=tmp_path, says="pip install 'brorl[wandb]'")
    assert not (tmp_path / "runs").exists()


def test_a_tracker_that_fails_is_a_warning(tmp_path: Path) -> None:
    """A file lies where TensorBoard wants its directory."""
    recipe = parse_recipe({**RECIPE, "trackers": ["tensorboard"]})
    run = RunDirectory.create(recipe, path=tmp_path / "run")
    (run.path / "tensorboard").write_text("in the way")
    with (
        pytest.warns(UserWarning, match="tracker tensorboard failed .*goes on without it"),
        open_trackers(run, recipe, 0) as track,
    ):
        track(0, {"step": 0, "loss": 1.0})


def test_wandb_without_a_network_records_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that cannot be reached: nothing listens at this address."""
    monkeypatch.setattr("brorl.trackers.WAIT_SECONDS", 2)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    recipe = parse_recipe({**RECIPE, "trackers": ["wandb"]})
    run = RunDirectory.create(recipe, path=tmp_path / "run")
    with (
        pytest.warns(UserWarning, match=r"records offline: .*wandb sync"),
        open_trackers(run, recipe, 0) as track,
    ):
        track(0, {"step": 0, "loss": 1.0})
    (file,) = run.path.glob("wandb/offline-run-*/*.wandb")
    assert "history" in {r.WhichOneof("record_type") for r in wandb_records(file)}


def test_nobody_logged_in_is_offline_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:10")
    recipe = parse_recipe({**RECIPE, "trackers": ["wandb"]})
    run = RunDirectory.create(recipe, path=tmp_path / "run")
    with pytest.warns(UserWarning, match="nobody is logged in"), open_trackers(run, recipe, 0) as track:
        track(0, {"step": 0, "loss": 1.0})
    assert list(run.path.glob("wandb/offline-run-*/*.wandb"))
