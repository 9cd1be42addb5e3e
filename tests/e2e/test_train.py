"""`brorl train` and `brorl check`, run as a user runs them on a tiny policy: learning, resuming, every bad input."""

import json
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoModelForCausalLM

from brorl.rundir import RunDirectory
from brorl.storage import read_groups
from command_line import brorl, refused, started
from tiny_policy import save_tiny_policy, write_recipe, write_rows


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a finished run of the tiny recipe, 12 steps, started from the command line."""
    home = tmp_path_factory.mktemp("finished")
    recipe = write_recipe(home, steps=12, evaluation={"rollouts": 64, "every": 6}, optimizer={"lr": 1e-2})
    brorl("train", recipe, "--json", home / "out.json", cwd=home)
    return home


def test_reward_goes_up_and_the_figures_are_there(finished: Path) -> None:
    figures = json.loads((finished / "out.json").read_text())
    for name in ("held-out", "training"):
        pair = figures["evaluations"][name]
        assert pair["after"]["pass_at"]["1"]["value"] > pair["before"]["pass_at"]["1"]["value"] + 0.1
        assert set(pair["after"]["pass_at"]) == {"1", "4"}
    assert figures["run"] == "runs/tiny-1"
    assert figures["status"] == "finished"
    assert figures["steps"] == 12
    assert 0 < figures["kept_share"] <= 1
    assert 0 < figures["distinct_node_share"] <= 1
    assert figures["rollouts_per_second"] > 0
    assert {"sampling", "verification", "update"} <= set(figures["seconds_per_phase"])


def test_run_directory_holds_everything(finished: Path) -> None:
    run = RunDirectory.open(finished / "runs" / "tiny-1")
    records = run.read_metrics()
    assert [r["step"] for r in records] == list(range(12))
    assert run.recipe().name == "tiny"
    assert run.read_info()["status"] == "finished"
    assert {"torch", "brorl"} <= set(run.read_info()["versions"])
    assert {p.name for p in run.evals.glob("*.json")} == {
        f"step_{s:06d}_{name}.json" for s in (0, 6, 12) for name in ("held-out", "training")
    }
    for record in records:
        groups = read_groups(run.group_file(record["step"]))
        assert sum(g.group.rollouts for g in groups) == record["rollouts"]
        assert sum(g.fate == "trained" for g in groups) == record["fate_trained"]
        assert sum(g.fate == "constant" for g in groups) == record["fate_constant"]
        kept = sum(g.group.rollouts for g in groups if g.fate != "constant") / record["rollouts"]
        assert kept == pytest.approx(record["kept_share"])
        assert all(g.group.rollouts == 24 for g in groups)
    assert not list(run.path.rglob("*.partial"))


def test_checkpoint_is_a_plain_model_directory(finished: Path) -> None:
    checkpoints = sorted((finished / "runs" / "tiny-1" / "checkpoints").iterdir())
    assert len(checkpoints) == 2  # keep
    model = AutoModelForCausalLM.from_pretrained(checkpoints[-1])
    assert model.config.vocab_size > 0


def test_a_checkpoint_can_be_the_next_model(finished: Path) -> None:
    checkpoint = sorted((finished / "runs" / "tiny-1" / "checkpoints").iterdir())[-1]
    recipe = write_recipe(finished, steps=1, name="next", model={"path": str(checkpoint)})
    brorl("train", recipe, "--run", finished / "elsewhere", cwd=finished)
    assert RunDirectory.open(finished / "elsewhere").read_metrics()


def test_next_run_takes_the_next_free_number(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, steps=1, evaluation={"heldout_prompts": 0, "training_prompts": 0})
    brorl("train", recipe, cwd=tmp_path)
    brorl("train", recipe, cwd=tmp_path)
    assert sorted(p.name for p in (tmp_path / "runs").iterdir()) == ["tiny-1", "tiny-2"]


VOLATILE = ("seconds", "rollouts_per_second", "peak_memory_mib")


def records_of(run: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in r.items() if k not in VOLATILE} for r in RunDirectory.open(run).read_metrics()]


def assert_same_run(first: Path, second: Path) -> None:
    """Bit-identical metrics, groups and weights."""
    assert records_of(first) == records_of(second)
    for a, b in zip(sorted((first / "groups").iterdir()), sorted((second / "groups").iterdir()), strict=True):
        for x, y in zip(read_groups(a), read_groups(b), strict=True):
            np.testing.assert_array_equal(x.group.tokens, y.group.tokens)
            np.testing.assert_array_equal(x.group.logprobs, y.group.logprobs)
            np.testing.assert_array_equal(x.rewards, y.rewards)
            assert x.fate == y.fate
    newest = [sorted((run / "checkpoints").iterdir())[-1] for run in (first, second)]
    assert newest[0].name == newest[1].name
    assert (newest[0] / "model.safetensors").read_bytes() == (newest[1] / "model.safetensors").read_bytes()


def test_resume_after_kill_equals_never_having_stopped(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "steps": 5,
        "evaluation": {"heldout_prompts": 0, "training_prompts": 2},
        "selection": {"oversample": 1.5, "carry_surplus": True},
        "reference": {"reset_every": 2},
    }
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    recipe = write_recipe(tmp_path, **settings)
    brorl("train", recipe, "--run", whole, cwd=tmp_path)
    process = started("train", recipe, "--run", killed, cwd=tmp_path)
    assert process.stdout is not None
    for line in process.stdout:
        if "step 2," in line:
            process.send_signal(signal.SIGKILL)
            break
    process.wait()
    process.stdout.close()
    brorl("train", "--resume", killed, cwd=tmp_path)
    assert_same_run(whole, killed)


def test_ctrl_c_finishes_the_step_saves_and_exits_zero(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, steps=500, evaluation={"heldout_prompts": 0, "training_prompts": 0})
    process = started("train", recipe, cwd=tmp_path)
    assert process.stdout is not None
    for line in process.stdout:
        if "step 1," in line:
            process.send_signal(signal.SIGINT)
            break
    rest = process.stdout.read()
    process.stdout.close()
    assert process.wait() == 0
    assert "--resume runs/tiny-1" in rest
    run = RunDirectory.open(tmp_path / "runs" / "tiny-1")
    assert run.read_info()["status"] == "stopped"
    assert 2 <= len(run.read_metrics()) < 500


# Bad input ---------------------------------------------------------------------------------------------------------


def test_unknown_key(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, rolouts={"per_prompt": 4})
    refused("train", recipe, cwd=tmp_path, says="did you mean 'rollouts'?")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"algorithm": {"advantage": "grpoo"}}, "did you mean 'grpo'?"),
        ({"algorithm": {"loss": {"name": "clipped", "eps": 0.1}}}, "no argument 'eps'; it takes eps_low, eps_high"),
        ({"algorithm": {"loss": {"name": "clipped", "eps_low": 1.5}}}, "clip range needs"),
        ({"algorithm": {"advantage": "nowhere.here:f"}}, "cannot import 'nowhere.here'"),
        ({"rollouts": {"per_prompt": 1}}, "nothing to compare with"),
        ({"algorithm": {"advantage": {"name": "pass_at_k", "k": 64}}}, "gives no signal with 24 rollouts"),
        ({"algorithm": {"advantage": {"name": "pass_at_k", "k": 0}}}, "k must be at least 1"),
        ({"evaluation": {"ks": []}}, "evaluation.ks"),
        ({"rollouts": {"max_new_tokens": 60}}, "needs a context of"),
        ({"tasks": [{"kind": "gym", "task": "chain_summ"}]}, "did you mean 'chain_sum'"),
        ({"tasks": [{"kind": "gym", "task": "chain_sum", "args": {"max_term": 3}}]}, "max_terms"),
        ({"model": {"path": "nowhere"}}, "nowhere"),
    ],
)
def test_settings_that_cannot_work(tmp_path: Path, settings: dict[str, Any], says: str) -> None:
    refused("train", write_recipe(tmp_path, **settings), cwd=tmp_path, says=says)
    refused("check", tmp_path / "recipe.yaml", cwd=tmp_path, says=says)
    assert not (tmp_path / "runs").exists()


def test_outputs_are_checked_before_the_work(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    for verb in ("train", "check"):
        refused(verb, recipe, "--json", tmp_path / "nowhere" / "out.json", cwd=tmp_path, says="cannot be written")
    assert not (tmp_path / "runs").exists()


OWN_VERIFIER = """
def reward(completions, **columns):
    return [{right} if text[:1] in set("abcdefghijklm") else {wrong} for text in completions]
