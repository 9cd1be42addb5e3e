"""The column layouts of public data sets: from a record to a row with its verifier, one plain function each.

`recognise` finds the layout of a record by its columns; a recipe may name one instead. A layout knows which verifier
judges its rows and what that one needs in the row's meta (docs/recipe.md, "Data", has the table).
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from string import ascii_uppercase
from typing import Any

from brorl.errors import DataError
from brorl.tasks.rows import TaskRow

Columns = Mapping[str, str]
Layout = Callable[[Mapping[str, Any], Columns], TaskRow]

COLUMNS: dict[str, tuple[str, ...]] = {
    "id": ("id",),
    "question": ("question", "prompt", "problem"),
    "messages": ("messages", "prompt"),
    "answer": ("answer", "ground_truth", "solution"),
}
"""Columns that `plain` looks for, in this order, where the recipe names none."""
EURUS_SOURCES = frozenset(
    (
        *("apps", "codecontests", "code_contests", "codeforces", "taco"),
        *("numina_amc_aime", "numina_aops_forum", "numina_cn_k12", "numina_olympiads"),
        *("numina_synthetic_amc", "numina_synthetic_math"),
    )
)
"""values of Eurus-2-RL's column ``data_source``"""
_EURUS = "a data_source of Eurus-2-RL"
_SHORT = 120  # characters; a longer reference is a worked solution, and needs a box or "the answer is"
_FINAL = re.compile(r"\\boxed\s*\{|####|\banswer\b\W{0,3}(?:is|:)", re.IGNORECASE)
_OPTION = re.compile(r"(?:^|\s)\(?([A-J])[).:]\s+(.+?)(?=\s\(?[A-J][).:]\s|\Z)", re.DOTALL)
_LETTER = re.compile(r"(?i:(?:the )?(?:correct )?(?:answer)?\W{0,3}(?:is\W{0,3})?)\(?([A-J])(?:[).:].*)?", re.DOTALL)
_TESTS = ("test", "test_list", "base_input", "input_output", "outputs", "official_tests", "public_tests")


class LeftOut(Exception):
    """A row that its data set itself marks as unusable, or that has nothing to be graded by; the message says why."""


def plain(record: Mapping[str, Any], columns: Columns) -> TaskRow:
    """Our own columns, and TRL's: ``question`` or ``prompt`` (a text, or messages), ``answer``, and any others.

    Every other column goes to `TaskRow.meta`, where reward functions ask for it by name. Verifier: ``code`` where a
    column holds tests that it reads, else ``math``.
    """
    for key, column in columns.items():
        if column not in record:
            raise DataError(f"no column {column!r}, which is to hold the {key}; it has {', '.join(record)}")
    question, messages, used = _question(record, columns)
    answer = _first(record, (columns["answer"],) if "answer" in columns else COLUMNS["answer"])
    identity = record.get(columns.get("id", "id"))
    used.add(columns.get("id", "id"))
    if "answer" not in columns:
        used.add("answer")  # under any other name the answer stays in meta too, for reward functions that ask for it
    verifier = "code" if any(record.get(key) for key in _TESTS) else "math"
    if verifier == "code":
        used.discard("prompt")  # HumanEval's and EvalPlus's tests continue it
    return TaskRow(
        id="" if identity is None else str(identity),
        question=question,
        messages=messages,
        verifier=verifier,
        answer=answer,
        meta=_rest(record, used),
    )


