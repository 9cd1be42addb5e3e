"""The theory on groups against full knowledge: enumeration of small languages, bounds, certificates, curves."""

from dataclasses import replace
from itertools import product
from math import factorial, prod

import numpy as np
import pytest

from brorl.group import Fate, Finish, Outcome, Prompt, RolloutGroup, ScoredGroup
from brorl.theory.coverage import expected_undrawn_second_moment
from brorl.theory.curves import by_prompt, curve, node_growth, whole_groups
from brorl.theory.groups import (
    disjoint_pair,
    group_table,
    measure,
    take_scored,
    undrawn_second_moment_estimate,
    undrawn_second_moment_from_trie,
)
from brorl.theory.mass_balance import moments, reinforce_balance, reward_levels, surrogate_balance
from toy_language import toy_language


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("rollouts", [2, 8, 40])
def test_group_measures_against_full_knowledge(seed: int, rollouts: int) -> None:
    language = toy_language(seed)
    counts = np.random.default_rng([seed, rollouts]).multinomial(rollouts, language.p)
    m = measure(group_table(language.group(counts)), min_drawn_mass=0.0)
    assert m.masses is not None
    r_c, r_w = reward_levels(counts[language.correct].sum(), rollouts)
    full = moments(language.p, language.correct, counts)
    truth = surrogate_balance(full, r_correct=r_c, r_wrong=r_w, rollouts=rollouts)
    trainer = reinforce_balance(language.p, language.correct, counts, r_correct=r_c, r_wrong=r_w)
    masses = m.masses
    exact = [masses.p_pos, masses.p_neg, masses.a2, masses.b2, masses.s_r, masses.unseen_mass]
    known = [full.p_pos, full.p_neg, full.a2, full.b2, truth.s_r, 1 - full.p_pos - full.p_neg]
    assert exact == pytest.approx([float(value) for value in known], abs=1e-14)
    assert float(full.u_pos2 + full.u_neg2) <= masses.u2_bound + 1e-15
    for interval, value in [
        (masses.q_pos, full.q_pos),
        (masses.t1, truth.t1),
        (masses.t2, truth.t2),
        (masses.t3, truth.t3),
        (masses.surrogate, truth.delta),
        (masses.reinforce, trainer.delta),
    ]:
        assert interval.low - 1e-14 <= float(value) <= interval.high + 1e-14
    assert masses.reinforce.low >= -1e-15
    if masses.certified:
        assert float(truth.delta) > 0


def test_certificates_become_common_with_coverage() -> None:
    shares = []
    for rollouts in (4, 32, 512):
        certified = []
        for seed in range(20):
            language = toy_language(seed, vocabulary=8)
            counts = np.random.default_rng([7, seed]).multinomial(rollouts, language.p)
            masses = measure(group_table(language.group(counts)), min_drawn_mass=0.0).masses
            certified.append(masses is not None and masses.certified)
        shares.append(np.mean(certified))
    assert shares[0] < shares[1] <= shares[2], shares
    assert shares[2] > 0.8


def test_estimates_of_the_undrawn_moment_by_enumeration() -> None:
    """Over every possible outcome of N draws: Horvitz-Thompson is unbiased for E[U_2], doubletons are for N - 2."""
    language = toy_language(3, vocabulary=3, depth=2)
    actions, n = len(language.p), 4
    horvitz_thompson = doubletons = total = 0.0
    for counts in product(range(n + 1), repeat=actions):
        if sum(counts) != n:
            continue
        weight = factorial(n) / prod(factorial(c) for c in counts) * float(np.prod(language.p ** np.array(counts)))
        m = measure(group_table(language.group(np.array(counts))), min_drawn_mass=0.0)
        assert m.masses is not None
        total += weight
        horvitz_thompson += weight * m.masses.u2_estimate
        doubletons += weight * m.u2_doubletons
    assert total == pytest.approx(1.0)
    assert horvitz_thompson == pytest.approx(float(expected_undrawn_second_moment(language.p, n)), abs=1e-14)
    assert doubletons == pytest.approx(float(expected_undrawn_second_moment(language.p, n - 2)), abs=1e-14)


