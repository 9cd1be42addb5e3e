"""When two parsed answers are the same: lists, sets, tuples, intervals, matrices, equations, quantities, values."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from brorl.verifiers.mathematics import syntax
from brorl.verifiers.mathematics.equality import is_decimal, proportional, same_value
from brorl.verifiers.mathematics.evaluation import OutOfReach, Point, exact, variables
from brorl.verifiers.mathematics.plusminus import MAX_MEMBERS, expand
from brorl.verifiers.mathematics.regions import is_name, region, same_region
from brorl.verifiers.mathematics.syntax import Node, Number
from brorl.verifiers.mathematics.units import Unit, conversion, read_unit


def same_answer(first: Node, second: Node) -> bool:
    """Whether two answers are equal. Symmetric; never partial: every member, unit, bound and side must agree."""
    if first == second:
        return True
    one, other = expand(first), expand(second)
    return _same(one, other) or _same_valued(one, other)


def _same_valued(first: Node, second: Node) -> bool:
    """Equality of what the two sides state once names are dropped: x = 4 is 4, and 2/3 ≈ 0.67 is either."""
    ones, others = list(_statements(first)), list(_statements(second))
    if ones == [first] and others == [second]:
        return False
    if first.kind == second.kind == "relation" and not _same_name(first, second):
        return False
    return any(_same(one, other) for one in ones for other in others)


def _same(first: Node, second: Node) -> bool:
    if first == second:
        return True
    kinds = {first.kind, second.kind}
    if syntax.is_scalar(first) and syntax.is_scalar(second):
        return _same_scalar(first, second)
    if "quantity" in kinds:
        return _same_quantity(_with_letter_unit(first), _with_letter_unit(second))
    if kinds & {"list", "set"}:
        return _same_members(first, second) or _same_regions(first, second)
    if "ratio" in kinds:
        return _same_ratio(first, second)
    if kinds <= {"tuple", "matrix"}:
        return _same_array(first, second)
    if kinds == {"relation"} and _same_relation(first, second):
        return True
    return _same_regions(first, second)


# -- values


def _same_scalar(first: Node, second: Node) -> bool:
    if "based" in (_unsigned(first).kind, _unsigned(second).kind):
        return _same_based(first, second)
    if same_value(first, second):
        return True
    if _has_degree(first) != _has_degree(second):  # 39 for 39 degrees: the unit is left out
        return same_value(_without_degree(first), _without_degree(second))
    return False


def _unsigned(node: Node) -> Node:
    return node.args[0] if node.kind == "negate" else node


def _same_based(first: Node, second: Node) -> bool:
    """Numerals with a base: digits and base must agree; a base left out on one side is taken as the same."""
    if first.kind == second.kind == "negate":
        return _same_based(first.args[0], second.args[0])
    one, other = _digits(first), _digits(second)
    if one is None or other is None or one[0] != other[0]:
        return False
    return one[1] == other[1] or 0 in (one[1], other[1])


def _digits(node: Node) -> tuple[str, int] | None:
    if node.kind == "negate":
        inner = _digits(node.args[0])
        return None if inner is None else ("-" + inner[0], inner[1])
    if node.kind == "based":
        data: Any = node.data
        return (data[0].lstrip("0") or "0", data[1])
    if node.kind == "number" and isinstance(node.data, Number):
        value = node.data.value
        if value.denominator == 1:
            return (str(value.numerator), 0)
        text = f"{float(value):.12f}".rstrip("0").lstrip("0")
        return (text, 0)
    return None


def _has_degree(node: Node) -> bool:
    return node.kind == "degree" or (node.kind in ("negate", "add", "plusminus") and any(map(_has_degree, node.args)))


def _without_degree(node: Node) -> Node:
    if node.kind == "degree":
        return node.args[0]
    return node._replace(args=tuple(map(_without_degree, node.args))) if _has_degree(node) else node


def _with_letter_unit(node: Node) -> Node:
    """12 m read as twelve metres, where the other side has a unit."""
    if node.kind != "multiply" or node.args[-1].kind != "symbol":
        return node
    unit = read_unit(str(node.args[-1].data), nouns=False)
    return node if unit is None else Node("quantity", (syntax.multiply(list(node.args[:-1])),), unit)


def _same_quantity(first: Node, second: Node) -> bool:
    if first.kind == second.kind:
        one, other = first.data, second.data
        factor = conversion(one, other) if isinstance(one, Unit) and isinstance(other, Unit) else None
        if factor is None:
            return False
        if factor == 1:
            return _same_scalar(first.args[0], second.args[0])
        return same_value(syntax.multiply([syntax.number(factor), first.args[0]]), second.args[0])
    measured, bare = (first, second) if first.kind == "quantity" else (second, first)
    unit = measured.data
    if (bare.kind == "percent" and measured.args[0].kind != "percent") or not isinstance(unit, Unit):
        return False
    if _has_degree(bare) and unit.dimensions:
        return unit.dimensions == (("radian", 1),) and same_value(measured.args[0], bare)
    return syntax.is_scalar(bare) and _same_scalar(measured.args[0], bare)


# -- collections


def _members(node: Node) -> tuple[Node, ...]:
    """The members of a list or set; a value is a list of one."""
    return node.args if node.kind in ("list", "set") else (node,)


def _same_members(first: Node, second: Node) -> bool:
    if first.kind == second.kind == "list":
        return _same_lists(first, second)
    if {first.kind, second.kind} & {"tuple"}:
        return _named_tuple(first, second) or _named_tuple(second, first)
    ones, others = _members(first), _members(second)
    if "set" in (first.kind, second.kind):
        ones, others = _distinct(_unnamed(ones)), _distinct(_unnamed(others))
    return _matched(ones, others)


def _same_lists(first: Node, second: Node) -> bool:
    ones, others = _unnamed(first.args), _unnamed(second.args)
    for named, bare in ((ones, others), (others, ones)):
        values = _named_values(named)
        if values is not None and not any(member.kind == "relation" for member in bare):
            return _same_named(named, tuple(values), bare)
    return _matched(ones, others)


def _same_named(named: tuple[Node, ...], values: tuple[Node, ...], bare: tuple[Node, ...]) -> bool:
    """Values with names against values without: a_3 = 2, a_37 = 19 is 2, 19 in that order."""
    chunked = _chunks(named)
    if chunked is not None:
        return _matched(chunked, bare)
    if _is_numbered(named):
        return _matched(values, bare)
    return len(values) == len(bare) and all(map(same_answer, values, bare))


def _named_tuple(named: Node, bare: Node) -> bool:
    """p = 5, q = 2 against (5, 2), names in alphabetical order; or three and more values in the order of the tuple.

    Two values without names are not a pair: -1, 8 may be two roots, and (-1, 8) an interval.
    """
    if named.kind != "list" or bare.kind != "tuple" or len(named.args) != len(bare.args):
        return False
    if len(bare.args) > 2 and named.data == "comma" and all(map(same_answer, named.args, bare.args)):
        return True
    values = _named_values(named.args)
    names = [str(m.args[0].data) for m in named.args if m.kind == "relation"]
    return values is not None and names == sorted(set(names)) and all(map(same_answer, values, bare.args))


def _named_values(members: tuple[Node, ...]) -> list[Node] | None:
    values = [_assigned(member) for member in members]
    return None if any(value is None for value in values) else [value for value in values if value is not None]


def _chunks(members: tuple[Node, ...]) -> tuple[Node, ...] | None:
    """p = 5, q = 2; p = 7, q = 2 as (5, 2), (7, 2)."""
    names = [member.args[0] for member in members]
    period = names.index(names[0], 1) if names[0] in names[1:] else 0
    if not period or len(names) % period or names != names[:period] * (len(names) // period):
        return None
    values = _named_values(members) or []
    return tuple(Node("tuple", tuple(values[i : i + period])) for i in range(0, len(values), period))


def _is_numbered(members: tuple[Node, ...]) -> bool:
    """x_1 = ..., x_2 = ...: the numbers only tell the solutions apart."""
    names = [str(member.args[0].data) for member in members]
    letter = names[0].partition("_")[0]
    return names == [f"{letter}_{i + 1}" for i in range(len(names))]


def _unnamed(members: tuple[Node, ...]) -> tuple[Node, ...]:
    """x = 2, x = -2 and x = 2, -2 without the name, if it is one name throughout."""
    names = {member.args[0] for member in members if member.kind == "relation"}
    first_named = bool(members) and members[0].kind == "relation"
    if len(names) != 1 or not first_named:
        return members
    values = [_assigned(member) if member.kind == "relation" else member for member in members]
    return members if any(value is None for value in values) else tuple(v for v in values if v is not None)


def _distinct(members: tuple[Node, ...]) -> tuple[Node, ...]:
    kept = list[Node]()
    for member in members:
        if not any(same_answer(member, other) for other in kept):
            kept.append(member)
    return tuple(kept)


def _matched(ones: tuple[Node, ...], others: tuple[Node, ...]) -> bool:
    """Whether the two collections pair off, in any order (equality is transitive, so greedy pairing is enough)."""
    if len(ones) != len(others) or len(ones) > MAX_MEMBERS:
        return False
    rest = list(others)
    for one in ones:
        at = next((i for i, other in enumerate(rest) if same_answer(one, other)), None)
        if at is None:
            return False
        del rest[at]
    return True


def _same_array(first: Node, second: Node) -> bool:
    """Tuples and matrices entry by entry; a column of n entries is also an n-tuple."""
    if len(first.args) != len(second.args) or (first.kind == second.kind and first.data != second.data):
        return False
    matrix = first if first.kind == "matrix" else second
    if first.kind != second.kind and (not isinstance(matrix.data, tuple) or matrix.data[1] != 1):
        return False
    return all(map(same_answer, first.args, second.args))


def _same_ratio(first: Node, second: Node) -> bool:
    """Ratios are equal when proportional; a : b is also a / b."""
    one, other = (node.args if node.kind == "ratio" else None for node in (first, second))
    if one is None or other is None:
        parts, value = (one, second) if one is not None else (other, first)
        if parts is None or len(parts) != 2 or not syntax.is_scalar(value):
            return False
        return exact(parts[1]) != 0 and same_value(Node("divide", parts), value)
    if len(one) != len(other) or any(exact(part) == 0 for part in (*one, *other)):
        return one == other
    return all(
        same_value(Node("multiply", (a, other[0])), Node("multiply", (b, one[0])))
        for a, b in zip(one, other, strict=True)
    )


# -- relations


def _same_regions(first: Node, second: Node) -> bool:
    try:
        one, other = region(first), region(second)
        if one is None or other is None or {first.kind, second.kind} <= {"set", "tuple"}:
            return False
        return same_region(one, other)
    except OutOfReach:
        return False


def _forward(node: Node) -> tuple[tuple[Node, ...], tuple[str, ...]]:
    """Operands and operators of a chain, written with < rather than >."""
    operators: Any = node.data
    if set(operators) <= {">", ">="}:
        return node.args[::-1], tuple(op.replace(">", "<") for op in operators[::-1])
    return node.args, operators


def _same_relation(first: Node, second: Node) -> bool:
    """Equations and inequalities: each step equal up to a constant factor (positive for an inequality)."""
    ones, operators = _forward(first)
    others, same_operators = _forward(second)
    if operators != same_operators:
        return False
    if len(ones) == 2 and not all(map(syntax.is_scalar, (*ones, *others))):
        return all(map(same_answer, ones, others))
    if not all(map(syntax.is_scalar, (*ones, *others))) or "in" in operators:
        return False
    ones, others = _with_one_argument(ones), _with_one_argument(others)
    steps = [syntax.add([a, syntax.negate(b)]) for a, b in pairwise(ones)]
    same_steps = [syntax.add([a, syntax.negate(b)]) for a, b in pairwise(others)]
    return all(
        proportional(one, other, positive=operator not in ("=", "!="))
        for one, other, operator in zip(steps, same_steps, operators, strict=True)
    )


def _with_one_argument(operands: tuple[Node, ...]) -> tuple[Node, ...]:
    """The definition of a function with its argument renamed: f(x) = 2x is f(n) = 2n."""
    left = operands[0]
    if left.kind != "apply" or len(left.args) != 1 or left.args[0].kind != "symbol":
        return operands
    return tuple(_renamed(operand, left.args[0]) for operand in operands)


def _renamed(node: Node, name: Node) -> Node:
    return (
        syntax.symbol("argument") if node == name else node._replace(args=tuple(_renamed(a, name) for a in node.args))
    )


def _same_name(first: Node, second: Node) -> bool:
    return first.args[0] == second.args[0]


def _assigned(node: Node) -> Node | None:
    """The value of ``name = value``, also of ``name = other form = value`` if all forms are equal; else None."""
    operators: Any = node.data
    if node.kind != "relation" or set(operators) != {"="}:
        return None
    forms = node.args[1:] if is_name(node.args[0]) else node.args
    value = forms[-1]
    if node.args[0].kind == "tuple" and value.kind == "interval":
        return None
    return value if all(same_answer(form, value) for form in forms[:-1]) else None


def _statements(node: Node) -> Iterator[Node]:
    """What an answer states: itself, the value given to a name, the set a name lies in, a rounded value beside it."""
    operators: Any = node.data
    if node.kind != "relation":
        yield node
        return
    if operators == ("in",) and is_name(node.args[0]):
        yield node.args[1]
        return
    if "~" in operators:
        at = operators.index("~")
        left = node.args[0] if at == 0 else Node("relation", node.args[: at + 1], operators[:at])
        value = left if at == 0 else _assigned(left)
        rounded = node.args[at + 1]
        if value is not None and not is_name(value):
            yield value
            if _rounds_to(value, rounded):
                yield rounded
        elif value is not None:
            yield rounded
        return
    value = _assigned(node)
    yield node if value is None else value


def _rounds_to(value: Node, rounded: Node) -> bool:
    """Whether a decimal is a rounding of an exact value, and so the same answer in another notation.

    41.6 ≈ 42 and 12.345 ≈ 12.35 state a second number: to pay for both would pay for a hedge.
    """
    one, other = (node.args[0] if node.kind == "quantity" else node for node in (value, rounded))
    numeral = _unsigned(other)
    if is_decimal(one) or not is_decimal(other):
        return False
    if not isinstance(numeral.data, Number) or exact(other) is None or not syntax.is_scalar(one):
        return False
    point = Point(0)
    try:
        difference = point.value(one) - point.value(other)
    except OutOfReach:
        return False
    return not variables(one) and abs(difference) <= point.value(syntax.number(numeral.data.place)) * 0.51