def multiple_choice(record: Mapping[str, Any], columns: Columns) -> TaskRow:
    """ARC's and MMLU's columns: ``question``, ``choices`` (a list, or ``text`` and ``label``), ``answer`` or
    ``answerKey``.

    The options are put below a question that does not show them. Verifier ``choice``.
    """
    choices, labels = record["choices"], record.get("labels")
    if isinstance(choices, Mapping):
        choices, labels = choices.get("text"), choices.get("label")
    if not isinstance(choices, list) or len(choices) < 2:
        raise DataError("choices: a list of at least two options is needed")
    options = [str(option) for option in choices]
    letters = [str(label) for label in labels] if isinstance(labels, list) else []
    answer = record.get("answer", record.get("answerKey"))
    if isinstance(answer, int) and not isinstance(answer, bool) and 0 <= answer < len(options):
        answer = ascii_uppercase[answer]  # MMLU counts from 0
    question = str(record["question"])
    if not all(option in question for option in options):
        shown = (f"{letter}. {option}" for letter, option in zip(ascii_uppercase, options, strict=False))
        question = "\n".join([question, *shown])
    meta = {**_rest(record, {"id", "question", "choices", "labels", "answer", "answerKey"}), "choices": options}
    return TaskRow(
        id=_id(record),
        question=question,
        verifier="choice",
        answer="" if answer is None else str(answer),
        meta={**meta, "labels": letters} if letters else meta,
    )


def deepscaler(record: Mapping[str, Any], columns: Columns) -> TaskRow:
    """DeepScaleR-Preview (mathematics): ``problem``, ``answer``, ``solution``. Verifier ``math``."""
    return TaskRow(
        id=_id(record),
        question=str(record["problem"]),
        verifier="math",
        answer=_first(record, ("answer",)),
        meta=_rest(record, {"id", "problem", "answer"}),
    )


def scp116k(record: Mapping[str, Any], columns: Columns) -> TaskRow:
    """SCP-116K (STEM): ``domain``, ``problem``, and ``matched_solution`` (first release) or ``extract_solution``.

    Verifier ``choice`` where the problem shows lettered options and the reference names one of them, else ``math``,
    which also compares short texts. Left out: rows without a reference, with a worked solution that states no final
    answer, and rows in which the data set's own flags say that no model's answer agreed with the reference.
    """
    problem = str(record["problem"] or "")
    reference = _first(record, ("extract_solution", "matched_solution"))
    if not problem.strip() or not reference:
        raise LeftOut("no problem or no reference answer")
    flags = [value for key, value in record.items() if key.endswith("_same_with_matched_solution")]
    if flags and not any(flag is True or str(flag).lower() == "true" for flag in flags):
        raise LeftOut("no recorded model agreed with the reference")
    verifier, answer, meta = _stem(problem, reference.strip())
    if verifier == "math" and len(answer) > _SHORT and not _FINAL.search(answer):
        raise LeftOut("a worked solution without a final answer")
    keep = _rest(record, {"id", "problem", "extract_solution", "matched_solution"})
    short = {key: value for key, value in keep.items() if key == "domain" or key.endswith("_matched_solution")}
    return TaskRow(id=_id(record), question=problem, verifier=verifier, answer=answer, meta={**short, **meta})


def eurus2(record: Mapping[str, Any], columns: Columns) -> TaskRow:
    """Eurus-2-RL (code and mathematics): verl's columns, tests as JSON of ``inputs`` and ``outputs``.

    The user's message alone becomes the question: the system message of the data set asks for action tags of PRIME's
    own model. Verifier ``code``, rewarded by the share of tests that pass (ProRL's continuous reward), or ``math``.
    """
    row = verl(record, columns)
    asked = [message["content"] for message in row.messages if message["role"] == "user"]
    if not row.messages:
        asked = [row.question]
    if len(asked) != 1:
        raise DataError(f"a row of Eurus-2-RL has one message of the user, not {len(asked)}")
    meta = {**row.meta, "reward": "share"} if row.verifier == "code" else row.meta
    return TaskRow(id=row.id, question=asked[0], verifier=row.verifier, answer=row.answer, meta=meta)


