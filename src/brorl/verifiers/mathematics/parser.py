"""Recursive descent over whole answers: lists, units, relations, brackets, sets, matrices.

All tokens must be used: a partial parse is no parse.
"""

import re

from brorl.verifiers.mathematics import syntax
from brorl.verifiers.mathematics.cursor import Cursor, canonical
from brorl.verifiers.mathematics.expressions import expression
from brorl.verifiers.mathematics.lexer import NotMathematics, Token, tokenize
from brorl.verifiers.mathematics.syntax import Node
from brorl.verifiers.mathematics.units import MAGNITUDES, TEMPERATURES, Unit, read_unit
from brorl.verifiers.mathematics.vocabulary import MATRICES, RELATIONS, SET_OPERATORS, SYSTEMS

_ROW_SKIP = re.compile(r"\\\\\s*\[[^\]]*(?:pt|em|ex|mm)\]")
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_UNIT_MARKS = frozenset(("^", "/", "{", "}", "cdot", "*", ".", "$", "-"))


def parse(text: str) -> Node:
    """The tree of one answer in ASCII mathematics.

    Raises:
        NotMathematics: the text, or any part of it, does not fit the grammar.
    """
    tokens = [canonical(token) for token in tokenize(_ROW_SKIP.sub(r"\\\\", text))]
    if not tokens:
        raise NotMathematics("empty")
    at = Cursor(tokens=tokens, enclosed=_enclosed, unit_ahead=_unit_ahead)
    node = _sequence(at)
    if at.peek().kind != "end":
        raise NotMathematics(f"{at.peek().value!r} left over")
    return node


# -- answers between separators


def _sequence(at: Cursor, *closing: str) -> Node:
    """Answers between separators, up to a closing bracket; a single one stands for itself."""
    items = [_answer(at)]
    separator = "comma"
    while not at.ahead(*closing):
        found = _separator(at)
        if not found:
            break
        separator = found if separator in ("comma", found) else "mixed"
        if at.peek().kind == "end" and found == "comma":
            break
        items.append(_answer(at))
    return items[0] if len(items) == 1 else Node("list", tuple(items), separator)


def _separator(at: Cursor) -> str:
    found = ""
    while True:
        token = at.peek()
        word = token.value.strip(" ,").lower() if token.kind in ("text", "word", "macro") else ""
        if token.kind == "op" and token.value in (",", ";"):
            found = found or "comma"
        elif word in ("and", "or"):
            found = word
        elif token.kind == "text" and not word:
            found = found or ("comma" if "," in token.value else "")
        else:
            return found
        at.next()


def _answer(at: Cursor) -> Node:
    """One member of a sequence: a value with its unit, a set, or a chain of relations."""
    at.deeper()
    at.accept("macro", "approx")  # "≈ 8.24 mph" states 8.24 mph
    operands, operators = [_side(at)], list[str]()
    while at.ahead(*RELATIONS):
        operators.append(RELATIONS[at.next().value])
        operands.append(_side(at))
    at.depth -= 1
    if not operators:
        return operands[0]
    if set(operators) == {":"}:
        return Node("ratio", tuple(map(syntax.scalar, operands)))
    return _chain(operands, operators)


def _chain(operands: list[Node], operators: list[str]) -> Node:
    """A relation; ratios in it, as in V_1 : V_2 = 11 : 21, bind more tightly."""
    sides, joined = [operands[0]], list[str]()
    for operator, operand in zip(operators, operands[1:], strict=True):
        if operator == ":":
            sides[-1] = Node("ratio", (*(sides[-1].args if sides[-1].kind == "ratio" else (sides[-1],)), operand))
        else:
            joined.append(operator)
            sides.append(operand)
    return Node("relation", tuple(sides), tuple(joined))


def _side(at: Cursor) -> Node:
    """A union of sets, or an expression with its unit."""
    node = _measured(at)
    while at.ahead(*SET_OPERATORS):
        kind = SET_OPERATORS[at.next().value]
        other = _measured(at)
        node = Node(kind, (*node.args, other) if kind == node.kind == "union" else (node, other))
    return node


# -- units


def _measured(at: Cursor) -> Node:
    """An expression with the unit or currency it is stated in."""
    outer, at.currency = at.currency, ""
    node = expression(at)
    while (
        at.peek().kind in ("word", "text") and (word := at.peek().value.strip().partition(" ")[0].lower()) in MAGNITUDES
    ):
        node = syntax.multiply([syntax.scalar(node), syntax.number(MAGNITUDES[word])])
        rest = at.next().value.strip().partition(" ")[2]
        if rest:
            at.at -= 1
            at.replace(Token("text", rest, True))
    currency, at.currency = at.currency, outer
    found = _unit_ahead(at, node)
    if found is None:
        unit = read_unit(currency, nouns=False) if currency else None
        return Node("quantity", (syntax.scalar(node),), unit) if unit else node
    unit, at.at = found
    if isinstance(unit, str):
        return Node(unit, (syntax.scalar(node),))
    return Node("quantity", (syntax.scalar(node),), unit)


