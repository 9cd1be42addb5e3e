"""Recursive descent over expressions: sums, products, powers, functions, numerals, variables."""

import re
from fractions import Fraction

from brorl.verifiers.mathematics import syntax
from brorl.verifiers.mathematics.cursor import Cursor
from brorl.verifiers.mathematics.lexer import NotMathematics, Token
from brorl.verifiers.mathematics.syntax import Node, Number
from brorl.verifiers.mathematics.vocabulary import (
    ACCENTS,
    ALWAYS_BRACKETED,
    BIG_OPERATORS,
    CONSTANTS,
    CURRENCIES,
    FACTOR_MACROS,
    FIGURES,
    FUNCTIONS,
    GREEK,
    PLAIN_STYLES,
    UNKNOWN_FUNCTIONS,
    WORDS,
)

# Nodes after which bare letters may be a unit: 20 cm, 36 sqrt(7) cm^3.
_MEASURABLE = frozenset(("number", "multiply", "root", "divide", "degree"))


def expression(at: Cursor) -> Node:
    """A sum of terms."""
    at.deeper()
    node: Node | None = None
    while True:
        sign = at.peek().value if at.ahead("+", "-", "pm", "mp") else ""
        if node is not None and not sign:
            at.depth -= 1
            return node
        if sign:
            at.next()
        node = _signed(node, sign, term(at))


def _signed(left: Node | None, sign: str, right: Node) -> Node:
    if sign in ("pm", "mp"):
        kind = "plusminus" if sign == "pm" else "minusplus"
        return Node(kind, (syntax.scalar(left or syntax.ZERO), syntax.scalar(right)))
    right = syntax.negate(right) if sign == "-" else right
    if left is None:
        return right
    return syntax.add([*left.args, right] if left.kind == "add" else [left, right])


def term(at: Cursor) -> Node:
    """A product of factors, with or without operators; ``/`` divides all that stands before it."""
    if at.accept("op", "-"):
        at.deeper()
        node = syntax.negate(term(at))
        at.depth -= 1
        return node
    factors = [_power(at)]
    while True:
        if at.accept("op", "*") or at.accept("macro", "cdot", "times"):
            factors.append(_signed_power(at))
        elif at.accept("op", "/") or at.accept("macro", "div"):
            factors = [Node("divide", (syntax.scalar(syntax.multiply(factors)), syntax.scalar(_signed_power(at))))]
        elif not _factor_ahead(at, factors[-1]):
            return syntax.multiply(factors)
        elif len(factors) == 1 and (fraction := _mixed(at, factors[0])) is not None:
            factors = [_raised(at, syntax.add([factors[0], fraction]))]
        else:
            factors.append(_power(at))


def _signed_power(at: Cursor) -> Node:
    return syntax.negate(_power(at)) if at.accept("op", "-") else _power(at)


def _mixed(at: Cursor, whole: Node) -> Node | None:
    r"""The fraction of a mixed number, ``2\frac{1}{3}`` or ``2 1/3``, after its whole part."""
    if whole.kind != "number" or not isinstance(whole.data, Number) or whole.data.decimal:
        return None
    start = at.at
    if at.peek().kind == "number":
        top, slash, bottom = at.next(), at.next(), at.next()
        if slash.value != "/" or bottom.kind != "number" or not (top.value + bottom.value).isdigit():
            raise NotMathematics("two numbers side by side")
        fraction = Node("divide", (syntax.literal(top.value), syntax.literal(bottom.value)))
    elif at.accept("macro", "frac"):
        fraction = _macro(at, "frac")
    else:
        return None
    parts = [part.data for part in fraction.args]
    if fraction.kind == "divide" and all(isinstance(part, Number) and not part.decimal for part in parts):
        top, bottom = (part.value for part in parts if isinstance(part, Number))
        if 0 < top < bottom:
            return fraction
    at.at = start
    return None


def _factor_ahead(at: Cursor, last: Node) -> bool:
    """Whether a factor follows without an operator.

    Raises:
        NotMathematics: what follows reads as prose (words side by side, a number after a word).
    """
    token, previous = at.peek(), at.tokens[at.at - 1]
    if token.kind in ("number", "repeating"):
        if last.kind != "number" and previous.kind in ("word", "number"):
            raise NotMathematics("a number after a letter")
        return True
    if token.kind == "word":
        if token.value in ("and", "or") or (last.kind in _MEASURABLE and at.unit_ahead(at, last) is not None):
            return False
        letters = token.value + previous.value
        if (
            token.spaced
            and previous.kind == "word"
            and len(letters) > 2
            and not {token.value, previous.value} & set(WORDS)
        ):
            raise NotMathematics("words side by side")
        return True
    if token.kind == "text":
        return token.value in ("e", "i")
    if token.kind == "macro":
        return token.value in FACTOR_MACROS
    return token.kind == "op" and (token.value in ("(", "[", "{") or (token.value == "|" and not at.bars))


def _power(at: Cursor) -> Node:
    return _raised(at, _atom(at))


