"""`brorl study`, run as a user runs it at toy size: to the end, in pieces, stopped, killed, shared, and refused."""

import fcntl
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import reproduction_table
import yaml
from safetensors.numpy import load_file

from brorl.errors import RunError
from brorl.rundir import RunDirectory
from brorl.seeding import generator
from brorl.study.running import StudyRun, keep_study, planned_runs, train_all
from brorl.study.spec import Study, load_study
from brorl.trainer import Trainer
from browser import browser, opened
from command_line import brorl, refused
from kill_moments import Forker
from tiny_policy import write_recipe, write_rows

VOLATILE = ("seconds", "rollouts_per_second", "peak_memory_mib")
NAMES = ["narrow/seed-1", "broad/seed-1", "narrow/seed-2", "broad/seed-2"]


def write_study(directory: Path, **changes: Any) -> Path:
    """Two arms and two seeds of three steps; `changes` replace keys of the study."""
    recipe = write_recipe(directory, rollouts={"max_new_tokens": 4}, evaluation={"rollouts": 8})
    study: dict[str, Any] = {
        "name": "toy",
        "recipe": recipe.name,
        "seeds": [1, 2],
        "budget": {"steps": 3},
        "evaluations": 2,
        "arms": {"narrow": {"rollouts.per_prompt": 8}, "broad": {"rollouts.per_prompt": 24, "optimizer.lr": 5e-3}},
        "verdict": {"baseline": "narrow", "broad": "broad"},
        **changes,
    }
    path = directory / "study.yaml"
    path.write_text(yaml.safe_dump(study, sort_keys=False))
    return path


def runs_of(directory: Path, **changes: Any) -> tuple[Study, list[StudyRun]]:
    study, out = load_study(write_study(directory, **changes)), directory / "out"
    keep_study(study, out)
    return study, planned_runs(study, out, {})


