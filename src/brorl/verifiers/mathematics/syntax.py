"""The tree of a parsed answer: one node type, and the constructors that keep it in a simple form."""

from collections.abc import Hashable
from fractions import Fraction
from typing import Any, NamedTuple

from brorl.verifiers.mathematics.lexer import NotMathematics
from brorl.verifiers.mathematics.vocabulary import words


class Node(NamedTuple):
    """A node: what it is, its children, and what else it carries.

    Values: number (data: `Number`), symbol (name), constant (pi, e, i, infinity), add, multiply, divide, power, negate,
    factorial, root (radicand, degree), call (function name), apply (an unknown function's name), absolute, floor,
    ceiling, binomial, percent, degree, plusminus and minusplus (first operand may be the number 0), based (digits,
    base), opaque (a form that is compared by structure only).

    Answers: list (separator: and, or, comma), set, tuple, interval (low, high; which ends are closed), union,
    intersection, difference, reals, matrix (rows, columns), relation (a chain; its operators), quantity (unit), ratio,
    text.
    """

    kind: str
    args: tuple["Node", ...] = ()
    data: Hashable = None


class Number(NamedTuple):
    """A literal: its exact value, whether it was written as a decimal, and the unit of its last decimal place."""

    value: Fraction
    decimal: bool = False
    place: Fraction = Fraction(1)


SCALARS = words(
    "number symbol constant add multiply divide power negate factorial root call apply absolute floor ceiling "
    "binomial percent degree plusminus minusplus based opaque"
)
ARRAYS = ("matrix", "tuple")
MAX_EXPONENT = 4_000


def number(value: int | Fraction, *, decimal: bool = False, place: Fraction = Fraction(1)) -> Node:
    """A number literal."""
    return Node("number", (), Number(Fraction(value), decimal, place))


ZERO = number(0)


def literal(text: str) -> Node:
    """The number that a numeral spells: ``12``, ``.5``, ``1.5e-3``.

    Raises:
        NotMathematics: an exponent beyond 4000, or not a numeral.
    """
    if not any(map(str.isdigit, text.partition("e")[0])):
        raise NotMathematics("not a numeral")
    mantissa, _, exponent = text.lower().partition("e")
    if len(exponent) > 5 or abs(int(exponent or "0")) > MAX_EXPONENT:
        raise NotMathematics("exponent too large")
    decimals = len(mantissa.partition(".")[2])
    place = Fraction(10) ** (int(exponent or "0") - decimals)
    return number(Fraction(text), decimal="." in mantissa or bool(exponent), place=place)


def symbol(name: str) -> Node:
    """A variable."""
    return Node("symbol", (), name)


def is_scalar(node: Node) -> bool:
    """True for a value, false for a list, set, matrix, relation, text ..."""
    return node.kind in SCALARS


def multiply(factors: list[Node]) -> Node:
    """A product; a matrix or vector among scalar factors is scaled entry by entry.

    Raises:
        NotMathematics: a product of two structures.
    """
    if len(factors) == 1:
        return factors[0]
    arrays = [factor for factor in factors if not is_scalar(factor)]
    if not arrays:
        return Node("multiply", tuple(factors))
    if len(arrays) > 1 or arrays[0].kind not in ARRAYS:
        raise NotMathematics("a product of things that are not numbers")
    scalars = [factor for factor in factors if is_scalar(factor)]
    return arrays[0]._replace(args=tuple(multiply([*scalars, entry]) for entry in arrays[0].args))


def add(terms: list[Node]) -> Node:
    """A sum; matrices of one shape are added entry by entry.

    Raises:
        NotMathematics: a sum of unlike things.
    """
    if len(terms) == 1:
        return terms[0]
    if all(map(is_scalar, terms)):
        return Node("add", tuple(terms))
    first = terms[0]
    if first.kind not in ARRAYS or len({(term.kind, term.data, len(term.args)) for term in terms}) > 1:
        raise NotMathematics("a sum of unlike things")
    return first._replace(args=tuple(add(list(entries)) for entries in zip(*(t.args for t in terms), strict=True)))


def negate(node: Node) -> Node:
    """Minus a value; the sign of a number literal goes into the literal."""
    if node.kind == "number":
        value: Any = node.data
        return node._replace(data=value._replace(value=-value.value))
    if node.kind in ARRAYS:
        return node._replace(args=tuple(map(negate, node.args)))
    return Node("negate", (scalar(node),))


def scalar(node: Node) -> Node:
    """The node itself, if it is a value.

    Raises:
        NotMathematics: it is not.
    """
    if not is_scalar(node):
        raise NotMathematics(f"{node.kind} where a value is expected")
    return node


def ordered(node: Node) -> Node:
    """The same tree with the operands of sums and products in one order."""
    args = tuple(map(ordered, node.args))
    return node._replace(args=tuple(sorted(args, key=repr)) if node.kind in ("add", "multiply") else args)
