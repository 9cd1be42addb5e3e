"""Verifier for Reasoning Gym tasks: extract the answer, then ask the task's own scorer, where it can be trusted.

`prompt.meta` holds ``task``, ``config`` (its options) and ``entry`` (as packed by `brorl.tasks.entries`); optional are
``answer_format`` (`brorl.verifiers.extraction`; default ``tag``) and ``mode``: ``binary`` (default; reward 1 or 0) or
``partial`` (the scorer's own partial credit, where it means something).

What the scorers of Reasoning Gym 0.1.25 need: `JUDGES` replaces those that pay for wrong answers; `ADMISSIBLE` states
the form of an answer where a scorer picks what it likes out of any prose; scorers that evaluate the answer's text
(`EVALUATED`) run in the sandbox, and where there is none their verdict is ERROR.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from brorl.group import Outcome, Prompt
from brorl.tasks.entries import unpack
from brorl.tasks.gym_items import create
from brorl.verifiers.extraction import extract
from brorl.verifiers.gym_evaluated import EVALUATED, evaluated
from brorl.verifiers.gym_judges import JUDGES
from brorl.verifiers.sandbox import SandboxUnavailable, warm_up_scorer
from brorl.verifiers.score import Score

_CORRECT = 1 - 1e-9
_FLOOR = 0.1  # scorers pay up to this for any text, or for its mere form

ADMISSIBLE: dict[str, re.Pattern[str]] = {
    "quantum_lock": re.compile(r"[A-Ca-c\s,>→-]*"),  # picks the letters A, B and C out of prose
    "rush_hour": re.compile(r"[A-Z+\-\d\s,]*"),  # picks moves out of prose
    "sokoban": re.compile(r"[LRUD\s,]*"),  # skips what is no move
    "time_intervals": re.compile(r"[\d\s:.,+-]*(?:days?)?[\d\s:.,+-]*"),  # "5 or 6 days" counts as 5
}

NO_PARTIAL = {
    "acre", "aiw", "arc_1d", "base_conversion", "basic_arithmetic", "bf", "binary_alternation", "caesar_cipher",
    "chain_sum", "circuit_logic", "count_bits", "count_primes", "course_schedule", "gcd", "isomorphic_strings",
    "largest_island", "lcm", "leg_counting", "letter_counting", "list_functions", "mahjong_puzzle",
    "manipulate_matrix", "maze", "modulo_grid", "number_filtering", "number_sequence", "products",
    "propositional_logic", "ransom_note",
    "rotate_matrix", "rotten_oranges", "simple_equations", "simple_geometry", "string_manipulation",
    "string_splitting", "string_synthesis", "syllogism", "tsumego", "word_sequence_reversal",
}  # fmt: skip
"""Tasks whose scorer pays the share of characters that contain the gold (0.75 for 1880 where 188 is right), and
propositional_logic, which pays 0.25 for text that says nothing. That is no partial credit: binary in both modes."""


def verify_gym(prompt: Prompt, response: str) -> Score:
    """Grade one response to a Reasoning Gym question; a sandbox that is needed and cannot be started is an ERROR.

    Raises:
        KeyError: `prompt.meta` holds no task entry.
        RecipeError: an unknown task, option or answer format.
    """
    answer = extract(response, prompt.meta.get("answer_format", "tag"))
    if answer is None:
        return Score(outcome=Outcome.NO_ANSWER, reward=0.0)
    entry = unpack(prompt.meta["entry"])
    task, config = prompt.meta["task"], prompt.meta["config"]
    try:
        value, note = _value(task, config, entry, answer)
        bare = answer.rstrip(".")
        if value < _CORRECT and bare != answer:  # a full stop that ends a sentence, not the answer
            value, note = max((value, note), _value(task, config, entry, bare))
    except SandboxUnavailable as reason:
        return Score(outcome=Outcome.ERROR, reward=math.nan, extracted=answer, note=str(reason))
    if value >= _CORRECT:
        return Score(outcome=Outcome.CORRECT, reward=1.0, extracted=answer, note=note)
    if prompt.meta.get("mode", "binary") == "partial" and value > _FLOOR:
        return Score(outcome=Outcome.PARTIAL, reward=value, extracted=answer, note=note)
    return Score(outcome=Outcome.WRONG, reward=0.0, extracted=answer, note=note)


def prepare(prompt: Prompt) -> None:
    """Load the task's scorer, some of which read large files, or start its sandbox.

    Raises:
        SandboxUnavailable: the scorer needs a sandbox, and none starts here.
    """
    task = prompt.meta["task"]
    if task not in JUDGES:
        _scorer(task, json.dumps(prompt.meta["config"], sort_keys=True))
    if task in EVALUATED:
        warm_up_scorer()


def _value(task: str, config: Mapping[str, Any], entry: dict[str, Any], answer: str) -> tuple[float, str]:
    """The value of an answer in [0, 1]; why it is 0, and the level of isolation where the scorer needs one."""
    if task in JUDGES:
        return float(JUDGES[task](answer, entry)), ""
    if task in ADMISSIBLE and not ADMISSIBLE[task].fullmatch(answer):
        return 0.0, "more than the answer"
    if task in EVALUATED:
        if not EVALUATED[task](answer, entry):
            return 0.0, "not evaluated: neither a literal nor a plain formula"
        value, note = evaluated(task, entry, answer)
        return _in_range(value), note
    scorer = _scorer(task, json.dumps(config, sort_keys=True))
    entry = {**entry, "metadata": dict(entry["metadata"])}  # knight_swap writes into it
    try:
        value = float(scorer(answer, entry))
    except Exception as error:  # prime_factorization and boxnet raise on junk, others may
        return 0.0, f"the scorer raises {type(error).__name__}"
    return (0.0 if value < _CORRECT and task in NO_PARTIAL else _in_range(value)), ""


def _in_range(value: float) -> float:
    return min(1.0, max(0.0, value)) if math.isfinite(value) else 0.0


@lru_cache(maxsize=256)
def _scorer(task: str, config: str) -> Callable[[str, dict[str, Any]], float]:
    return create(task, unpack(json.loads(config))).score_answer
