"""Shaping, down-sampling, retirement and reference resets in whole runs of a tiny policy, stopped and resumed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from brorl.rundir import RunDirectory
from brorl.storage import read_groups
from command_line import brorl, refused
from tiny_policy import write_recipe, write_rows

QUIET = {"heldout_prompts": 0, "training_prompts": 0}
ANYTHING = {
    "kind": "file",
    "path": "data.jsonl",
    "heldout_path": "heldout.jsonl",
    "verifier": "regex",
    "meta": {"answer_format": "whole"},
}
VOLATILE = ("seconds", "rollouts_per_second", "peak_memory_mib")


def records_of(run: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in r.items() if k not in VOLATILE} for r in RunDirectory.open(run).read_metrics()]


def weights_of(run: Path) -> bytes:
    return (sorted((run / "checkpoints").iterdir())[-1] / "model.safetensors").read_bytes()


def assert_resumes_alike(home: Path, stop_after: int, **settings: Any) -> list[dict[str, Any]]:
    """A run stopped after some steps and resumed equals one that was not, in metrics, groups and weights."""
    steps = settings["steps"]
    recipe = write_recipe(home, **settings)
    brorl("train", recipe, "--run", home / "whole", cwd=home)
    brorl("train", recipe, "-s", f"steps={stop_after}", "--run", home / "parts", cwd=home)
    config = home / "parts" / "config.yaml"
    config.write_text(config.read_text().replace(f"steps: {stop_after}\n", f"steps: {steps}\n"))
    brorl("train", "--resume", home / "parts", cwd=home)
    assert records_of(home / "whole") == records_of(home / "parts")
    assert weights_of(home / "whole") == weights_of(home / "parts")
    for one, other in zip(*(sorted((home / r / "groups").iterdir()) for r in ("whole", "parts")), strict=True):
        for a, b in zip(read_groups(one), read_groups(other), strict=True):
            assert a.fate == b.fate
            assert a.parts.keys() == b.parts.keys()
            for name in a.parts:
                np.testing.assert_array_equal(a.parts[name], b.parts[name])
    return records_of(home / "whole")


@pytest.mark.slow
def test_shaping_and_downsampling_are_recorded_and_survive_a_stop(tmp_path: Path) -> None:
    shaping = [{"name": "cosine", "weight": 0.2, "on": 2, "off": 1}]
    records = assert_resumes_alike(
        tmp_path,
        2,
        steps=5,
        evaluation=QUIET,
        algorithm={"shaping": shaping, "minibatches": 2},
        selection={"downsample": 10},
    )
    assert [r["shaping_cosine"] > 0 for r in records] == [True, True, False, True, True]
    for record in records:
        assert record["shaped_reward"] == pytest.approx(record["unshaped_reward"] + record["shaping_cosine"], abs=1e-6)
        assert 0 < record["trained_rollout_share"] <= 10 / 24
        groups = read_groups(RunDirectory.open(tmp_path / "whole").group_file(record["step"]))
        for group in groups:
            assert group.group.rollouts == 24  # what is dropped stays on disk, and in the counts
            assert set(np.unique(group.rewards)) <= {0.0, 1.0}
            assert ("shaped" in group.parts) == (group.fate == "trained")
            if group.fate == "trained":
                kept = group.parts["trained_rollouts"]
                assert kept.sum() == 10
                right = group.rewards == 1
                assert kept[right].sum() == min(5, group.group.end_counts[right].sum())


def test_the_reference_is_reset_on_a_spike_of_the_kl(tmp_path: Path) -> None:
    records = assert_resumes_alike(
        tmp_path, 2, steps=4, evaluation=QUIET, optimizer={"lr": 1e-2}, reference={"reset_on_kl": 1e-3}
    )
    for record in records:
        assert record["reference_reset"] == ("kl" if record["kl"] > 1e-3 else None)
    assert any(record["reference_reset"] for record in records)


@pytest.mark.slow
def test_the_reference_is_reset_when_the_held_out_score_stalls(tmp_path: Path) -> None:
    """With a learning rate of 0 the score cannot rise: every second evaluation resets, on both sides of a stop."""
    settings: dict[str, Any] = {
        "steps": 6,
        "optimizer": {"lr": 0.0},
        "evaluation": {"every": 1, "heldout_prompts": 4, "training_prompts": 0, "rollouts": 8, "ks": [1]},
        "reference": {"reset_on_stall": 2, "clear_optimizer": True},
    }
    records = assert_resumes_alike(tmp_path, 3, **settings)
    assert [r["reference_reset"] for r in records] == [None, None, "stall", None, "stall", None]


def test_a_reset_makes_the_policy_the_reference(tmp_path: Path) -> None:
    recipe = write_recipe(
        tmp_path, steps=2, evaluation=QUIET, optimizer={"lr": 1e-2}, reference={"reset_on_kl": 1e9, "reset_every": 2}
    )
    brorl("train", recipe, "--run", tmp_path / "run", cwd=tmp_path)
    checkpoints = sorted((tmp_path / "run" / "checkpoints").iterdir())
    # A reference that equals the policy is not stored a second time.
    assert [(c / "reference.state").exists() for c in checkpoints] == [True, False]
    assert [r["reference_reset"] for r in records_of(tmp_path / "run")] == [None, "schedule"]


def test_solved_prompts_retire_until_none_is_left(tmp_path: Path) -> None:
    """Whatever ends is right, so a policy that learns to end solves every prompt."""
    rows = [{"id": f"q{i}", "question": f"say {i}?", "answer": "(?s).*"} for i in range(6)]
    settings: dict[str, Any] = {
        "steps": 200,
        "evaluation": QUIET,
        "selection": {"retire_after": 2},
        "rollouts": {"per_prompt": 8, "prompts_per_step": 2},
        "optimizer": {"lr": 1e-2},
        "tasks": [ANYTHING],
    }
    recipe = write_recipe(tmp_path, **settings)
    write_rows(tmp_path / "data.jsonl", rows)
    write_rows(tmp_path / "heldout.jsonl", [{"id": "h", "question": "what else", "answer": "x"}])
    text = brorl("train", recipe, "--run", tmp_path / "run", cwd=tmp_path).text
    assert "all 6 prompts are retired" in text
    run = RunDirectory.open(tmp_path / "run")
    assert run.read_info()["status"] == "finished"
    records = run.read_metrics()
    assert len(records) < 200
    assert records[-1]["retired"] == 6
    assert sorted(name for r in records for name in r["newly_retired"]) == sorted(row["id"] for row in rows)
    gone: set[str] = set()
    for record in records:
        drawn = read_groups(run.group_file(record["step"]))
        assert gone.isdisjoint(group.group.prompt.id for group in drawn)
        for name in record["newly_retired"]:
            assert any(g.successes() == 8 for g in drawn if g.group.prompt.id == name)
        gone |= set(record["newly_retired"])


@pytest.mark.slow
def test_what_is_retired_survives_a_stop(tmp_path: Path) -> None:
    rows = [{"id": f"q{i}", "question": f"say {i}?", "answer": "(?s).*"} for i in range(12)]
    write_rows(tmp_path / "data.jsonl", rows)
    write_rows(tmp_path / "heldout.jsonl", [{"id": "h", "question": "what else", "answer": "x"}])
    records = assert_resumes_alike(
        tmp_path,
        14,
        steps=20,
        evaluation=QUIET,
        selection={"retire_after": 1},
        rollouts={"per_prompt": 4, "prompts_per_step": 2},
        optimizer={"lr": 1e-2},
        tasks=[ANYTHING],
    )
    assert records[13]["retired"] > 0


SEQUENTIAL = {"name": "sequential", "rounds": [8, 16]}


@pytest.mark.slow
def test_prompts_are_given_up_early_and_the_rest_is_spent_elsewhere(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"steps": 4, "evaluation": QUIET, "optimizer": {"lr": 1e-2}}
    records = assert_resumes_alike(tmp_path, 2, **settings, selection={"allocation": SEQUENTIAL, "max_rounds": 2})
    run = RunDirectory.open(tmp_path / "whole")
    for record in records:
        groups = read_groups(run.group_file(record["step"]))
        stopped = [g for g in groups if g.fate == "stopped"]
        assert len(stopped) == record["fate_stopped"]
        assert all(g.group.rollouts == 8 and g.successes() in (0, 8) for g in stopped)
        assert all(g.group.rollouts == 24 for g in groups if g.fate != "stopped")
        assert record["rollouts_saved"] == 16 * len(stopped)
        assert record["rollouts"] == 24 * len(groups) - record["rollouts_saved"]
        assert 0 <= record["missed_groups"] < 0.2 * len(stopped) + 1e-9
    assert sum(r["rollouts_saved"] for r in records) > 0
    assert sum(r["prompts_from_savings"] for r in records) > 0
    brorl("analyze", tmp_path / "whole", "--json", tmp_path / "analysis.json", cwd=tmp_path)
    source = json.loads((tmp_path / "analysis.json").read_text())["source"]
    assert source["groups_of_other_size_left_out"] == sum(r["fate_stopped"] for r in records)
    assert source["rollouts_per_prompt"] == 24
    assert any("given up early" in line for line in source["lacks"])


def test_a_prompts_draws_do_not_depend_on_what_is_given_up(tmp_path: Path) -> None:
    """Two rules, one of which gives half of the prompts up: the groups that run to the end are the same."""
    drawn: list[dict[str, Any]] = []
    for name, rule in (("eager", SEQUENTIAL), ("patient", {**SEQUENTIAL, "prior_right": 2.0})):
        recipe = write_recipe(
            tmp_path,
            steps=1,
            evaluation=QUIET,
            selection={"allocation": rule, "max_rounds": 1},
            rollouts={"prompts_per_step": 12},
        )
        brorl("train", recipe, "--run", tmp_path / name, cwd=tmp_path)
        groups = read_groups(RunDirectory.open(tmp_path / name).group_file(0))
        drawn.append({g.group.prompt.id: g for g in groups})
    eager, patient = drawn
    both = [n for n in eager if n in patient and eager[n].group.rollouts == patient[n].group.rollouts == 24]
    assert len(both) > 2
    assert sum(g.fate == "stopped" for g in eager.values()) != sum(g.fate == "stopped" for g in patient.values())
    for name in both:
        a, b = eager[name].group, patient[name].group
        assert [r.tolist() for r in a.responses()] == [r.tolist() for r in b.responses()]
        np.testing.assert_array_equal(a.end_counts, b.end_counts)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"algorithm": {"shaping": [{"name": "cosin"}]}}, "did you mean 'cosine'?"),
        ({"algorithm": {"shaping": [{"name": "cosine", "limit": 9}]}}, "max_new_tokens = 8"),
        ({"algorithm": {"shaping": [{"name": "overlong", "buffer": 8}]}}, "buffer 8"),
        ({"algorithm": {"shaping": [{"name": "stop_properly", "coefficient": 0}]}}, "has no effect"),
        ({"algorithm": {"shaping": ["overlong"], "advantage": "maxrl"}}, "must not be negative"),
        ({"selection": {"allocation": {"name": "sequential", "rounds": [8, 8]}}}, "sum to 24 rollouts"),
        ({"selection": {"allocation": {**SEQUENTIAL, "stop_below": 0.01}}}, "stops no prompt"),
        ({"algorithm": {"loss": {"name": "reinforce", "eps_high": 0.3}}}, "'reinforce' does not read eps_high"),
        ({"algorithm": {"loss": {"name": "gspo", "dual_clip": 3.0}}}, "'gspo' does not read dual_clip"),
        ({"algorithm": {"correction": {"name": "tis", "low": 0.5}}}, "'tis' does not read low"),
        ({"algorithm": {"correction": {"name": "icepop", "low": 6.0}}}, "0 <= low < high"),
        ({"selection": {"downsample": 2}, "algorithm": {"advantage": "pass_at_k"}}, "gives no signal with 2"),
    ],
)
def test_options_that_cannot_work(tmp_path: Path, settings: dict[str, Any], says: str) -> None:
    refused("check", write_recipe(tmp_path, **settings), cwd=tmp_path, says=says)