"""


def own_verifier(directory: Path, name: str, *, right: float, wrong: float, **settings: Any) -> Path:
    """A recipe whose reward function lies in the folder where the command is given."""
    (directory / f"{name}.py").write_text(OWN_VERIFIER.format(right=right, wrong=wrong))
    recipe = write_recipe(directory, **settings)
    tasks = [{"kind": "file", "path": "data.jsonl", "verifier": f"{name}:reward"}]
    return write_recipe(recipe.parent, **{**settings, "tasks": tasks})


def test_a_reward_function_of_ones_own_and_resume_from_another_folder(tmp_path: Path) -> None:
    recipe = own_verifier(tmp_path, "my_rewards", right=1.0, wrong=0.0, steps=2)
    brorl("check", recipe, cwd=tmp_path)
    brorl("train", recipe, "-s", "steps=1", "--run", tmp_path / "run", cwd=tmp_path)
    assert records_of(tmp_path / "run")[0]["outcome_error"] == 0
    config = tmp_path / "run" / "config.yaml"
    config.write_text(config.read_text().replace("steps: 1", "steps: 2"))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "my_rewards.py").write_text(OWN_VERIFIER.format(right=1.0, wrong=0.0))
    brorl("train", "--resume", tmp_path / "run", cwd=tmp_path / "elsewhere")
    assert len(records_of(tmp_path / "run")) == 2


def test_rewards_that_the_estimator_is_not_made_for(tmp_path: Path) -> None:
    recipe = own_verifier(tmp_path, "my_signs", right=1.0, wrong=-1.0, algorithm={"advantage": "maxrl"})
    refused("train", recipe, cwd=tmp_path, says="rewards must not be negative")
    assert RunDirectory.open(tmp_path / "runs" / "tiny-1").read_info()["status"] == "failed"


def test_a_verifier_that_is_not_there(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, tasks=[{"kind": "file", "path": "data.jsonl", "verifier": "not_there:f"}])
    refused("check", recipe, cwd=tmp_path, says="cannot import not_there")


def test_truncated_model_file(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    refused("train", recipe, cwd=tmp_path, says="model")
    weights.unlink()
    refused("train", recipe, cwd=tmp_path, says="model")


def test_tokenizer_without_eos(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    config = tmp_path / "model" / "tokenizer_config.json"
    settings = json.loads(config.read_text())
    del settings["eos_token"]
    config.write_text(json.dumps(settings))
    for name in ("config.json", "generation_config.json"):
        path = tmp_path / "model" / name
        data = json.loads(path.read_text())
        data.pop("eos_token_id", None)
        path.write_text(json.dumps(data))
    refused("train", recipe, cwd=tmp_path, says="end-of-sequence")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"id": "b", "question": "x?"}', "answer"),
        ('{"id": "b", "question": "x?", "answer": "y"', "line 2"),
        ('{"id": "a", "question": "x?", "answer": "y"}', "a"),
        ('{"id": "b", "answer": "y"}', "question"),
    ],
)
def test_broken_data_rows_name_file_and_line(tmp_path: Path, line: str, says: str) -> None:
    recipe = write_recipe(tmp_path)
    data = tmp_path / "data.jsonl"
    data.write_text('{"id": "a", "question": "say?", "answer": "x"}\n' + line + "\n")
    refused("train", recipe, cwd=tmp_path, says=says)
    refused("train", recipe, cwd=tmp_path, says="data.jsonl")


def test_a_reference_answer_that_its_verifier_refuses(tmp_path: Path) -> None:
    """The row is left out with a warning that names it; a file of nothing else is refused."""
    recipe = write_recipe(tmp_path, evaluation={"heldout_prompts": 0, "training_prompts": 0})
    rows = [json.loads(line) for line in (tmp_path / "data.jsonl").read_text().splitlines()]
    write_rows(tmp_path / "data.jsonl", [{**rows[0], "answer": "("}, *rows[1:]])
    told = brorl("check", recipe, cwd=tmp_path).text
    assert re.search(r"warning: .*1 of \d+ rows.*q0: .\(.*left out", told, re.DOTALL), told
    write_rows(tmp_path / "data.jsonl", [{**row, "answer": "("} for row in rows])
    refused("check", recipe, cwd=tmp_path, says="refused by their own verifier")


def test_prompt_longer_than_the_context(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    write_rows(
        tmp_path / "data.jsonl", [{"id": str(i), "question": "a" * 70 + str(i), "answer": "x"} for i in range(60)]
    )
    refused("train", recipe, cwd=tmp_path, says="context of")


def test_a_named_directory_that_holds_a_run(finished: Path) -> None:
    recipe = write_recipe(finished, steps=1)
    refused("train", recipe, "--run", "runs/tiny-1", cwd=finished, says="--resume")


def test_resume_of_nothing(tmp_path: Path) -> None:
    refused("train", "--resume", tmp_path, cwd=tmp_path, says="not a run directory")
    refused("train", cwd=tmp_path, says="give either a recipe")


def test_three_steps_without_signal_save_and_stop(tmp_path: Path) -> None:
    recipe = write_recipe(
        tmp_path, steps=10, selection={"max_rounds": 2}, evaluation={"heldout_prompts": 0, "training_prompts": 0}
    )
    rows = [{"id": f"q{i}", "question": f"say {i}?", "answer": "never-[0-9]{30}"} for i in range(9)]
    write_rows(tmp_path / "data.jsonl", rows)
    done = brorl("train", recipe, cwd=tmp_path, check=False)
    text = done.text
    assert done.returncode != 0
    assert "not one of 8 groups carries signal" in text
    assert "3 steps in a row without one group that carries signal" in text
    run = RunDirectory.open(tmp_path / "runs" / "tiny-1")
    assert [r["fate_constant"] for r in run.read_metrics()] == [8, 8, 8]
    assert [r["rounds"] for r in run.read_metrics()] == [2, 2, 2]
    assert run.read_info()["status"] == "failed"
    assert list(run.checkpoints.iterdir())


def test_full_disk_while_saving_loses_nothing(tmp_path: Path) -> None:
    """A real full disk: a small tmpfs, filled so that the first checkpoints fit and later ones do not."""
    mount = tmp_path / "disk"
    mount.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mount)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small file system here: {mounted.stderr.strip()}")
    try:
        recipe = write_recipe(
            tmp_path,
            steps=400,
            checkpoint={"keep": 3},
            evaluation={"heldout_prompts": 0, "training_prompts": 0},
        )
        done = brorl("train", recipe, "--run", mount / "run", cwd=tmp_path, check=False)
        text = done.text
        assert done.returncode != 0, text
        assert "space" in text.lower() or "full" in text.lower(), text
        run = RunDirectory.open(mount / "run")
        assert list(run.checkpoints.glob("step_*"))
        saved = tmp_path / "saved"
        shutil.copytree(mount / "run", saved)
        done_steps = len(records_of(saved))
        (saved / "config.yaml").write_text(
            (saved / "config.yaml").read_text().replace("steps: 400", f"steps: {done_steps + 2}")
        )
        brorl("train", "--resume", saved, cwd=tmp_path)
        assert len(records_of(saved)) == done_steps + 2
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def test_check_prints_recipe_estimate_and_first_prompt(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    done = brorl("check", recipe, "--json", tmp_path / "check.json", cwd=tmp_path)
    for words in ("per_prompt: 24", "4 prompts x 24 rollouts = 96", "say ", "memory", "seconds"):
        assert words in done.text, done.text
    found = json.loads((tmp_path / "check.json").read_text())
    assert found["samples_per_step"] == 96
    assert found["memory_mib"] > 0
    assert not (tmp_path / "runs").exists()


def test_models_of_other_contexts(tmp_path: Path) -> None:
    save_tiny_policy(tmp_path / "model", context=12)
    refused("check", write_recipe(tmp_path), cwd=tmp_path, says="context of")
