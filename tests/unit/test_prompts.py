"""From tasks to prompts: what overlaps with evaluation sets is left out, ids are unique, tasks are named."""

import json
from pathlib import Path
from typing import Any

import pytest

from brorl.errors import DataError, RecipeError
from brorl.metrics import TASK
from brorl.prompts import ContaminationWarning, Data, open_data, task_labels
from brorl.recipe_file import load_recipe, with_absolute_paths
from tiny_policy import character_tokenizer, write_recipe, write_rows

LONG = "a b c d e f g h i j k l m n o p"
GYM = {"kind": "gym", "task": "chain_sum", "args": {"min_terms": 2, "max_terms": 2}}


def questions(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [{"id": f"q{i}", "question": f"what is number {i}?", "answer": str(i)} for i in range(start, start + count)]


def file_task(path: Path, **settings: Any) -> dict[str, Any]:
    return {"kind": "file", "path": str(path), "verifier": "text", **settings}


def opened(folder: Path, **changes: Any) -> Data:
    recipe = load_recipe(write_recipe(folder, **changes))
    return open_data(recipe, character_tokenizer())


def training_ids(data: Data) -> set[str]:
    assert data.span is not None
    return {prompt.id for i in range(data.span) if (prompt := data.prompt_at(i)) is not None}


def test_overlaps_with_evaluation_files_are_left_out_and_listed(tmp_path: Path) -> None:
    train = write_rows(
        tmp_path / "train.jsonl",
        [*questions(6), {"id": "long", "question": f"so {LONG}?", "answer": "1"}],
    )
    held_out = write_rows(tmp_path / "held.jsonl", questions(3, start=5))
    against = write_rows(tmp_path / "test.jsonl", [{"id": "t1", "prompt": f"and {LONG}!"}, {"id": "t2", "prompt": "?"}])
    task = file_task(train, heldout_path=str(held_out))
    with pytest.warns(ContaminationWarning, match="2 of 7 training prompts share 13 words"):
        data = opened(tmp_path, tasks=[task], contamination={"against": [str(against)]})
    assert training_ids(data) == {"q0", "q1", "q2", "q3", "q4"}
    report = data.contamination
    assert report is not None
    assert report.as_json()["removed"] == 2
    assert list(report.sets.values()) == [3, 2]
    assert [(o.id, o.matched_id, o.shared) for o in report.overlaps] == [
        ("q5", "q5", "what is number 5?"),
        ("long", "t1", "a b c d e f g h i j k l m"),
    ]
    assert report.overlaps[0].matched_set.endswith("held.jsonl, heldout rows")
    with pytest.warns(ContaminationWarning):
        again = opened(tmp_path, tasks=[task], contamination={"against": [str(against)]})
    assert again.fingerprint == data.fingerprint
    off = opened(tmp_path, tasks=[task], contamination={"ngram": None})
    assert off.contamination is None
    assert len(training_ids(off)) == 7
    assert off.fingerprint["sources"] != data.fingerprint["sources"]


def test_a_file_that_is_its_own_evaluation_set(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "all.jsonl", questions(4))
    with pytest.raises(DataError, match="every one overlaps with an evaluation prompt, the first with q0 of"):
        opened(tmp_path, tasks=[file_task(path, heldout_path=str(path))])


def test_generated_prompts_are_compared_with_files_when_drawn(tmp_path: Path) -> None:
    tasks = [{**GYM, "size": 40}]
    evaluation = {"evaluation": {"heldout_prompts": 0, "training_prompts": 4}}
    free = opened(tmp_path, tasks=tasks, **evaluation)
    assert free.contamination is not None
    assert "nothing" not in free.contamination.text()
    first, second = free.prompt_at(0), free.prompt_at(1)
    assert first is not None
    assert second is not None
    known = write_rows(tmp_path / "known.jsonl", [{"question": first.text, "answer": first.answer}])
    data = opened(tmp_path, tasks=tasks, contamination={"ngram": 60, "against": [str(known)]}, **evaluation)
    assert data.prompt_at(0) is None
    kept = data.prompt_at(1)
    assert kept is not None
    assert kept.id == second.id
    assert data.contamination is not None
    assert data.contamination.generated
    assert first.text not in {prompt.text for prompt in data.evaluation_sets["training"]}
    assert data.fingerprint["sets"]["contamination.against"]
    with pytest.raises(DataError, match="each of the first 16 prompts overlaps with an evaluation prompt"):
        opened(tmp_path, tasks=tasks, contamination={"ngram": 4, "against": [str(known)]}, **evaluation)


def test_every_prompt_names_its_task_and_no_id_comes_twice(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    same = [{"question": f"a {i}?", "answer": "1"} for i in range(30)]
    first = write_rows(tmp_path / "one" / "train.jsonl", same)
    second = write_rows(tmp_path / "two" / "train.jsonl", [{**r, "question": "b" + r["question"]} for r in same])
    data = opened(tmp_path, tasks=[file_task(first), file_task(second), GYM, {**GYM, "task": "gcd", "args": {}}])
    prompts = [prompt for i in range(40) if (prompt := data.prompt_at(i)) is not None]
    assert {prompt.meta[TASK] for prompt in prompts} == {"train-1", "train-2", "chain_sum", "gcd"}
    assert {p.id.partition("/")[0] for p in prompts if p.meta[TASK] == "train-2"} == {"train-2"}
    recipe = load_recipe(tmp_path / "recipe.yaml")
    assert task_labels(recipe.tasks) == ["train-1", "train-2", "chain_sum", "gcd"]


def test_settings_that_have_no_effect_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="against has no effect while ngram is none"):
        opened(tmp_path, contamination={"ngram": None, "against": ["x.jsonl"]})
    with pytest.raises(DataError, match=r"no data file x\.jsonl"):
        opened(tmp_path, contamination={"against": ["x.jsonl"]})


def test_evaluation_files_become_absolute_and_names_of_data_sets_stay(tmp_path: Path) -> None:
    path = write_recipe(
        tmp_path, contamination={"against": ["x.jsonl", "nobody/nothing"]}, tasks=[file_task(Path("some/set:train"))]
    )
    recipe = with_absolute_paths(load_recipe(path))
    assert [str(p) for p in recipe.contamination.against] == [str(Path("x.jsonl").absolute()), "nobody/nothing"]
    assert json.loads(recipe.model_dump_json())["tasks"][0]["path"] == "some/set:train"
