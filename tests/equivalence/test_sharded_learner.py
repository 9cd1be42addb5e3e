"""A learner on two ranks is the learner on one: gradients, log-probabilities, training."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from brorl.learner.learner import Learner, LearnerSettings
from brorl.learner.objective import Objective
from brorl.learner.tree import micro_batches
from learner_ranks import gradients, on_ranks, sharded, small_groups, three_steps

pytestmark = pytest.mark.cluster

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
SMALL = LearnerSettings(temperature=0.8, max_nodes=8, max_tokens=60, objective=Objective(kl_coefficient=0.1))
SMALL_REINFORCE = LearnerSettings(temperature=0.8, objective=Objective(loss="reinforce"))
OPTIONS = {
    "pieces": SMALL,
    "whole": LearnerSettings(temperature=0.8, max_nodes=10**6, max_tokens=10**6),
    "gspo": LearnerSettings(temperature=0.8, objective=Objective(loss="gspo", kl_coefficient=0.0)),
    "checkpointing": LearnerSettings(temperature=0.8, gradient_checkpointing=True),
    "one node": SMALL,
}
CASES = [
    (architecture, tied, dtype, name, OPTIONS[name])
    for architecture, tied, dtype, name in product(("llama", "qwen2"), (False, True), TOLERANCE, OPTIONS)
]


@pytest.fixture(scope="module")
def on_two(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return on_ranks(2, tmp_path_factory.mktemp("gradients") / "ranks", gradients, sharded, CASES)


def distance(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    assert found.keys() == expected.keys()
    difference = sum(float((found[name] - expected[name]).double().square().sum()) for name in expected)
    size = sum(float(tensor.double().square().sum()) for tensor in expected.values())
    assert size > 0
    return (difference / size) ** 0.5


@pytest.mark.parametrize("case", range(len(CASES)), ids=["-".join(map(str, case[:4])) for case in CASES])
def test_gradient_and_logprobs_of_two_ranks_are_those_of_one(on_two: list[Any], case: int) -> None:
    [(expected, logprobs)] = gradients(Learner, [CASES[case]])
    for rank in on_two:
        found, values = rank[case]
        assert distance(found, expected) < TOLERANCE[CASES[case][2]]
        for here, there in zip(values, logprobs, strict=True):
            np.testing.assert_allclose(here, there, rtol=0, atol=TOLERANCE[CASES[case][2]])


def test_a_group_is_cut_between_ranks_and_every_node_has_one_owner() -> None:
    groups = small_groups("llama", torch.float64)
    sizes = [group.nodes for group in groups]
    owned = [
        np.concatenate([batch.nodes for batch in micro_batches(groups, 8, 60, part=(rank, 2))]) for rank in range(2)
    ]
    assert sorted(np.concatenate(owned)) == list(range(sum(sizes)))
    assert abs(len(owned[0]) - len(owned[1])) <= 1
    assert owned[1].min() not in np.cumsum([0, *sizes])  # inside a group
    assert micro_batches(groups[:0], 8, 60, part=(0, 2)) == []


@pytest.mark.parametrize(("tied", "dtype"), [(True, torch.float32), (False, torch.float64)])
def test_three_steps_are_those_of_the_plain_learner(tmp_path: Path, tied: bool, dtype: torch.dtype) -> None:
    expected = three_steps(Learner, SMALL, tied=tied, dtype=dtype)
    first, second = on_ranks(2, tmp_path / "ranks", _three_steps, tied, dtype)
    assert first[0] == second[0]
    for found, plain in zip(first[0], expected[0], strict=True):
        assert found == pytest.approx(plain, rel=10 * TOLERANCE[dtype], abs=TOLERANCE[dtype])
    assert distance(first[1], expected[1]) < 10 * TOLERANCE[dtype]
    assert not second[1]  # the whole weights are on rank 0 alone
    if tied:
        assert first[1]["lm_head.weight"].data_ptr() == first[1]["model.embed_tokens.weight"].data_ptr()
    for rank in (first, second):
        assert rank[3] == expected[3]
        for here, there in zip(rank[2], expected[2], strict=True):
            np.testing.assert_allclose(here, there, rtol=0, atol=10 * TOLERANCE[dtype])


def test_bfloat16_products_give_the_gradient_up_to_their_rounding(tmp_path: Path) -> None:
    half = LearnerSettings(temperature=0.8, compute_dtype=torch.bfloat16, objective=Objective(loss="reinforce"))
    cases = [("llama", False, torch.float32, "pieces", half)]
    [(expected, _)] = gradients(Learner, [(*cases[0][:4], SMALL_REINFORCE)])
    [(found, _)], _ = on_ranks(2, tmp_path / "ranks", gradients, sharded, cases)
    assert all(gradient.dtype == torch.float32 for gradient in found.values())
    assert 1e-4 < distance(found, expected) < 0.1


def _three_steps(tied: bool, dtype: torch.dtype) -> Any:
    return three_steps(sharded, SMALL, tied=tied, dtype=dtype)
