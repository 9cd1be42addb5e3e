"""Properties of answer equality: symmetric, reflexive, true to exact arithmetic, never partial."""

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from brorl.group import Prompt
from brorl.verifiers.math import math
from brorl.verifiers.mathematics.evaluation import exact
from brorl.verifiers.mathematics.parser import parse
from brorl.verifiers.mathematics.reading import read, same_reading

integers = st.integers(-(10**20), 10**20)
_ATOMS = r"""
    2 -7 0.5 x y n e i \pi \frac{1}{3} \sqrt{2} (1,2) \{1,2\} [0,1) 45^\circ 12\text{cm} 50\% \infty 1,2 x=3 x>1
    17_8 3:4 \text{yes} \pm2
    10:30PM
"""
_OPERATORS = ("+", "-", "*", "/", ",", "=", "<", r"\cup", " and ", r" \text{ or } ")
combined = st.recursive(
    st.sampled_from(_ATOMS.split()),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(_OPERATORS), inner).map("".join),
        inner.map(lambda text: f"({text})"),
        inner.map(lambda text: rf"\sqrt{{{text}}}"),
        inner.map(lambda text: rf"{{{text}}}^{{2}}"),
        st.tuples(inner, inner).map(lambda pair: rf"\frac{{{pair[0]}}}{{{pair[1]}}}"),
    ),
    max_leaves=6,
)
arithmetic = st.recursive(
    st.integers(0, 30).map(str),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda parts: f"({''.join(parts)})"),
        st.tuples(inner, inner).map(lambda pair: rf"\frac{{{pair[0]}}}{{{pair[1]}}}"),
        inner.map(lambda text: f"(-{text})"),
    ),
    max_leaves=8,
)
_EXTRA = (
    "{",
    r"\sqrt(3)", " wrong", r"\text{ or } 3", ", 3", r"\neg", r"\quad\forall", "x",
    "^2", "!", r"\%", ":1:2", "_3_4", ")",
)  # fmt: skip
repeatable = settings(max_examples=300, deadline=None, derandomize=True)


def correct(gold: str, answer: str) -> bool:
    return math(Prompt(id="p", text="", answer=gold), rf"\boxed{{{answer}}}").reward == 1


@given(combined, combined)
@repeatable
def test_equality_is_symmetric(first: str, second: str) -> None:
    assert same_reading(read(first), read(second)) == same_reading(read(second), read(first))


@given(combined)
@repeatable
def test_every_answer_equals_itself_in_other_spacing(text: str) -> None:
    spaced = text.replace("+", " + ").replace(",", ", ").replace(r"\frac", r"\dfrac")
    assert correct(text, text)
    assert correct(text, f"${spaced}$.")


@given(integers, integers)
@repeatable
def test_integers_are_exact(first: int, second: int) -> None:
    assert correct(str(first), str(second)) == (first == second)
    assert correct(str(first), f"{first:,}")
    assert not correct(str(first), str(first + 1))


@given(st.integers(-999, 999), st.integers(1, 999), st.integers(1, 50))
@repeatable
def test_fractions_are_exact(top: int, bottom: int, factor: int) -> None:
    value = Fraction(top, bottom)
    assert correct(rf"\frac{{{top}}}{{{bottom}}}", f"{top * factor}/{bottom * factor}")
    assert not correct(str(value), str(value + Fraction(1, 10**9)))


@given(arithmetic)
@repeatable
def test_arithmetic_agrees_with_python(text: str) -> None:
    assert exact(parse(text)) == value_of(text)


def value_of(text: str) -> Fraction | None:
    """The same arithmetic by Python, from the text with every numeral made a Fraction."""
    python = text
    while r"\frac" in python:  # innermost first
        start = python.rindex(r"\frac{")
        middle = python.index("}{", start)
        end = python.index("}", middle + 2)
        python = f"{python[:start]}(({python[start + 6 : middle]})/({python[middle + 2 : end]})){python[end + 1 :]}"
    digits = "".join(f"F({part})" if part.isdigit() else part for part in _split(python))
    try:
        return eval(digits, {"F": Fraction, "__builtins__": {}})
    except ZeroDivisionError:
        return None


def _split(text: str) -> list[str]:
    parts = [""]
    for character in text:
        if character.isdigit() and parts[-1].isdigit():
            parts[-1] += character
        else:
            parts.append(character)
    return parts


@given(st.integers(2, 10**6), st.sampled_from(_EXTRA))
@repeatable
def test_a_right_number_with_something_after_it_is_not_right(value: int, extra: str) -> None:
    assert not correct(str(value), f"{value}{extra}")
