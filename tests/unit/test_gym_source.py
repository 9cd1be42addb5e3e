"""Reasoning Gym sources: deterministic, disjoint by content, without repeats, honest about their limits."""

import json
import os
import random
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from brorl.errors import DataError, RecipeError
from brorl.tasks.entries import pack, unpack
from brorl.tasks.gym_items import create, item, task_names
from brorl.tasks.reasoning_gym import GymSource, is_held_out
from brorl.tasks.rows import content_key

SMALL = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}


def questions(source: GymSource, count: int) -> list[str]:
    return [content_key(source.row(i)) for i in range(count)]


def test_there_are_105_tasks() -> None:
    assert len(task_names()) >= 100
    assert "composite" not in task_names()


def test_rows_depend_on_seed_split_and_index_only() -> None:
    first, second = GymSource("chain_sum", seed=3), GymSource("chain_sum", seed=3)
    assert [second.row(i) for i in reversed(range(20))][::-1] == [first.row(i) for i in range(20)]
    assert first.row(7) == first.row(7)
    assert first.fingerprint == second.fingerprint
    assert questions(GymSource("chain_sum", seed=4), 20) != questions(first, 20)
    assert GymSource("chain_sum", seed=4).fingerprint != first.fingerprint


def test_neighbouring_seeds_share_almost_nothing() -> None:
    first, second = (set(questions(GymSource("chain_sum", seed=seed), 200)) for seed in (42, 43))
    assert len(first & second) <= 4


@pytest.mark.parametrize("task", ["chain_sum", "gcd", "acre", "list_functions", "gsm_symbolic", "ransom_note"])
def test_training_and_held_out_never_meet(task: str) -> None:
    train = {q for seed in (0, 1) for q in questions(GymSource(task, seed=seed), 60)}
    held_out = {q for seed in (0, 7) for q in questions(GymSource(task, split="heldout", seed=seed), 30)}
    assert not train & held_out
    assert all(is_held_out(q) for q in held_out)
    assert not any(is_held_out(q) for q in train)


def test_small_finite_sets_hold_each_question_once() -> None:
    train, held_out = GymSource("chain_sum", SMALL, size=100), GymSource("chain_sum", SMALL, split="heldout", size=20)
    assert len(set(questions(train, 100))) == 100
    assert len(set(questions(held_out, 20))) == 20
    with pytest.raises(IndexError):
        train.row(100)


def test_finite_sets_can_be_read_in_any_order() -> None:
    forward, backward = GymSource("chain_sum", SMALL, size=50), GymSource("chain_sum", SMALL, size=50)
    last_first = [backward.row(i) for i in reversed(range(50))]
    assert last_first[::-1] == [forward.row(i) for i in range(50)]


def test_asking_for_more_questions_than_there_are_says_how_many() -> None:
    source = GymSource("chain_sum", SMALL, size=100_000)
    with pytest.raises(DataError, match=r"only \d+ distinct questions for its train set of 100000"):
        source.row(99_999)


@pytest.mark.parametrize(
    ("task", "config", "message"),
    [
        ("chain_sums", {}, "did you mean 'chain_sum'"),
        ("composite", {}, "no task"),
        ("chain_sum", {"min_term": 2}, "did you mean 'min_terms'"),
        ("chain_sum", {"seed": 2}, "no option 'seed'"),
        ("chain_sum", {"min_terms": 5, "max_terms": 2}, "refuses"),
    ],
)
def test_mistakes_in_a_recipe_name_the_remedy(task: str, config: dict[str, int], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        GymSource(task, config)


def test_a_size_below_one_is_refused() -> None:
    with pytest.raises(RecipeError, match="size"):
        GymSource("chain_sum", size=0)


PROCESS = """
import json, sys
from brorl.tasks.reasoning_gym import GymSource
print(json.dumps([[GymSource(t).row(i).question for i in range(2)] for t in sys.argv[1:]]))
"""


def test_rows_are_the_same_in_every_process() -> None:
    tasks = ["isomorphic_strings", "ransom_note"]
    runs = [
        subprocess.run(
            [sys.executable, "-c", PROCESS, *tasks],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert json.loads(runs[0]) == json.loads(runs[1])


def test_global_generators_neither_matter_nor_move() -> None:
    for task in ("list_functions", "pool_matrix", "codeio"):
        rows = []
        for seed in (1, 2):
            random.seed(seed)
            np.random.seed(seed)
            source = GymSource(task)
            rows.append([source.row(i) for i in range(40)])
            after = random.random(), np.random.random()
            random.seed(seed)
            np.random.seed(seed)
            assert after == (random.random(), np.random.random()), "drawing a row moved a global generator"
        assert rows[0] == rows[1]


def test_items_without_a_closed_form_are_left_out() -> None:
    config = {"problem_types": ["repeated_parts"], "problem_type_weights": [1.0]}
    source = GymSource("intermediate_integration", config)
    assert all("Integral(" not in source.row(i).answer for i in range(3))


def test_what_a_task_prints_stays_inside(capfd: pytest.CaptureFixture[str]) -> None:
    questions(GymSource("bf"), 5)
    assert capfd.readouterr().out == ""


def test_rows_are_json() -> None:
    for task in ("graph_color", "knights_knaves", "arc_agi", "tower_of_hanoi"):
        row = GymSource(task, meta={"answer_format": "whole"}).row(0)
        assert row.verifier == "gym"
        assert row.meta["answer_format"] == "whole"
        assert unpack(json.loads(json.dumps(row.meta["entry"]))) == unpack(row.meta["entry"])


LEAVES = st.none() | st.booleans() | st.integers() | st.fractions() | st.floats(allow_nan=False) | st.text()
NESTED = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(), inner)
        | st.dictionaries(st.integers(), inner)
    ),
    max_leaves=20,
)


@settings(deadline=None, max_examples=100)
@given(NESTED)
@example({"__tuple__": 1})
def test_entries_survive_json(value: object) -> None:
    assert unpack(json.loads(json.dumps(pack(value)))) == value


def test_what_json_cannot_hold_is_refused() -> None:
    with pytest.raises(TypeError, match="set"):
        pack({"a": {1, 2}})


@pytest.mark.parametrize("task", ["chain_sum", "acre", "gsm_symbolic", "tower_of_hanoi", "word_sorting"])
def test_an_item_is_what_a_fresh_data_set_gives(task: str) -> None:
    dataset = create(task, {})
    for seed in (5, 6, 2**32 - 1):
        assert item(dataset, task, {}, seed) == create(task, {}, seed)[0]
