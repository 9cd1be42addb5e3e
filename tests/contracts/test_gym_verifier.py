"""The verifier for Reasoning Gym: golds score 1, junk scores 0, and the handed cases."""

import json
import socket
import tempfile
from pathlib import Path
from typing import Any

import pytest
import reasoning_gym

from brorl.group import Outcome, Prompt
from brorl.tasks.entries import pack
from brorl.tasks.gym_items import create, task_names
from brorl.tasks.reasoning_gym import GymSource
from brorl.verifiers.gym import ADMISSIBLE, NO_PARTIAL, verify_gym
from brorl.verifiers.gym_evaluated import EVALUATED, evaluated
from brorl.verifiers.gym_judges import JUDGES, evaluate
from brorl.verifiers.pool import VerifierPool
from brorl.verifiers.sandbox import ALLOW_WEAK, STRONG, WEAK, launch, run
from sandbox_needed import require_sandbox
from shared_data import cases, shared_rows

JUNK = [
    "__wrong__", "I don't know", "the", "0.5.", "[]", "{}", "null", "[[1]]", "a b c", ")(", "\U0001f642" * 50,
    "x" * 5000, '{"a": 1}', '[{"a": 1}]', '[{"Agent[0.5, 0.5]": "move(box_red, square[9.5, 9.5])"}]', "9**9**9**9",
    "import os", "None", "nan", "inf", "(" * 300, "1e999999", "quit()", "[].__class__", "C A C A",
    "-" * 2000, "[" * 5000,
]  # fmt: skip
TIMES = "\u00d7"
SLOW = {"futoshiki", "intermediate_integration", "knight_swap", "sudoku", "zebra_puzzles"}


def prompt(task: str, entry: dict[str, Any], **meta: Any) -> Prompt:
    meta = {"task": task, "config": {}, "entry": pack(entry), **meta}
    return Prompt(id=task, text="?", verifier="gym", answer=str(entry["answer"]), meta=json.loads(json.dumps(meta)))


def entry(answer: Any, **metadata: Any) -> dict[str, Any]:
    return {"answer": answer, "metadata": metadata}


def check_task(task: str, rows: int) -> None:
    if task in EVALUATED:
        require_sandbox()
    source = GymSource(task)
    for row in (source.row(i) for i in range(rows)):
        meta = json.loads(json.dumps(dict(row.meta)))
        for mode in ("binary", "partial"):
            asked = Prompt(id=row.id, text=row.question, answer=row.answer, meta={**meta, "mode": mode})
            for gold in golds(task, row.answer, meta["entry"]["metadata"]):
                score = verify_gym(asked, f"So it is <answer>{gold}</answer>")
                assert (score.outcome, score.reward) == (Outcome.CORRECT, 1.0), (task, gold, score)
            for junk in JUNK:
                if _letters(junk) == _letters(row.answer):
                    continue  # not junk here: one item of quantum_lock is solved by C, A, C, A
                score = verify_gym(asked, f"<answer>{junk}</answer>")
                assert score.reward == 0.0, (task, junk, row.answer, score)
                assert score.outcome is Outcome.WRONG


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text)) or text


def golds(task: str, answer: str, metadata: dict[str, Any]) -> list[str]:
    """The gold; for tasks without one, the example that the generator keeps beside the item."""
    if task == "graph_color":
        return [json.dumps({str(k): v for k, v in metadata["possible_answer"]["__items__"]})]
    if task == "rubiks_cube":
        return [metadata["example_correct_answer"]]
    return [answer] if answer else []


@pytest.mark.parametrize("task", [t for t in task_names() if t not in SLOW])
def test_golds_score_one_and_junk_nothing(task: str) -> None:
    check_task(task, rows=1)


@pytest.mark.slow
@pytest.mark.parametrize("task", task_names())
def test_golds_score_one_and_junk_nothing_on_more_items(task: str) -> None:
    check_task(task, rows=2 if task in SLOW else 10)


