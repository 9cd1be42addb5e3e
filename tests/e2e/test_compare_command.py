"""`brorl compare` as a user runs it, on evaluations whose difference is known."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from brorl.engines.pieces import Pieces, word_pieces
from brorl.group import Outcome, Prompt, RolloutGroup, ScoredGroup
from brorl.rundir import write_json
from brorl.storage import write_groups
from command_line import brorl, refused
from tiny_policy import save_tiny_policy, write_recipe, write_rows

SAMPLING = {"samples": 4, "seed": 0, "max_new_tokens": 9, "temperature": 0.6, "top_p": 0.95}


def evaluation(
    where: Path, responses: Mapping[str, Sequence[tuple[str, bool]]], *, pieces: Pieces | None = None, **changes: Any
) -> Path:
    """A finished evaluation on disk: problem -> responses, each with whether it is right. Without pieces, a character
    is a token."""
    where.mkdir()
    groups: list[ScoredGroup] = []
    for name, given in responses.items():
        prompt = Prompt(id=name, text=name, token_ids=np.arange(0 if pieces else 3, dtype=np.int32))
        rows = [pieces.ids(word_pieces(t)) if pieces else [ord(c) for c in t] for t, _ in given]
        group = RolloutGroup.from_sequences(prompt, rows)
        right = {bytes(np.array(row, np.int32)) for row, (_, ok) in zip(rows, given, strict=True) if ok}
        correct = [ids.tobytes() in right for ids in group.responses()]
        groups.append(
            ScoredGroup(
                group=group,
                rewards=np.array(correct, np.float32),
                outcomes=np.array([Outcome.CORRECT if ok else Outcome.WRONG for ok in correct], np.uint8),
            )
        )
    write_groups(where / "gsm8k.parquet", groups)
    definition = {"version": 1, "score": "pass@1", "data": "d", "template": "{question}", "verifier": "math"}
    write_json(where / "evaluation.json", {"benchmarks": {"gsm8k": {**definition, "sampling": SAMPLING, **changes}}})
    if pieces:
        pieces.append_to(where / "vocabulary.jsonl")
    return where


BASE = {
    "a": [("yes", True), ("no", False), ("no", False), ("no", False)],
    "b": [("never", False)] * 4,
    "c": [("one", True), ("two", True), ("three", True), ("four", True)],
}
OTHER = {
    "a": [("no", False)] * 4,
    "b": [("ever", True), ("never", False), ("never", False), ("never", False)],
    "c": [("one", True)] * 3 + [("five", True)],
}


def test_two_evaluations(tmp_path: Path) -> None:
    evaluation(tmp_path / "old", BASE)
    evaluation(tmp_path / "new", OTHER)
    done = brorl("compare", "old", "new", "--json", "out.json", "--figure", "f.html", "--caps", "3", cwd=tmp_path)
    figures = json.loads((tmp_path / "out.json").read_text())
    [comparison] = figures["comparisons"]
    found = comparison["benchmarks"]["gsm8k"]
    assert (comparison["base"], comparison["other"], found["problems"]) == ("old", "new", 3)
    assert found["difference"]["value"] == pytest.approx(0.0)
    assert found["permutation_p"] == 1.0
    assert found["pass_at"]["4"]["base"]["value"] == pytest.approx(2 / 3)
    assert [row["id"] for row in found["wins"]] == ["b"]
    assert [row["id"] for row in found["losses"]] == ["a"]
    assert found["ties"] == 1
    assert found["lost"] == {"problems": ["a"], "expected_by_chance": pytest.approx(0.75**4)}
    assert found["gained"] == {"problems": ["b"], "expected_by_chance": pytest.approx(0.75**4)}
    assert found["solved"] == {"base": 2, "other": 2}
    assert found["retained"] == {"base": 5, "other": 3, "both": 1}
    lengths = (9 + 20 + 15) / 12, (8 + 4 + 15 + 13) / 12
    assert found["mean_tokens"]["base"]["value"] == pytest.approx(lengths[0])
    assert found["mean_tokens"]["other"]["value"] == pytest.approx(lengths[1])
    assert figures["token_efficiency"]["new"]["gsm8k"]["caps"][1]["cap"] == 3
    assert "lost (right answers went to none): 1, 0.3 expected by chance: a" in done.text
    assert "plotly" in (tmp_path / "f.html").read_text()


def test_three_evaluations_and_a_clear_difference(tmp_path: Path) -> None:
    names = [f"p{i}" for i in range(12)]
    evaluation(tmp_path / "zero", {n: [("no", False)] * 4 for n in names})
    evaluation(tmp_path / "half", {n: [("yes", True), ("no", False)] * 2 for n in names})
    evaluation(tmp_path / "full", {n: [("yes", True)] * 4 for n in names})
    brorl("compare", "zero", "half", "full", "--json", "out.json", cwd=tmp_path)
    figures = json.loads((tmp_path / "out.json").read_text())
    assert figures["evaluations"] == ["zero", "half", "full"]
    half, full = (c["benchmarks"]["gsm8k"] for c in figures["comparisons"])
    assert (half["difference"]["value"], full["difference"]["value"]) == (0.5, 1.0)
    assert full["permutation_p"] == pytest.approx(2 / 2**12)
    assert full["permutation_p_holm"] == pytest.approx(4 / 2**12)
    assert full["t_test"] is None


def test_responses_that_came_as_text_are_compared_as_text(tmp_path: Path) -> None:
    """Two vocabularies number the same words differently."""
    second = Pieces()
    second.ids(["other", "words", "first"])
    evaluation(tmp_path / "one", BASE, pieces=Pieces())
    evaluation(tmp_path / "two", BASE, pieces=second)
    evaluation(tmp_path / "tokens", BASE)
    brorl("compare", "one", "two", "--json", "out.json", cwd=tmp_path)
    found = json.loads((tmp_path / "out.json").read_text())["comparisons"][0]["benchmarks"]["gsm8k"]
    assert found["retained"] == {"base": 5, "other": 5, "both": 5}
    brorl("compare", "one", "tokens", "--json", "out.json", cwd=tmp_path)
    found = json.loads((tmp_path / "out.json").read_text())["comparisons"][0]["benchmarks"]["gsm8k"]
    assert found["retained"] is None


def test_what_cannot_be_compared_is_said(tmp_path: Path) -> None:
    evaluation(tmp_path / "old", BASE)
    evaluation(tmp_path / "newer", OTHER, version=2)
    evaluation(tmp_path / "hot", OTHER, sampling={**SAMPLING, "temperature": 1.0})
    evaluation(tmp_path / "fewer", {k: v for k, v in OTHER.items() if k != "b"}, data="e")
    evaluation(tmp_path / "seeded", OTHER, sampling={**SAMPLING, "seed": 9})
    brorl("compare", "old", "seeded", cwd=tmp_path)
    refused("compare", "old", cwd=tmp_path, says="needs two evaluations")
    refused("compare", "old", "newer", cwd=tmp_path, says="gsm8k.version: 1 and 2")
    refused("compare", "old", "hot", cwd=tmp_path, says="gsm8k.sampling.temperature: 0.6 and 1.0")
    refused("compare", "old", "fewer", cwd=tmp_path, says="gsm8k: other problems (3 and 2; not in both: b)")
    refused("compare", "old", tmp_path, cwd=tmp_path, says="no evaluation: give a directory that brorl eval made")
    refused("compare", "old", "newer", "-b", "math500", cwd=tmp_path, says="nothing called 'math500' in it")
    refused("compare", "old", "seeded", "--k", "8", cwd=tmp_path, says="pass@8 needs")
    (tmp_path / "hot/gsm8k.parquet").unlink()
    refused("compare", "old", "hot", cwd=tmp_path, says="is not finished")


def test_evaluations_of_a_run_and_of_its_checkpoints(tmp_path: Path) -> None:
    write_recipe(tmp_path, steps=2, evaluation={"every": 1})
    brorl("train", "recipe.yaml", "--run", "run", cwd=tmp_path)
    brorl("compare", "run:0", "run:1", "run", "--json", "out.json", cwd=tmp_path)
    figures = json.loads((tmp_path / "out.json").read_text())
    assert figures["evaluations"] == ["run:0", "run:1", "run:2"]
    assert set(figures["comparisons"][0]["benchmarks"]) == {"held-out", "training"}
    assert figures["comparisons"][0]["benchmarks"]["training"]["retained"] is not None
    assert figures["comparisons"][1]["pooled"]["problems"] == 8
    refused("compare", "run", "run:9", cwd=tmp_path, says="no evaluation at step '9'; there are: 0, 1, 2")
    save_tiny_policy(tmp_path / "other", seed=5)
    data = write_rows(tmp_path / "gsm8k.jsonl", [{"question": f"say {c}?", "answer": c} for c in "abcd"])
    for model in ("run", "other"):
        brorl("eval", model, "-b", "gsm8k", "--data", data, "--template", "{question}", "-n", "4",
              "--max-tokens", "4", "-o", f"eval-{model}", cwd=tmp_path)  # fmt: skip
    text = brorl("compare", "eval-run", "eval-other", cwd=tmp_path).text
    assert "eval-other against eval-run" in text
