"""Every prompt is drawn exactly once per epoch, and every drawn group is decided exactly once, wherever a run stops."""

import json
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from brorl.algorithms.selection import count_solved, retired
from brorl.collection import Collected, collect
from brorl.config import Recipe
from brorl.engines.protocol import SampleRequest, Sampling
from brorl.group import Fate, Prompt, RolloutGroup, ScoredGroup
from brorl.recipe_file import parse_recipe
from brorl.rollouts import Rollouts
from brorl.seeding import generator
from brorl.storage import read_groups, write_groups
from brorl.tasks.files import RowsSource
from brorl.tasks.mixture import PromptStream
from brorl.tasks.rows import TaskRow

SAMPLING = Sampling(max_new_tokens=4, stop_token_ids=(2,))


@dataclass
class Ledger:
    """In the place of `Rollouts`: two answers per prompt, of which the key decides how many are right."""

    drawn: list[str] = field(default_factory=list[str])
    rounds: list[list[ScoredGroup]] = field(default_factory=list[list[ScoredGroup]])

    def draw(self, requests: Sequence[SampleRequest], *_: object) -> list[ScoredGroup]:
        self.drawn += [request.prompt.id for request in requests]
        self.rounds.append([self.group(request) for request in requests])
        return self.rounds[-1]

    def group(self, request: SampleRequest) -> ScoredGroup:
        right = generator("ledger", request.prompt.id, *request.key).integers(0, 3)
        rewards = np.array([float(right > 0), float(right > 1)], np.float32)
        group = RolloutGroup.from_sequences(request.prompt, [[5], [6]])
        return ScoredGroup(group=group, rewards=rewards, outcomes=(2 - 2 * rewards).astype(np.uint8))


def recipe_of(wanted: int, rounds: int, oversample: float, carry: bool) -> Recipe:
    return parse_recipe(
        {
            "name": "r",
            "steps": 99,
            "tasks": [{"kind": "gym", "task": "gcd"}],
            "rollouts": {"per_prompt": 2, "prompts_per_step": wanted},
            "algorithm": {"minibatches": 1},
            "selection": {
                "max_rounds": rounds,
                "oversample": oversample,
                "carry_surplus": carry and oversample > 1,
            },
        }
    )


def steps(
    stream: PromptStream, overlong: int, recipe: Recipe, stops: Sequence[bool], folder: Path
) -> tuple[list[str], list[ScoredGroup], int]:
    """What the steps of a run draw and decide; it is stopped after a step where `stops` says so, and taken up again
    from what a checkpoint holds."""
    ledger, decided = Ledger(), list[ScoredGroup]()
    position, carried = 0, tuple[ScoredGroup, ...]()

    def prompt_at(place: int) -> Prompt | None:
        row = stream.at(place)
        return None if int(row.question) % 7 == overlong else Prompt(id=row.id, text=row.question)

    for step, stopped in enumerate(stops):
        rollouts = cast(Rollouts, ledger)
        found: Collected = collect(rollouts, prompt_at, recipe, SAMPLING, step=step, position=position, carried=carried)
        position = found.position
        surplus = [g for g in found.selection.set_aside if g.fate is Fate.SURPLUS]
        carried = tuple(surplus) if recipe.selection.carry_surplus else ()
        kept = {id(group) for group in carried}
        decided += [g for g in (*found.selection.trained, *found.selection.set_aside) if id(g) not in kept]
        if stopped:
            write_groups(folder / "carried.parquet", carried)
            carried = tuple(read_groups(folder / "carried.parquet"))
            position = int(json.loads(json.dumps(position)))
    return ledger.drawn, [*decided, *carried], position


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(3, 17), min_size=1, max_size=3),
    wanted=st.integers(1, 5),
    rounds=st.integers(1, 4),
    oversample=st.sampled_from([1.0, 1.5, 2.0]),
    carry=st.booleans(),
    overlong=st.integers(0, 7),
    stops=st.lists(st.booleans(), min_size=1, max_size=12),
)
def test_every_prompt_once_per_epoch(
    sizes: list[int], wanted: int, rounds: int, oversample: float, carry: bool, overlong: int, stops: list[bool]
) -> None:
    sources = [
        RowsSource(f"s{s}", [TaskRow(id=f"s{s}/{i}", question=str(i), answer="a") for i in range(size)])
        for s, size in enumerate(sizes)
    ]
    stream = PromptStream(sources, seed=1)
    recipe = recipe_of(wanted, rounds, oversample, carry)
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        drawn, decided, position = steps(stream, overlong, recipe, stops, Path(folder))
        undisturbed: Any = steps(stream, overlong, recipe, [False] * len(stops), Path(folder))
    assert drawn == undisturbed[0]
    assert position == undisturbed[2]
    # What was drawn is what the stream holds up to the position, in its order, less what is too long.
    rows = [stream.at(place) for place in range(position)]
    assert drawn == [row.id for row in rows if int(row.question) % 7 != overlong]
    assert Counter(g.group.prompt.id for g in decided) == Counter(drawn)
    # In each epoch of a source each of its prompts once; in the one under way none twice.
    for s, size in enumerate(sizes):
        taken = [row.id for row in rows if row.id.startswith(f"s{s}/")]
        for start in range(0, len(taken), size):
            epoch = taken[start : start + size]
            assert len(set(epoch)) == len(epoch)


@given(after=st.integers(1, 3), rows=st.integers(1, 6), steps=st.integers(1, 4))
def test_no_prompt_is_drawn_again_once_it_retires_not_even_in_the_same_step(after: int, rows: int, steps: int) -> None:
    recipe = recipe_of(4, 4, 1.0, False)
    recipe = recipe.model_copy(update={"selection": recipe.selection.model_copy(update={"retire_after": after})})
    ledger, solved, position = Ledger(), dict[str, int](), 0

    def prompt_at(place: int) -> Prompt:
        return Prompt(id=str(place % rows), text="")

    for step in range(steps):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = collect(
                cast(Rollouts, ledger),
                prompt_at,
                recipe,
                SAMPLING,
                step=step,
                position=position,
                solved=solved,
                span=rows,
            )
        solved, position = count_solved(solved, found.drawn), found.position
    times: dict[str, int] = {}
    for groups in ledger.rounds:
        assert not retired(times, after) & {group.group.prompt.id for group in groups}
        times = count_solved(times, groups)