def _raised(at: Cursor, node: Node) -> Node:
    """A value with the factorials, percent and degree signs and the exponent after it."""
    node = _postfix(at, node)
    if not at.accept("op", "^", "**"):
        return node
    braced = at.peek().value == "{" and at.peek(1).value == "circ" and at.peek(2).value == "}"
    if braced or at.peek().value == "circ":
        at.at += 3 if braced else 1
        return _postfix(at, Node("degree", (syntax.scalar(node),)))
    exponent = _argument(at, exponent=True)
    return _postfix(at, Node("power", (syntax.scalar(node), syntax.scalar(exponent))))


def _postfix(at: Cursor, node: Node) -> Node:
    while True:
        if at.accept("op", "!"):
            node = Node("factorial", (syntax.scalar(node),))
        elif at.accept("op", "%") or at.accept("macro", "%"):
            node = Node("percent", (syntax.scalar(node),))
        elif at.accept("macro", "circ"):
            node = Node("degree", (syntax.scalar(node),))
        else:
            return node


def _argument(at: Cursor, *, exponent: bool = False) -> Node:
    """What a macro takes: a group in braces, or the next digit, letter or macro (an exponent takes a whole number)."""
    if at.accept("op", "{"):
        return at.enclosed(at, "{")
    if exponent and at.accept("op", "-"):
        return syntax.negate(_argument(at, exponent=True))
    token = at.peek()
    splits = token.value.isdigit() if token.kind == "number" else token.kind == "word" and token.value not in WORDS
    if splits and len(token.value) > 1 and not exponent:
        at.replace(Token(token.kind, token.value[1:], False))  # \frac12 is 1/2
        return syntax.literal(token.value[0]) if token.kind == "number" else _letter(token.value[0])
    if exponent and token.kind == "op" and token.value not in ("(", "|"):
        raise NotMathematics("exponent")
    return _atom(at)


def _atom(at: Cursor) -> Node:
    token = at.next()
    if token.kind == "number":
        return _numeral(at, token.value)
    if token.kind == "repeating":
        return _repeating(token.value)
    if token.kind == "word":
        return _word(at, token.value)
    if token.kind == "text":
        return _set_text(at, token.value.strip())
    if token.kind == "macro":
        return _macro(at, token.value)
    if token.kind == "op" and token.value in ("(", "[", "{"):
        return at.enclosed(at, token.value)
    if token.kind == "op" and token.value == "|":
        at.bars += 1
        inner = expression(at)
        at.expect("|")
        at.bars -= 1
        return Node("absolute", (syntax.scalar(inner),))
    raise NotMathematics(f"{token.value!r} where a value is expected")


# -- numerals and names


def _numeral(at: Cursor, value: str) -> Node:
    if at.accept("op", "_"):
        return Node("based", (), (value, _base(at)))
    letters = at.peek()
    if letters.kind == "word" and not letters.spaced and at.peek(1).value == "_" and value.isdigit():  # 2B_{16}
        at.at += 2
        return Node("based", (), (value + letters.value.upper(), _base(at)))
    return syntax.literal(value)


def _base(at: Cursor) -> int:
    braced = at.accept("op", "{")
    token = at.next()
    if braced:
        at.expect("}")
    digits = token.value.strip()
    if token.kind not in ("number", "text") or not digits.isdecimal() or not 2 <= int(digits[:5]) <= 36:
        raise NotMathematics("not a base")
    return int(digits)


def _repeating(text: str) -> Node:
    match = re.fullmatch(r"(\d*)\.(\d*)\\\w+\s*\{\s*(\d+)\s*\}", text)
    if match is None:
        raise NotMathematics("repeating decimal")
    whole, fixed, cycle = match.groups()
    head = Fraction(f"{whole or '0'}.{fixed or '0'}")
    return syntax.number(head + Fraction(int(cycle), 10 ** len(fixed) * (10 ** len(cycle) - 1)))


def _word(at: Cursor, word: str) -> Node:
    """Letters: a known name, or one variable each; longer runs in lower case are prose."""
    if word in WORDS:
        return _macro(at, WORDS[word])
    if len(word) > 3 and not (word.isupper() and len(word) <= 8):
        raise NotMathematics(f"the word {word!r}")
    if len(word) > 1:
        at.at -= 1
        at.replace(Token("word", word[1:], False))
        return _letter(word[0])
    return _name(at, word)


def _set_text(at: Cursor, text: str) -> Node:
    r"""``\text{...}`` where a value is expected: a numeral with a base, a constant, a variable with a long name."""
    if text.isalnum() and at.accept("op", "_"):
        if text[0].isdigit() or text.isupper():
            return Node("based", (), (text.upper(), _base(at)))
        return syntax.symbol(text + _subscript(at))
    if len(text) == 1 and text.isalpha():
        return _letter(text)
    if text in WORDS:
        return _macro(at, WORDS[text])
    raise NotMathematics("words")


def _letter(name: str) -> Node:
    return Node("constant", (), CONSTANTS[name]) if name in ("e", "i") else syntax.symbol(name)


