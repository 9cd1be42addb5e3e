"""Plus-minus written out: 2 ± 1 is the list 3, 1."""

from brorl.verifiers.mathematics import syntax
from brorl.verifiers.mathematics.regions import is_name
from brorl.verifiers.mathematics.syntax import Node

MAX_MEMBERS = 200
"""of a list that is compared member by member"""


def expand(node: Node) -> Node:
    """Every plus-minus written out as two members, nested lists flattened."""
    if node.kind in ("list", "set"):
        members = list[Node]()
        for argument in node.args:
            inner = expand(argument)
            members += inner.args if inner.kind == "list" and inner.data != "and" else [inner]
        return node._replace(args=tuple(members[: MAX_MEMBERS + 1]))
    if not _has_sign(node):
        return node
    if node.kind == "quantity" or (node.kind == "relation" and node.data == ("=",) and is_name(node.args[0])):
        values = (_with_sign(node.args[-1], 1), _with_sign(node.args[-1], -1))
        return Node("list", tuple(node._replace(args=(*node.args[:-1], value)) for value in values), "or")
    return Node("list", (_with_sign(node, 1), _with_sign(node, -1)), "or")


def _has_sign(node: Node) -> bool:
    return node.kind in ("plusminus", "minusplus") or any(map(_has_sign, node.args))


def _with_sign(node: Node, sign: int) -> Node:
    args = tuple(_with_sign(argument, sign) for argument in node.args)
    if node.kind not in ("plusminus", "minusplus"):
        return node._replace(args=args)
    plus = (node.kind == "plusminus") == (sign > 0)
    right = args[1] if plus else syntax.negate(args[1])
    return right if args[0] == syntax.ZERO else syntax.add([args[0], right])
