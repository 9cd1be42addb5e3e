"""Values between judge and candidate: what crosses is data, and comparing it runs no code of the sender."""

import contextlib
import json
import math
from collections import Counter, OrderedDict, deque, namedtuple
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brorl.verifiers.sandbox.inside.equality import same, same_json, same_set, same_truth
from brorl.verifiers.sandbox.inside.values import NotData, pack, unpack


def crossed(value: Any) -> Any:
    return unpack(json.loads(json.dumps(pack(value))), _no_references)


def _no_references(number: int) -> Any:
    raise AssertionError(number)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(max_size=5)
HASHABLE = st.recursive(SCALARS, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=6)
VALUES = st.recursive(
    SCALARS | HASHABLE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(HASHABLE, inner, max_size=3) | st.tuples(inner),
    max_leaves=10,
)


@settings(deadline=None)
@given(VALUES)
def test_data_crosses_unchanged(value: Any) -> None:
    assert repr(crossed(value)) == repr(value) or crossed(value) == value
    assert type(crossed(value)) is type(value)


@pytest.mark.parametrize(
    "value",
    [
        {1, 2}, bytearray(b"x"), 3 + 4j, range(1, 9, 2), deque([1, 2], 5), Decimal("1.10"), Fraction(1, 3),
        date(2020, 1, 2), datetime(2020, 1, 2, 3), timedelta(days=1, seconds=2), Counter("aab"),
        OrderedDict([("b", 1), ("a", 2)]), int, str, len, ValueError, "\ud800", math.inf, -0.0, {(1, 2): [3]},
    ],
)  # fmt: skip
def test_types_that_cross(value: Any) -> None:
    assert crossed(value) == value
    assert type(crossed(value)) is type(value)


def test_subclasses_arrive_as_their_plain_content() -> None:
    class Liar(list[int]):
        def __eq__(self, other: object) -> bool:
            return True

        def __iter__(self) -> Any:
            return iter([7])

    class Number(IntEnum):
        TWO = 2

    class Text(str):
        def __str__(self) -> str:
            return "other"

    assert crossed(Liar([1])) == [1]
    assert type(crossed(Liar([1]))) is list
    assert (crossed(Number.TWO), type(crossed(Number.TWO))) == (2, int)
    assert crossed(Text("text")) == "text"
    assert crossed(namedtuple("P", "x y")(1, 2)) == (1, 2)
    assert crossed(np.array([[1, 2]])) == [[1, 2]]
    assert type(crossed(np.float64(0.5))) is float


@pytest.mark.parametrize("value", [object(), lambda: 1, (x for x in ()), type("C", (), {}), [object()], {1: object()}])
def test_what_is_not_data_is_refused(value: Any) -> None:
    with pytest.raises(NotData):
        pack(value)


def test_a_value_within_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(RecursionError):
        pack(value)


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.fixed_dictionaries(
                {"tag": st.sampled_from(["tuple", "set", "dict", "range", "Decimal", "x"]), "value": inner}
            )
        ),
        max_leaves=8,
    )
)
def test_nonsense_never_does_more_than_raise(message: Any) -> None:
    with contextlib.suppress(KeyError, TypeError, ValueError, ArithmeticError):
        unpack(message, _no_references)


@pytest.mark.parametrize(
    ("expected", "actual", "equal"),
    [
        (1, 1, True), (1, True, True), (1, 1.0, True), (1000000, 1000000.05, False), (0.5, 0.5000001, True),
        (0.5, 0.51, False), (1.0, 1, True), (1.0, True, True), (0.5, "0.5", False), ([0.5], [0.5000001], True),
        ([1, 2], (1, 2), False), ((1, 2), (1, 2), True), ([1], [1, 2], False), ({"a": 0.5}, {"a": 0.5000001}, True),
        ({"a": 1}, {"b": 1}, False), (math.nan, math.nan, True), (math.inf, math.inf, True), (math.inf, 1e300, False),
        (None, None, True), (None, 0, False), ({1, 2}, {2, 1}, True), ("a", "A", False),
    ],
)  # fmt: skip
def test_same(expected: Any, actual: Any, equal: bool) -> None:
    assert same(expected, actual, 1e-6) is equal


def test_the_other_comparisons() -> None:
    assert same_json([[1, 2]], (((1, 2)),), 1e-6)
    assert same_json({"a": [1]}, {"a": (1,)}, 1e-6)
    assert same_set((1, 2), [2, 1, 1], 1e-6)
    assert same_set([[1], [2]], [(2,), (1,)], 1e-6)
    assert not same_set([1], [2], 1e-6)
    assert same_truth(None, False, 1e-6)
    assert not same_truth(None, "match", 1e-6)
