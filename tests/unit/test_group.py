"""The trie: round trips, counts, merging, sub-sampling, Parquet. Any multiset of sequences is fair game."""

from collections import Counter
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brorl.errors import DataError
from brorl.group import Finish, Outcome, Prompt, RolloutGroup, ScoredGroup, merge
from brorl.seeding import derive_seed, generator
from brorl.storage import read_groups, write_groups

PROMPT = Prompt(id="p", text="?", token_ids=np.array([7, 8], np.int32), meta={"task": "t"})
rollout = st.tuples(st.lists(st.integers(0, 3), max_size=6).map(tuple), st.sampled_from([0, 1]))
rollouts = st.lists(rollout, min_size=1, max_size=30)


def build(rows: list[tuple[tuple[int, ...], int]]) -> RolloutGroup:
    """A group with log-probabilities and undrawn second moments that depend on the node's path alone."""
    return RolloutGroup.from_sequences(
        PROMPT,
        [tokens for tokens, _ in rows],
        finish=[finish for _, finish in rows],
        logprobs=[[_logprob(tokens[: i + 1]) for i in range(len(tokens))] for tokens, _ in rows],
    )


def _logprob(path: tuple[int, ...]) -> float:
    return float(np.float32(-1.0 - derive_seed(*path) / 2**63))


def flat(group: RolloutGroup) -> Counter[tuple[tuple[int, ...], int]]:
    return Counter(
        {
            (tuple(tokens.tolist()), int(finish)): int(count)
            for tokens, finish, count in zip(group.responses(), group.finish, group.end_counts, strict=True)
        }
    )


def assert_equal(first: RolloutGroup, second: RolloutGroup, tolerance: float = 0.0) -> None:
    for field in fields(RolloutGroup):
        a, b = getattr(first, field.name), getattr(second, field.name)
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype, field.name
            np.testing.assert_allclose(a, b, rtol=0, atol=tolerance, err_msg=field.name)


@given(rollouts)
def test_round_trip_from_any_multiset(rows: list[tuple[tuple[int, ...], int]]) -> None:
    group = build(rows)
    assert flat(group) == Counter(rows)
    assert group.rollouts == len(rows)
    assert group.distinct == len(set(rows))


@given(rollouts, st.randoms(use_true_random=False))
def test_order_of_rollouts_is_irrelevant(rows: list[tuple[tuple[int, ...], int]], random: object) -> None:
    shuffled = list(rows)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert_equal(build(rows), build(shuffled), tolerance=1e-6)


@given(rollouts)
def test_counts_add_up(rows: list[tuple[tuple[int, ...], int]]) -> None:
    group = build(rows)
    through = np.zeros(group.nodes + 1, np.int64)
    np.add.at(through, group.parents, group.counts)
    np.add.at(through, group.ends, group.end_counts)
    np.testing.assert_array_equal(through[:-1], group.counts)  # each node: children + ends = count
    assert through[-1] == group.rollouts
    assert group.total_tokens == sum(len(tokens) for tokens, _ in rows)
    assert (group.parents < np.arange(group.nodes)).all()
    assert sorted(group.lengths().tolist()) == sorted(len(t) for t, _ in set(rows))


@given(rollouts)
def test_nodes_are_distinct_prefixes_in_depth_first_order(rows: list[tuple[tuple[int, ...], int]]) -> None:
    group = build(rows)
    prefixes = [tuple(_path_tokens(group, i)) for i in range(group.nodes)]
    expected = {tokens[: i + 1] for tokens, _ in rows for i in range(len(tokens))}
    assert prefixes == sorted(expected)


def _path_tokens(group: RolloutGroup, node: int) -> list[int]:
    tokens: list[int] = []
    while node >= 0:
        tokens.append(int(group.tokens[node]))
        node = int(group.parents[node])
    return tokens[::-1]


@given(rollouts, rollouts, rollouts)
def test_merge_is_associative_and_equals_building_from_all(a: list, b: list, c: list) -> None:  # type: ignore[type-arg]
    left = merge(merge(build(a), build(b)), build(c))
    right = merge(build(a), merge(build(b), build(c)))
    assert_equal(left, right, tolerance=1e-6)
    assert_equal(left, build(a + b + c), tolerance=1e-6)


@given(rollouts, rollouts)
def test_merge_commutes(a: list, b: list) -> None:  # type: ignore[type-arg]
    assert_equal(merge(build(a), build(b)), merge(build(b), build(a)), tolerance=1e-6)


def test_merge_refuses_other_prompts_and_policy_versions() -> None:
    group = build([((1, 2), 0)])
    other = RolloutGroup.from_sequences(Prompt(id="q", text=""), [[1]])
    with pytest.raises(ValueError, match="prompt p with those of q"):
        merge(group, other)
    with pytest.raises(ValueError, match="two policy versions, 0 and 3"):
        merge(group, RolloutGroup.from_sequences(PROMPT, [[1]], policy_version=3))


@given(rollouts)
def test_nodes_in_breadth_first_order_become_canonical(rows: list[tuple[tuple[int, ...], int]]) -> None:
    group = build(rows)
    order = np.lexsort((-group.tokens, group.depths()))  # breadth first, siblings backwards
    position = np.append(np.argsort(order), -1)
    again = RolloutGroup.from_nodes(
        PROMPT,
        policy_version=0,
        tokens=group.tokens[order],
        parents=position[group.parents[order]].astype(np.int32),
        counts=group.counts[order],
        logprobs=None if group.logprobs is None else group.logprobs[order],
        undrawn2=None,
        ends=position[group.ends][::-1].astype(np.int32),
        end_counts=group.end_counts[::-1],
        finish=group.finish[::-1],
    )
    assert_equal(group, again)