def _unit_ahead(at: Cursor, node: Node) -> tuple[Unit | str, int] | None:
    """The unit (or "percent", "degree") that the tokens up to the next separator spell, and where it ends."""
    end, words, in_text = at.at, list[str](), False
    while end < len(at.tokens):
        token = at.tokens[end]
        if token.kind in ("text", "word"):
            if token.value.strip(" ,").lower() in ("and", "or", ""):
                break
        elif token.kind != "number" and not (token.kind in ("op", "macro") and token.value in _UNIT_MARKS):
            break
        in_text = in_text or token.kind == "text"
        words.append((" " if token.spaced or token.kind == "text" else "") + token.value.replace("cdot", "*"))
        end += 1
    following = at.tokens[end] if end < len(at.tokens) else None
    if end == at.at or (following is not None and following.kind == "op" and following.value in "([+*|!"):
        return None
    phrase = "".join(words)
    if phrase.strip().partition(" ")[0].lower() in MAGNITUDES:
        return "magnitude", at.at
    bare = phrase.strip(" .").lower()
    if bare in ("pct", "percent", "per cent", "percents", "percentage"):
        return "percent", end
    if bare in ("degree", "degrees", "deg"):
        return "degree", end
    if node.kind == "degree" and phrase.strip(" .") in TEMPERATURES:
        phrase, in_text = TEMPERATURES[phrase.strip(" .")], True
    if not in_text and not _bare_unit(phrase):
        return None
    unit = read_unit(phrase, nouns=True)
    return None if unit is None else (unit, end)


def _bare_unit(phrase: str) -> bool:
    """Whether bare letters are a unit: several letters, or a quotient set off by a space (5m may be 5 times m)."""
    letters = re.findall(r"[A-Za-z]+", phrase)
    spaced = phrase[0].isspace()
    if not letters:
        return False
    if read_unit(phrase, nouns=False) is not None:
        return max(map(len, letters)) > 1 or (spaced and "/" in phrase)
    return spaced and len(letters) <= 3 and len(letters[-1]) > 3


# -- brackets


def _enclosed(at: Cursor, opening: str) -> Node:
    """What a bracket encloses; the bracket itself has been taken."""
    at.deeper()
    bars, at.bars = at.bars, int(opening == "\\{")  # a bar in a set is "such that"
    if opening == "\\{":
        node = _set(at)
    elif opening == "\\langle":
        items = _sequence(at, "rangle")
        at.expect("rangle")
        node = Node("tuple", items.args if items.kind == "list" else (items,))
    elif opening == "\\begin":
        node = _matrix(at)
    elif opening == "{":
        node = _sequence(at, "}")
        at.expect("}")
    else:
        node = _bracket(at, opening)
    at.bars = bars
    at.depth -= 1
    return node


def _bracket(at: Cursor, opening: str) -> Node:
    """Grouping, a tuple, or an interval."""
    items = _sequence(at, ")", "]")
    closing = at.expect(")", "]")
    members = items.args if items.kind == "list" else (items,)
    matching = closing == _CLOSING[opening]
    if len(members) == 2 and items.data == "comma" and (opening, closing) != ("(", ")"):
        return Node("interval", tuple(map(syntax.scalar, members)), (opening == "[", closing == "]"))
    if not matching:
        raise NotMathematics("brackets do not match")
    if len(members) == 1:
        return items
    if items.data != "comma":
        raise NotMathematics("words in brackets")
    return Node("tuple", members)


def _set(at: Cursor) -> Node:
    r"""``\{1, 2\}``, ``\{\}``, or ``\{x | x > 3\}``."""
    if at.accept("macro", "}"):
        return Node("set")
    items = _sequence(at, "}")
    if at.accept("op", "|"):
        items = _sequence(at, "}")
        if items.kind not in ("relation", "list"):
            raise NotMathematics("a condition is expected")
        at.expect("}")
        return items
    at.expect("}")
    return Node("set", items.args if items.kind == "list" else (items,))


def _matrix(at: Cursor) -> Node:
    name = _environment(at)
    if name in SYSTEMS:
        return _system(at, name)
    if name not in MATRICES:
        raise NotMathematics(f"environment {name}")
    if name == "array" and at.accept("op", "{"):
        while not at.accept("op", "}"):
            at.next()
    rows = [[expression(at)]]
    while not at.accept("macro", "end"):
        if at.accept("op", "&"):
            rows[-1].append(expression(at))
        else:
            at.expect("\\")
            if at.peek() != Token("macro", "end", at.peek().spaced):
                rows.append([expression(at)])
    if _environment(at) != name or len({len(row) for row in rows}) != 1:
        raise NotMathematics("matrix")
    entries = tuple(syntax.scalar(entry) for row in rows for entry in row)
    return Node("matrix", entries, (len(rows), len(rows[0])))


def _system(at: Cursor, name: str) -> Node:
    """Equations one below the other, as a list."""
    rows = list[Node]()
    while not at.accept("macro", "end"):
        row = _sequence(at, "\\", "end")
        rows += row.args if row.kind == "list" else (row,)
        at.accept("macro", "\\")
    if _environment(at) != name:
        raise NotMathematics("system")
    return rows[0] if len(rows) == 1 else Node("list", tuple(rows), "comma")


def _environment(at: Cursor) -> str:
    at.expect("{")
    name = at.next().value
    at.expect("}")
    return name
