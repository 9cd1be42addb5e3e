"""Subsets of the real line: intervals, unions, inequalities in one variable, and when two of them are the same."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from brorl.verifiers.mathematics import syntax
from brorl.verifiers.mathematics.equality import same_value
from brorl.verifiers.mathematics.evaluation import OutOfReach, Point, variables
from brorl.verifiers.mathematics.syntax import Node

INFINITY = Node("constant", (), "infinity")
MINUS_INFINITY = Node("negate", (INFINITY,))


class Piece(NamedTuple):
    """An interval; a point is a closed interval of no length."""

    low: Node
    high: Node
    low_closed: bool
    high_closed: bool


class Region(NamedTuple):
    """Pieces, and the variable they are about (empty for a set as such)."""

    pieces: tuple[Piece, ...]
    about: str = ""


REALS = Region((Piece(MINUS_INFINITY, INFINITY, False, False),))


def is_name(node: Node) -> bool:
    """True for what may stand on the left of "x = ...": a variable, f(x), AB, |AB|, NO/BO, (x, y), V_1 : V_2."""
    if node.kind in ("symbol", "apply"):
        return True
    if node.kind == "multiply":
        return all(part.kind == "symbol" and str(part.data)[0].isupper() for part in node.args)
    return node.kind in ("absolute", "divide", "tuple", "ratio") and all(map(is_name, node.args))


def region(node: Node) -> Region | None:
    """The subset of the real line that a node describes; None if it describes none."""
    if node.kind == "interval":
        closed: Any = node.data
        return Region((Piece(node.args[0], node.args[1], *closed),))
    if node.kind == "tuple" and len(node.args) == 2 and all(map(syntax.is_scalar, node.args)):
        return Region((Piece(*node.args, False, False),))
    if node.kind == "reals":
        return REALS
    if node.kind == "set" and all(map(syntax.is_scalar, node.args)):
        return Region(tuple(Piece(point, point, True, True) for point in node.args))
    if node.kind == "relation":
        return _condition(node)
    if node.kind in ("union", "intersection", "difference"):
        return _combined(node)
    if node.kind == "list" and (node.data in ("or", "and") or any(member.data == ("!=",) for member in node.args)):
        return _combined(node)  # x > 0, x != 1 means both
    return None


def _combined(node: Node) -> Region | None:
    parts = list[Region]()
    for argument in node.args:
        part = region(argument)
        if part is None:
            return None
        parts.append(part)
    names = {part.about for part in parts if part.about}
    if len(names) > 1 or (node.kind == "list" and not names):
        return None
    pieces = parts[0].pieces
    for part in parts[1:]:
        if node.kind == "union" or node.data == "or":
            pieces += part.pieces
        elif node.kind == "difference":
            pieces = _intersect(pieces, _complement(part.pieces))
        else:
            pieces = _intersect(pieces, part.pieces)
    return Region(pieces, "".join(names))


def _condition(node: Node) -> Region | None:
    """``a < x <= b``, ``x >= 4``, ``x != 3``, ``x in S`` with a name for x."""
    operators: Any = node.data
    operands = node.args
    if len(operands) == 2 and operators[0] in ("in", "!=") and is_name(operands[0]):
        if operators[0] == "in":
            inner = region(operands[1])
            return None if inner is None or inner.about else inner._replace(about=repr(operands[0]))
        if not syntax.is_scalar(operands[1]) or variables(operands[1]):
            return None
        return Region(_complement((Piece(operands[1], operands[1], True, True),)), repr(operands[0]))
    if set(operators) <= {">", ">="}:
        operands, operators = operands[::-1], tuple(op.replace(">", "<") for op in operators[::-1])
    if not set(operators) <= {"<", "<="}:
        return None
    if len(operands) == 2:
        low, name, high = (MINUS_INFINITY, *operands) if is_name(operands[0]) else (*operands, INFINITY)
        closed = (False, operators[0] == "<=") if is_name(operands[0]) else (operators[0] == "<=", False)
    elif len(operands) == 3:
        low, name, high = operands
        closed = (operators[0] == "<=", operators[1] == "<=")
    else:
        return None
    if not is_name(name) or is_name(low) or is_name(high):
        return None
    return Region((Piece(low, high, *closed),), repr(name))


def same_region(first: Region, second: Region) -> bool:
    """Whether two regions hold the same numbers (of the same variable, if both name one)."""
    if first.about and second.about and first.about != second.about:
        return False
    try:
        one, other = _normal(first.pieces), _normal(second.pieces)
    except OutOfReach:  # symbolic ends: compare as written
        one, other = list(first.pieces), list(second.pieces)
    return len(one) == len(other) and all(
        (a.low_closed, a.high_closed) == (b.low_closed, b.high_closed)
        and same_value(a.low, b.low)
        and same_value(a.high, b.high)
        for a, b in zip(one, other, strict=True)
    )


def _place(node: Node) -> Any:
    """Where an end lies.

    Raises:
        OutOfReach: it has variables, or is not real.
    """
    point = Point(0)
    if node == INFINITY:
        return point.context.inf
    if node == MINUS_INFINITY:
        return -point.context.inf
    if variables(node):
        raise OutOfReach("symbolic end")
    value = point.value(node)
    if point.context.im(value) != 0:
        raise OutOfReach("an end that is not real")
    return point.context.re(value)


def _normal(pieces: tuple[Piece, ...]) -> list[Piece]:
    """Sorted, disjoint, and joined where they touch; empty pieces dropped."""
    full = _nonempty(pieces)
    joined = list[Piece]()
    for piece in sorted(full, key=lambda p: (_place(p.low), not p.low_closed)):
        last = joined[-1] if joined else None
        if last is None or not _touches(last, piece):
            joined.append(piece)
        elif same_value(piece.high, last.high):
            joined[-1] = last._replace(high_closed=last.high_closed or piece.high_closed)
        elif _place(piece.high) > _place(last.high):
            joined[-1] = last._replace(high=piece.high, high_closed=piece.high_closed)
    return joined


def _nonempty(pieces: Iterable[Piece]) -> list[Piece]:
    return [
        piece
        for piece in pieces
        if _place(piece.low) < _place(piece.high)
        or (piece.low_closed and piece.high_closed and same_value(piece.low, piece.high))
    ]


def _touches(left: Piece, right: Piece) -> bool:
    if same_value(left.high, right.low):
        return left.high_closed or right.low_closed
    return bool(_place(left.high) > _place(right.low))


def _complement(pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    result = REALS.pieces
    for piece in pieces:
        outside = (
            Piece(MINUS_INFINITY, piece.low, False, not piece.low_closed),
            Piece(piece.high, INFINITY, not piece.high_closed, False),
        )
        result = _intersect(result, outside)
    return result


def _intersect(first: tuple[Piece, ...], second: tuple[Piece, ...]) -> tuple[Piece, ...]:
    pieces = list[Piece]()
    for a in first:
        for b in second:
            if same_value(a.low, b.low):
                low, low_closed = a.low, a.low_closed and b.low_closed
            else:
                low, low_closed = max((a.low, a.low_closed), (b.low, b.low_closed), key=lambda end: _place(end[0]))
            if same_value(a.high, b.high):
                high, high_closed = a.high, a.high_closed and b.high_closed
            else:
                high, high_closed = min(
                    (a.high, a.high_closed), (b.high, b.high_closed), key=lambda end: _place(end[0])
                )
            pieces.append(Piece(low, high, low_closed, high_closed))
    return tuple(_nonempty(pieces))
