"""`brorl simulate`, `analyze` and `plan`, and the theory's examples, as users run them."""

import contextlib
import io
import json
import runpy
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from brorl.cli import main
from brorl.recipe_file import load_recipe
from brorl.rundir import RunDirectory
from brorl.storage import read_groups
from tiny_policy import write_recipe
from toy_language import toy_language

ROOT = Path(__file__).resolve().parents[2]


def brorl(*arguments: object) -> tuple[int, str]:
    """Exit code and output of the command line, in this process."""
    output, code = io.StringIO(), 0
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        before, sys.argv = sys.argv, ["brorl", *map(str, arguments)]
        try:
            main()
        except SystemExit as exit:
            code = exit.code if isinstance(exit.code, int) else int(exit.code is not None)
        finally:
            sys.argv = before
    return code, output.getvalue()


def example(name: str, *arguments: object) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        before, sys.argv = sys.argv, [name, *map(str, arguments)]
        try:
            runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
        finally:
            sys.argv = before
    return output.getvalue()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory with two steps of exact toy groups, written by the trainer's own code."""
    recipe = load_recipe(write_recipe(tmp_path), ("rollouts.per_prompt=32",))
    directory = RunDirectory.create(recipe, path=tmp_path / "run")
    rng = np.random.default_rng(0)
    languages = [toy_language(seed) for seed in range(6)]
    for step in range(2):
        groups = [lg.group(rng.multinomial(32, lg.p), f"p{i}") for i, lg in enumerate(languages)]
        directory.write_step(step, groups)
        nodes = sum(scored.group.nodes for scored in groups)
        directory.append_metrics({"step": step, "nodes": nodes, "seconds": {"total": nodes * 0.01}})
    return directory.path


def test_simulate(tmp_path: Path) -> None:
    code, text = brorl(
        "simulate", ROOT / "recipes" / "simulation.yaml", "-s", "world.actions=500", "-s", "world.correct=50",
        "-s", "rollouts=[4,64]", "-s", "seeds=[0,1]", "-s", "steps=10",
        "--json", tmp_path / "o" / "sim.json", "--csv", tmp_path / "sim.csv", "--figure", tmp_path / "sim.html",
    )  # fmt: skip
    assert code == 0, text
    rows = json.loads((tmp_path / "o" / "sim.json").read_text())
    assert [(row["rollouts"], row["seed"]) for row in rows] == [(4, 0), (4, 1), (64, 0), (64, 1)]
    assert set(rows[0]) == {
        "rollouts", "seed", "correct_mass", "improved_share", "worst_drop", "retained_mass", "curves"
    }  # fmt: skip
    assert len(rows[0]["curves"]["correct_mass"]) == 11
    assert (tmp_path / "sim.csv").read_text().count("\n") == 1 + 4 * 11
    assert "<html>" in (tmp_path / "sim.html").read_text()
    assert "correct mass" in text


def test_plan_from_counts(tmp_path: Path) -> None:
    counts = tmp_path / "pilot.csv"
    counts.write_text("problem,samples,correct\n" + "".join(f"p{i},16,{max(0, i - 20)}\n" for i in range(36)))
    out = tmp_path / "plan.json"
    code, text = brorl("plan", counts, "--at", "16", "64", "512", "--json", out)
    assert code == 0, text
    rows = json.loads(out.read_text())
    assert [row["rollouts"] for row in rows] == [16, 64, 512]
    for row in rows:
        assert {"kept_share", "kept_share_low", "kept_share_high", "pass_at_n", "seconds", "nodes"} <= set(row)
        assert 0 <= row["kept_share_low"] <= row["kept_share"] <= row["kept_share_high"] <= 1
    assert rows[0]["kept_share"] == pytest.approx(15 / 36, abs=0.1)
    assert "recommended: N = " in text
    assert brorl("plan", counts, "--at", "16,64", "--at", "512", "--json", out)[0] == 0
    again = json.loads(out.read_text())
    untimed = [[{k: v for k, v in row.items() if k != "seconds"} for row in found] for found in (rows, again)]
    assert untimed[0] == untimed[1]  # seconds come from a speed measured anew


def test_plan_respects_a_budget(tmp_path: Path) -> None:
    counts = tmp_path / "pilot.csv"
    counts.write_text("problem,samples,correct\n" + "".join(f"p{i},16,{i % 3}\n" for i in range(60)))
    code, small = brorl("plan", counts, "--budget-rollouts", 40_000, "--steps", 100)
    assert code == 0, small
    code, large = brorl("plan", counts, "--budget-rollouts", 40_000_000, "--steps", 100)
    chosen = [int(text.split("recommended: N = ")[1].split(",")[0]) for text in (small, large)]
    assert chosen[0] < chosen[1]


