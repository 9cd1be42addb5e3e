"""Reference answers are graded when data is loaded: a row that no response could be rewarded for is never asked."""

import time
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from brorl.errors import DataError, RunError
from brorl.evaluation.golds import RefusedGoldWarning, accepted_rows
from brorl.tasks.files import read_rows
from brorl.tasks.rows import TaskRow
from brorl.verifiers.pool import VerifierPool
from sandbox_needed import require_sandbox
from shared_data import shared


@pytest.fixture(scope="module")
def pool() -> Iterator[VerifierPool]:
    with VerifierPool(workers=2) as opened:
        yield opened


def rows(verifier: str, *answers: str, **meta: Any) -> list[TaskRow]:
    return [
        TaskRow(id=f"r{i}", question=f"question {i}?", verifier=verifier, answer=answer, meta=meta)
        for i, answer in enumerate(answers)
    ]


def kept(pool: VerifierPool, given: list[TaskRow]) -> list[str]:
    return [row.id for row in accepted_rows(pool, "data.jsonl", given)]


@pytest.mark.parametrize(
    ("verifier", "answers", "meta"),
    [
        ("math", (r"\frac{1}{2}", "42", "a worked solution.\nIt ends in \\boxed{7}."), {}),
        ("choice", ("B", "Rome"), {"choices": ["Paris", "Rome", "Oslo"]}),
        ("text", ("Paris", "{braces}"), {}),
        ("text", ("Paris",), {"answer_format": "last_line"}),
        ("numeric", ("0.5", "1/2"), {"answer_format": "anchor"}),
        ("regex", ("[a-m].*",), {}),
        ("json_schema", ('{"type": "object"}',), {}),
        ("instruction", ("",), {"instruction_id_list": ["punctuation:no_comma"]}),
        ("no.such.module:reward", ("anything",), {}),
    ],
)
def test_rows_that_are_kept(pool: VerifierPool, verifier: str, answers: tuple[str, ...], meta: dict[str, Any]) -> None:
    given = rows(verifier, *answers, **meta)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert accepted_rows(pool, "data.jsonl", given) == given


@pytest.mark.parametrize(
    ("verifier", "good", "bad", "meta"),
    [
        ("math", "42", r"\boxed{}", {}),
        ("choice", "A", "Berlin", {"choices": ["Paris", "Rome"]}),
        ("numeric", "5", "five", {}),
        ("text", "x", "</answer>", {}),
        ("regex", "a+", "(", {}),
        ("json_schema", "{}", "no schema", {}),
    ],
)
def test_refused_rows_are_named_and_left_out(
    pool: VerifierPool, verifier: str, good: str, bad: str, meta: dict[str, Any]
) -> None:
    with pytest.warns(RefusedGoldWarning, match=r"data\.jsonl: 1 of 3 rows.*r1: .*left out"):
        assert kept(pool, rows(verifier, good, bad, good, **meta)) == ["r0", "r2"]
    with pytest.raises(DataError, match="2 of 2 rows are refused"):
        kept(pool, rows(verifier, bad, bad, **meta))


def test_an_unknown_instruction_is_left_out(pool: VerifierPool) -> None:
    with pytest.raises(DataError, match="unknown instruction"):
        kept(pool, rows("instruction", "", instruction_id_list=["no:such"]))


def test_only_the_first_few_are_named(pool: VerifierPool) -> None:
    with pytest.warns(RefusedGoldWarning, match=r"20 of 21 rows.*r4: [^;]*; and 15 more"):
        assert kept(pool, rows("numeric", *["none"] * 20, "5")) == ["r20"]


def test_failures_that_no_answer_causes_are_an_error_of_their_own(pool: VerifierPool) -> None:
    with pytest.raises(RunError, match=r"2 of 2 reference answers cannot be graded: .*mode"):
        kept(pool, rows("math", "1", "2", mode="generous"))


def test_code_is_graded_by_its_tests_and_tests_are_no_program(pool: VerifierPool) -> None:
    require_sandbox()
    tests = {"test_list": ["assert f(1) == 2"]}
    right = TaskRow(id="right", verifier="code", answer="def f(x): return x + 1", meta=tests)
    wrong = TaskRow(id="wrong", verifier="code", answer="def f(x): return x", meta=tests)
    data = TaskRow(id="data", verifier="code", answer='{"inputs": ["1"], "outputs": ["1"]}')
    with pytest.warns(RefusedGoldWarning, match="wrong: 'def f"):
        assert kept(pool, [right, wrong, data]) == ["right", "data"]


@pytest.mark.slow
def test_a_large_file_takes_seconds(pool: VerifierPool) -> None:
    given = read_rows(shared("data/gsm8k_train.jsonl"), verifier="math")
    start = time.monotonic()
    assert accepted_rows(pool, "gsm8k", given) == given
    assert time.monotonic() - start < 60
