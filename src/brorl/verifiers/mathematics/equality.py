"""When two values are the same: by structure, exactly as rationals, or by agreement at random points.

Agreement of two analytic expressions at random points to 30 of 50 digits is proof for every practical purpose
(Schwartz-Zippel for the rational ones), costs microseconds, and cannot hang as symbolic simplification does.
"""

from fractions import Fraction
from typing import Any

from brorl.verifiers.mathematics.evaluation import OutOfReach, Point, exact, only_integers, variables
from brorl.verifiers.mathematics.syntax import Node, Number, ordered

DECIMAL_TOLERANCE = Fraction(1, 1_000_000)
"""relative, and only between a decimal and a decimal"""
_POSITIVE_POINTS = 3
_POINTS = 5
_WHOLE_POINTS = 64  # floor and ceiling are constant over long stretches


def same_value(first: Node, second: Node) -> bool:
    """Whether two scalar expressions are equal (at positive points, and wherever else both are real)."""
    if first == second:
        return True
    one, other = exact(first), exact(second)
    if one is not None and other is not None:
        if one == other:
            return True
        if not (is_decimal(first) and is_decimal(second)):
            return False
        return abs(one - other) <= DECIMAL_TOLERANCE * max(abs(one), abs(other))
    agreement = _agree(first, second)
    return agreement if agreement is not None else ordered(first) == ordered(second)


def is_decimal(node: Node) -> bool:
    """True for a literal written as a decimal, also with a sign, a percent sign, or times a power of ten."""
    if node.kind == "number" and isinstance(node.data, Number):
        return node.data.decimal
    if node.kind in ("negate", "percent", "degree"):
        return is_decimal(node.args[0])
    if node.kind == "multiply" and len(node.args) == 2:
        return is_decimal(node.args[0]) and node.args[1].kind == "power" and exact(node.args[1].args[0]) == 10
    return False


def close(one: Any, other: Any, digits: int = 30) -> bool:
    """Equal to that many significant digits."""
    return abs(one - other) * 10**digits <= max(abs(one), abs(other))


def _agree(first: Node, second: Node) -> bool | None:
    """Agreement at random points; None where the expressions cannot be evaluated."""
    if not (variables(first) or variables(second)):
        return _agree_at(Point(0), first, second) and _agree_at(Point(0, digits=120), first, second)
    integers = only_integers(first) or only_integers(second)
    positive, count = (_WHOLE_POINTS, _WHOLE_POINTS) if integers else (_POSITIVE_POINTS, _POINTS)
    agreed = 0
    for index in range(count):
        verdict = _agree_at(Point(index, integers=integers), first, second, real_only=index >= positive)
        if verdict is False:
            return False
        agreed += verdict is True and index < positive
    return True if agreed >= 2 else None


def _agree_at(point: Point, first: Node, second: Node, *, real_only: bool = False) -> bool | None:
    try:
        one, other = point.value(first), point.value(second)
    except OutOfReach:
        return None
    im = point.context.im
    if real_only and (abs(im(one)) > abs(one) * 10**-30 or abs(im(other)) > abs(other) * 10**-30):
        return None
    return close(one, other, point.digits - 20)


def proportional(first: Node, second: Node, *, positive: bool) -> bool:
    """Whether two expressions differ only by a constant factor, neither being zero: the test for equations."""
    ratio: Any = None
    seen = 0
    for index in range(_POINTS):
        point = Point(index)
        try:
            one, other = point.value(first), point.value(second)
        except OutOfReach:
            continue
        if not one or not other:
            if bool(one) != bool(other):
                return False
            continue
        ratio = one / other if ratio is None else ratio
        if not close(one / other, ratio) or (positive and not point.context.re(ratio) > 0):
            return False
        seen += 1
    return seen >= _POSITIVE_POINTS
