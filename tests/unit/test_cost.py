"""The cost model: what it counts, and that it grows with distinct nodes."""

from dataclasses import replace

import pytest

from brorl.theory.cost import ModelShape, StepShape, step_cost
from shared_data import cases

MODEL = ModelShape(weights=900_000, parameters=1_000_000, layers=4, hidden=128, kv_width=128, vocabulary=512)
STEP = StepShape(
    prompts=64, rollouts=512, prompt_tokens=20, response_tokens=32, distinct_node_share=0.05, drawn_prompts=100
)


def test_handed_case_counts_the_tokens_before_the_start() -> None:
    [case] = [c for c in cases("group") if "completion_len" in c["input"]]
    given = case["input"]
    step = replace(
        STEP,
        prompts=given["prompts"],
        rollouts=given["N"],
        response_tokens=given["completion_len"],
        drawn_prompts=given["prompts"],
    )
    cost = step_cost(MODEL, step, flops_per_second=1e11)
    assert cost.tokens == 4 * 512 * 8192  # 16.8 million
    assert "16.8M" in case["expect"]
    assert cost.memory_mib > 0


def test_time_follows_distinct_nodes_not_rollouts() -> None:
    narrow = step_cost(MODEL, replace(STEP, rollouts=16, distinct_node_share=0.32), flops_per_second=1e11)
    broad = step_cost(MODEL, replace(STEP, rollouts=512, distinct_node_share=0.01), flops_per_second=1e11)
    assert broad.tokens == 32 * narrow.tokens
    assert broad.nodes == pytest.approx(narrow.nodes)
    assert broad.seconds == pytest.approx(narrow.seconds)


def test_a_group_has_at_least_one_path() -> None:
    cost = step_cost(MODEL, replace(STEP, rollouts=2, distinct_node_share=1e-6), flops_per_second=1e11)
    assert cost.nodes == STEP.drawn_prompts * STEP.response_tokens


def test_memory_holds_policy_gradient_moments_and_reference() -> None:
    with_reference = step_cost(MODEL, STEP, flops_per_second=1e11)
    without = step_cost(MODEL, replace(STEP, with_reference=False), flops_per_second=1e11)
    assert with_reference.weights_mib - without.weights_mib == pytest.approx(4e6 / 2**20)
    assert with_reference.learning_seconds > without.learning_seconds


def test_down_sampling_spares_learning_and_not_sampling() -> None:
    flat = replace(STEP, distinct_node_share=1.0)
    whole, part = (step_cost(MODEL, s, flops_per_second=1e11) for s in (flat, replace(flat, trained_rollouts=128)))
    assert part.sampling_seconds == whole.sampling_seconds
    prompts = STEP.prompts * STEP.prompt_tokens
    nodes = [STEP.prompts * rollouts * STEP.response_tokens + prompts for rollouts in (128, 512)]
    assert part.learning_seconds / whole.learning_seconds == pytest.approx(nodes[0] / nodes[1])
    # 512 rollouts that share nearly everything have fewer nodes than 128 that share nothing.
    assert step_cost(MODEL, replace(STEP, trained_rollouts=128), flops_per_second=1e11) == step_cost(
        MODEL, STEP, flops_per_second=1e11
    )


def test_an_adapter_has_gradient_moments_and_reference_and_the_frozen_model_none() -> None:
    whole, adapter = (
        step_cost(MODEL, s, flops_per_second=1e11) for s in (STEP, replace(STEP, adapter_parameters=1_000))
    )
    assert adapter.weights_mib == pytest.approx((2 * 1_000_000 + 5 * 1_000) * 4 / 2**20)
    assert adapter.learning_seconds < whole.learning_seconds


def test_gradient_checkpointing_gives_time_for_memory() -> None:
    plain, checkpointed = (
        step_cost(MODEL, s, flops_per_second=1e11) for s in (STEP, replace(STEP, gradient_checkpointing=True))
    )
    assert checkpointed.activations_mib < plain.activations_mib / 2
    assert checkpointed.learning_seconds > plain.learning_seconds


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="distinct-node share"):
        step_cost(MODEL, replace(STEP, distinct_node_share=0), flops_per_second=1e11)
    with pytest.raises(ValueError, match="needs prompts"):
        step_cost(MODEL, replace(STEP, prompts=0), flops_per_second=1e11)
