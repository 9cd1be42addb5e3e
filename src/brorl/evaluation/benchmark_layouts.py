"""From a row of a public benchmark, as its authors or its usual mirrors publish it, to a question, an answer and meta.

A layout is a plain function ``record -> Problem``; where a row cannot be asked or judged it returns the reason as text,
and the row is left out and counted under it. Column names that mirrors changed (``problem`` for ``question``) are all
read; which ones, each function says.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from string import ascii_uppercase
from typing import Any

from brorl.seeding import generator
from brorl.verifiers.ifeval import CHECKS
from brorl.verifiers.mathematics.extraction import last_box

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is asked, what is right, and what the verifier or a table needs besides."""

    question: str
    answer: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """``category`` groups the problems in tables"""


Layout = Callable[[Record], Problem | str]


def first(record: Record, *names: str) -> Any:
    """The first of these columns that holds something; None where none does."""
    return next((record[name] for name in names if record.get(name) not in (None, "", [])), None)


def _kept(record: Record, **names: str) -> dict[str, Any]:
    """Meta from columns: new name = old name, where the column holds something."""
    return {new: record[old] for new, old in names.items() if record.get(old) not in (None, "", [])}


def final_answer(record: Record) -> Problem | str:
    """Mathematics: ``question`` or ``problem``; ``answer``, ``final_answer``, or the last box of ``solution``.

    GSM8K's answer is what stands after ``####``; answers stored as floats (142.0) are the whole numbers they mean.
    """
    question = first(record, "question", "problem", "Problem", "Question", "prompt")
    answer = first(record, "answer", "Answer", "final_answer", "expected_answer")
    solution = first(record, "solution", "Solution")
    if isinstance(answer, list):
        answer = ", ".join(str(part).strip().strip("$") for part in answer)
    if isinstance(answer, float) and answer.is_integer():
        answer = int(answer)
    if answer is None and solution is not None:
        box = last_box(str(solution))
        answer = box.text if box is not None else None
    if not isinstance(question, str) or answer is None:
        return "no question or no answer in it"
    answer = str(answer)
    if "####" in answer:
        answer = answer.rpartition("####")[2].strip().replace(",", "")
    meta = _kept(record, unit="unit", level="level", category="subject") or _kept(record, category="subfield")
    return Problem(question=question, answer=answer, meta=meta)


def choice(record: Record) -> Problem | str:
    """Options: ARC's ``choices`` (``text`` and ``label``) with ``answerKey``; ours with ``labels`` and ``answer``; and
    GPQA's ``Correct Answer`` and three incorrect ones, put in an order that depends on the question alone."""
    question = first(record, "question", "Question")
    if "Correct Answer" in record:
        options = [
            str(record[name]).strip() for name in ("Correct Answer", *(f"Incorrect Answer {i}" for i in (1, 2, 3)))
        ]
        order = generator("gpqa", str(question)).permutation(4).tolist()
        choices, labels = [options[i] for i in order], list("ABCD")
        answer: Any = labels[order.index(0)]
    else:
        given = record.get("choices")
        choices = list(given.get("text") or []) if isinstance(given, Mapping) else list(given or [])
        labels = list((given.get("label") if isinstance(given, Mapping) else record.get("labels")) or [])
        answer = first(record, "answerKey", "answer")
    if not isinstance(question, str) or len(choices) < 2 or answer is None:
        return "no question, options or answer in it"
    listed = "\n".join(f"{letter}. {text}" for letter, text in zip(ascii_uppercase, choices, strict=False))
    meta = {"choices": choices, **({"labels": labels} if labels else {})}
    meta |= _kept(record, category="High-level domain") or _kept(record, category="subject")
    return Problem(question=f"{question}\n\n{listed}", answer=str(answer), meta=meta)


def function(record: Record) -> Problem | str:
    """HumanEval and EvalPlus: ``prompt`` (code that is continued), ``entry_point``, ``test`` or ``base_input`` (and
    ``plus_input``); the gold is ``canonical_solution`` or ``answer``."""
    if "test_list" in record:
        return _evalplus_mbpp(record)
    gold = first(record, "canonical_solution", "answer")
    prompt, entry = record.get("prompt"), record.get("entry_point")
    if not isinstance(prompt, str) or not isinstance(gold, str) or not entry:
        return "no prompt, entry point or solution in it"
    meta = {"prompt": prompt, "entry_point": entry}
    meta |= _kept(record, test="test") or _kept(
        record, base_input="base_input", plus_input="plus_input", atol="atol", plus_input_total="plus_input_total"
    )
    return Problem(question=f"```python\n{prompt.rstrip()}\n```", answer=gold, meta=meta)


def _evalplus_mbpp(record: Record) -> Problem | str:
    """MBPP+ as a table: ``prompt``, ``code``, the added tests as one program in ``test``."""
    if not isinstance(record.get("prompt"), str) or not isinstance(record.get("code"), str):
        return "no prompt or solution in it"
    tests = [record["test"]] if record.get("test") else record["test_list"]
    meta = {"test_list": tests, "test_setup_code": "\n".join(record.get("test_imports") or [])}
    return Problem(question=_with_tests(record["prompt"], record["test_list"]), answer=record["code"], meta=meta)