@pytest.mark.slow
def test_golds_of_the_shared_samples_score_one() -> None:
    rows = [r for r in shared_rows("data/reasoning_gym_samples.jsonl") if r["answer"]]
    datasets: dict[str, Any] = {}
    same_question = 0
    for row in rows:
        task = row["task"]
        if task not in datasets:
            datasets[task] = reasoning_gym.create_dataset(task, seed=row["seed"], size=3)
        item = datasets[task][row["index"]]
        if item["question"] != row["question"]:
            continue  # some items differ from one Python process to the next
        same_question += 1
        answer = f"<answer>{row['answer']}</answer>"
        assert verify_gym(prompt(task, item), answer).outcome is Outcome.CORRECT, row["id"]
    assert same_question >= 0.9 * len(rows)


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "leg_counting: 188": ("leg_counting", entry("188")),
    "syllogism: No": ("syllogism", entry("No")),
    "propositional: False": ("acre", entry("False")),
    "count: 5": ("leg_counting", entry("5")),
    "prime_factorization: 3 x 3 x 37": ("prime_factorization", entry(f"3 {TIMES} 3 {TIMES} 37")),
    "countdown: target 24": ("countdown", entry("4 * 6", numbers=[4, 6], target=24)),
    "countdown: numbers 2,4,6,25": ("countdown", entry("", numbers=[2, 4, 6, 25], target=24)),
    "calendar: Wednesday": ("calendar_arithmetic", entry("Wednesday", task="weekday_of_date")),
    "complex: 4 - 7i": ("complex_arithmetic", entry("4 - 7i", result=[4, -7])),
    "time_intervals: 01:45:30": ("time_intervals", entry("01:45:30", task_type="time_seconds")),
    "number_format: 947865419.1689999": ("number_format", entry("947865419.1689999", solution=947865419.1689999)),
    "number_sorting: ['-92.85', '71.08'] (gold once rounded to ['-92.8', '71.1'])": (
        "number_sorting",
        entry("['-92.85', '71.08']", direction="ascending"),
    ),
    "power_function: 8.05544726166417e-06": ("power_function", entry("8.05544726166417e-06")),
    "boxnet: plan": ("boxnet", entry(None, initial_state={"0.5_0.5": ["box_red"], "0.5_1.5": ["target_red"]})),
}
RESPONSES = {
    "3*8 using numbers not offered": "3*8",
    "unparsable text in boxnet": '[{"Agent": "move(box_red, square[0, 1])"}]',
}


def test_the_handed_cases() -> None:
    rows = cases("reasoning-gym")
    assert len(rows) == 16
    for row in rows:
        if row["gold"] == "graph_color: gold is null":
            item = create("graph_color", {}, 5)[0]
            task, response = (
                "graph_color",
                json.dumps({str(k): v for k, v in item["metadata"]["possible_answer"].items()}),
            )
        else:
            task, item = CASES[row["gold"]]
            response = RESPONSES.get(row["input"], row["input"])
        for mode in ("binary", "partial"):
            asked = prompt(task, item, mode=mode, answer_format="whole")
            score = verify_gym(asked, response or "")
            if row["expect"] == "correct":
                assert score.outcome is Outcome.CORRECT, row
            elif row["gold"].startswith("time_intervals") and mode == "partial":
                assert score.outcome is Outcome.PARTIAL, row
            else:
                assert score.reward == 0.0, row


@pytest.mark.parametrize(
    ("task", "item", "answer"),
    [
        ("coin_flip", entry("0.25"), "0"),
        ("figlet_font", entry("abcdefghijkl"), "abcdefghijXX"),
        ("game_of_life", entry("[[1,0]]"), "[[1,0,5],[7]]"),
        ("game_of_life_halting", entry("True"), "__wrong__"),
        ("gsm_symbolic", entry("5"), "5 or 6"),
        ("letter_jumble", entry("the cat"), "the cat sat on"),
        ("number_sorting", entry("['1.0', '2.0']", direction="ascending"), "[1.9, 2.9]"),
        ("polynomial_equations", entry("0.7757"), "0.7757, maybe"),
        ("puzzle24", entry("", numbers=[1, 2, 3, 4]), "6*4*1*1"),
        ("puzzle24", entry("", numbers=[1, 2, 5, 10]), "(10*5-1)/2"),
        ("spell_backward", entry("abcdefghij"), "abcdefghijXX"),
        ("word_sorting", entry("a, b", sorted_words=["a", "b"]), "a, b, zzz"),
    ],
)
def test_where_the_tasks_own_scorer_pays_for_a_wrong_answer(task: str, item: dict[str, Any], answer: str) -> None:
    scorer = create(task, {"max_value": 10} if task == "puzzle24" else {})
    assert scorer.score_answer(answer, item) >= 1 - 1e-9, "the library is mended: its judge may go"
    assert verify_gym(prompt(task, item), f"<answer>{answer}</answer>").outcome is Outcome.WRONG