def test_plan_from_a_run_uses_its_measured_times(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    code, text = brorl("plan", run, "--at", "32,128", "--json", out, "--budget-hours", 1)
    assert code == 0, text
    rows = json.loads(out.read_text())
    assert rows[1]["nodes"] > rows[0]["nodes"]
    assert rows[0]["prompts_per_step"] == 4
    drawn = 4 * min(1 / rows[0]["kept_share"], 4)
    assert rows[0]["seconds"] == pytest.approx(0.01 * rows[0]["nodes"] * drawn)


def test_analyze_a_run(run: Path, tmp_path: Path) -> None:
    code, text = brorl("analyze", run, "--json", tmp_path / "a.json")
    assert code == 0, text
    figures = json.loads((tmp_path / "a.json").read_text())
    assert figures["source"]["layout"] == "groups"
    assert figures["by_rollouts"][-1]["certified_share"] is not None
    for words in ("pass rates", "knowledge shrinkage", "entropy", "length", "nodes grow"):
        assert words in text


def test_analyze_says_what_a_source_lacks(tmp_path: Path) -> None:
    dump = tmp_path / "5.jsonl"
    rows = [{"input": f"q{i % 3}", "output": str(i), "score": float(i % 2), "step": 5} for i in range(24)]
    dump.write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, text = brorl("analyze", dump, "--json", tmp_path / "a.json")
    assert code == 0, text
    assert "not recorded: log-probabilities" in text
    assert json.loads((tmp_path / "a.json").read_text())["entropy"] is None
    assert "negligible" not in text  # nothing was too small to measure: nothing was recorded
    assert "certified" not in text


def test_analyze_shows_the_course_of_a_run_and_what_its_probe_measured(run: Path, tmp_path: Path) -> None:
    change = {"prompts": 2, "value": 0.01, "low": -0.02, "high": 0.04, "declined": {}}
    probe = {"p_pos": 0.003, "p_neg": -0.001, "unseen_mass": -0.002, "q_pos": change, "retained_mass": 0.875}
    record = {"step": 2, "seconds": {"probe": 0.5}, "probe": {**probe, "bank_prompts": 2, "bank_answers": 31}}
    directory = RunDirectory.open(run)
    directory.append_metrics(record)
    groups = read_groups(directory.group_file(0))
    directory.write_step(2, [replace(g, rewards=np.zeros_like(g.rewards)) for g in groups])
    code, text = brorl("analyze", run, "--json", tmp_path / "a.json")
    assert code == 0, text
    assert "+1.0e-02 (-2.0e-02 to +4.0e-02)" in text
    assert "31 distinct correct answers" in text
    figures = json.loads((tmp_path / "a.json").read_text())
    assert figures["probe"] == [{"step": 2, "seconds": 0.5, **record["probe"]}]
    assert [span["first_step"] for span in figures["by_steps"]] == [0, 1, 2]
    assert figures["by_steps"][0]["pass_rate"] > figures["by_steps"][2]["pass_rate"] == 0


def test_the_budget_is_blamed_only_where_there_is_one(run: Path) -> None:
    code, text = brorl("plan", run, "--at", "8,32")
    assert code == 0, text
    assert "4 prompts per step" in text
    assert "budget leaves" not in text
    assert "budget leaves fewer than 8" in " ".join(brorl("plan", run, "--budget-rollouts", "200")[1].split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("plan", "{dir}/none.csv"), "no such file"),
        (("plan", "{dir}/bad.csv"), "layout is not recognised"),
        (("plan", "{dir}/good.csv", "--at", "1"), "N >= 2"),
        (("plan", "{dir}/good.csv", "--at", "many"), "whole numbers"),
        (("plan", "{dir}/good.csv", "--model", "{dir}"), "config.json"),
        (("analyze", "{dir}/good.csv", "--columns", "problem"), "role=column"),
        (("analyze", "{dir}/good.csv", "--at", "1"), "N >= 2"),
        (("analyze", "{dir}/good.csv", "--layout", "verl"), "layout verl needs"),
        (("simulate", "{dir}/none.yaml"), "no such recipe"),
        (("simulate", str(ROOT / "recipes" / "simulation.yaml"), "-s", "world.zz=1"), "there are actions, correct"),
        (("simulate", str(ROOT / "recipes" / "simulation.yaml"), "-s", "stepz=1"), "there are world, optimizer"),
        (("simulate", str(ROOT / "recipes" / "simulation.yaml"), "--json", "/proc/none/a.json"), "cannot be written"),
        (("simulate", str(ROOT / "recipes" / "simulation.yaml"), "-s", "rollouts=[1]"), "greater than or equal to 2"),
    ],
)
def test_bad_input_is_refused_in_one_message(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    (tmp_path / "bad.csv").write_text("problem,tries\na,3\n")
    (tmp_path / "good.csv").write_text("problem,samples,correct\na,8,3\nb,8,0\n")
    code, text = brorl(*(argument.format(dir=tmp_path) for argument in arguments))
    assert code == 1
    assert "error:" in text
    assert message in " ".join(text.split())


def test_mass_balance_example_on_real_groups(tmp_path: Path) -> None:
    text = example("mass_balance.py", write_recipe(tmp_path), 2)
    assert text.count(" right\n") == 2
    assert "N   24" in text


def test_figure_example() -> None:
    lines = example("figure3.py", 2).splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["4", "8", "16", "512", "51,200"]
    assert all(line.split()[1].startswith("0.63") for line in lines[1:])
