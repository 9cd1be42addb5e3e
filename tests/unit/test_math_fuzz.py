"""Mangled LaTeX, hostile formulas and junk: no crash, no slow verdict, symmetric equality.

Two sizes: a short run always; `BRORL_FUZZ` items (default 3,000) among the slow tests.
"""

import os
import time

import numpy as np
import pytest

from brorl.group import Outcome, Prompt
from brorl.seeding import generator
from brorl.verifiers.choice import choice
from brorl.verifiers.math import math
from brorl.verifiers.mathematics.reading import read, same_reading
from mangled_answers import HOSTILE, mangled
from shared_data import shared_rows

DEADLINE = 1.0  # seconds of processor time for one grading; the pool kills at 5
GOLDS = (r"\frac{1}{2}", "42", r"x \in [-2,7]", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"3 \pm 2\sqrt{2}", "2^{100}")


def survives(golds: list[str], texts: list[str], rng: np.random.Generator) -> float:
    """Grades every text against a gold and against itself, boxed and bare; returns the slowest grading's seconds."""
    slowest = 0.0
    for text in texts:
        gold = text if rng.random() < 0.3 else golds[rng.integers(len(golds))]
        response = rf"\boxed{{{text}}}" if rng.random() < 0.7 else text
        prompt = Prompt(id="p", text="", answer=gold, meta={"choices": ["w", "x", "y", "z"]})
        read.cache_clear()
        start = time.process_time()
        score = math(prompt, response)
        slowest = max(slowest, time.process_time() - start)
        assert score.reward in (0.0, 1.0) or score.outcome is Outcome.UNSCORABLE
        assert (score.reward == 1.0) == (score.outcome is Outcome.CORRECT)
        assert choice(prompt, response).outcome in set(Outcome)
        first, second = read(gold), read(text)
        assert same_reading(first, second) == same_reading(second, first), (gold, text)
    return slowest


def test_hostile_formulas_are_graded_at_once() -> None:
    rng = generator("hostile formulas")
    assert survives(list(GOLDS), list(HOSTILE), rng) < DEADLINE
    for text in HOSTILE:
        assert math(Prompt(id="p", text="", answer="13"), rf"\boxed{{{text}}}").reward == 0.0


def test_mangled_answers() -> None:
    rng = generator("mangled answers")
    assert survives(list(GOLDS), list(mangled(rng, list(GOLDS), 500)), rng) < DEADLINE


LONG = 60_000
LONG_RESPONSES = (
    *(
        mark * LONG
        for mark in (
            " ",
            "\n",
            "A",
            "A ",
            "(A) ",
            "$",
            "\\",
            "{",
            "}",
            ".",
            ". ",
            "* ",
            "1 ",
            "a",
            "<",
            "<|",
            "#",
            "\t",
        )
    ),
    *(
        start + " " * LONG + "x"
        for start in ("answer", "the answer is", "the", "final", "A", "A:", "(A)", "####", "A,", "A or")
    ),
    *(
        piece * (LONG // len(piece))
        for piece in ("Answer: 5\n", "the answer is ", "\\boxed{", "\\boxed{5} ", "<think>", "</think>")
    ),
    *(
        piece * (LONG // len(piece))
        for piece in ("\\text{", "\\text ", "<answer>", "option A is ", "A and B or ", "1,", "\\boxed ")
    ),
    "\\boxed{" + "1+" * (LONG // 2) + "1}",
    "Answer: " + "word " * (LONG // 5),
)


def test_long_responses_take_linear_time() -> None:
    prompt = Prompt(
        id="p", text="", answer="12", meta={"choices": ["w", "x", "y", "z"], "labels": ["10", "11", "12", "13"]}
    )
    for response in LONG_RESPONSES:
        start = time.process_time()
        assert math(prompt, response).reward == 0.0
        choice(prompt, response)
        assert time.process_time() - start < DEADLINE, response[:40]


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_many_mangled_answers() -> None:
    names = ("math_test", "minerva_math", "olympiadbench_math_en", "gaokao2023en")
    golds = [row["answer"] for name in names for row in shared_rows(f"data/{name}.jsonl")]
    size = int(os.environ.get("BRORL_FUZZ", "3000"))
    rng = generator("many mangled answers")
    assert survives(golds, list(mangled(rng, golds, size)), rng) < DEADLINE