def test_estimate_is_finite_at_the_edges() -> None:
    assert undrawn_second_moment_estimate(np.array([1.0]), 8) == 0.0
    assert undrawn_second_moment_estimate(np.array([0.0, 1e-200]), 8) == pytest.approx(1e-200 / 8)


@pytest.mark.parametrize("seed", range(8))
def test_bound_of_a_sub_sample_is_that_of_the_smaller_trie(seed: int) -> None:
    language = toy_language(seed)
    rng = np.random.default_rng(seed)
    scored = language.group(rng.multinomial(40, language.p))
    table = group_table(scored)
    counts = rng.multivariate_hypergeometric(table.counts, 6, method="marginals")
    smaller = group_table(take_scored(scored, counts))
    direct = undrawn_second_moment_from_trie(smaller, smaller.counts)
    assert undrawn_second_moment_from_trie(table, counts) == pytest.approx(direct, abs=1e-15)
    assert measure(table, counts).successes == measure(smaller).successes


def constant_group(rollouts: int, correct: int, prompt_id: str, logprob: float | None = -0.7) -> ScoredGroup:
    """Rollouts of one token each: token 5 is right, token 6 is wrong."""
    rows = [[5]] * correct + [[6]] * (rollouts - correct)
    group = RolloutGroup.from_sequences(
        Prompt(id=prompt_id, text=""), rows, logprobs=None if logprob is None else [[logprob]] * rollouts
    )
    right = np.array([int(ids[0]) == 5 for ids in group.responses()])
    outcomes = np.where(right, Outcome.CORRECT, Outcome.WRONG).astype(np.uint8)
    return ScoredGroup(group=group, rewards=right.astype(np.float32), outcomes=outcomes)


def test_negligible_mass_is_not_measurable() -> None:
    long_answers = measure(group_table(constant_group(8, 3, "long", logprob=-400.0)))
    assert long_answers.masses is None
    assert long_answers.log_drawn_mass == pytest.approx(-400 + np.log(2))
    without = measure(group_table(constant_group(8, 3, "foreign", logprob=None)))
    assert (without.masses, without.log_drawn_mass) == (None, None)
    assert (without.successes, without.rollouts, without.distinct) == (3, 8, 2)


def test_unscorable_responses_are_neither_right_nor_wrong() -> None:
    language = toy_language(1)
    counts = np.random.default_rng(1).multinomial(60, language.p)
    scored = language.group(counts)
    outcomes = scored.outcomes.copy()
    outcomes[0] = Outcome.ERROR
    rewards = scored.rewards.copy()
    rewards[0] = np.nan
    scored = replace(scored, outcomes=outcomes, rewards=rewards)
    lost = int(scored.group.end_counts[0])
    m = measure(group_table(scored))
    assert m.masses is not None
    assert m.rollouts == 60 - lost
    p = np.exp(scored.group.response_logprobs())
    assert m.masses.p_pos + m.masses.p_neg == pytest.approx(p[1:].sum())
    assert m.masses.q_pos.high - m.masses.q_pos.low == pytest.approx(m.masses.unseen_mass + p[0])


def test_one_response_ending_twice_counts_once() -> None:
    group = RolloutGroup.from_sequences(
        Prompt(id="x", text=""), [[5], [5], [6]], finish=[Finish.STOP, Finish.LENGTH, Finish.STOP],
        logprobs=[[np.log(0.6)], [np.log(0.6)], [np.log(0.3)]],
    )  # fmt: skip
    scored = ScoredGroup(group=group, rewards=np.array([1, 1, 0], np.float32), outcomes=np.array([0, 0, 2], np.uint8))
    masses = measure(group_table(scored)).masses
    assert masses is not None
    assert masses.unseen_mass == pytest.approx(0.1, abs=1e-6)


