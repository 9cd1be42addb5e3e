"""Reward shaping: the published values, the cycle, and that nothing ever pays for not finishing."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brorl.algorithms.advantages import ADVANTAGES, GroupRewards
from brorl.algorithms.shaping import SHAPINGS, Responses, cosine, overlong, shape, stop_properly

LIMIT = 64
RESPONSES = st.lists(
    st.tuples(st.sampled_from([-1.0, 0.0, 0.3, 1.0, float("nan")]), st.integers(0, LIMIT), st.booleans()),
    min_size=1,
    max_size=12,
)


def responses(rows: list[tuple[float, int, bool]], step: int = 0, limit: int = LIMIT) -> Responses:
    """(reward, length, truncated); a truncated response is as long as the limit."""
    cut = np.array([row[2] for row in rows])
    return Responses(
        rewards=np.array([row[0] for row in rows]),
        lengths=np.where(cut, limit, [row[1] for row in rows]).astype(np.int64),
        truncated=cut,
        step=step,
        max_new_tokens=limit,
    )


def test_the_cosine_falls_from_high_to_low() -> None:
    given = responses([(1.0, 0, False), (0.0, 32, False), (1.0, 64, False)])
    np.testing.assert_allclose(cosine(given, weight=0.2, low=-1.0, high=1.0), [0.2, 0.0, -0.2], atol=1e-15)
    np.testing.assert_allclose(cosine(given, weight=0.2, limit=32), [0.2, 0.0, 0.0], atol=1e-15)


@given(st.integers(1, 200), st.integers(0, 700), st.integers(0, 5000))
def test_the_cycle_is_a_function_of_the_step_alone(on: int, off: int, step: int) -> None:
    given = responses([(1.0, 3, False)], step=step)
    active = cosine(given, on=on, off=off)[0] > 0
    assert active == (step % (on + off) < on)
    again = responses([(1.0, 3, False)], step=step + on + off)
    assert cosine(again, on=on, off=off)[0] == cosine(given, on=on, off=off)[0]


def test_the_papers_cycle_is_100_on_500_off() -> None:
    on = [step for step in range(1300) if cosine(responses([(1.0, 3, False)], step=step))[0] > 0]
    assert on == [*range(100), *range(600, 700), *range(1200, 1300)]


def test_the_overlong_ramp() -> None:
    given = responses([(1.0, n, False) for n in (100, 7680, 7700, 8192)], limit=8192)
    np.testing.assert_allclose(overlong(given, buffer=512), [0, 0, -0.0390625, -1.0])
    np.testing.assert_allclose(overlong(given, buffer=512, factor=0.5)[-1], -0.5)
    # OpenRLHF's ProRLv2: a buffer of 6,144 before 8,192.
    np.testing.assert_array_equal(overlong(given), overlong(given, buffer=6144))


@pytest.mark.parametrize("given", [{}, {"cosine": cosine}, {"overlong": overlong}, {"stop_properly": stop_properly}])
@given(rows=RESPONSES, step=st.integers(0, 700))
def test_no_truncated_response_scores_above_a_finished_one(
    given: dict[str, Callable[..., np.ndarray]], rows: list[tuple[float, int, bool]], step: int
) -> None:
    asked = responses(rows, step)
    shaped, _ = shape(asked, given)
    assert (np.isnan(shaped) == np.isnan(asked.rewards)).all()
    scored = ~np.isnan(shaped)
    cut, finished = shaped[scored & asked.truncated], shaped[scored & ~asked.truncated]
    if len(cut) and len(finished):
        assert cut.max() <= finished.min()


def test_the_property_covers_every_shaping() -> None:
    assert set(SHAPINGS) == {"cosine", "overlong", "stop_properly"}


@given(rows=RESPONSES)
def test_binary_rewards_need_no_cap_to_keep_the_order(rows: list[tuple[float, int, bool]]) -> None:
    """Each function alone already keeps it, where a truncated response scores 0 as the verification has it."""
    asked = responses([(0.0 if cut else abs(r), n, cut) for r, n, cut in rows])
    for name, function in SHAPINGS.items():
        shaped = asked.rewards + function(asked)
        cut, finished = shaped[asked.truncated], shaped[~asked.truncated & ~np.isnan(shaped)]
        if len(cut) and len(finished):
            assert cut.max() <= finished.min() + 1e-12, name


@given(rows=RESPONSES)
def test_a_right_answer_stays_above_a_wrong_one(rows: list[tuple[float, int, bool]]) -> None:
    asked = responses([(float(r >= 1), n, False) for r, n, _ in rows])
    shaped, _ = shape(asked, {"cosine": cosine})
    right, wrong = shaped[asked.rewards == 1], shaped[asked.rewards == 0]
    if len(right) and len(wrong):
        assert right.min() > wrong.max()


def test_a_constant_addend_changes_no_advantage() -> None:
    rewards = np.array([1.0, 0.0, 0.0, 1.0])
    ones = np.ones(4, np.int64)
    asked = responses([(r, 7, False) for r in rewards])
    shaped, addends = shape(asked, {"cosine": cosine})
    assert np.ptp(addends["cosine"]) == 0
    for name, estimator in ADVANTAGES.items():
        if name in ("maxrl", "pass_at_k"):  # relative to the mean reward; blind to rewards
            continue
        [plain], [with_addend] = (
            estimator([GroupRewards(rewards=r, counts=ones, lengths=ones, correct=rewards >= 1)])
            for r in (rewards, shaped)
        )
        np.testing.assert_allclose(plain, with_addend, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("cosine", {"weight": 0.0}, "weight > 0"),
        ("cosine", {"low": 1.0, "high": 0.0}, "low < high"),
        ("cosine", {"weight": 2.0}, "brevity"),
        ("cosine", {"on": 0}, "at least 1 step"),
        ("cosine", {"limit": LIMIT + 1}, "max_new_tokens = 64"),
        ("overlong", {"buffer": LIMIT}, "buffer 64"),
        ("overlong", {"factor": 0.0}, "factor"),
        ("stop_properly", {"coefficient": 0.5}, "pay for not finishing"),
    ],
)
def test_values_that_make_no_sense(name: str, arguments: dict[str, float], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        SHAPINGS[name](responses([(1.0, 3, False)]), **arguments)


def test_a_function_of_ones_own_is_held_to_its_promise() -> None:
    with pytest.raises(ValueError, match="'mine' did not give one finite number"):
        shape(responses([(1.0, 3, False)]), {"mine": lambda given: given.rewards * np.nan})
    paying = {"mine": lambda given: 10.0 * given.truncated, "cosine": partial(cosine, weight=0.5)}
    shaped, _ = shape(responses([(0.0, 3, False), (0.0, LIMIT, True)]), paying)
    assert shaped[1] <= shaped[0]
