"""`brorl export` as a user runs it: a directory that transformers loads, a card that says what was measured."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

from command_line import brorl, refused
from tiny_policy import write_recipe, write_rows


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("export")
    write_recipe(where, steps=2, evaluation={"every": 1}, checkpoint={"keep_best": True})
    brorl("train", "recipe.yaml", "--run", "run", cwd=where)
    return where


def test_transformers_loads_it(place: Path, tmp_path: Path) -> None:
    brorl("export", place / "run", "out", "--json", "done.json", cwd=tmp_path)
    done = json.loads((tmp_path / "done.json").read_text())
    names = sorted(file.name for file in (tmp_path / "out").iterdir())
    assert names == sorted(done["files"])
    assert done["step"] == 2
    assert not any(
        word in name for name in names for word in ("optimizer", "trainer", "reference", "manifest", "carried")
    )
    model: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    trained = AutoModelForCausalLM.from_pretrained(place / "run/checkpoints/step_000002")
    for name, tensor in trained.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    ids = tokenizer("say a?", return_tensors="pt")
    assert model.generate(**ids, max_new_tokens=3, do_sample=False).shape[1] > ids["input_ids"].shape[1]


def test_the_card(place: Path, tmp_path: Path) -> None:
    data = write_rows(tmp_path / "gsm8k.jsonl", [{"question": f"say {c}?", "answer": c} for c in "abc"])
    flags = ("-b", "gsm8k", "--data", data, "--template", "{question}", "-n", "2", "--max-tokens", "4")
    brorl("eval", place / "run", *flags, "--step", "1", "-o", "scores", cwd=tmp_path)
    brorl("export", place / "run", "my-model", "--step", "1", "--scores", "scores", cwd=tmp_path)
    card = (tmp_path / "my-model/README.md").read_text()
    head, body = card.split("---\n")[1:3]
    assert yaml.safe_load(head)["library_name"] == "transformers"
    assert body.startswith("\n# my-model\n")
    assert "4 prompts with 24 rollouts each" in " ".join(body.split())
    assert "| gsm8k (v1, T 0.6) | 3 | 2 | pass@1 |" in card
    assert "- data.jsonl, verifier regex" in card
    assert str(place) not in card
    assert yaml.safe_load(card.split("```yaml\n")[1].split("```")[0])["name"] == "tiny"
    refused("export", place / "run", "other", "--step", "2", "--scores", "scores", cwd=tmp_path, says="other weights")
    assert not (tmp_path / "other").exists()


def test_scores_of_the_run_are_in_the_card(place: Path, tmp_path: Path) -> None:
    brorl("export", place / "run", "out", cwd=tmp_path)
    card = (tmp_path / "out/README.md").read_text()
    found = json.loads((place / "run/evals/step_000002_held-out.json").read_text())["pass_at"]["4"]
    assert f"| pass@4 | {found['value']:.4f} | {found['low']:.4f} to {found['high']:.4f} |" in card


def test_the_best_checkpoint(place: Path, tmp_path: Path) -> None:
    best = json.loads((place / "run/run.json").read_text())["best"]["step"]
    brorl("export", place / "run", "out", "--step", "best", "--json", "done.json", cwd=tmp_path)
    done = json.loads((tmp_path / "done.json").read_text())
    assert (done["step"], Path(done["checkpoint"]).name) == (best, f"step_{best:06d}")
    data = write_rows(tmp_path / "gsm8k.jsonl", [{"question": f"say {c}?", "answer": c} for c in "abc"])
    flags = ("-b", "gsm8k", "--data", data, "--template", "{question}", "-n", "2", "--max-tokens", "4")
    assert f"evals/run-step_{best:06d}-1" in brorl("eval", place / "run", *flags, "--step", "best", cwd=tmp_path).text


def test_what_cannot_be_exported_is_said(place: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    refused("export", place / "run", "full", cwd=tmp_path, says="already holds something")
    assert (tmp_path / "full/file").exists()
    refused("export", place / "run", "out", "--step", "9", cwd=tmp_path, says="no checkpoint '9'; there are: ")
    write_recipe(tmp_path, steps=1)
    brorl("train", "recipe.yaml", "--run", "plain", cwd=tmp_path)
    refused("export", "plain", "out", "--step", "best", cwd=tmp_path, says="with checkpoint.keep_best: true")
    refused("export", tmp_path / "full", "out", cwd=tmp_path, says="not a run directory")
    refused("export", place / "run", "out", "--scores", "full", cwd=tmp_path, says="no finished evaluation")
    assert not (tmp_path / "out").exists()
    (tmp_path / "empty").mkdir()
    brorl("export", place / "run", "empty", cwd=tmp_path)
