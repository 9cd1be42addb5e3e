"""Column layouts: rows in the form of the public data sets, each with the verifier that its domain needs."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from brorl.errors import DataError
from brorl.group import Outcome, Prompt
from brorl.tasks.files import LeftOutWarning, read_rows
from brorl.tasks.layouts import LAYOUTS, recognise
from brorl.tasks.rows import TaskRow
from brorl.verifiers.choice import choice
from brorl.verifiers.code_tests import FunctionTests, StdoutTests, read_tests
from brorl.verifiers.instruction import verify_instruction
from brorl.verifiers.math import math
from shared_data import shared_rows

Record = dict[str, Any]

DEEPSCALER: Record = {"problem": "Find $x$ if $2x = 7$.", "answer": "\\frac{7}{2}", "solution": "Halve both sides."}
PRIME_SYSTEM = "You should strictly follow the format below:\n\n[ACTION NAME]"
EURUS_CODE: Record = {
    "data_source": "codecontests",
    "prompt": [{"role": "system", "content": PRIME_SYSTEM}, {"role": "user", "content": "Add two numbers."}],
    "ability": "code",
    "reward_model": {
        "ground_truth": json.dumps({"inputs": ["1 2\n", "3 4\n"], "outputs": ["3\n", "7\n"]}),
        "style": "rule",
    },
    "extra_info": {"index": 5, "split": "dummy"},
}
EURUS_CALL: Record = {
    **EURUS_CODE,
    "data_source": "taco",
    "reward_model": {
        "ground_truth": json.dumps({"fn_name": "add", "inputs": [[1, 2]], "outputs": [3]}),
        "style": "rule",
    },
}
EURUS_MATH: Record = {
    **EURUS_CODE,
    "data_source": "numina_olympiads",
    "prompt": [
        {"role": "system", "content": PRIME_SYSTEM},
        {"role": "user", "content": "What is 3 * 4?\n\nPresent the answer in LaTex format: \\boxed{Your answer}"},
    ],
    "ability": "math",
    "reward_model": {"ground_truth": "12", "style": "rule"},
}
SCP_FIRST: Record = {
    "domain": "Physics",
    "problem": "A body of 2 kg is pushed with 6 N. What is its acceleration?",
    "matched_solution": "3 m/s^2",
    "o1_solution": "a = F / m = 3",
    "is_o1_solution_same_with_matched_solution": True,
    "qwq_solution": "a = 2",
    "is_qwq_solution_same_with_matched_solution": False,
}
SCP_SECOND: Record = {
    "domain": "Chemistry",
    "problem": "Which is a noble gas?\n(A) neon (B) iron\n(C) oxygen (D) gold",
    "extract_solution": "(A) neon",
    "r1_response": "It is neon.",
    "r1_reasoning_content": "Hm.",
}
NEMOTRON: Record = {
    "input": [{"role": "user", "content": "List three colours. Use at least 2 bullet points and the word red."}],
    "args": {
        "instruction_id_list": ["keywords:existence", "change_case:english_lowercase"],
        "instruction_kwargs": [{"keywords": ["red"], "num_bullets": None}, {"keywords": None, "num_bullets": None}],
        "task": "instruction_following",
    },
    "category": "instruction_following",
    "license": "odc-by",
    "reasoning": "off",
    "used_in_training": "Ultra, Super",
    "version": "v1",
    "system_prompt": "detailed thinking off",
}
VERL: Record = {
    "data_source": "openai/gsm8k",
    "prompt": [{"role": "user", "content": "How many?"}],
    "ability": "math",
    "reward_model": {"style": "rule", "ground_truth": "72"},
    "extra_info": {"split": "train", "index": 0},
}


def read(folder: Path, *records: Record, **settings: Any) -> list[TaskRow]:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return read_rows(path, **settings)


def as_prompt(row: TaskRow) -> Prompt:
    return Prompt(id=row.id, text=row.question, verifier=row.verifier, answer=row.answer, meta=row.meta)


@pytest.mark.parametrize(
    ("record", "layout", "verifier"),
    [
        (DEEPSCALER, "deepscaler", "math"),
        (EURUS_CODE, "eurus2", "code"),
        (EURUS_CALL, "eurus2", "code"),
        (EURUS_MATH, "eurus2", "math"),
        (SCP_FIRST, "scp116k", "math"),
        (SCP_SECOND, "scp116k", "choice"),
        (NEMOTRON, "instruction_following", "instruction"),
        (
            {"key": 1, "prompt": "Write.", **NEMOTRON["args"], "kwargs": [{"n": 1}, {}]},
            "instruction_following",
            "instruction",
        ),
        (VERL, "verl", "math"),
        ({"prompt": "Say 3", "solution": "3"}, "trl", "math"),
        ({"messages": VERL["prompt"], "ground_truth": "3"}, "trl", "math"),
        ({"question": "Say 3", "answer": "3"}, "plain", "math"),
        ({"prompt": "def f():", "entry_point": "f", "test": "def check(c): assert c() == 1"}, "trl", "code"),
        ({"question": "Which?", "choices": ["x", "y"], "answer": "B"}, "multiple_choice", "choice"),
    ],
)
def test_layouts_are_recognised_and_choose_the_verifier(
    tmp_path: Path, record: Record, layout: str, verifier: str
) -> None:
    assert recognise(record) == layout
    (row,) = read(tmp_path, record)
    assert row.verifier == verifier
    assert read(tmp_path, record, layout=layout) == [row]
    pq.write_table(pa.Table.from_pylist([record]), tmp_path / "rows.parquet")
    assert read_rows(tmp_path / "rows.parquet")[0] == row, "Parquet gives the same row"


def test_deepscaler_answers_are_graded(tmp_path: Path) -> None:
    (row,) = read(tmp_path, DEEPSCALER)
    assert (row.question, row.meta) == (DEEPSCALER["problem"], {"solution": "Halve both sides."})
    assert math(as_prompt(row), "\\boxed{3.5}").outcome is Outcome.CORRECT
    assert math(as_prompt(row), "\\boxed{3}").outcome is Outcome.WRONG


def test_deepscaler_is_published_as_one_array(tmp_path: Path) -> None:
    path = tmp_path / "deepscaler.json"
    path.write_text(json.dumps([DEEPSCALER, {**DEEPSCALER, "problem": "Other?"}], indent=1))
    assert [row.id for row in read_rows(path)] == ["deepscaler/1", "deepscaler/2"]


def test_eurus_code_carries_its_tests_and_pays_their_share(tmp_path: Path) -> None:
    program, call, mathematics = read(tmp_path, EURUS_CODE, EURUS_CALL, EURUS_MATH)
    assert (program.question, program.messages) == ("Add two numbers.", ())
    assert program.meta["reward"] == call.meta["reward"] == "share"
    assert "reward" not in mathematics.meta
    tests = read_tests(as_prompt(program))
    assert isinstance(tests, StdoutTests)
    assert tests.inputs == ("1 2\n", "3 4\n")
    assert isinstance(read_tests(as_prompt(call)), FunctionTests)
    assert math(as_prompt(mathematics), "\\boxed{12}").outcome is Outcome.CORRECT
    (kept,) = read(tmp_path, EURUS_CODE, layout="verl")
    assert kept.messages[0]["content"] == PRIME_SYSTEM, "layout verl changes no message"


def test_scp_grades_free_answers_and_options(tmp_path: Path) -> None:
    free, options = read(tmp_path, SCP_FIRST, SCP_SECOND)
    assert math(as_prompt(free), "So \\boxed{3}").outcome is Outcome.CORRECT
    assert math(as_prompt(free), "So \\boxed{2}").outcome is Outcome.WRONG
    assert (options.answer, options.meta["choices"]) == ("A", ["neon", "iron", "oxygen", "gold"])
    assert choice(as_prompt(options), "Answer: A").outcome is Outcome.CORRECT
    assert choice(as_prompt(options), "Answer: B").outcome is Outcome.WRONG


@pytest.mark.parametrize(
    ("reference", "verifier", "answer"),
    [
        ("B", "choice", "B"),
        ("(B)", "choice", "B"),
        ("B. iron", "choice", "B"),
        ("The correct answer is (B)", "choice", "B"),
        ("\\boxed{B}", "choice", "B"),
        ("\\boxed{\\text{B}}", "choice", "B"),
        ("iron", "choice", "B"),
        ("E", "math", "E"),
        ("A metal such as iron", "math", "A metal such as iron"),
        ("26", "math", "26"),
    ],
)
def test_what_counts_as_naming_an_option(tmp_path: Path, reference: str, verifier: str, answer: str) -> None:
    (row,) = read(tmp_path, {**SCP_SECOND, "extract_solution": reference})
    assert (row.verifier, row.answer) == (verifier, answer)


def test_names_with_initials_are_not_options(tmp_path: Path) -> None:
    problem = "A. Smith throws a ball to B. Jones at 3 m/s. In which direction?"
    (row,) = read(tmp_path, {**SCP_SECOND, "problem": problem, "extract_solution": "north"})
    assert row.verifier == "math"


def test_scp_rows_without_a_usable_reference_are_left_out(tmp_path: Path) -> None:
    disagreed = {**SCP_FIRST, "is_o1_solution_same_with_matched_solution": False}
    worked = "We integrate twice and use the boundary conditions, " * 4
    with pytest.warns(LeftOutWarning) as caught:
        rows = read(
            tmp_path,
            SCP_FIRST,
            {**SCP_SECOND, "extract_solution": None},
            disagreed,
            {**SCP_SECOND, "problem": "Why?", "extract_solution": worked},
            {**SCP_SECOND, "problem": "How?", "extract_solution": worked + "so the answer is 4."},
            layout="scp116k",
        )
    assert [row.id for row in rows] == ["rows/1", "rows/5"]
    said = str(caught[0].message)
    assert "3 of 5 rows are left out by layout 'scp116k'" in said
    for reason in ("no reference answer", "no recorded model agreed", "without a final answer"):
        assert reason in said
    with pytest.raises(DataError, match="no rows that can be used: 1 no recorded model agreed"):
        read(tmp_path, disagreed)


def test_nemotron_instructions_are_judged(tmp_path: Path) -> None:
    (row,) = read(tmp_path, NEMOTRON)
    assert row.question.startswith("List three colours")
    assert row.meta["kwargs"] == [{"keywords": ["red"]}, {}]
    assert "system_prompt" not in row.meta
    half = verify_instruction(as_prompt(row), "Red, Green, Blue")
    assert (half.outcome, half.reward) == (Outcome.PARTIAL, 0.5), "ProRL's continuous reward"
    (packed,) = read(tmp_path, {**NEMOTRON, "args": json.dumps(NEMOTRON["args"])})
    assert packed == row


def test_multiple_choice_shows_its_options(tmp_path: Path) -> None:
    arc = {
        "id": "MCAS_1",
        "question": "Which is a metal?",
        "choices": {"text": ["wood", "iron"], "label": ["1", "2"]},
        "answerKey": "2",
    }
    (row,) = read(tmp_path, arc)
    assert row.question == "Which is a metal?\nA. wood\nB. iron"
    assert choice(as_prompt(row), "Answer: B").outcome is Outcome.CORRECT
    (mmlu,) = read(
        tmp_path, {"question": "Which is a metal?", "subject": "s", "choices": ["wood", "iron"], "answer": 1}
    )
    assert mmlu.answer == "B"


def test_verl_chooses_by_ground_truth(tmp_path: Path) -> None:
    def with_truth(truth: Any, **changes: Any) -> Record:
        return {**VERL, "reward_model": {"style": "rule", "ground_truth": truth}, **changes}

    tests = json.dumps({"inputs": ["1\n"], "outputs": ["1\n"]})
    options = [{"role": "user", "content": "Which?\nA) one\nB) two"}]
    rows = read(
        tmp_path,
        with_truth("72"),
        with_truth(tests, ability="code", data_source="kodcode"),
        with_truth({"instruction_id_list": ["startend:quotation"], "kwargs": [None]}, ability="ifeval"),
        with_truth("B", prompt=options, ability="science", data_source="gpqa"),
    )
    assert [row.verifier for row in rows] == ["math", "code", "instruction", "choice"]
    assert rows[2].meta["kwargs"] == [{}]
    assert "reward" not in rows[1].meta


def test_a_named_verifier_wins(tmp_path: Path) -> None:
    (row,) = read(tmp_path, DEEPSCALER, verifier="math_verify", meta={"mode": "strict"})
    assert (row.verifier, row.meta["mode"]) == ("math_verify", "strict")


@pytest.mark.parametrize(
    ("records", "settings", "message"),
    [
        ([{"question": "a", "prompt": "b", "answer": "1"}], {}, "fit the layouts plain and trl: name one of them"),
        ([{**NEMOTRON, "problem": "p", "answer": "1"}], {}, "deepscaler and instruction_following"),
        ([DEEPSCALER], {"layout": "deepscalar"}, "layout 'deepscalar' is unknown; known: auto, plain"),
        ([DEEPSCALER], {"layout": "verl"}, "line 1: no column 'reward_model', which layout 'verl' needs"),
        ([DEEPSCALER], {"layout": "deepscaler", "columns": {"answer": "solution"}}, "columns have no effect on layout"),
        ([DEEPSCALER, {"problem": "q", "answer": None}], {}, "line 2: no answer"),
        ([{"other": 1}], {}, "line 1: no question"),
        ([{**NEMOTRON, "args": {"task": "x"}}], {}, "line 1: no instruction_id_list"),
        ([{"question": "q", "choices": ["one"], "answer": "A"}], {}, "line 1: choices: a list of at least two"),
        ([{**EURUS_CODE, "prompt": VERL["prompt"] * 2}], {}, "one message of the user, not 2"),
    ],
)
def test_what_does_not_fit_is_refused(
    tmp_path: Path, records: list[Record], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError) as caught:
        read(tmp_path, *records, **settings)
    assert message in str(caught.value)


def test_every_layout_says_what_it_is() -> None:
    for name, layout in LAYOUTS.items():
        assert layout.__doc__, name
        assert "erifier" in layout.__doc__, name


@pytest.mark.parametrize(
    ("file", "layout"),
    [
        ("ifeval", "instruction_following"),
        ("ifbench", "instruction_following"),
        ("mbpp", "trl"),
        ("humaneval_plus", "trl"),
        ("mmlu_stem_mcq", "multiple_choice"),
        ("arc_challenge_dev", "multiple_choice"),
        ("deepscaler_aime", "plain"),
        ("countdown_rg", "plain"),
    ],
)
def test_shared_files(file: str, layout: str) -> None:
    records = shared_rows(f"data/{file}.jsonl")
    assert {recognise(record) for record in records} == {layout}


def test_deepscaler_layout_on_its_own_problems(tmp_path: Path) -> None:
    """The AIME part of DeepScaleR, its columns called as published."""
    rows = shared_rows("data/deepscaler_aime.jsonl")[:200]
    published = [{"problem": r["question"], "answer": r["answer"], "solution": r.get("solution", "")} for r in rows]
    read_back = read(tmp_path, *published)
    assert [(r.question, r.answer) for r in read_back] == [(r["question"], r["answer"]) for r in rows]
    assert {row.verifier for row in read_back} == {"math"}
