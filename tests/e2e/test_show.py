"""`brorl show`: the exploration tree of a stored group, from the command line, piped."""

import json
from pathlib import Path

from brorl.group import Prompt, RolloutGroup, ScoredGroup
from brorl.recipe_file import parse_recipe
from brorl.rundir import RunDirectory
from brorl.storage import read_tallies
from command_line import brorl, refused
from tiny_policy import character_tokenizer


def made_run(path: Path) -> RunDirectory:
    recipe = parse_recipe({"name": "r", "steps": 2, "tasks": [{"kind": "gym", "task": "chain_sum"}]})
    run = RunDirectory.create(recipe, path=path)
    tokenizer = character_tokenizer()
    rows = [tokenizer.encode(text) for text in ["12 = ?", "12 = ?", "13 + 1"]]
    for step in (0, 3):
        groups = []
        for number in range(2):
            prompt = Prompt(id=f"q{number}", text=f"question {number} of step {step}")
            group = RolloutGroup.from_sequences(prompt, rows)
            right = group.end_counts == 2
            groups.append(ScoredGroup(group=group, rewards=right.astype("f4"), outcomes=(2 - 2 * right).astype("u1")))
        run.write_step(step, groups)
        run.write_evaluation(step, "held-out", {"name": "held-out"}, groups[:1])
    (run.checkpoints / "step_000000").mkdir()
    tokenizer.save_pretrained(run.checkpoints / "step_000000")
    return run


def test_show_draws_a_stored_group(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run")
    newest = brorl("show", run.path, "--prompt", "1", cwd=tmp_path).text
    assert "question 1 of step 3" in newest
    assert "3 rollouts, 2 right (66.7%)" in newest
    assert "2 = ?" in newest
    assert max(map(len, newest.splitlines())) <= 80
    assert "question 0 of step 0" in brorl("show", run.path, "--step", 0, "--prompt", "q0", cwd=tmp_path).text
    assert "question 0" in brorl("show", run.path, "--evaluation", "held-out", "--branches", 1, cwd=tmp_path).text


def test_show_without_a_tokenizer_draws_token_ids(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run")
    (run.checkpoints / "step_000000" / "tokenizer.json").write_text("{broken")
    run.config.write_text(run.config.read_text().replace("brorl-tiny", "/nowhere"))
    assert "⟨" in brorl("show", run.path, cwd=tmp_path).text


def test_show_says_what_is_not_there(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run")
    refused("show", tmp_path, cwd=tmp_path, says="not a run directory")
    refused("show", run.path, "--step", 2, cwd=tmp_path, says="there are steps 0, 3")
    refused("show", run.path, "--prompt", 7, cwd=tmp_path, says="it holds 2 groups")
    refused("show", run.path, "--evaluation", "heldout", cwd=tmp_path, says="there are held-out")
    (run.groups / "step_000003.parquet").write_bytes(b"half")
    refused("show", run.path, cwd=tmp_path, says="cannot be read")


def test_tallies_count_without_reading_tries(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run")
    tallies = read_tallies(run.group_file(0))
    assert json.dumps([tallies.prompt_ids, tallies.fates]) == '[["q0", "q1"], ["trained", "trained"]]'
    assert (tallies.rollouts.tolist(), tallies.scored.tolist(), tallies.correct.tolist()) == ([3, 3], [3, 3], [2, 2])
    run.write_step(1, [])
    assert read_tallies(run.group_file(1)).prompt_ids == []
