"""What an update did, against worlds where the truth is known."""

from dataclasses import replace

import numpy as np
import pytest

from brorl.group import Outcome, Prompt, RolloutGroup, ScoredGroup
from brorl.theory.probe import answer_bank, correct_mass_change, drawn_change, mean_mass_change, retained_mass
from toy_language import ToyLanguage, toy_language


def shifted(language: ToyLanguage, seed: int, size: float = 0.5) -> ToyLanguage:
    """The same language after a random change of its policy."""
    rng = np.random.default_rng(seed)
    tables = {}
    for prefix, p in language.tables.items():
        moved = p * np.exp(size * rng.normal(size=len(p)))
        tables[prefix] = moved / moved.sum()
    probabilities = [float(np.prod([tables[r[:i]][r[i]] for i in range(len(r))])) for r in language.responses]
    return replace(language, tables=tables, p=np.array(probabilities))


def test_drawn_change_is_exact() -> None:
    before = toy_language(2)
    after = shifted(before, 2)
    counts = np.random.default_rng(2).multinomial(20, before.p)
    scored = before.group(counts)
    change = drawn_change(scored, after.logprobs(scored.group))
    difference, seen = after.p - before.p, counts > 0
    assert change.p_pos == pytest.approx(difference[seen & before.correct].sum(), abs=1e-14)
    assert change.p_neg == pytest.approx(difference[seen & ~before.correct].sum(), abs=1e-14)
    assert change.unseen_mass == pytest.approx(difference[~seen].sum(), abs=1e-14)


class Bandit:
    """One-token responses over many actions, most of them rare; a REINFORCE step on the draws of one group."""

    def __init__(self, seed: int, actions: int = 20_000, rollouts: int = 512, step: float = 120.0) -> None:
        rng = np.random.default_rng(seed)
        self.p = rng.dirichlet(np.full(actions, 1.0))
        self.correct = np.arange(actions) < actions * 0.4
        self.training = rng.multinomial(rollouts, self.p)
        self.held_out = rng.multinomial(rollouts, self.p)
        reward = self.correct - self.training[self.correct].sum() / rollouts
        logits = np.log(self.p) + step * self.training * reward / rollouts
        self.q = np.exp(logits - logits.max())
        self.q /= self.q.sum()
        self.truth = float((self.q - self.p)[self.correct].sum())

    def group(self, counts: np.ndarray) -> tuple[ScoredGroup, np.ndarray]:
        drawn = np.flatnonzero(counts)
        group = RolloutGroup.from_nodes(
            Prompt(id="bandit", text=""),
            policy_version=0,
            tokens=drawn.astype(np.int32),
            parents=np.full(len(drawn), -1, np.int32),
            counts=counts[drawn].astype(np.int32),
            logprobs=np.log(self.p[drawn]),
            undrawn2=None,
            ends=np.arange(len(drawn), dtype=np.int32),
            end_counts=counts[drawn].astype(np.int32),
            finish=np.zeros(len(drawn), np.uint8),
        )
        right = self.correct[drawn]
        outcomes = np.where(right, Outcome.CORRECT, Outcome.WRONG).astype(np.uint8)
        return ScoredGroup(group=group, rewards=right.astype(np.float32), outcomes=outcomes), np.log(self.q[drawn])


def test_held_out_rollouts_cover_the_truth_and_training_rollouts_do_not() -> None:
    inside = in_sample_inside = 0
    ratios = []
    for seed in range(150):
        bandit = Bandit(seed)
        ours = correct_mass_change(*bandit.group(bandit.held_out))
        assert ours.low is not None
        assert ours.high is not None
        inside += ours.low <= bandit.truth <= ours.high
        naive = correct_mass_change(*bandit.group(bandit.training))
        in_sample_inside += naive.low is not None and naive.low <= bandit.truth <= (naive.high or 0.0)
        ratios.append(naive.value / bandit.truth)
    assert 0.84 <= inside / 150 <= 0.96
    assert in_sample_inside == 0
    assert np.median(ratios) > 10


def test_change_is_unbiased_over_groups() -> None:
    before = toy_language(6)
    after = shifted(before, 6)
    truth = float((after.p - before.p)[before.correct].sum())
    rng = np.random.default_rng(6)
    values = []
    for _ in range(400):
        scored = before.group(rng.multinomial(256, before.p))
        values.append(correct_mass_change(scored, after.logprobs(scored.group)).value)
    assert np.mean(values) == pytest.approx(truth, abs=float(4 * np.std(values) / 20 + 1e-3))


def test_unknown_errors_are_not_numbers() -> None:
    bandit = Bandit(0, actions=50)
    all_right, logprobs = bandit.group(np.where(bandit.correct, bandit.held_out, 0))
    change = correct_mass_change(all_right, logprobs)
    assert (change.low, change.high) == (None, None)
    assert change.declined == "every rollout is right"
    scored, _ = bandit.group(bandit.held_out)
    far = scored.group.response_logprobs() - np.linspace(0, 500, scored.group.nodes)
    assert correct_mass_change(scored, far).effective_samples < 20
    assert correct_mass_change(scored, far).declined == "too few effective samples"
    elsewhere = scored.group.response_logprobs() - 0.5  # every drawn response loses alike: the weights do not show it
    assert correct_mass_change(scored, elsewhere).declined == "mass moved to responses that were not drawn"
    collapsed = np.full(scored.group.nodes, -500.0)
    rare = int(np.argmin(scored.group.end_counts))
    collapsed[rare] = -0.1
    assert correct_mass_change(scored, collapsed).low is None


def test_mean_over_probe_prompts_narrows() -> None:
    changes = []
    for seed in range(16):
        bandit = Bandit(seed)
        changes.append(correct_mass_change(*bandit.group(bandit.held_out)))
    mean = mean_mass_change(changes)
    assert mean.low is not None
    assert mean.high is not None
    single = np.mean([c.high - c.low for c in changes if c.high is not None and c.low is not None])
    assert mean.high - mean.low == pytest.approx(single / 4, rel=0.1)
    with pytest.raises(ValueError, match="no probe prompt"):
        mean_mass_change([replace(changes[0], low=None, high=None)])
    with pytest.raises(ValueError, match="different levels"):
        mean_mass_change([changes[0], replace(changes[1], level=0.5)])


def test_retained_mass_of_the_starting_answers() -> None:
    before = toy_language(8)
    after = shifted(before, 8, size=1.0)
    scored = before.group(np.random.default_rng(8).multinomial(200, before.p))
    bank = answer_bank(scored)
    assert bank is not None
    index = {response: r for r, response in enumerate(before.responses)}
    members = np.array([index[tuple(ids.tolist())] for ids in bank.responses()])
    assert before.correct[members].all()
    expected = 1 - np.maximum(0, before.p - after.p)[members].sum() / before.p[members].sum()
    assert retained_mass(bank, after.logprobs(bank)) == pytest.approx(expected, abs=1e-12)
    assert retained_mass(bank, before.logprobs(bank)) == 1.0


def test_retained_mass_of_long_answers() -> None:
    group = RolloutGroup.from_sequences(Prompt(id="long", text=""), [[1], [2]], logprobs=[[-900.0], [-900.0]])
    assert retained_mass(group, np.array([-900.0 + np.log(0.5), -10.0])) == pytest.approx(0.75)


def test_no_answer_no_bank() -> None:
    bandit = Bandit(1, actions=50)
    wrong_only, logprobs = bandit.group(np.where(bandit.correct, 0, bandit.held_out))
    assert answer_bank(wrong_only) is None
    with pytest.raises(ValueError, match="nodes"):
        drawn_change(wrong_only, logprobs[1:])
