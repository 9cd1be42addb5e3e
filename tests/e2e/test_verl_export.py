"""`brorl export-verl` without verl: the files, the rows, the rewards, and every recipe of the repository."""

import asyncio
import json
import math
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from brorl.algorithms.advantages import ADVANTAGES, GroupRewards, estimate
from brorl.learner.model import load_tokenizer
from brorl.prompts import open_data
from brorl.recipe_file import load_recipe
from brorl.seeding import generator
from brorl.verl.grading import reward_function
from brorl.verl.overrides import beyond_verl, text
from brorl.verl.plugin import registered_name, row_advantages
from command_line import brorl, refused

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
TRAINING = sorted({*RECIPES.glob("*.yaml")} - {*RECIPES.glob("*_study.yaml"), RECIPES / "simulation.yaml"})
QUICKSTART = RECIPES / "quickstart.yaml"
FILES = {"overrides.txt", "launch.sh", "reward.py", "reward.json", "README.md"}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("verl") / "quickstart"
    brorl("export-verl", QUICKSTART, directory, "--rows", 96, cwd=directory.parent)
    return directory


@pytest.mark.parametrize("path", TRAINING, ids=lambda path: path.stem)
def test_every_recipe_exports(path: Path, tmp_path: Path) -> None:
    recipe = load_recipe(path)
    rows = recipe.rollouts.prompts_per_step
    done = brorl("export-verl", path, tmp_path / "out", "--rows", rows, "--json", tmp_path / "out.json", cwd=tmp_path)
    found = json.loads((tmp_path / "out.json").read_text())
    assert set(found["files"]) >= FILES
    settings = found["overrides"]
    assert settings["actor_rollout_ref.rollout.n"] == recipe.rollouts.per_prompt
    assert settings["actor_rollout_ref.rollout.max_num_seqs"] >= recipe.rollouts.per_prompt
    assert settings["data.train_batch_size"] == recipe.rollouts.prompts_per_step
    readme = (tmp_path / "out" / "README.md").read_text()
    for sentence in beyond_verl(recipe):
        assert sentence in readme  # nothing is dropped in silence
        assert sentence in done.text
    if found["missing"]:
        assert found["rows"] == 0
        assert found["missing"][0] in done.text
        assert found["missing"][0] in readme
    else:
        assert pq.read_metadata(tmp_path / "out" / "data" / "train.parquet").num_rows == rows


