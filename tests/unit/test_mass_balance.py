"""Mass balances: the hand-checked values, identity with autograd, signs, refusals."""

import numpy as np
import pytest
import torch

from brorl.theory.mass_balance import moments, reinforce_balance, reward_levels, surrogate_balance


def random_instance(rng: np.random.Generator, batch: int, actions: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    logits = rng.normal(0, rng.uniform(0.1, 3), (batch, actions))
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    correct = rng.random((batch, actions)) < rng.uniform(0.05, 0.95)
    counts = np.stack([rng.multinomial(int(rng.integers(2, 40)), row / row.sum()) for row in p])
    return p, correct, counts


def test_hand_checked_oracle() -> None:
    p, correct, drawn = [0.4, 0.1, 0.3, 0.2], [True, True, False, False], [True, False, True, False]
    m = moments(p, correct, drawn)
    balance = surrogate_balance(m, r_correct=1, r_wrong=-1, rollouts=2)
    values = [m.a2, m.b2, m.u_pos2, m.u_neg2, balance.s_r, balance.t1, balance.t2, balance.t3, balance.delta]
    assert values == pytest.approx([0.16, 0.09, 0.01, 0.04, 0.1, 0.072, 0.0495, 0.0015, 0.0615], abs=1e-16)


def first_order_change(logits: torch.Tensor, loss: torch.Tensor, correct: torch.Tensor) -> float:
    """Gradient of Q_pos times a plain gradient step of size 1 on the loss."""
    (step,) = torch.autograd.grad(-loss, logits, retain_graph=True)
    (slope,) = torch.autograd.grad(torch.softmax(logits, -1)[correct].sum(), logits)
    return float(step @ slope)


@pytest.mark.parametrize("baseline", [None, 0.0, 0.3])
@pytest.mark.parametrize("coding", ["01", "pm1"])
def test_identity_with_autograd(coding: str, baseline: float | None) -> None:
    rng = np.random.default_rng(1)
    for _ in range(60):
        p, correct, counts = random_instance(rng, 1, int(rng.integers(2, 30)))
        n, successes = counts.sum(), counts[correct].sum()
        r_c, r_w = reward_levels(successes, n, coding=coding, baseline=baseline)  # pyright: ignore[reportArgumentType]
        logits = torch.tensor(np.log(p[0]), requires_grad=True)
        right, times = torch.tensor(correct[0]), torch.tensor(counts[0], dtype=torch.float64)
        reward = torch.where(right, torch.tensor(r_c), torch.tensor(r_w))
        probabilities = torch.softmax(logits, -1)

        surrogate = -(reward * probabilities)[times > 0].sum() / n
        balance = surrogate_balance(moments(p[0], correct[0], counts[0]), r_correct=r_c, r_wrong=r_w, rollouts=n)
        assert abs(float(balance.delta) - first_order_change(logits, surrogate, right)) <= 1e-15

        reinforce = -(times * reward * torch.log_softmax(logits, -1)).sum() / n
        two_term = reinforce_balance(p[0], correct[0], counts[0], r_correct=r_c, r_wrong=r_w)
        assert abs(float(two_term.delta) - first_order_change(logits, reinforce, right)) <= 1e-15


def test_signs_and_batches() -> None:
    rng = np.random.default_rng(2)
    for _ in range(40):
        p, correct, counts = random_instance(rng, 50, 25)
        n, successes = counts.sum(-1), (counts * correct).sum(-1)
        r_c, r_w = reward_levels(successes, n)
        m = moments(p, correct, counts)
        balance = surrogate_balance(m, r_correct=r_c, r_wrong=r_w, rollouts=n)
        assert (balance.t1 >= 0).all()
        assert (balance.t2 >= 0).all()
        two_term = reinforce_balance(p, correct, counts, r_correct=r_c, r_wrong=r_w)
        assert (two_term.coupling == 0).all()
        assert (two_term.delta >= 0).all()
        row = surrogate_balance(moments(p[7], correct[7], counts[7]), r_correct=r_c[7], r_wrong=r_w[7], rollouts=n[7])
        assert float(row.delta) == pytest.approx(float(balance.delta[7]), abs=1e-18)


def test_the_two_balances_are_different_updates() -> None:
    p, correct, counts = [0.4, 0.1, 0.3, 0.2], [True, True, False, False], [1, 0, 1, 0]
    r_c, r_w = reward_levels(1, 2)
    surrogate = surrogate_balance(moments(p, correct, counts), r_correct=r_c, r_wrong=r_w, rollouts=2)
    reinforce = reinforce_balance(p, correct, counts, r_correct=r_c, r_wrong=r_w)
    assert float(surrogate.delta) < float(reinforce.delta)
    assert float(reinforce.delta) == pytest.approx(0.5 * 0.4 * 0.25 + 0.5 * 0.3 * 0.25)


def test_theorem_term_three_can_be_negative_and_win() -> None:
    # One likely undrawn correct action, reward-positive batch: the push on the undrawn costs more than it brings.
    m = moments([0.05, 0.75, 0.2], [True, True, False], [True, False, False])
    balance = surrogate_balance(m, r_correct=1, r_wrong=-1, rollouts=2)
    assert float(balance.t3) < 0
    assert float(balance.delta) < 0


@pytest.mark.parametrize(
    ("coding", "baseline", "expected"),
    [("01", None, (0.75, -0.25)), ("pm1", None, (1.5, -0.5)), ("pm1", 0.0, (1, -1)), ("01", 0.1, (0.9, -0.1))],
)
def test_reward_levels(coding: str, baseline: float | None, expected: tuple[float, float]) -> None:
    levels = reward_levels(2, 8, coding=coding, baseline=baseline)  # pyright: ignore[reportArgumentType]
    assert [float(level) for level in levels] == pytest.approx(expected)


def test_refusals() -> None:
    p, correct = [0.5, 0.5], [True, False]
    with pytest.raises(ValueError, match="sum to 1"):
        moments([0.5, 0.4], correct, [1, 1])
    with pytest.raises(ValueError, match="not negative"):
        moments([1.5, -0.5], correct, [1, 1])
    with pytest.raises(ValueError, match="empty group"):
        moments(p, correct, [0, 0])
    with pytest.raises(ValueError, match="N >= 2"):
        surrogate_balance(moments(p, correct, [1, 0]), r_correct=1, r_wrong=-1, rollouts=1)
    with pytest.raises(ValueError, match="N >= 2"):
        reinforce_balance(p, correct, [1, 0], r_correct=1, r_wrong=-1)
    with pytest.raises(ValueError, match="between 0 and"):
        reward_levels(5, 4)
    with pytest.raises(ValueError, match="unknown reward coding"):
        reward_levels(1, 4, coding="signed")  # pyright: ignore[reportArgumentType]