def test_measure_refusals() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        measure(group_table(constant_group(1, 1, "lonely")))
    with pytest.raises(ValueError, match="above 1"):
        measure(group_table(constant_group(4, 2, "loud", logprob=0.0)))


def test_curve_over_n_and_its_clusters() -> None:
    languages = [toy_language(seed) for seed in range(12)]
    rng = np.random.default_rng(4)
    groups = [language.group(rng.multinomial(128, language.p), f"p{i}") for i, language in enumerate(languages)]
    tables = [group_table(group) for group in groups]
    points = curve(tables, [2, 16, 64, 128, 256])
    assert [point.rollouts for point in points] == [2, 16, 64, 128]
    assert all(point.prompts == 12 for point in points)
    unseen = [point.unseen_mass.value for point in points if point.unseen_mass]
    assert unseen == sorted(unseen, reverse=True)
    for point in points:
        masses = [mass.value for mass in (point.p_pos, point.p_neg, point.unseen_mass) if mass]
        assert sum(masses) == pytest.approx(1.0)
    certified = [point.certified_share.value for point in points if point.certified_share]
    assert certified[0] < certified[-1]
    truth = np.mean([1 - q**16 - (1 - q) ** 16 for q in (float(lg.p[lg.correct].sum()) for lg in languages)])
    assert points[1].kept_share.value == pytest.approx(truth, abs=0.03)
    full = [measure(table) for table in tables]
    assert points[-1].distinct_correct.value == np.mean([m.distinct_correct for m in full])
    assert curve(tables, [16])[0] == points[1]


def test_constant_groups_stay_in_the_curve() -> None:
    tables = [group_table(constant_group(16, c, f"p{c}", logprob=-0.8)) for c in (0, 16, 8, 4)]
    point = curve(tables, [16])[0]
    assert point.kept_share.value == 0.5
    assert point.certified_share is not None
    assert point.certified_share.value <= 0.5


def test_groups_of_one_prompt_are_one_cluster() -> None:
    interval = by_prompt(["a", "a", "b"], [0.0, 1.0, 1.0])
    assert (interval.value, interval.problems) == (0.75, 2)
    assert curve([group_table(constant_group(8, 4, "same"))] * 5, [4]) == []


def test_groups_stopped_early_stay_out() -> None:
    groups = [constant_group(n, 1, f"p{i}") for i, n in enumerate([32, 512, 512, 128, 512])]
    whole, left_out = whole_groups(groups)
    assert [scored.group.rollouts for scored in whole] == [512, 512, 512]
    assert left_out == 2
    assert whole_groups([]) == ([], 0)
    # Also where most groups were stopped at one size.
    stopped = [replace(constant_group(128, 0, f"s{i}"), fate=Fate.STOPPED) for i in range(9)]
    whole, left_out = whole_groups([*stopped, *groups])
    assert [scored.group.rollouts for scored in whole] == [512, 512, 512]
    assert left_out == 11
    assert whole_groups(stopped) == ([], 9)


def test_node_growth_of_known_laws() -> None:
    one_path = [constant_group(64, 64, "same").group]
    assert node_growth(one_path) == pytest.approx((1.0, 0.0))
    rows = [[i, i + 1, i + 2] for i in range(64)]
    apart = [RolloutGroup.from_sequences(Prompt(id="apart", text=""), rows)]
    assert node_growth(apart) == pytest.approx((3.0, 1.0))
    with pytest.raises(ValueError, match="at least four"):
        node_growth([constant_group(2, 1, "small").group])


def test_disjoint_pairs_share_no_rollout() -> None:
    language = toy_language(5)
    scored = language.group(np.random.default_rng(5).multinomial(50, language.p))
    first, second = disjoint_pair(scored, 25, np.random.default_rng(0))
    assert first.group.rollouts == second.group.rollouts == 25
    assert first.successes() + second.successes() == scored.successes()
    with pytest.raises(ValueError, match="need 52"):
        disjoint_pair(scored, 26, np.random.default_rng(0))