def test_the_launch_script_is_sound_and_refuses_without_data(exported: Path, tmp_path: Path) -> None:
    subprocess.run(["bash", "-n", exported / "launch.sh"], check=True)
    shutil.copy(exported / "launch.sh", tmp_path)
    done = subprocess.run([tmp_path / "launch.sh"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "data/train.parquet is missing" in done.stderr


def test_rows_are_brorls_prompts_in_its_order(exported: Path) -> None:
    recipe = load_recipe(QUICKSTART)
    tokenizer = load_tokenizer(recipe.model.path)
    data = open_data(recipe, tokenizer)
    rows = pq.read_table(exported / "data" / "train.parquet").to_pylist()
    assert set(rows[0]) == {"data_source", "prompt", "ability", "reward_model", "extra_info"}
    template = next(
        line.split("=", 1)[1].strip("'")
        for line in (exported / "overrides.txt").read_text().splitlines()
        if "custom_chat_template" in line
    )
    for position, row in enumerate(rows[:32]):
        prompt = data.prompt_at(position)
        assert prompt is not None
        assert row["prompt"] == [{"role": "user", "content": prompt.text}]
        assert row["reward_model"] == {"style": "rule", "ground_truth": prompt.answer}
        assert row["extra_info"]["id"] == prompt.id
        ids: Any = tokenizer.apply_chat_template(
            row["prompt"], chat_template=template, tokenize=True, return_dict=False
        )
        assert list(ids) == prompt.token_ids.tolist()
    held_out = pq.read_table(exported / "data" / "heldout.parquet").to_pylist()
    assert [row["extra_info"]["id"] for row in held_out] == [p.id for p in data.evaluation_sets["held-out"]]


def grade(function: Any, row: dict[str, Any], answer: str, **extra: Any) -> dict[str, float]:
    return asyncio.run(
        function(
            data_source=row["data_source"],
            solution_str=answer,
            ground_truth=row["reward_model"]["ground_truth"],
            extra_info={**row["extra_info"], **extra},
        )
    )


def test_the_written_reward_function_grades(exported: Path) -> None:
    function = reward_function(exported / "reward.json")
    row, *_ = pq.read_table(exported / "data" / "train.parquet").to_pylist()
    right = f"<answer>{row['reward_model']['ground_truth']}</answer>"
    assert grade(function, row, right) == {
        "score": 1.0,
        "acc": 1.0,
        "reward": 1.0,
        "truncated": 0.0,
        "unscorable": 0.0,
    }
    assert grade(function, row, "<answer>no</answer>")["score"] == 0.0
    cut = grade(function, row, right, truncated=True)
    assert (cut["score"], cut["acc"], cut["truncated"]) == (0.0, 0.0, 1.0)


def test_no_verdict_is_left_out_of_the_baseline_and_of_validation(exported: Path) -> None:
    function = reward_function(exported / "reward.json")
    row, *_ = pq.read_table(exported / "data" / "train.parquet").to_pylist()
    row["extra_info"]["verifier"] = "no.such.module:function"
    found = grade(function, row, "anything")
    assert math.isnan(found["score"])
    assert (found["acc"], found["unscorable"]) == (0.0, 1.0)
    assert grade(function, row, "anything", split="heldout")["score"] == 0.0


def test_shaping_follows_the_steps_cycle(exported: Path) -> None:
    settings = json.loads((exported / "reward.json").read_text())
    settings["shaping"] = [{"name": "cosine", "weight": 0.1, "on": 1, "off": 9}]
    function = reward_function(settings)
    row, *_ = pq.read_table(exported / "data" / "train.parquet").to_pylist()
    right = f"<answer>{row['reward_model']['ground_truth']}</answer>"
    extra = {"response_tokens": settings["max_new_tokens"] // 2, "truncated": False}
    assert grade(function, row, right, **extra, global_steps=1)["score"] == pytest.approx(1.05)
    assert grade(function, row, right, **extra, global_steps=2)["score"] == 1.0
    assert grade(function, row, right, **extra, global_steps=1, split="heldout")["score"] == 1.0
    with pytest.raises(ValueError, match="reward_manager"):
        grade(function, row, right)


@pytest.mark.parametrize("name", sorted(ADVANTAGES))
def test_rows_give_the_advantages_of_their_groups(name: str) -> None:
    rng = generator("verl rows", name)
    rewards = [(rng.random(512) < rate).astype(float) for rate in (1 / 512, 0.3, 0.99, 0.0)]
    rewards[0][:] = 0.0
    rewards[0][17] = 1.0
    lengths = [rng.integers(1, 40, 512) for _ in rewards]
    rewards[1][5] = np.nan
    groups = [
        GroupRewards(rewards=r, counts=np.ones(512, np.int64), lengths=n.astype(np.int64), correct=r >= 1)
        for r, n in zip(rewards, lengths, strict=True)
    ]
    expected = np.concatenate(estimate(ADVANTAGES[name], groups))
    order = rng.permutation(4 * 512)
    index = np.repeat(["b", "a", "d", "c"], 512)[order]
    found = row_advantages(
        ADVANTAGES[name], np.concatenate(rewards)[order], np.concatenate(lengths)[order].astype(np.int64), index, 1.0
    )
    np.testing.assert_allclose(found, expected[order], rtol=1e-10, atol=1e-12)


def test_overrides_are_quoted_for_hydra() -> None:
    assert text("a.b", "0.5_5.0") == "a.b='0.5_5.0'"  # unquoted, 0.5_5 would read as the number 0.55
    assert text("a", None) == "a=null"
    assert text("a", True) == "a=true"
    assert text("a", ["x", 1]) == "a=['x',1]"
    assert text("a", "it's") == r"a='it\'s'"


def test_arguments_are_part_of_a_registered_name() -> None:
    recipe = load_recipe(QUICKSTART, ["algorithm.advantage={name: grpo, ddof: 0}"])
    assert registered_name(recipe.algorithm.advantage) == "brorl_grpo_ddof_0"


def test_what_cannot_be_written_is_refused(exported: Path, tmp_path: Path) -> None:
    refused("export-verl", QUICKSTART, exported, cwd=tmp_path, says="already holds something")
    refused("export-verl", QUICKSTART, tmp_path / "few", "--rows", 8, cwd=tmp_path, says="fewer than one step's 64")
    assert not (tmp_path / "few").exists()
    assert not list(tmp_path.glob(".few*"))
