"""math-verify behind the pool, and the lenient mode of the math verifier."""

import math

import pytest

from brorl.group import Outcome, Prompt
from brorl.verifiers.math import math as math_verifier
from brorl.verifiers.pool import VerifierPool
from brorl.verifiers.score import Score

TOWER = r"\boxed{\dfrac{3^{(3^{(3^{(3^3)})}-2)}-1}{8}}"


@pytest.fixture(scope="module")
def pool():
    with VerifierPool(workers=1, deadline=3.0) as opened:
        yield opened


def graded(pool: VerifierPool, verifier: str, gold: str, response: str, **meta: object) -> Score:
    return pool.submit(Prompt(id="p", text="", answer=gold, verifier=verifier, meta=meta), response).result()


@pytest.mark.parametrize(
    ("gold", "response", "outcome"),
    [
        (r"\frac{1}{3}", "So it is $1/3$.", Outcome.CORRECT),
        (r"\frac{1}{3}", r"\boxed{\frac{2}{3}}", Outcome.WRONG),
        ("7", "<think>\\boxed{7}", Outcome.NO_ANSWER),
        ("7", "<think>\\boxed{8}</think>\\boxed{7}", Outcome.CORRECT),
        ("", r"\boxed{7}", Outcome.UNSCORABLE),
    ],
)
def test_math_verify(pool: VerifierPool, gold: str, response: str, outcome: Outcome) -> None:
    score = graded(pool, "math_verify", gold, response)
    assert score.outcome is outcome
    assert score.reward == float(outcome is Outcome.CORRECT) or (math.isnan(score.reward) and not gold)


def test_lenient_mode_also_accepts_what_math_verify_accepts(pool: VerifierPool) -> None:
    rounded = r"\boxed{0.333333}"
    assert graded(pool, "math", r"\frac13", rounded).outcome is Outcome.WRONG
    lenient = graded(pool, "math", r"\frac13", rounded, mode="lenient")
    assert (lenient.outcome, lenient.reward, lenient.note) == (Outcome.CORRECT, 1.0, "math-verify")
    assert graded(pool, "math", r"\frac13", r"\boxed{0.4}", mode="lenient").outcome is Outcome.WRONG
    assert (
        graded(pool, "math", "17_8", r"\boxed{17_8}", mode="lenient").note == "box"
    )  # the strict grader decides first


def test_outside_a_worker_the_lenient_mode_grades_in_one() -> None:
    prompt = Prompt(id="p", text="", answer=r"\frac13", meta={"mode": "lenient"})
    assert math_verifier(prompt, r"\boxed{0.333333}").outcome is Outcome.CORRECT


@pytest.mark.slow
def test_a_power_tower_ends_at_the_pools_deadline(pool: VerifierPool) -> None:
    score = graded(pool, "math_verify", "13", TOWER)
    assert (score.outcome, score.reward) == (Outcome.WRONG, 0.0)
    assert graded(pool, "math", "13", TOWER).outcome is Outcome.WRONG
