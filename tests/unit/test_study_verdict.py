"""The verdict of a study, on synthetic results with known answers."""

from collections.abc import Callable
from typing import get_args

import numpy as np
import pytest

from brorl.seeding import generator
from brorl.study.verdict import RULE, Difference, Words, adjusted, difference, verdict


def scores(rng: np.random.Generator, mean: float, seeds: int, prompts: np.ndarray) -> dict[int, float]:
    """Held-out pass@1 of an arm's runs: prompts of different difficulty, runs that end in different places."""
    runs = rng.normal(mean, 0.01, seeds)
    return {s: float(np.clip(prompts + run, 0, 1).mean()) + float(rng.normal(0, 0.002)) for s, run in enumerate(runs)}


def verdicts(effect_broad: float, effect_control: float, seeds: int, studies: int) -> list[Words]:
    found: list[Words] = []
    for number in range(studies):
        rng = generator("study verdict", number, seeds)
        prompts = rng.beta(0.4, 1.0, 200)
        base = scores(rng, 0.0, seeds, prompts)
        broad, control = (scores(rng, effect, seeds, prompts) for effect in (effect_broad, effect_control))
        found.append(verdict(difference(base, broad), difference(control, broad), has_control=True))
    return found


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_without_a_difference_few_studies_find_one(seeds: int) -> None:
    found = verdicts(0.0, 0.0, seeds, 1000)
    wrong = sum(words != "no difference at this budget" for words in found) / len(found)
    assert wrong <= 0.05 + 2 * (0.05 * 0.95 / 1000) ** 0.5  # two-sided 5 %, and the noise of 1,000 studies


def test_large_effects_are_found_and_named() -> None:
    assert verdicts(0.1, 0.0, 3, 100).count("N helps beyond batch size") >= 90
    assert verdicts(0.1, 0.1, 3, 100).count("batch size explains it") >= 90
    assert verdicts(-0.1, 0.0, 3, 100).count("worse") >= 90


def with_direction(sign: int, seeds: int = 3) -> Difference:
    return Difference(mean=float(sign), low=sign - 0.5, high=sign + 0.5, p_two_sided=0.01, seeds=seeds)


def test_every_combination_has_its_words() -> None:
    up, none, down = (with_direction(sign) for sign in (1, 0, -1))
    alone = with_direction(1, seeds=1)
    cases: dict[Words, list[tuple[Difference | None, Difference | None, bool]]] = {
        "N helps beyond batch size": [(up, up, True)],
        "batch size explains it": [(up, none, True), (up, down, True)],
        "broad helps; without a control, N and batch size cannot be told apart": [(up, None, False)],
        "no difference at this budget": [(none, up, True), (none, None, False), (none, down, True)],
        "worse": [(down, up, True), (down, None, False)],
        "not enough whole seeds": [(None, None, True), (alone, up, True), (up, None, True), (up, alone, True)],
    }
    assert {*cases} == {*get_args(Words)}
    for words, inputs in cases.items():
        for over_baseline, over_control, has_control in inputs:
            assert verdict(over_baseline, over_control, has_control=has_control) == words
    for words in ("N helps beyond batch size", "batch size explains it", "no difference at this budget", "worse"):
        assert words in RULE


def test_differences_are_paired_by_seed() -> None:
    base, other = {1: 0.1, 2: 0.5, 3: 0.3}, {1: 0.2, 2: 0.6, 3: 0.4, 9: 0.0}
    found = difference(base, other)
    assert found.seeds == 3
    assert found.mean == pytest.approx(0.1)
    assert found.direction == 1  # though the seeds differ by more than the arms
    assert difference({1: 0.0}, {1: 0.5}).direction == 0
    with pytest.raises(ValueError, match="no seed"):
        difference({1: 0.0}, {2: 0.0})


def test_a_known_interval() -> None:
    found = difference({1: 0.0, 2: 0.0, 3: 0.0}, {1: 0.01, 2: 0.02, 3: 0.03})
    assert found.low == pytest.approx(0.02 - 4.302653 * 0.01 / 3**0.5, abs=1e-6)  # t(.975; 2)
    assert found.p_two_sided == pytest.approx(0.0742, abs=1e-4)


def test_p_values_are_adjusted_for_the_number_of_arms() -> None:
    make: Callable[[float | None], Difference] = lambda p: Difference(mean=0, low=0, high=0, p_two_sided=p, seeds=3)  # noqa: E731
    assert adjusted([make(0.01), make(None), make(0.04)]) == [pytest.approx(0.02), None, pytest.approx(0.04)]
