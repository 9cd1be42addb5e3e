"""Dynamic sampling: what is kept, what is set aside, in which order, and the learning-rate rules."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brorl.algorithms.schedules import broadened, learning_rate, reset_reason
from brorl.algorithms.selection import count_solved, is_constant, kept_share, retired, select
from brorl.collection import next_prompts
from brorl.group import Fate, Outcome, Prompt, RolloutGroup, ScoredGroup


def scored(rewards: list[float], name: str = "p") -> ScoredGroup:
    """A group in which rollout i gives the one-token response i with its reward; NaN is unscorable."""
    group = RolloutGroup.from_sequences(Prompt(id=name, text=""), [[i] for i in range(len(rewards))])
    outcomes = [Outcome.UNSCORABLE if r != r else Outcome.CORRECT if r >= 1 else Outcome.WRONG for r in rewards]
    return ScoredGroup(group=group, rewards=np.array(rewards, np.float32), outcomes=np.array(outcomes, np.uint8))


def test_handed_case_one_of_three_groups_is_kept() -> None:
    groups = [scored([1, 1, 1, 1]), scored([0, 0, 0, 0]), scored([1, 0, 0, 1])]
    selection = select(groups, wanted=3)
    assert [g.group for g in selection.trained] == [groups[2].group]
    assert [g.fate for g in selection.set_aside] == [Fate.CONSTANT, Fate.CONSTANT]
    assert kept_share(groups) == pytest.approx(1 / 3)


def test_correctness_decides_not_the_reward() -> None:
    assert is_constant(scored([0.2, 0.5, 0.9]))  # different rewards, none correct
    assert not is_constant(scored([0.2, 0.5, 0.9]), correct_threshold=0.5)


def test_unscorable_rollouts_do_not_make_a_group_look_mixed() -> None:
    assert is_constant(scored([float("nan"), 1, 1]))
    assert is_constant(scored([float("nan")] * 8))
    assert not is_constant(scored([float("nan"), 1, 0]))


@given(st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=2, max_size=5), max_size=12), st.integers(1, 6))
def test_nothing_is_lost_and_prompt_order_decides(rewards: list[list[float]], wanted: int) -> None:
    groups = [scored(r, str(i)) for i, r in enumerate(rewards)]
    selection = select(groups, wanted=wanted)
    names = [g.group.prompt.id for g in (*selection.trained, *selection.set_aside)]
    assert sorted(names) == sorted(str(i) for i in range(len(rewards)))
    mixed = [i for i, r in enumerate(rewards) if len(set(r)) == 2]
    assert [int(g.group.prompt.id) for g in selection.trained] == mixed[:wanted]
    surplus = [int(g.group.prompt.id) for g in selection.set_aside if g.fate is Fate.SURPLUS]
    assert surplus == mixed[wanted:]


def test_without_dynamic_sampling_constant_groups_are_trained_on() -> None:
    selection = select([scored([1, 1]), scored([0, 1]), scored([0, 0])], wanted=2, drop_constant=False)
    assert len(selection.trained) == 2
    assert [g.fate for g in selection.set_aside] == [Fate.SURPLUS]


def test_learning_rate_follows_samples_per_step_not_rollouts() -> None:
    # The paper's arms: 512 prompts x 16 -> 128 prompts x 512, eight times the samples.
    assert broadened(1e-6, 128 * 512, 512 * 16) == pytest.approx(2.8284e-6, rel=1e-4)
    assert broadened(1e-6, 4096 * 16, 512 * 16) == broadened(1e-6, 128 * 512, 512 * 16)
    assert broadened(1e-6, 65536, None) == 1e-6


def test_warm_up_and_schedules() -> None:
    rates = [learning_rate(s, lr=1.0, steps=6, warmup_steps=2, schedule="constant") for s in range(6)]
    assert rates == [0.5, 1.0, 1.0, 1.0, 1.0, 1.0]
    falling = [learning_rate(s, lr=1.0, steps=6, warmup_steps=2, schedule="cosine") for s in range(2, 7)]
    assert falling[0] == 1.0
    assert falling == sorted(falling, reverse=True)
    assert falling[-1] == pytest.approx(0.0)


def test_a_prompt_retires_after_coming_out_all_right_in_a_row() -> None:
    solved: dict[str, int] = {}
    for rewards in ([1.0, 1.0], [1.0, 0.0], [1.0, 1.0], [float("nan")] * 2, [1.0, float("nan")]):
        solved = count_solved(solved, [scored(rewards, "a"), scored([0.0, 1.0], "b")])
    assert solved == {"a": 2}  # one failure began the count anew; a group without a verdict changes nothing
    assert retired(solved, 2) == {"a"}
    assert retired(solved, 3) == frozenset()
    assert retired(solved, None) == frozenset()


@given(st.sets(st.integers(0, 5)), st.integers(1, 9), st.integers(0, 20))
def test_retired_prompts_are_passed_over_and_the_end_is_found(gone: set[int], wanted: int, position: int) -> None:
    def prompt_at(at: int) -> Prompt | None:
        return None if at % 7 == 6 else Prompt(id=str(at % 7), text="")

    names = {str(i) for i in gone}
    found, after = next_prompts(prompt_at, position, wanted, passed_over=names, span=7)
    assert not names & {prompt.id for prompt in found}
    assert len(found) == (wanted if len(gone) < 6 else 0)
    if found:
        last = prompt_at(after - 1)
        assert last is not None
        assert last.id == found[-1].id
    else:
        assert after == position + 7


def test_when_the_reference_is_reset() -> None:
    assert reset_reason(400, 0.1, every=200, on_kl=None) == "schedule"
    assert reset_reason(401, 0.1, every=200, on_kl=0.05) == "kl"
    assert reset_reason(401, 0.05, every=200, on_kl=0.05) is None
    assert reset_reason(401, None, every=None, on_kl=0.05) is None  # a step without an update
    assert reset_reason(400, 1.0, every=None, on_kl=None) is None
