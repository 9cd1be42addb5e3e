"""Losses, KL estimators and corrections on single nodes, with values worked out by hand."""

import math

import pytest
import torch

from brorl.algorithms.losses import (
    CORRECTIONS,
    KL_ESTIMATORS,
    LOSSES,
    CorrectionSettings,
    LossInputs,
    LossSettings,
    kl_estimator,
)
from shared_data import cases


def inputs(ratio: list[float], positive: list[float], negative: list[float]) -> LossInputs:
    size = len(ratio)
    return LossInputs(
        logprobs=torch.tensor(ratio, dtype=torch.float64).log().requires_grad_(),
        old_logprobs=torch.zeros(size, dtype=torch.float64),
        correction=torch.ones(size, dtype=torch.float64),
        positive=torch.tensor(positive, dtype=torch.float64),
        negative=torch.tensor(negative, dtype=torch.float64),
        total=torch.ones(size, dtype=torch.float64),
    )


def test_the_clip_is_higher_above_than_below() -> None:
    loss, metrics = LOSSES["clipped"](inputs([1.5, 1.2, 0.5, 0.9], [1, 1, 0, 0], [0, 0, -1, -1]), LossSettings())
    assert loss.item() == pytest.approx(-(1.27 + 1.2 - 0.8 - 0.9))
    assert (metrics["clip_high"].item(), metrics["clip_low"].item()) == (1.0, 1.0)
    assert metrics["ratio_max"].item() == pytest.approx(1.5)


def test_opposite_weights_on_one_node_are_clipped_apart() -> None:
    both = inputs([1.5], [2.0], [-3.0])
    loss, _ = LOSSES["clipped"](both, LossSettings())
    loss.backward()
    assert loss.item() == pytest.approx(-(2.0 * 1.27 - 3.0 * 1.5))
    assert both.logprobs.grad is not None
    assert both.logprobs.grad.item() == pytest.approx(3.0 * 1.5)


def test_dual_clip_caps_a_negative_token() -> None:
    far = inputs([8.0], [0.0], [-1.0])
    loss, metrics = LOSSES["clipped"](far, LossSettings(dual_clip=3.0))
    loss.backward()
    assert loss.item() == pytest.approx(3.0)
    assert far.logprobs.grad is not None
    assert far.logprobs.grad.item() == 0.0
    assert metrics["clip_dual"].item() == 1.0


def test_a_runaway_ratio_stays_finite() -> None:
    far = inputs([math.exp(200.0)], [1.0], [-1.0])
    loss, _ = LOSSES["clipped"](far, LossSettings())
    loss.backward()
    assert math.isfinite(loss.item())
    assert far.logprobs.grad is not None
    assert far.logprobs.grad.isfinite().all()


def test_gspo_needs_its_first_pass() -> None:
    with pytest.raises(ValueError, match="first pass"):
        LOSSES["gspo"](inputs([1.0], [1.0], [0.0]), LossSettings())


@pytest.mark.parametrize(
    "settings", [{"eps_low": 1.5}, {"eps_high": -0.1}, {"dual_clip": 0.9}], ids=lambda s: next(iter(s))
)
def test_impossible_clip_ranges_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="clip"):
        LossSettings(**settings)


def test_k2_value_and_slope_of_the_handed_case() -> None:
    (case,) = [c for c in cases("loss") if c["input"].get("kl") == "k2 as loss"]
    logprob = torch.tensor([case["input"]["logratio"]], dtype=torch.float64, requires_grad=True)
    value = KL_ESTIMATORS["k2"](logprob, torch.zeros(1, dtype=torch.float64))
    value.sum().backward()
    assert value.item() == pytest.approx(case["expect"]["value"])
    assert logprob.grad is not None
    assert logprob.grad.item() == pytest.approx(case["expect"]["dvalue_dlogp"])


@pytest.mark.parametrize(("name", "at_most"), [("k2", 50.0), ("k3", 10.0)])
@pytest.mark.parametrize("log_ratio", [25.0, -25.0, 300.0])
def test_kl_is_finite_with_the_documented_clamp(name: str, at_most: float, log_ratio: float) -> None:
    assert any(c["input"].get("kl") == "k3" and c["input"]["logratio"] == 25.0 for c in cases("loss"))
    logprob = torch.zeros(1, requires_grad=True)
    value = KL_ESTIMATORS[name](logprob, torch.tensor([log_ratio]))
    value.sum().backward()
    assert 0 <= value.item() <= at_most
    assert logprob.grad is not None
    assert logprob.grad.isfinite().all()


def test_k3_is_an_unbiased_kl() -> None:
    generator = torch.Generator().manual_seed(0)
    p, q = (torch.randn(6, generator=generator, dtype=torch.float64).log_softmax(0) for _ in range(2))
    assert (p.exp() * KL_ESTIMATORS["k3"](p, q)).sum() == pytest.approx((p.exp() * (p - q)).sum().item())


def test_k1_is_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match="zero in expectation"):
        kl_estimator("k1")
    with pytest.raises(ValueError, match="there are k2, k3"):
        kl_estimator("k4")


def test_corrections_of_a_mismatch() -> None:
    log_ratio = torch.tensor([0.4, 0.5, 1.0, 5.0, 6.0], dtype=torch.float64).log()
    band = CorrectionSettings()
    assert CORRECTIONS["none"](log_ratio, band).tolist() == [1, 1, 1, 1, 1]
    assert CORRECTIONS["tis"](log_ratio, band).tolist() == pytest.approx([0.4, 0.5, 1.0, 5.0, 5.0])
    wide = CorrectionSettings(low=0.45, high=5.1)
    assert CORRECTIONS["icepop"](log_ratio, wide).tolist() == pytest.approx([0.0, 0.5, 1.0, 5.0, 0.0])