@pytest.mark.parametrize(
    ("task", "item", "answer"),
    [
        ("coin_flip", entry("0.25"), "1/4"),
        ("coin_flip", entry("6.103515625e-05"), "1/16384"),
        ("coin_flip", entry("6.103515625e-05"), "6.103515625e-05"),
        ("complex_arithmetic", entry("4 - 7i", result=[4, -7]), "(4-7j)"),
        ("countdown", entry("", numbers=[2, 4, 6, 25], target=24), "25 - (6 - 4) / 2"),
        ("figlet_font", entry("ABC"), "a b c"),
        ("game_of_life", entry("[[1,0],[0,1]]"), "[[1, 0], [0, 1]]"),
        ("gsm_symbolic", entry("-5"), "-5"),
        ("gsm_symbolic", entry("1200"), "$1,200.00 in all"),
        ("polynomial_equations", entry("-0.7757, 1.9717"), "1.97171, -0.77566"),
        ("puzzle24", entry("", numbers=[1, 2, 3, 4]), "4*3*2/1"),
    ],
)
def test_right_answers_in_other_words(task: str, item: dict[str, Any], answer: str) -> None:
    assert verify_gym(prompt(task, item), f"<answer>{answer}</answer>").outcome is Outcome.CORRECT


HOSTILE = {
    "write": "open('{folder}/pwned', 'w').write('x')",
    "import": "__import__('os').system('touch {folder}/pwned')",
    "class": "().__class__.__base__.__subclasses__()",
    "network": "__import__('socket').create_connection(('127.0.0.1', {port}), 1)",
    "exit": "__import__('os')._exit(0)",
    "kill": "__import__('os').kill(__import__('os').getppid(), 9)",
    "leave": "exit()",
    "lambda": "[open('{folder}/pwned', 'w') for x in [1]]",
    "format": "f'{{open(1)}}'",
}


def hostile_texts(folder: Path, port: int) -> dict[str, str]:
    return {name: text.format(folder=folder, port=port) for name, text in HOSTILE.items()}


