"""Text, number, pattern and schema verifiers; answer extraction; a user's own verifiers."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brorl.errors import RecipeError
from brorl.group import Outcome, Prompt
from brorl.tasks.files import read_rows
from brorl.verifiers import PREPARATIONS, VERIFIERS
from brorl.verifiers.custom import preparation, resolve
from brorl.verifiers.extraction import extract
from brorl.verifiers.text import verify_json_schema, verify_numeric, verify_regex, verify_text
from shared_data import shared


def prompt(answer: str, **meta: Any) -> Prompt:
    return Prompt(id="p", text="?", answer=answer, meta={"answer_format": "whole", **meta})


@pytest.mark.parametrize(
    ("response", "answer_format", "found"),
    [
        ("a <answer> 5 </answer> b", "tag", "5"),
        ("<answer>1</answer><answer>2</answer>", "tag", "2"),
        ("<answer>1</answer> <answer>2", "tag", "1"),
        ("<answer>1<answer>2</answer>", "tag", "2"),
        ("<ANSWER>x\ny</ANSWER>", "tag", "x\ny"),
        ("<answer></answer>", "tag", None),
        ("5", "tag", None),
        ("<answer>The answer is 5</answer>", "tag", "5"),
        ("<think><answer>1</answer></think>2", "tag", None),
        ("<think>a</think><think>b</think> 2", "whole", "2"),
        ("<think>5", "whole", None),
        ("thought</think> 5", "whole", "5"),
        ("The final answer is: 5", "whole", "5"),
        ("so #### 5\nmore", "anchor", "5"),
        ("Answer: 4. Wait. Answer: 5", "anchor", "5"),
        ("nothing", "anchor", None),
        ("\n 1\n2 \n", "first_line", "1"),
        ("\n 1\n2 \n", "last_line", "2"),
        ("  \n", "last_line", None),
        ("", "whole", None),
    ],
)
def test_extraction(response: str, answer_format: str, found: str | None) -> None:
    assert extract(response, answer_format) == found


def test_an_unknown_format_is_named() -> None:
    with pytest.raises(RecipeError, match="'boxed'; known: tag"):
        extract("5", "boxed")


@given(st.text(max_size=300), st.sampled_from(["tag", "anchor", "first_line", "last_line", "whole"]))
def test_extraction_never_fails_and_never_invents(response: str, answer_format: str) -> None:
    found = extract(response, answer_format)
    assert found is None or (found == found.strip() and found in response)


def test_text() -> None:
    assert verify_text(prompt("a  b"), " a\nb ").outcome is Outcome.CORRECT
    assert verify_text(prompt("a b"), "A b").outcome is Outcome.WRONG
    assert verify_text(prompt("a b", ignore_case=True), "A b").outcome is Outcome.CORRECT
    assert verify_text(prompt("a", answer_format="tag"), "a").outcome is Outcome.NO_ANSWER
    assert verify_text(prompt("a"), "a b").reward == 0.0


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        ("1000", "1,000", True),
        ("1000", "1,0,00", False),
        ("1000", "$1000.", True),
        ("-5", "\u22125", True),
        ("1/2", "0.5", True),
        ("0.5", "2/4", True),
        ("0.3333333", "0.33333334", True),
        ("0.333", "0.3333", False),
        ("0.333", "1/3", False),
        ("3", "3.0000001", False),
        ("3", "3.0", True),
        ("3", "3 apples", False),
        ("3", "2+1", False),
        ("0.0000001", "0.0000004", False),
        ("1e-7", "0.0000001", True),
        ("5", "5/0", False),
        ("5", "nan", False),
        ("5", "9" * 500, False),
        ("5", "1e999999999", False),
        ("12345678901234567890", "12345678901234567891", False),
    ],
)
def test_numbers(gold: str, answer: str, right: bool) -> None:
    assert verify_numeric(prompt(gold), answer).reward == float(right)
    if answer.isprintable() and verify_numeric(prompt(answer), answer).outcome is not Outcome.UNSCORABLE:
        assert verify_numeric(prompt(answer), gold).reward == float(right), "not symmetric"


def test_a_reference_that_is_no_number_is_unscorable() -> None:
    assert verify_numeric(prompt("about 5"), "5").outcome is Outcome.UNSCORABLE
    assert verify_numeric(prompt("5", tolerance=0.1), "5").outcome is Outcome.CORRECT
    assert verify_numeric(prompt("5.0", tolerance=0.1), "5.4").outcome is Outcome.CORRECT
    assert verify_numeric(prompt("5"), "five").note == "not a number"


@given(st.integers(), st.integers())
def test_integers_compare_exactly(a: int, b: int) -> None:
    assert verify_numeric(prompt(str(a)), f"{b:,}").reward == float(a == b)


@pytest.mark.parametrize("name", ["gsm8k_test", "svamp"])
def test_every_gold_of_real_data_scores_one(name: str) -> None:
    rows = read_rows(shared(f"data/{name}.jsonl"), verifier="numeric")
    scores = [verify_numeric(prompt(row.answer), f" {row.answer}.\n") for row in rows]
    assert {score.outcome for score in scores} == {Outcome.CORRECT}


def test_patterns() -> None:
    assert verify_regex(prompt(r"\d{4}-\d\d"), "2024-05").outcome is Outcome.CORRECT
    assert verify_regex(prompt(r"\d{4}"), "in 2024").outcome is Outcome.WRONG
    assert verify_regex(prompt(r"\d{4"), "2024").outcome is Outcome.WRONG
    assert verify_regex(prompt(r"(\d"), "2024").outcome is Outcome.UNSCORABLE


def test_schemas() -> None:
    schema = json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
    asked = Prompt(id="p", text="?", answer=schema)
    assert verify_json_schema(asked, '{"n": 3}').outcome is Outcome.CORRECT
    assert verify_json_schema(asked, 'Here:\n```json\n{"n": 3}\n```').outcome is Outcome.CORRECT
    assert verify_json_schema(asked, '```\n{"n": 3}\n```\n```\n{"n": 4}\n```').outcome is Outcome.WRONG
    assert verify_json_schema(asked, '{"n": "3"}').outcome is Outcome.WRONG
    assert verify_json_schema(asked, '{"n": 3').outcome is Outcome.WRONG
    assert verify_json_schema(Prompt(id="p", text="?", answer="{}"), "NaN").outcome is Outcome.WRONG
    assert verify_json_schema(asked, "[" * 100_000).outcome is Outcome.WRONG
    assert verify_json_schema(asked, "").outcome is Outcome.NO_ANSWER
    assert verify_json_schema(Prompt(id="p", text="?", answer='{"type": "thing"}'), "1").outcome is Outcome.UNSCORABLE
    assert verify_json_schema(Prompt(id="p", text="?", answer="{"), "1").outcome is Outcome.UNSCORABLE


@pytest.mark.parametrize("pattern", ["", " ", "(" * 2000 + ")" * 2000, "a{99999999999999999999}"])
def test_a_reference_that_is_no_pattern_is_unscorable(pattern: str) -> None:
    assert verify_regex(prompt(pattern), "a").outcome is Outcome.UNSCORABLE


def test_numbers_in_json_are_what_is_written() -> None:
    cents = Prompt(id="p", text="?", answer='{"type": "number", "multipleOf": 0.01, "maximum": 1e308}')
    for text, right in [("0.29", True), ("0.295", False), ("19.99", True), ("1e30", True), ("1e309", False)]:
        assert verify_json_schema(cents, text).reward == float(right), text
    whole = Prompt(id="p", text="?", answer='{"type": "integer", "enum": [3.0, 20]}')
    for text, right in [("3", True), ("3.0", True), ("2e1", True), ("3.1", False), ("1e999999999999", False)]:
        assert verify_json_schema(whole, text).reward == float(right), text
    assert verify_json_schema(whole, "1e99999999999999999999").outcome is Outcome.WRONG


@pytest.mark.parametrize(
    "schema",
    [
        5,
        "object",
        {"$schema": 5},
        {"$ref": "#"},
        {"$ref": "#/$defs/absent"},
        {"properties": {"rare": {"items": {"$ref": "#/$defs/absent"}}}},
        {"properties": {"rare": {"$ref": "https://example.com/other.json"}}},
    ],
)
def test_what_is_no_schema_of_its_own_is_unscorable(schema: Any) -> None:
    assert verify_json_schema(Prompt(id="p", text="?", answer=json.dumps(schema)), "{}").outcome is Outcome.UNSCORABLE
    assert verify_json_schema(Prompt(id="p", text="?", answer="[" * 50_000), "{}").outcome is Outcome.UNSCORABLE


def test_a_schema_is_never_fetched(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text("{}", encoding="utf-8")
    asked = Prompt(id="p", text="?", answer=json.dumps({"$ref": other.as_uri()}))
    assert verify_json_schema(asked, "{}").outcome is Outcome.UNSCORABLE
    tree = {"$id": "https://example.com/tree", "type": "array", "items": {"$ref": "tree"}}
    assert verify_json_schema(Prompt(id="p", text="?", answer=json.dumps(tree)), "[[], [[]]]").reward == 1.0


def test_every_listed_verifier_resolves() -> None:
    assert set(PREPARATIONS) <= set(VERIFIERS)
    for name in VERIFIERS:
        assert callable(resolve(name))
    for name in PREPARATIONS:
        assert callable(preparation(name))
    assert preparation("text") is None


def test_a_users_own_function() -> None:
    score = resolve("hostile_verifiers:not_a_score")(prompt("x"), "y")
    assert (score.outcome, score.reward) == (Outcome.PARTIAL, 0.25)


def test_trl_reward_functions() -> None:
    verify = resolve("hostile_verifiers:trl_length")
    assert verify(prompt("cat"), "a cat").outcome is Outcome.CORRECT
    assert verify(prompt("cat"), "a dog").outcome is Outcome.WRONG
    skipped = verify(prompt("cat", skip=True), "a cat")
    assert skipped.outcome is Outcome.UNSCORABLE
    assert skipped.reward != skipped.reward
    chat = Prompt(id="c", text="?", answer="", meta={"messages": [{"role": "user", "content": "echo"}], "other": 1})
    assert resolve("hostile_verifiers:trl_chat")(chat, "echo").outcome is Outcome.CORRECT
    in_trl_s_column = Prompt(id="c", text="", answer="", meta={"prompt": [{"role": "user", "content": "echo"}]})
    assert resolve("hostile_verifiers:trl_chat")(in_trl_s_column, "echo").outcome is Outcome.CORRECT
    assert resolve("hostile_verifiers:trl_async")(prompt("x"), "y").outcome is Outcome.UNSCORABLE
    for count in ("0", "2"):
        with pytest.raises(ValueError, match=f"{count} rewards for one completion"):
            resolve("hostile_verifiers:trl_as_many_as_told")(prompt("x"), count)


@pytest.mark.parametrize("source", ["def f(:", "raise RuntimeError('no key')", "import sys; sys.exit(3)"])
def test_a_module_that_fails_on_import_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    (tmp_path / "failing_module.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RecipeError, match="cannot import failing_module: "):
        resolve("failing_module:f")
    with pytest.raises(RecipeError, match="cannot import"):
        resolve(":f")


def test_trl_functions_get_the_columns_of_their_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"prompt": "6 * 7", "solution": "42", "weight": 0.5}), encoding="utf-8")
    (row,) = read_rows(path, verifier="hostile_verifiers:trl_solution")
    asked = Prompt(id=row.id, text=row.question, verifier=row.verifier, answer=row.answer, meta=row.meta)
    assert resolve(row.verifier)(asked, "42").reward == 0.5
