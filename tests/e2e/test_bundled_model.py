"""The bundled model is what its card says it is."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from model_card import FLAT_STEPS, FLAT_T, rise
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from brorl.engines.local import LocalEngine
from brorl.engines.protocol import SampleRequest, Sampling
from brorl.learner.learner import Learner
from brorl.learner.model import load_model, model_directory
from brorl.prompts import open_data
from brorl.recipe_file import load_recipe
from brorl.tasks.reasoning_gym import GymSource

MIB = 2**20


@pytest.fixture(scope="module")
def directory() -> Path:
    return model_directory("brorl-tiny")


@pytest.fixture(scope="module")
def loaded() -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    return load_model("brorl-tiny", context=256)


def test_it_is_small(directory: Path, loaded: tuple[PreTrainedModel, PreTrainedTokenizerBase]) -> None:
    sizes = {file.name: file.stat().st_size for file in directory.iterdir()}
    assert sum(sizes.values()) <= 16 * MIB
    assert sum(sizes.values()) - sizes["optimizer.state"] <= 10 * MIB
    assert 0.8e6 <= loaded[0].num_parameters() <= 1.1e6


def test_the_tokenizer_is_faithful(loaded: tuple[PreTrainedModel, PreTrainedTokenizerBase]) -> None:
    _, tokenizer = loaded
    texts = [
        GymSource(task, seed=3).row(i).question for task in ("chain_sum", "word_ladder", "rush_hour") for i in (0, 1)
    ]
    for text in [*texts, "57+87=441-70=47<answer>74</answer>", "  Ünïcode ≤ 数\n\t<eos", ""]:
        assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=True) == text
    assert len(tokenizer.encode("1234567890")) == 10
    ids = tokenizer.encode("<answer>7</answer>")
    assert len(ids) == 3
    eos = tokenizer.eos_token_id
    assert isinstance(eos, int)
    assert tokenizer.decode([*ids, eos], skip_special_tokens=True) == "<answer>7</answer>"
    assert tokenizer.pad_token_id != eos


def test_the_optimizer_state_belongs_to_it(
    directory: Path, loaded: tuple[PreTrainedModel, PreTrainedTokenizerBase]
) -> None:
    learner = Learner(loaded[0])
    learner.load_optimizer(directory)
    moments = [state["exp_avg_sq"] for state in learner.optimizer.state.values()]
    assert len(moments) == len(list(loaded[0].parameters()))
    assert all(bool((m > 0).any()) for m in moments)


def test_its_card_says_whether_the_curve_is_flat(directory: Path) -> None:
    gain = json.loads((directory / "measured.json").read_text())["last_gain"]
    with (directory / "curve.csv").open(encoding="utf-8") as file:
        curve = {int(row["step"]): row["training pass@1"] for row in csv.DictReader(file)}
    assert list(curve) == list(range(load_recipe(directory / "recipe.yaml").steps + 1))
    assert gain["after"]["step"] - gain["before"]["step"] == FLAT_STEPS
    assert gain["after"]["step"] == max(curve)
    for end in gain.values():
        assert float(curve[end["step"]]) == pytest.approx(np.mean(end["rates"]), abs=1e-5)
    card = (directory / "README.md").read_text(encoding="utf-8")
    assert ("not flat yet" in card) == (rise(gain)[1] > FLAT_T)


def test_its_curve_ends_flat(directory: Path) -> None:
    gain = json.loads((directory / "measured.json").read_text())["last_gain"]
    assert rise(gain)[1] <= FLAT_T


def test_it_is_a_fair_ground_for_breadth(directory: Path) -> None:
    figures = json.loads((directory / "measured.json").read_text())["training"]
    rates = np.array(list(figures["rates"].values()))
    assert (len(rates), figures["rollouts"]) == (256, 4096)
    assert figures["rare_share"] == pytest.approx(np.mean((rates >= 1e-3) & (rates <= 5e-2)))
    assert figures["rare_share"] >= 0.2
    assert figures["kept_share"]["512"] > figures["kept_share"]["16"] + 0.1
    card = (directory / "README.md").read_text(encoding="utf-8")
    assert f"{figures['rare_share']:.1%} of the training prompts" in card
    assert f"| kept share at N = 512 | {figures['kept_share']['512']:.3f} |" in card


def test_the_weights_have_the_pass_rates_of_the_card(
    directory: Path, loaded: tuple[PreTrainedModel, PreTrainedTokenizerBase]
) -> None:
    model, tokenizer = loaded
    known = json.loads((directory / "measured.json").read_text())["training"]["rates"]
    recipe = load_recipe(directory / "recipe.yaml", ["model.path=brorl-tiny", "evaluation.training_prompts=24"])
    prompts = open_data(recipe, tokenizer).evaluation_sets["training"]
    assert isinstance(tokenizer.eos_token_id, int)
    sampling = Sampling(max_new_tokens=48, stop_token_ids=(tokenizer.eos_token_id,))
    requests = [SampleRequest(prompt=prompt, rollouts=256, key=(0, "test", prompt.id)) for prompt in prompts]
    with torch.no_grad():
        groups = dict(LocalEngine(model).sample(requests, sampling))
    for index, prompt in enumerate(prompts):
        group = groups[index]
        correct = [text.endswith(f"<answer>{prompt.answer}</answer>") for text in group.texts(tokenizer)]
        rate, expected = float(group.end_counts[correct].sum()) / 256, known[prompt.id]
        # Five standard errors of a share of 256, and a little for shares near 0 and 1.
        assert abs(rate - expected) <= 5 * np.sqrt(expected * (1 - expected) / 256) + 0.01