def _name(at: Cursor, letter: str) -> Node:
    """A variable with its subscript and primes, or an unknown function applied to its arguments."""
    name = letter
    if at.accept("op", "_"):
        name += _subscript(at)
    while at.accept("op", "'"):
        name += "'"
    inside, closing = at.peek(1), at.peek(2)
    single = closing.value == ")" and (inside.kind == "number" or (inside.kind == "word" and len(inside.value) == 1))
    if at.peek().value == "(" and name not in ("e", "i") and (letter in UNKNOWN_FUNCTIONS or single):
        at.next()
        inner = at.enclosed(at, "(")
        return Node("apply", tuple(map(syntax.scalar, inner.args if inner.kind == "tuple" else (inner,))), name)
    return _letter(name)


def _subscript(at: Cursor) -> str:
    if not at.accept("op", "{"):
        return "_" + at.next().value
    parts = list[str]()
    while not at.accept("op", "}"):
        token = at.next()
        if token.value == "{":
            raise NotMathematics("subscript")
        parts.append(token.value.strip())
    return "_" + " ".join(parts)


# -- macros


def _macro(at: Cursor, name: str) -> Node:
    if name in CURRENCIES:
        at.currency = CURRENCIES[name]
        return _power(at)
    if name in ("frac", "binom"):
        kind = "divide" if name == "frac" else "binomial"
        return Node(kind, (syntax.scalar(_argument(at)), syntax.scalar(_argument(at))))
    if name == "sqrt":
        return _root(at)
    if name in FUNCTIONS:
        return _function(at, name)
    if name in ("lfloor", "lceil"):
        inner = expression(at)
        at.expect("rfloor" if name == "lfloor" else "rceil")
        return Node("floor" if name == "lfloor" else "ceiling", (syntax.scalar(inner),))
    if name in CONSTANTS:
        return Node("constant", (), CONSTANTS[name])
    if name in GREEK:
        return _name(at, "\\" + name)
    if name in FIGURES and at.peek().kind == "word":
        return syntax.symbol(f"{name} {at.next().value}")
    if name in PLAIN_STYLES or name in ACCENTS:
        return _styled(at, name)
    if name in BIG_OPERATORS:
        return _big_operator(at, name)
    if name == "emptyset":
        return Node("set")
    if name in ("{", "langle", "begin"):
        return at.enclosed(at, "\\" + name)
    raise NotMathematics(f"unknown \\{name}")


def _root(at: Cursor) -> Node:
    degree = syntax.number(2)
    if at.accept("op", "["):
        degree = syntax.scalar(expression(at))
        at.expect("]")
    return Node("root", (syntax.scalar(_argument(at)), degree))


def _function(at: Cursor, name: str) -> Node:
    base, exponent = list[Node](), None
    while at.peek().value in ("_", "^"):
        if at.next().value == "_":
            base.append(syntax.scalar(_argument(at, exponent=True)))
        else:
            exponent = syntax.scalar(_argument(at, exponent=True))
    if name in ALWAYS_BRACKETED and at.peek().value != "(":
        raise NotMathematics(name)
    if at.peek().value in ("(", "{"):
        inner = _atom(at)
        inside = inner.args if inner.kind == "tuple" else (inner,)
    else:
        inside = (_function_argument(at),)
    node = Node("call", (*map(syntax.scalar, inside), *base), name)
    if exponent == syntax.number(-1):
        return Node("call", node.args, "arc" + name)
    return node if exponent is None else Node("power", (node, exponent))


def _function_argument(at: Cursor) -> Node:
    r"""``\sin 2 \pi t``: a product without operators, up to the next function or bracket."""
    at.deeper()
    factors = [_signed_power(at)]
    while _factor_ahead(at, factors[-1]) and at.peek().value not in FUNCTIONS and at.peek().value not in ("(", "["):
        factors.append(_power(at))
    at.depth -= 1
    return syntax.multiply(factors)


def _styled(at: Cursor, name: str) -> Node:
    letter = at.peek(int(at.peek().value == "{")).value
    if name == "mathbb" and letter in ("R", "Z", "Q", "N", "C"):
        _argument(at)
        return Node("reals") if letter == "R" else syntax.symbol("mathbb " + letter)
    inner = _argument(at)
    if name in PLAIN_STYLES:
        return inner
    if inner.kind == "symbol":
        return _name(at, f"{name} {inner.data}")
    if inner.kind == "multiply" and all(part.kind == "symbol" for part in inner.args):
        if name == "overline" and all(str(part.data).isupper() for part in inner.args):
            return inner  # a line segment
        return _name(at, f"{name} {''.join(str(part.data) for part in inner.args)}")
    raise NotMathematics(f"\\{name} over a formula")


def _big_operator(at: Cursor, name: str) -> Node:
    """A sum, product, integral or limit: compared by structure."""
    bounds = list[Node]()
    while at.peek().value in ("_", "^"):
        bounds += [syntax.symbol(at.next().value), _argument(at, exponent=True)]
    return Node("opaque", (*bounds, syntax.scalar(term(at))), name)