@pytest.mark.parametrize("task", EVALUATED)
def test_text_that_is_no_plain_answer_is_not_evaluated(task: str, tmp_path: Path) -> None:
    item = create(task, {}, 1)[0]
    for text in [*hostile_texts(tmp_path, 1).values(), "x.__class__", "exec('1')", "lambda: 1", "9**9**9**9"]:
        assert not EVALUATED[task](text, item), text
        score = verify_gym(prompt(task, item), f"<answer>{text}</answer>")
        assert (score.outcome, score.note[:13]) == (Outcome.WRONG, "not evaluated"), text
        assert evaluate(text)[0] is None
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("task", ["n_queens", "simple_integration", "polynomial_multiplication"])
def test_text_that_is_evaluated_reaches_nothing_outside_its_sandbox(task: str) -> None:
    """Past the form check on purpose: the sandbox alone must hold. Outside it, the same text does write its file."""
    require_sandbox()
    item = create(task, {}, 1)[0]
    with (
        tempfile.TemporaryDirectory() as folder,  # everybody may pass through it
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        Path(folder).chmod(0o777)
        texts = hostile_texts(Path(folder), listener.getsockname()[1])
        for name, text in texts.items():
            value, note = evaluated(task, item, text)
            assert value == 0.0, name
            assert STRONG in note, name
            assert evaluated(task, item, item["answer"]) == (1.0, STRONG), f"after {name}"
        assert not list(Path(folder).iterdir())
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()
        create(task, {}, 1).score_answer(texts["write"], item)
        assert [path.name for path in Path(folder).iterdir()] == ["pwned"]


def test_what_costs_too_much_is_wrong() -> None:
    require_sandbox()
    item = create("simple_integration", {}, 1)[0]
    score = verify_gym(prompt("simple_integration", item), "<answer>7**3333333333*x</answer>")
    assert score.outcome is Outcome.WRONG
    assert score.note.endswith(f"[{STRONG}]")


@pytest.mark.parametrize(
    ("integrand", "answer"),
    [
        ("x**4/24", "x**5/5! + C"),
        ("(100*x + 1)**2", "(100*x + 1)**3/300"),
        ("x/2", "Rational(1, 4)*x**2"),
        ("1/x", "log(x) + C"),
        ("cosh(x)", "sinh(x)"),
        ("2*x/9", "0.[1]*x**2"),
        ("exp(x)", "E**x + C"),
        ("1/(x*log(10))", "log(x, 10) + C"),
    ],
)
def test_every_form_of_an_integral_is_right(integrand: str, answer: str) -> None:
    require_sandbox()
    item = entry("-", integrand=integrand, variable="x")
    score = verify_gym(prompt("simple_integration", item), f"<answer>{answer}</answer>")
    assert (score.outcome, score.note) == (Outcome.CORRECT, STRONG)


def test_without_a_sandbox_scorers_that_evaluate_are_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    item = create("spiral_matrix", {}, 1)[0]
    response = f"<answer>{item['answer']}</answer>"
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(ALLOW_WEAK, raising=False)
    launch.isolation.cache_clear()
    try:
        score = verify_gym(prompt("spiral_matrix", item), response)
        assert score.outcome is Outcome.ERROR
        assert "bubblewrap (bwrap) is not installed" in score.note
        with VerifierPool(workers=1) as pool:
            pooled = pool.submit(prompt("spiral_matrix", item), response).result()
        assert (pooled.outcome, "bwrap" in pooled.note) == (Outcome.ERROR, True)
        launch.isolation.cache_clear()
        monkeypatch.setenv(ALLOW_WEAK, "1")
        run._discard("scorer")
        weak = verify_gym(prompt("spiral_matrix", item), response)
        assert (weak.outcome, weak.note) == (Outcome.CORRECT, WEAK)
    finally:
        run._discard("scorer")
        launch.isolation.cache_clear()


def test_repeating_the_question_is_no_integral() -> None:
    item = create("intermediate_integration", {}, 1)[0]
    answer = f"Integral({item['metadata']['integrand']}, {item['metadata']['variable']})"
    assert verify_gym(prompt("intermediate_integration", item), f"<answer>{answer}</answer>").outcome is Outcome.WRONG


def test_a_small_probability_is_not_zero() -> None:
    assert verify_gym(prompt("coin_flip", entry("6.1e-05")), "<answer>0</answer>").outcome is Outcome.WRONG


def test_lists_of_tasks_name_tasks() -> None:
    listed = set(JUDGES) | set(EVALUATED) | set(ADMISSIBLE) | NO_PARTIAL
    assert listed <= set(task_names())
    assert not set(JUDGES) & (set(EVALUATED) | set(ADMISSIBLE) | NO_PARTIAL)


def test_answers_are_read_in_the_prompts_format() -> None:
    item = entry("12")
    asked = {
        f: prompt("chain_sum", item, answer_format=f) for f in ("tag", "whole", "first_line", "last_line", "anchor")
    }
    assert verify_gym(asked["tag"], "12").outcome is Outcome.NO_ANSWER
    assert verify_gym(asked["tag"], "<think><answer>3</answer></think> <answer>12</answer>").reward == 1.0
    assert verify_gym(asked["tag"], "<think> <answer>12</answer>").outcome is Outcome.NO_ANSWER
    assert verify_gym(asked["whole"], " 12.\n").reward == 1.0
    assert verify_gym(asked["first_line"], " 12.\nQ: next").reward == 1.0
    assert verify_gym(asked["last_line"], "5 + 7 is\n12").reward == 1.0
    assert verify_gym(asked["anchor"], "5 + 7, so the answer is 12.").reward == 1.0


def test_partial_credit_only_where_it_means_something() -> None:
    item = {"answer": f"3 {TIMES} 3 {TIMES} 37", "metadata": {}}
    half = verify_gym(prompt("prime_factorization", item, mode="partial"), f"<answer>9 {TIMES} 37</answer>")
    assert (half.outcome, half.reward) == (Outcome.PARTIAL, 0.5)
    assert verify_gym(prompt("prime_factorization", item), f"<answer>9 {TIMES} 37</answer>").outcome is Outcome.WRONG
    assert verify_gym(prompt("chain_sum", entry("188"), mode="partial"), "<answer>1880</answer>").reward == 0.0
    raised = verify_gym(prompt("prime_factorization", item), "<answer>no idea</answer>")
    assert (raised.outcome, raised.note) == (Outcome.WRONG, "the scorer raises ValueError")


def test_grading_leaves_the_entry_as_it_was() -> None:
    item = create("knight_swap", {}, 3)[0]
    asked = prompt("knight_swap", item)
    before = json.dumps(asked.meta["entry"])
    verify_gym(asked, f"<answer>{item['answer']}</answer>")
    assert json.dumps(asked.meta["entry"]) == before
