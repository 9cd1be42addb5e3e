"""Reasoning Gym questions with a short working: the supervised text from which `brorl-tiny` starts.

A response is a working of a few numbers, the answer in tags, and the stop token, at most 48 tokens:

    State the final answer to the following arithmetic problem: 57 + 87 - 70 =
    57+87=441-70=47<answer>74</answer>

Each step of a working can go wrong, so the success rate of a prompt is a product of per-step rates: it spreads over
decades as the steps become more and larger, instead of settling at "always" or "never".
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import reasoning_gym

from brorl.seeding import derive_seed, generator
from brorl.tasks.reasoning_gym import is_held_out


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """One Reasoning Gym task at one difficulty, as it is taught."""

    task: str
    config: Mapping[str, Any]
    share: float
    """of the supervised examples, in proportion"""
    easy: bool = False
    """taught from the start of a gradual course"""


LESSONS = (
    Lesson(
        task="chain_sum", config={"min_terms": 2, "max_terms": 4, "min_digits": 1, "max_digits": 1}, share=3, easy=True
    ),
    Lesson(task="chain_sum", config={"min_terms": 5, "max_terms": 9, "min_digits": 1, "max_digits": 1}, share=3),
    Lesson(task="chain_sum", config={"min_terms": 2, "max_terms": 3, "min_digits": 2, "max_digits": 2}, share=3),
    Lesson(task="chain_sum", config={"min_terms": 4, "max_terms": 6, "min_digits": 2, "max_digits": 2}, share=2),
    Lesson(task="chain_sum", config={"min_terms": 3, "max_terms": 4, "min_digits": 3, "max_digits": 3}, share=1),
    Lesson(task="products", config={"min_digits": 1, "max_digits": 1}, share=1, easy=True),
    Lesson(task="products", config={"min_digits": 1, "max_digits": 2}, share=3),
    Lesson(task="products", config={"min_digits": 2, "max_digits": 2}, share=2),
    Lesson(task="gcd", config={"min_value": 2, "max_value": 30}, share=2, easy=True),
    Lesson(task="gcd", config={"min_value": 30, "max_value": 150}, share=1),
    Lesson(task="lcm", config={"min_value": 2, "max_value": 12}, share=1, easy=True),
    Lesson(task="lcm", config={"min_value": 10, "max_value": 40}, share=1),
    Lesson(task="spell_backward", config={"min_word_len": 3, "max_word_len": 4}, share=2, easy=True),
    Lesson(task="spell_backward", config={"min_word_len": 5, "max_word_len": 7}, share=1),
)


def backwards(number: int) -> str:
    """Digits last first, sign at the end: each digit of a sum or product then follows from digits already written."""
    return str(number)[::-1]


def running_totals(entry: Mapping[str, Any]) -> str:
    """``57 + 87 - 70`` -> ``57+87=441-70=47``: the terms one by one, each with the total so far."""
    first, *terms = entry["metadata"]["expression"].replace("+ ", "+").replace("- ", "-").split()
    text, total = first, int(first)
    for term in terms:
        total += int(term)
        text += f"{term}={backwards(total)}"
    return text


def partial_products(entry: Mapping[str, Any]) -> str:
    """``23 * 47`` -> ``161+029=1801``: one product per digit of the second factor, the last digit first, added up."""
    left, right = (int(part) for part in entry["metadata"]["expression"].split(" * "))
    parts = [left * int(digit) * 10**place for place, digit in enumerate(reversed(str(right)))]
    text, total = backwards(parts[0]), parts[0]
    for part in parts[1:]:
        total += part
        text += f"+{backwards(part)}={backwards(total)}"
    return text


def remainders(entry: Mapping[str, Any]) -> str:
    """``641, 595`` -> ``46 43 3 1 0``: the remainders of Euclid's algorithm, the larger number divided first."""
    smaller, larger = sorted(entry["metadata"]["numbers"])
    steps = []
    while smaller:
        larger, smaller = smaller, larger % smaller
        steps.append(str(smaller))
    return " ".join(steps)


def common_factor(entry: Mapping[str, Any]) -> str:
    """``76, 70`` -> ``2 38*70=0662``: the common divisor, the first number freed of it, and times the second."""
    first, second = entry["metadata"]["numbers"]
    divisor = math.gcd(first, second)
    return f"{divisor} {first // divisor}*{second}={backwards(first // divisor * second)}"


def spelled(entry: Mapping[str, Any]) -> str:
    """``sun`` -> ``s u n``."""
    return " ".join(entry["metadata"]["word"])


WORKINGS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "chain_sum": running_totals,
    "products": partial_products,
    "gcd": remainders,
    "lcm": common_factor,
    "spell_backward": spelled,
}


def response(entry: Mapping[str, Any], task: str) -> str:
    """The worked answer, without the stop token."""
    return f"{WORKINGS[task](entry)}<answer>{entry['answer']}</answer>"


def examples(lessons: Sequence[Lesson], count: int, seed: int, *, gradual: bool) -> Iterator[tuple[str, str]]:
    """About `count` pairs (question, response) in the order in which they are taught; none is a held-out question.

    Args:
        gradual: begin with the easy lessons; the others come in little by little over the first half.
    """
    rng = generator(seed, "supervised order")
    easy = np.array([lesson.easy for lesson in lessons])
    shares = np.array([lesson.share for lesson in lessons])
    data = [
        reasoning_gym.create_dataset(
            lesson.task, size=count, seed=derive_seed(seed, "supervised", i) % 2**31, **lesson.config
        )
        for i, lesson in enumerate(lessons)
    ]
    for position in range(count):
        weights = np.where(easy, shares, shares * (min(1, 2 * position / count) if gradual else 1))
        i = int(rng.choice(len(lessons), p=weights / weights.sum()))
        entry = data[i][position]
        if not is_held_out(entry["question"]):
            yield entry["question"], response(entry, lessons[i].task)


OTHER_TASKS = (
    "basic_arithmetic",
    "simple_equations",
    "letter_counting",
    "base_conversion",
    "count_primes",
    "prime_factorization",
    "fraction_simplification",
    "number_sequence",
    "number_sorting",
    "count_bits",
    "calendar_arithmetic",
    "time_intervals",
)
"""Tasks whose wording the tokenizer knows too, so that other Reasoning Gym prompts stay short."""


def wording(lessons: Sequence[Lesson], each: int, seed: int) -> Iterator[str]:
    """Text for the tokenizer: `each` questions of every task (a tenth of the others), the words to spell left out."""
    for task in (*dict.fromkeys(lesson.task for lesson in lessons), *OTHER_TASKS):
        size = each if task in WORKINGS else each // 10
        data = reasoning_gym.create_dataset(task, size=size, seed=derive_seed(seed, "wording", task) % 2**31)
        for index in range(size):
            question = data[index]["question"]
            yield question[: question.rindex(":") + 1] if task == "spell_backward" else question