def assertions(record: Record) -> Problem | str:
    """MBPP: ``text`` or ``prompt``, ``test_list``, ``test_setup_code``; the gold is ``code`` or ``answer``.

    Where the rows say which split they belong to, the test split is asked.
    """
    if record.get("split") not in (None, "test"):
        return "not in the test split"
    question, tests = first(record, "text", "prompt"), record.get("test_list")
    gold = first(record, "code", "answer")
    if not isinstance(question, str) or not tests or not isinstance(gold, str):
        return "no question, tests or solution in it"
    meta = _kept(record, test_list="test_list", test_setup_code="test_setup_code", test_imports="test_imports")
    return Problem(question=_with_tests(question, tests), answer=gold, meta=meta)


def _with_tests(question: str, tests: list[str]) -> str:
    return f"{question.strip()}\nYour code should pass these tests:\n" + "\n".join(tests)


def programs(record: Record) -> Problem | str:
    """APPS and TACO (``question``, ``input_output``, ``solutions``, ``starter_code``), CodeContests (``description``,
    ``public_tests``, ``private_tests``, ``generated_tests``), Codeforces (``description``, ``input_format``,
    ``output_format``, ``examples``, ``official_tests``): programs that read and write, or functions that are called."""
    if first(record, "generated_checker", "checker"):
        return "several outputs are right, and only its own checker knows them"
    question = first(record, "question", "description")
    tests = _program_tests(record)
    if not isinstance(question, str) or tests is None:
        return "no question or no tests in it"
    sections = [question.strip()]
    for title, column in (("Input", "input_format"), ("Output", "output_format"), ("Note", "note")):
        if record.get(column):
            sections.append(f"{title}\n{str(record[column]).strip()}")
    for example in record.get("examples") or ():
        sections.append(f"Example input\n{example['input'].strip()}\nExample output\n{example['output'].strip()}")
    if record.get("starter_code"):
        sections.append(f"Complete this code:\n```python\n{str(record['starter_code']).rstrip()}\n```")
    meta = {**tests, **_kept(record, memory_limit="memory_limit", category="difficulty")}
    limit = record.get("time_limit")
    if isinstance(limit, Mapping):
        limit = limit.get("seconds", 0) + limit.get("nanos", 0) / 1e9
    if limit:
        meta["time_limit"] = float(limit)
    if meta.get("memory_limit") is None and record.get("memory_limit_bytes"):
        meta["memory_limit"] = int(record["memory_limit_bytes"]) // 2**20
    return Problem(question="\n\n".join(sections), answer=_python_solution(record), meta=meta)


def _program_tests(record: Record) -> dict[str, Any] | None:
    if record.get("input_output"):
        found = record["input_output"]
        return {"input_output": found if isinstance(found, str) else json.dumps(found)}
    inputs: list[str] = []
    outputs: list[str] = []
    for name in ("public_tests", "private_tests", "generated_tests", "official_tests"):
        tests = record.get(name)
        if isinstance(tests, Mapping):
            inputs += tests.get("input") or []
            outputs += tests.get("output") or []
        elif tests:
            inputs += [test["input"] for test in tests]
            outputs += [test["output"] for test in tests]
    if not outputs and "outputs" in record:
        return {"inputs": record.get("inputs") or [], "outputs": record["outputs"]}
    return {"inputs": inputs, "outputs": outputs} if outputs else None


_PYTHON3 = 3  # CodeContests' number for the language


def _python_solution(record: Record) -> str:
    """The first Python solution that the row brings, for the check of its tests; empty where there is none."""
    found = first(record, "solutions", "answer")
    if isinstance(found, str):
        try:
            found = json.loads(found)
        except ValueError:
            return found
    if isinstance(found, Mapping):
        languages, texts = found.get("language") or [], found.get("solution") or []
        found = [text for language, text in zip(languages, texts, strict=False) if language in (_PYTHON3, "PYTHON3")]
    return str(found[0]) if isinstance(found, list) and found else ""


def instruction(record: Record) -> Problem | str:
    """IFEval and IFBench: ``prompt``, ``instruction_id_list``, ``kwargs``; rows with a check that is not ours are left
    out, named by it."""
    prompt, names = record.get("prompt"), record.get("instruction_id_list")
    if not isinstance(prompt, str) or not names:
        return "no prompt or no instructions in it"
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        return f"cannot be scored: no check for {unknown[0]}"
    kwargs = [{k: v for k, v in (given or {}).items() if v is not None} for given in record.get("kwargs") or []]
    meta = {"instruction_id_list": list(names), "kwargs": kwargs or [{}] * len(names), "reward": "all"}
    return Problem(question=prompt, meta={**meta, "category": str(names[0]).partition(":")[0]})


def knights_and_knaves(record: Record) -> Problem | str:
    """Logic-RL and K-and-K rows: ``question`` or ``quiz``, ``names``, ``solution`` (who is a knight); judged by
    Reasoning Gym's own scorer, whatever the order of the names."""
    question, names, solution = first(record, "question", "quiz"), record.get("names"), record.get("solution")
    if not isinstance(question, str) or not names or not isinstance(solution, list) or len(solution) != len(names):
        return "no question, names or solution in it"
    roles = [f"{name} is a {'knight' if knight else 'knave'}" for name, knight in zip(names, solution, strict=True)]
    answer = ", ".join(roles)
    meta = {
        "task": "knights_knaves",
        "config": {},
        "entry": {"answer": answer, "metadata": {}},
        "category": f"{len(names)} people",
    }
    return Problem(question=question, answer=answer, meta=meta)