def verl(record: Mapping[str, Any], columns: Columns) -> TaskRow:
    """verl's Parquet: ``prompt`` (messages), ``reward_model.ground_truth``, ``ability``, ``data_source``, others.

    Verifier by the ground truth: ``code`` for tests (``inputs`` and ``outputs``, or ability ``code``), ``instruction``
    for an ``instruction_id_list``, ``choice`` for a letter under lettered options, else ``math``.
    """
    model = record["reward_model"]
    truth = model.get("ground_truth") if isinstance(model, Mapping) else None
    answer = "" if truth is None else _text(truth)
    question, messages, used = _question(record, {})
    meta = _rest(record, {*used, "id"})
    value = _parsed(truth)
    if isinstance(value, Mapping) and "instruction_id_list" in value:
        verifier, answer = "instruction", ""
        meta |= _instructions(value["instruction_id_list"], value.get("kwargs") or value.get("instruction_kwargs"))
    elif str(record.get("ability")).lower() in ("code", "coding") or (
        isinstance(value, Mapping) and {"inputs", "outputs"} <= value.keys()
    ):
        verifier = "code"
    else:
        text = question or messages[-1]["content"]
        verifier, answer, options = _stem(text, answer)
        meta |= options
    return TaskRow(id=_id(record), question=question, messages=messages, verifier=verifier, answer=answer, meta=meta)


def instruction_following(record: Mapping[str, Any], columns: Columns) -> TaskRow:
    """Llama-Nemotron's RL subset (``input`` as messages, ``args`` with ``instruction_id_list`` and
    ``instruction_kwargs``), and IFEval's columns (``prompt``, ``instruction_id_list``, ``kwargs``).

    Verifier ``instruction``. Nemotron's ``system_prompt`` switches its own model's thinking and is left out.
    """
    args = _parsed(record["args"]) if record.get("args") else record
    if not isinstance(args, Mapping) or not args.get("instruction_id_list"):
        raise DataError("no instruction_id_list, neither as a column nor within args")
    kwargs = args["instruction_kwargs"] if "instruction_kwargs" in args else args.get("kwargs")
    asked = record.get("input") if record.get("args") else record.get("prompt")
    if isinstance(asked, list):
        messages = _messages([m for m in asked if not (isinstance(m, Mapping) and m.get("role") == "system")])
        question, messages = (messages[0]["content"], ()) if len(messages) == 1 else ("", messages)
    elif isinstance(asked, str) and asked.strip():
        question, messages = asked, ()
    else:
        raise DataError("no question: a text or messages in 'input' or 'prompt'")
    used = {"id", "input", "args", "prompt", "instruction_id_list", "kwargs", "system_prompt"}
    return TaskRow(
        id=_id(record),
        question=question,
        messages=messages,
        verifier="instruction",
        meta={**_rest(record, used), **_instructions(args["instruction_id_list"], kwargs)},
    )


LAYOUTS: dict[str, Layout] = {
    "plain": plain,
    "multiple_choice": multiple_choice,
    "deepscaler": deepscaler,
    "eurus2": eurus2,
    "scp116k": scp116k,
    "instruction_following": instruction_following,
    "verl": verl,
    "trl": plain,
}
_MARKS: dict[str, tuple[frozenset[str], ...]] = {
    "plain": (frozenset(("question",)),),
    "multiple_choice": (frozenset(("question", "choices")),),
    "deepscaler": (frozenset(("problem", "answer")),),
    "eurus2": (frozenset(("prompt", "reward_model", _EURUS)),),
    "scp116k": (frozenset(("problem", "matched_solution")), frozenset(("problem", "extract_solution"))),
    "instruction_following": (frozenset(("prompt", "instruction_id_list")), frozenset(("input", "args"))),
    "verl": (frozenset(("prompt", "reward_model")),),
    "trl": (frozenset(("prompt",)), frozenset(("messages",))),
}
"""Columns that a layout is recognised by; a larger set that fits wins over one that it contains."""