@given(rollouts, st.data())
def test_subsample_is_a_sub_multiset(rows: list[tuple[tuple[int, ...], int]], data: st.DataObject) -> None:
    group = build(rows)
    size = data.draw(st.integers(1, len(rows)))
    part = group.subsample(size, generator("subsample", size))
    assert part.rollouts == size
    assert not flat(part) - flat(group)
    assert_equal(part, build(list(flat(part).elements())), tolerance=1e-6)


def test_subsample_moves_lost_children_to_undrawn() -> None:
    probabilities = np.array([0.5, 0.3])
    group = RolloutGroup.from_nodes(
        PROMPT,
        policy_version=0,
        tokens=np.array([1, 2], np.int32),
        parents=np.array([-1, -1], np.int32),
        counts=np.array([1, 1], np.int32),
        logprobs=np.log(probabilities),
        undrawn2=np.array([0.04, 0.0, 0.0]),
        ends=np.array([0, 1], np.int32),
        end_counts=np.array([1, 1], np.int32),
        finish=np.zeros(2, np.uint8),
    )
    part = group.subsample(1, generator("one"))
    lost = 0.3 if part.tokens[0] == 1 else 0.5
    assert part.undrawn2 is not None
    assert part.undrawn2[0] == pytest.approx(0.04 + lost**2)


def test_subsample_is_hypergeometric() -> None:
    group = build([((1,), 0)] * 30 + [((2,), 0)] * 10)
    draws = [flat(group.subsample(8, generator("h", i)))[(1,), 0] for i in range(4000)]
    assert np.mean(draws) == pytest.approx(6.0, abs=0.06)
    assert np.var(draws) == pytest.approx(8 * 0.75 * 0.25 * 32 / 39, rel=0.1)


@pytest.mark.parametrize("size", [2, 3, 7, 16, 511, 512])
def test_any_number_of_rollouts(size: int) -> None:
    rows = generator("n", size).integers(0, 4, (size, 5))
    group = RolloutGroup.from_sequences(PROMPT, list(rows))
    assert group.rollouts == size


def test_differing_logprobs_of_one_prefix_are_averaged() -> None:
    group = RolloutGroup.from_sequences(PROMPT, [[1, 2], [1, 3]], logprobs=[[-1.0, -2.0], [-1.5, -3.0]])
    assert group.logprobs is not None
    np.testing.assert_allclose(group.logprobs, [-1.25, -2.0, -3.0])
    np.testing.assert_allclose(group.response_logprobs(), [-3.25, -4.25])


def test_bad_groups_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one rollout"):
        RolloutGroup.from_sequences(PROMPT, [])
    with pytest.raises(ValueError, match="as many finish"):
        RolloutGroup.from_sequences(PROMPT, [[1]], finish=[0, 1])
    with pytest.raises(ValueError, match="one log-probability per token"):
        RolloutGroup.from_sequences(PROMPT, [[1, 2]], logprobs=[[-1.0]])
    with pytest.raises(ValueError, match="cannot take 5 of 1"):
        build([((1,), 0)]).subsample(5, generator("x"))
    with pytest.raises(ValueError, match="no log-probabilities"):
        RolloutGroup.from_sequences(PROMPT, [[1]]).response_logprobs()


@given(rollouts)
def test_parquet_round_trip(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[tuple[int, ...], int]]) -> None:
    group = build(rows)
    scored = ScoredGroup(
        group=group,
        rewards=np.linspace(0, 1, group.distinct, dtype=np.float32),
        outcomes=np.full(group.distinct, Outcome.WRONG, np.uint8),
        parts={"length": np.ones(group.distinct, np.float32)},
    )
    path = tmp_path_factory.mktemp("groups") / "step.parquet"
    write_groups(path, [scored, scored])
    first, second = read_groups(path)
    assert_equal(first.group, group)
    assert first.group.prompt.meta == PROMPT.meta
    np.testing.assert_array_equal(first.group.prompt.token_ids, PROMPT.token_ids)
    np.testing.assert_array_equal(second.rewards, scored.rewards)
    np.testing.assert_array_equal(second.parts["length"], scored.parts["length"])
    assert first.fate == scored.fate


def test_parquet_keeps_float64_and_missing_columns(tmp_path: object) -> None:
    from pathlib import Path

    path = Path(str(tmp_path)) / "g.parquet"
    group = RolloutGroup.from_sequences(PROMPT, [[1]])
    write_groups(path, [_scored(group)])
    assert read_groups(path)[0].group.logprobs is None
    path.write_bytes(b"not parquet")
    with pytest.raises(DataError, match="cannot be read"):
        read_groups(path)


def _scored(group: RolloutGroup) -> ScoredGroup:
    return ScoredGroup(
        group=group, rewards=np.zeros(group.distinct, np.float32), outcomes=np.zeros(group.distinct, np.uint8)
    )


def test_unscorable_rollouts_leave_the_pass_rate() -> None:
    group = RolloutGroup.from_sequences(PROMPT, [[1]] * 3 + [[2]] * 3 + [[3]] * 2)
    scored = ScoredGroup(
        group=group,
        rewards=np.array([1, 0, np.nan], np.float32),
        outcomes=np.array([Outcome.CORRECT, Outcome.WRONG, Outcome.UNSCORABLE], np.uint8),
    )
    assert scored.successes() == 3
    assert scored.scored_rollouts == 6


def test_unique_ratio_and_finish() -> None:
    group = build([((1, 2), Finish.STOP)] * 4)
    assert group.unique_ratio == 2 / 8
    assert build([((), Finish.LENGTH)]).unique_ratio == 1.0
