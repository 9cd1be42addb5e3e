"""`brorl selftest`: it passes on sound parts, and each check fails when the thing it checks is broken."""

import copy
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from brorl.engines.local import LocalEngine
from brorl.group import RolloutGroup
from brorl.learner import checkpoint, tree
from brorl.learner import learner as learner_module
from brorl.learner.learner import Learner
from brorl.learner.objective import TrainingGroup, objective_sum
from brorl.recipe_file import load_recipe
from brorl.selftest import CHECKS, TOLERANCES, run_selftest
from command_line import brorl, refused
from tiny_policy import write_recipe


def failed(home: Path, **changes: Any) -> list[str]:
    recipe = load_recipe(write_recipe(home, **changes))
    checks = list(run_selftest(recipe, prompts=3, rollouts=24))
    assert tuple(check.name for check in checks) == CHECKS
    return [check.name for check in checks if not check.passed]


def test_a_sound_model_passes_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    recipe = write_recipe(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    done = brorl("selftest", recipe, "--json", tmp_path / "out.json", cwd=tmp_path)
    assert sorted(set(tmp_path.rglob("*")) - set(before)) == [tmp_path / "out.json"]
    figures = json.loads((tmp_path / "out.json").read_text())
    assert figures["passed"] is True
    assert [check["name"] for check in figures["checks"]] == list(CHECKS)
    assert done.text.count("pass ") == len(CHECKS)
    assert all(check["measured"] <= check["tolerance"] for check in figures["checks"])


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {"dtype": "float64"}},
        {"model": {"compute": "bfloat16", "gradient_checkpointing": True}},
        {"algorithm": {"loss": "gspo", "kl_weight": 0.0}},
        {"algorithm": {"loss": "reinforce", "aggregation": "constant", "correction": "tis"}},
    ],
)
def test_what_a_recipe_can_say_passes_too(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert failed(tmp_path, **changes) == []


def test_tolerances_follow_what_is_computed_in() -> None:
    for name in ("gradient", "logprobs", "ratio"):
        assert TOLERANCES[torch.float64][name] < TOLERANCES[torch.float32][name] < TOLERANCES[torch.bfloat16][name]


def test_a_mean_over_each_micro_batch_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The classic mistake: every micro-batch is averaged over its own tokens."""
    sound = objective_sum

    def averaged(objective: Any, values: Any, nodes: torch.Tensor, *rest: torch.Tensor) -> Any:
        loss, metrics = sound(objective, values, nodes, *rest)
        return loss / values.total[nodes].sum(), metrics

    monkeypatch.setattr(learner_module, "objective_sum", averaged)
    assert {"micro-batches", "trie cuts"} <= set(failed(tmp_path))


def test_a_cut_without_the_whole_path_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = tree.cut

    def rootless(index: int, group: RolloutGroup, max_nodes: int, **part: Any) -> Iterator[tree.Piece]:
        for piece in sound(index, group, max_nodes, **part):
            yield replace(piece, path=piece.path[1:])

    monkeypatch.setattr(tree, "cut", rootless)
    assert "trie cuts" in failed(tmp_path)


def test_an_engine_of_another_policy_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def another(model: Any, **settings: Any) -> LocalEngine:
        other = copy.deepcopy(model)
        with torch.no_grad():
            other.model.norm.weight.mul_(1.05)
        return LocalEngine(other, **settings)

    monkeypatch.setattr("brorl.build.LocalEngine", another)
    assert failed(tmp_path) == ["engine"]  # loading the learner's weights mends it


def test_an_engine_that_keeps_old_weights_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stale(LocalEngine):
        def load_weights(self, weights: Mapping[str, torch.Tensor], version: int) -> None:
            self._policy_version = version

    monkeypatch.setattr("brorl.build.LocalEngine", lambda model, **settings: Stale(copy.deepcopy(model), **settings))
    assert failed(tmp_path) == ["engine after an update"]


def test_old_logprobs_at_another_temperature_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = Learner.logprobs

    def hotter(self: Learner, groups: Sequence[Any], *, reference: bool = False) -> list[Any]:
        return [values * 1.01 for values in sound(self, groups, reference=reference)]

    monkeypatch.setattr(Learner, "logprobs", hotter)
    assert "ratio" in failed(tmp_path)


def test_a_step_that_ignores_the_learning_rate_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = Learner.step
    monkeypatch.setattr(Learner, "step", lambda self, batch, lr: sound(self, batch, max(lr, 1e-6)))
    assert "learning rate 0" in failed(tmp_path)


def test_an_update_that_moves_nothing_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = Learner.step

    def frozen(self: Learner, batch: Sequence[TrainingGroup], lr: float) -> dict[str, float]:
        return sound(self, batch, 0.0)

    monkeypatch.setattr(Learner, "step", frozen)
    assert failed(tmp_path) == ["engine after an update"]


@pytest.mark.parametrize("lost", ["optimizer_tensors", "counters"])
def test_a_checkpoint_that_loses_something_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    sound = checkpoint._write

    def forgetful(directory: Path, step: int, learner: Learner, *rest: Any) -> None:
        with monkeypatch.context() as patch:
            if lost == "counters":
                patch.setattr(learner, "policy_version", learner.policy_version + 1)
            else:
                patch.setattr(Learner, "optimizer_tensors", lambda self: {})
            sound(directory, step, learner, *rest)

    monkeypatch.setattr(checkpoint, "_write", forgetful)
    assert failed(tmp_path) == ["checkpoint"]


def test_a_failure_is_told_and_exits_non_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = Learner.step
    monkeypatch.setattr(Learner, "step", lambda self, batch, lr: sound(self, batch, max(lr, 1e-6)))
    refused("selftest", write_recipe(tmp_path), "--json", tmp_path / "o.json", cwd=tmp_path, says="FAIL  learning rate")
    assert json.loads((tmp_path / "o.json").read_text())["passed"] is False