def recognise(record: Mapping[str, Any]) -> str:
    """The layout whose columns a record has; ``plain`` where it has those of none.

    Raises:
        DataError: it fits several layouts, none of which is a special case of another.
    """
    columns = {key for key, value in record.items() if value is not None}
    if record.get("data_source") in EURUS_SOURCES:
        columns.add(_EURUS)
    fitting = [(name, marks) for name, sets in _MARKS.items() for marks in sets if marks <= columns]
    best = {name for name, marks in fitting if not any(marks < other for _, other in fitting)}
    if len(best) > 1:
        raise DataError(
            f"its columns ({', '.join(record)}) fit the layouts {' and '.join(sorted(best))}: name one of them with "
            "layout, or name the columns under columns"
        )
    return best.pop() if best else "plain"


def _stem(question: str, reference: str) -> tuple[str, str, dict[str, Any]]:
    """(verifier, reference, meta): ``choice`` where lettered options are shown and the reference names one of them."""
    options = _OPTION.findall(question)
    letters = "".join(letter for letter, _ in options)
    if len(letters) >= 2 and letters == ascii_uppercase[: len(letters)]:
        texts = [" ".join(text.split()) for _, text in options]
        boxed = re.fullmatch(r"\\boxed\s*\{(?:\\text\s*\{)?([^{}]*)\}{1,2}", reference.strip())
        named = _LETTER.fullmatch((boxed.group(1) if boxed else reference).strip())
        if named and named.group(1) in letters:
            return "choice", named.group(1), {"choices": texts}
        if texts.count(reference.strip()) == 1:
            return "choice", ascii_uppercase[texts.index(reference.strip())], {"choices": texts}
    return "math", reference, {}


def _instructions(names: Any, kwargs: Any) -> dict[str, Any]:
    """As the verifier wants them, without the nulls that a table's common columns leave in ``kwargs``."""
    given = kwargs if isinstance(kwargs, list) else [{}] * len(names)
    clean = [{key: value for key, value in (one or {}).items() if value is not None} for one in given]
    return {"instruction_id_list": [str(name) for name in names], "kwargs": plain_json(clean)}


def _question(record: Mapping[str, Any], columns: Columns) -> tuple[str, tuple[dict[str, str], ...], set[str]]:
    """(text, messages, columns read)."""
    for kind in ("messages", "question"):
        for column in (columns[kind],) if kind in columns else COLUMNS[kind]:
            value = record.get(column)
            if kind == "messages" and isinstance(value, list):
                return "", _messages(value), {column}
            if kind == "question" and isinstance(value, str) and value.strip():
                return value, (), {column}
    raise DataError(
        "no question: a column 'question' or 'prompt' with text, or 'messages' with a conversation, is needed"
    )


def _messages(value: Sequence[Any]) -> tuple[dict[str, str], ...]:
    messages: list[dict[str, str]] = []
    for message in value:
        if not (isinstance(message, dict) and isinstance(message.get("role"), str)) or not isinstance(
            message.get("content"), str
        ):
            raise DataError(f"a message needs a 'role' and a 'content', both text: {message!r}")
        messages.append({"role": message["role"], "content": message["content"]})
    if not messages or messages[-1]["role"] == "assistant":
        raise DataError("a conversation must hold a question and end before the assistant's answer")
    return tuple(messages)


def _first(record: Mapping[str, Any], columns: Sequence[str]) -> str:
    """The first of some columns that holds an answer, as text; empty where none does."""
    for column in columns:
        value = record.get(column)
        if value is not None and value == value and str(value).strip():  # NaN is how tables write a missing answer
            return _text(value)
    return ""


def _id(record: Mapping[str, Any]) -> str:
    return "" if record.get("id") is None else str(record["id"])


def _rest(record: Mapping[str, Any], used: set[str]) -> dict[str, Any]:
    return {key: plain_json(value) for key, value in record.items() if key not in used}


def _text(value: Any) -> str:
    return str(value) if isinstance(value, str | Decimal) else json.dumps(plain_json(value))


def _parsed(value: Any) -> Any:
    """JSON in a text, as tables store nested values; anything else as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def plain_json(value: Any) -> Any:
    """JSON values: dates, decimals and bytes of a Parquet column become text."""
    return json.loads(json.dumps(value, default=str))
