"""Groups that the engine samples, against every response of a model small enough to enumerate."""

from itertools import product

import numpy as np
import pytest
import torch

from brorl.engines.local import LocalEngine
from brorl.engines.protocol import SampleRequest, Sampling
from brorl.group import Outcome, Prompt, RolloutGroup, ScoredGroup
from brorl.learner.learner import Learner
from brorl.theory.coverage import expected_undrawn_second_moment
from brorl.theory.groups import group_table, measure
from brorl.theory.mass_balance import moments, reward_levels, surrogate_balance
from brorl.theory.probe import answer_bank, correct_mass_change, drawn_change, retained_mass
from tiny_models import tiny_model

VOCABULARY, EOS, DEPTH = 6, 2, 3
PROMPT = Prompt(id="tiny", text="", token_ids=np.array([1, 3, 4], np.int32))


def every_response(model: torch.nn.Module) -> dict[tuple[int, ...], float]:
    """Each response of at most DEPTH tokens with its probability under the model's own forward pass."""
    sequences = torch.tensor([[*PROMPT.token_ids.tolist(), *tail] for tail in product(range(VOCABULARY), repeat=DEPTH)])
    with torch.no_grad():
        logp = torch.log_softmax(model(sequences).logits[:, len(PROMPT.token_ids) - 1 : -1].double(), -1)
    responses: dict[tuple[int, ...], float] = {}
    for row, values in zip(sequences[:, len(PROMPT.token_ids) :].tolist(), logp, strict=True):
        length = row.index(EOS) + 1 if EOS in row else DEPTH
        steps = values[torch.arange(length), torch.tensor(row[:length])]
        responses[tuple(row[:length])] = float(steps.sum().exp())
    return responses


def score(group: RolloutGroup) -> ScoredGroup:
    right = np.array([int(ids.sum()) % 3 == 0 for ids in group.responses()])
    outcomes = np.where(right, Outcome.CORRECT, Outcome.WRONG).astype(np.uint8)
    return ScoredGroup(group=group, rewards=right.astype(np.float32), outcomes=outcomes)


@pytest.mark.parametrize("rollouts", [8, 64])
def test_bound_estimate_and_interval_hold_on_sampled_groups(rollouts: int) -> None:
    model = tiny_model("llama", vocab_size=VOCABULARY, dtype=torch.float64)
    responses = every_response(model)
    p = np.array(list(responses.values()))
    assert p.sum() == pytest.approx(1.0, abs=1e-9)
    p /= p.sum()
    correct = np.array([sum(response) % 3 == 0 for response in responses])
    requests = [SampleRequest(prompt=PROMPT, rollouts=rollouts, key=(7, i)) for i in range(150)]
    engine = LocalEngine(model)
    estimates = []
    for _, group in engine.sample(requests, Sampling(max_new_tokens=DEPTH, stop_token_ids=(EOS,))):
        counts_of = dict(zip(map(tuple, (r.tolist() for r in group.responses())), group.end_counts, strict=True))
        counts = np.array([int(counts_of.get(response, 0)) for response in responses])
        assert counts.sum() == rollouts
        m = measure(group_table(score(group)))
        assert m.masses is not None
        full = moments(p, correct, counts)
        r_c, r_w = reward_levels(counts[correct].sum(), rollouts)
        truth = surrogate_balance(full, r_correct=r_c, r_wrong=r_w, rollouts=rollouts)
        assert m.masses.p_pos == pytest.approx(float(full.p_pos), abs=1e-6)
        assert m.masses.p_neg == pytest.approx(float(full.p_neg), abs=1e-6)
        assert float(full.u_pos2 + full.u_neg2) <= m.masses.u2_bound + 1e-7
        assert m.masses.q_pos.low - 1e-6 <= float(full.q_pos) <= m.masses.q_pos.high + 1e-6
        assert m.masses.surrogate.low - 1e-7 <= float(truth.delta) <= m.masses.surrogate.high + 1e-7
        assert not m.masses.certified or float(truth.delta) > 0
        estimates.append(m.masses.u2_estimate)
    expected = float(expected_undrawn_second_moment(p, rollouts))
    assert np.mean(estimates) == pytest.approx(expected, abs=float(4 * np.std(estimates) / len(estimates) ** 0.5))


@pytest.mark.parametrize(
    ("size", "seed", "measurable"), [(0.005, 1, True), (0.02, 3, True), (0.03, 2, False), (0.1, 2, False)]
)
def test_probe_of_a_changed_policy_covers_the_truth_or_declines(size: float, seed: int, measurable: bool) -> None:
    """Held-out groups of the engine, scored again by the learner after its weights moved a little, or much."""
    model = tiny_model("llama", vocab_size=VOCABULARY, dtype=torch.float64)
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():  # the padding token starts at exactly 0, where any change is a large one
        model.get_parameter("model.embed_tokens.weight")[0] += 0.2 * torch.randn(32, generator=noise).double()
    before = every_response(model)
    requests = [SampleRequest(prompt=PROMPT, rollouts=256, key=(8, i)) for i in range(120)]
    sampling = Sampling(max_new_tokens=DEPTH, stop_token_ids=(EOS,))
    groups = [score(group) for _, group in LocalEngine(model).sample(requests, sampling)]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += size * torch.randn(parameter.shape, generator=noise, dtype=parameter.dtype)
    after = every_response(model)
    correct = {response for response in before if sum(response) % 3 == 0}
    truth = sum(after[response] - before[response] for response in correct)
    learner = Learner(model)
    covered = []
    for scored, logprobs in zip(groups, learner.logprobs([g.group for g in groups]), strict=True):
        drawn = [tuple(ids.tolist()) for ids in scored.group.responses()]
        change = drawn_change(scored, logprobs)
        assert change.p_pos == pytest.approx(sum(after[r] - before[r] for r in drawn if r in correct), abs=1e-6)
        estimate = correct_mass_change(scored, logprobs)
        if estimate.low is not None and estimate.high is not None:
            covered.append(estimate.low <= truth <= estimate.high)
    if measurable:
        assert len(covered) >= 0.95 * len(groups)
        assert 0.8 <= np.mean(covered) <= 0.98
    else:
        assert len(covered) <= 0.1 * len(groups)
    bank = answer_bank(groups[0])
    assert bank is not None
    kept = [tuple(ids.tolist()) for ids in bank.responses()]
    lost = sum(max(0.0, before[r] - after[r]) for r in kept) / sum(before[r] for r in kept)
    assert retained_mass(bank, learner.logprobs([bank])[0]) == pytest.approx(1 - lost, abs=1e-6)