def what_a_study_is(out: Path) -> dict[str, Any]:
    """All that must not depend on whether it was stopped: metrics, evaluations, weights, to the last bit."""
    runs = {name: RunDirectory.open(out / name) for name in NAMES}
    return {
        "status": {name: run.read_info()["status"] for name, run in runs.items()},
        "metrics": {
            name: [{k: v for k, v in record.items() if k not in VOLATILE} for record in run.read_metrics()]
            for name, run in runs.items()
        },
        "scores": {str(f.relative_to(out)): f.read_bytes() for f in sorted(out.glob("*/*/evals/*.json"))},
        "weights": {
            str(f.relative_to(out)): {key: tensor.tobytes() for key, tensor in load_file(f).items()}
            for f in sorted(out.glob("*/*/checkpoints/*/model.safetensors"))
        },
    }


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a study that has run to its end, in ``runs/toy``."""
    home = tmp_path_factory.mktemp("study")
    brorl("study", write_study(home), cwd=home)
    return home


def test_every_run_is_an_ordinary_run_with_the_arms_recipe(finished: Path) -> None:
    out = finished / "runs" / "toy"
    for name in NAMES:
        run = RunDirectory.open(out / name)
        recipe, arm = run.recipe(), name.split("/")[0]
        assert run.read_info()["status"] == "finished"
        assert (recipe.name, recipe.seed) == (f"toy-{arm}", int(name[-1]))
        assert (recipe.steps, recipe.evaluation.every) == (3, 2)
        assert sorted(run.read_scores("held-out")) == [0, 2, 3]
        assert len(run.read_metrics()) == 3
    assert load_study(out / "study.yaml") == load_study(finished / "study.yaml")
    summary = brorl("train", "--resume", out / "broad/seed-2", cwd=finished).text
    assert "nothing left to do: 3 of 3 steps" in summary


def test_the_replay_timed_both_arms_and_left_nothing_else(finished: Path) -> None:
    out = finished / "runs" / "toy"
    costs = json.loads((out / "replay.json").read_text())
    assert list(costs) == ["narrow", "broad"]
    for cost in costs.values():
        assert cost["seconds"] > cost["generation_seconds"] > 0
        assert cost["tokens"] > cost["distinct_nodes"] > 0
        assert cost["generated_samples"] >= cost["kept_samples"] > 0
    assert not (out / ".replay").exists()


def test_the_results_are_those_of_the_runs(finished: Path, tmp_path: Path) -> None:
    out, copy = finished / "runs" / "toy", tmp_path / "figures.json"
    text = brorl("study", finished / "study.yaml", "--report-only", "--json", copy, cwd=finished).text
    results = json.loads((out / "results.json").read_text())
    assert json.loads(copy.read_text()) == results
    assert results["verdict"]["words"] in text
    assert results["verdict"]["broad_over_baseline"]["seeds"] == 2
    assert results["verdict"]["broad_over_control"] is None
    assert [f"{run['arm']}/seed-{run['seed']}" for run in results["runs"]] == NAMES
    for run in results["runs"]:
        directory = RunDirectory.open(out / f"{run['arm']}/seed-{run['seed']}")
        records, scores = directory.read_metrics(), directory.read_scores("held-out")
        assert run["steps"] == [0, 2, 3]
        assert run["scores"]["held-out pass@1"] == [
            pytest.approx(scores[step]["pass_at"]["1"]["value"], abs=1e-6) for step in run["steps"]
        ]
        assert run["used"]["generated_samples"] == [0, *(sum(r["rollouts"] for r in records[:n]) for n in (2, 3))]
        assert run["used"]["distinct_nodes"][-1] == sum(r["nodes"] for r in records)
    narrow, broad = results["arms"]
    assert broad["settings"] == {"optimizer.lr": 5e-3, "rollouts.per_prompt": 24}
    ends = [narrow["end"]["held-out pass@1"]["mean"], broad["end"]["held-out pass@1"]["mean"]]
    assert broad["over_baseline"]["mean"] == pytest.approx(ends[1] - ends[0])
    assert results["equal_amounts"]["steps"]["amount"] == 3
    assert results["equal_amounts"]["steps"]["arms"]["broad"]["mean"] == pytest.approx(ends[1], abs=1e-6)
    shortest = min(run["used"]["generated_samples"][-1] for run in results["runs"])
    assert results["equal_amounts"]["generated_samples"]["amount"] == shortest


@pytest.mark.slow
def test_the_page_of_a_study_loads_without_a_complaint(finished: Path) -> None:
    with browser() as chromium, opened(chromium, finished / "runs" / "toy" / "report.html") as (page, complaints):
        assert page.locator(".plot .svg-container").count() == 4  # held-out and training, pass@1 and pass@k
        page.click("[data-axis=kept_samples]")
        assert "kept samples" in page.locator(".plot").first.inner_text()
        assert page.locator("th", has_text="broad, seed 2").count() == 2  # its run, and against the baseline's
        words = json.loads((finished / "runs/toy/results.json").read_text())["verdict"]["words"]
        assert page.locator(".verdicts b", has_text=words[1:]).is_visible()
        assert complaints == []


def test_the_planner_is_held_against_the_arms(finished: Path) -> None:
    out = finished / "runs" / "toy"
    brorl("study", finished / "study.yaml", "--report-only", cwd=finished)
    found = json.loads((out / "results.json").read_text())["planner"]
    costs = json.loads((out / "replay.json").read_text())
    assert list(found) == ["narrow", "broad"]
    for arm, quantities in found.items():
        first = [RunDirectory.open(out / arm / f"seed-{seed}").read_metrics()[0] for seed in (1, 2)]
        kept, nodes, seconds = (quantities[name] for name in ("kept_share", "nodes", "seconds"))
        assert kept["measured"] == pytest.approx(sum(r["kept_share"] for r in first) / 2)
        assert kept["low"] < kept["predicted"] < kept["high"]
        assert nodes["measured"] == pytest.approx(sum(r["nodes"] / r["groups"] for r in first) / 2)
        assert seconds["measured"] == costs[arm]["seconds"]
        assert seconds["predicted"] > 0
    # The pilot is the narrow arm's own step, and a random policy shares next to nothing: a law of growth holds.
    assert found["narrow"]["nodes"]["predicted"] == pytest.approx(found["narrow"]["nodes"]["measured"], rel=0.05)
    assert found["broad"]["nodes"]["predicted"] == pytest.approx(found["broad"]["nodes"]["measured"], rel=0.1)
    assert found["broad"]["kept_share"]["predicted"] > found["narrow"]["kept_share"]["predicted"]


def test_the_reproduction_page_is_filled_from_these_results(finished: Path, tmp_path: Path) -> None:
    brorl("study", finished / "study.yaml", "--report-only", cwd=finished)
    results = json.loads((finished / "runs/toy/results.json").read_text())
    (tmp_path / "laptop").mkdir()
    (tmp_path / "laptop/results.json").write_text(json.dumps(results))
    cells = {name: reproduction_table.cell("laptop", name, tmp_path) for name in reproduction_table.STUDY_CELLS}
    assert reproduction_table.MISSING not in cells.values()
    assert results["verdict"]["words"] in cells["verdict"]
    assert "4 of 4 runs, steps 3 each" in cells["runs"]
    for name in ("course", "kept_share", "throughput", "tokens", "retained"):
        assert [line.split(" (")[0] for line in cells[name].split("<br>")] == ["narrow", "broad"]
    at_equal = results["equal_amounts"]["seconds"]["arms"]["broad"]["mean"]
    assert f"broad {at_equal:.3f} (" in cells["equal_seconds"]
    assert f"{results['arms'][1]['facts']['kept_share']:.2f} (first step" in cells["kept_share"]
    page = reproduction_table.filled(reproduction_table.PAGE.read_text(encoding="utf-8"), tmp_path)
    assert f"| broad | {results['planner']['broad']['kept_share']['predicted']:.2f} (" in page
    assert reproduction_table.filled(page, tmp_path) == page
    assert page.count("\n| ") > reproduction_table.PAGE.read_text(encoding="utf-8").count("\n| ")


def test_a_finished_study_trains_nothing_again(finished: Path) -> None:
    before = what_a_study_is(finished / "runs" / "toy")
    times = {file: file.stat().st_mtime_ns for file in (finished / "runs" / "toy").glob("*/*/metrics.jsonl")}
    text = brorl("study", finished / "study.yaml", cwd=finished).text
    assert text.count("finished before") == 4
    assert what_a_study_is(finished / "runs" / "toy") == before
    assert {file: file.stat().st_mtime_ns for file in times} == times


def test_a_finished_study_is_not_overwritten_by_another(finished: Path) -> None:
    study = finished / "study.yaml"
    refused("study", study, "-s", "algorithm.kl_weight=0.5", cwd=finished, says="algorithm.kl_weight 0.0001 -> 0.5")
    refused("study", study, "--arms", "wide", cwd=finished, says="no arm wide in this study; it has narrow, broad")
    refused("study", study, "--seeds", "1,3", cwd=finished, says="no seed 3 in this study; it has 1, 2")
    refused("study", study, "--report-only", "--replay", cwd=finished, says="--report-only measures nothing")


def test_arms_with_other_evaluation_data_are_refused_before_anything_runs(tmp_path: Path) -> None:
    other = {"rollouts.per_prompt": 24, "evaluation.heldout_prompts": 3}
    study = write_study(tmp_path, arms={"narrow": {"rollouts.per_prompt": 8}, "broad": other})
    refused("study", study, cwd=tmp_path, says="differ in evaluation.heldout_prompts 4 against 3")
    assert not (tmp_path / "runs").exists()


def test_evaluation_data_that_changes_between_arms_is_refused(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    brorl("study", study, "--arms", "narrow", "--seeds", "1", "--no-replay", cwd=tmp_path)
    rows = [{"id": f"r{i}", "question": f"tell {i}?", "answer": "[a-m].*"} for i in range(60)]
    write_rows(tmp_path / "data.jsonl", rows)
    done = brorl("study", study, "--arms", "broad", "--seeds", "1", "--no-replay", cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert "prompts are no longer those on which" in done.text
    assert "1 of 1 runs failed: broad, seed 1" in done.text


def test_a_budget_in_seconds_is_timed_once_and_then_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brorl.study.replay.TURNS", 1)
    study = write_study(tmp_path, budget={"seconds": 0.01}, seeds=[1])
    for flag in ("--no-replay", "--report-only"):
        refused("study", study, flag, cwd=tmp_path, says="nobody has measured yet: brorl study --replay does")
    text = brorl("study", study, "--arms", "broad", cwd=tmp_path).text
    assert "timing narrow" in text
    assert "timing broad" in text
    assert RunDirectory.open(tmp_path / "runs/toy/broad/seed-1").recipe().steps == 1
    assert not (tmp_path / "runs/toy/narrow").exists()
    assert "timing broad" in brorl("study", study, "--replay", cwd=tmp_path).text
    text = brorl("study", study, cwd=tmp_path).text
    assert "timing" not in text
    assert text.count("finished before") == 1
    assert text.count("(run 1 of 2): finished") == 1


def _to_the_end(trainer: Trainer) -> None:
    for _ in trainer.train():
        pass


def test_a_stop_ends_the_study_and_the_next_call_goes_on(tmp_path: Path) -> None:
    _, runs = runs_of(tmp_path)
    said: list[str] = []

    def one_step(trainer: Trainer) -> None:
        for _ in trainer.train():
            trainer.stop_requested = True

    assert not train_all(runs, one_step, said.append)
    assert [run.status() for run in runs] == ["stopped", "not begun", "not begun", "not begun"]
    assert train_all(runs[:2], _to_the_end, said.append)
    assert [run.status() for run in runs] == ["finished", "finished", "not begun", "not begun"]


def test_a_failed_run_holds_up_no_other(tmp_path: Path) -> None:
    _, runs = runs_of(tmp_path, seeds=[1])
    said: list[str] = []

    def failing(trainer: Trainer) -> None:
        if trainer.recipe.name == "toy-narrow":
            raise RunError("no luck today")
        _to_the_end(trainer)

    with pytest.raises(RunError, match=r"1 of 2 runs failed: narrow, seed 1: no luck today"):
        train_all(runs, failing, said.append)
    assert runs[1].status() == "finished"
    assert train_all(runs, _to_the_end, said.append)
    assert {run.status() for run in runs} == {"finished"}


def test_runs_are_divided_among_processes(tmp_path: Path) -> None:
    _, runs = runs_of(tmp_path, seeds=[1])
    said: list[str] = []
    runs[0].path.parent.mkdir(parents=True)
    with runs[0].path.with_suffix(".lock").open("w") as claimed:
        fcntl.flock(claimed, fcntl.LOCK_EX)
        assert train_all(runs, _to_the_end, said.append)
    assert said == [
        "narrow, seed 1 (run 1 of 2): another process has it, passed over",
        "broad, seed 1 (run 2 of 2): finished",
    ]
    assert [run.status() for run in runs] == ["not begun", "finished"]


@pytest.fixture
def forker() -> Iterator[Forker]:
    forker = Forker()
    yield forker
    forker.close()


@pytest.mark.slow
def test_a_study_killed_again_and_again_ends_as_if_undisturbed(tmp_path: Path, forker: Forker) -> None:
    study, whole, killed = write_study(tmp_path), tmp_path / "whole", tmp_path / "killed"
    done = forker.run("study", study, "--out", whole, cwd=tmp_path, inside=whole)
    assert done["code"] == 0, done["text"]
    rng = generator("deaths of a study")
    kills = 0
    while True:
        moment = int(rng.integers(1, done["moments"] // 2)) if kills < 12 else None
        again = forker.run("study", study, "--out", killed, cwd=tmp_path, inside=killed, moment=moment)
        if not again["killed"]:
            break
        kills += 1
    assert again["code"] == 0, again["text"]
    assert kills >= 5
    assert what_a_study_is(killed) == what_a_study_is(whole)
    assert not (killed / ".replay").exists()
