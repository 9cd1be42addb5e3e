"""Recursive descent from tokens to a `Node`. All tokens must be used: a partial parse is no parse."""

import re
from fractions import Fraction

from brorl.verifiers.mathematics import syntax
from brorl.verifiers.mathematics.lexer import NotMathematics, Token, tokenize
from brorl.verifiers.mathematics.syntax import Node, Number
from brorl.verifiers.mathematics.units import Unit, read_unit

MAX_DEPTH = 60

FUNCTIONS = frozenset(
    "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh ln log lg exp arg det gcd lcm max min Re Im".split()
)
_SYNONYMS = {
    "dfrac": "frac", "tfrac": "frac", "cfrac": "frac", "dbinom": "binom", "tbinom": "binom", "choose": "binom",
    "leq": "le", "geq": "ge", "leqslant": "le", "geqslant": "ge", "lt": "<", "gt": ">", "neq": "ne", "ast": "cdot",
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "infinity": "infty", "inf": "infty", "oo": "infty",
    "varnothing": "emptyset", "lbrace": "{", "rbrace": "}", "lbrack": "[", "rbrack": "]", "vert": "|", "lvert": "|",
    "rvert": "|", "land": "and", "wedge": "and", "lor": "or", "vee": "or", "colon": ":", "bullet": "cdot", "tg": "tan",
    "degree": "circ", "backslash": "setminus", "simeq": "approx", "varepsilon": "epsilon", "vartheta": "theta",
    "varphi": "phi", "euro": "euro", "lparen": "(", "rparen": ")", "cosec": "csc", "sgn": "sign", "mid": "|",
    "dots": "ldots", "cdots": "ldots", "dotsc": "ldots", "textdegree": "circ", "implies": "Rightarrow",
}  # fmt: skip
_WORDS = {"pi": "pi", "sqrt": "sqrt", "infinity": "infty", "infty": "infty", "inf": "infty", "oo": "infty"} | {
    name: name for name in (*FUNCTIONS, "asin", "acos", "atan", "theta", "alpha", "beta", "lambda", "omega", "frac")
}
_CONSTANTS = {"pi": "pi", "infty": "infinity", "e": "e", "i": "i"}
_GREEK = frozenset(
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau upsilon phi chi psi omega "
    "Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega hbar ell".split()
)
_ACCENTS = frozenset("dot ddot bar hat tilde overline widehat".split())
_PLAIN_STYLE = frozenset("vec overrightarrow mathbf boldsymbol bm mathcal mathbb mathfrak mathtt underline".split())
_OPAQUE = frozenset("sum prod int lim iint oint".split())
_RELATIONS = {
    "=": "=", "==": "=", "<": "<", ">": ">", "<=": "<=", ">=": ">=", "!=": "!=", "le": "<=", "ge": ">=", "ne": "!=",
    "approx": "~", "in": "in", ":": ":", "equiv": "=", "sim": "~",
}  # fmt: skip
_MATRICES = frozenset("pmatrix bmatrix matrix smallmatrix array Bmatrix".split())
_FENCES = {"(": ")", "[": "]", "{": "}"}
_FACTOR_MACROS = FUNCTIONS | _GREEK | _ACCENTS | _PLAIN_STYLE | _OPAQUE | frozenset(
    "frac sqrt binom pi infty lfloor lceil $ euro pound begin langle { operatorname".split()
)  # fmt: skip
_APPLIED = frozenset("fghFGH")


def parse(text: str) -> Node:
    """The tree of one answer in ASCII mathematics.

    Raises:
        NotMathematics: the text, or any part of it, does not fit the grammar.
    """
    tokens = tokenize(re.sub(r"\\\\\s*\[[^\]]*(?:pt|em|ex|mm)\]", r"\\\\", text))
    if not tokens:
        raise NotMathematics("empty")
    return _Parser(tokens).whole()


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = [_canonical(token) for token in tokens]
        self.at = 0
        self.depth = 0
        self.bars = 0  # absolute values that are open here
        self.currency = ""

    # -- tokens

    def peek(self, ahead: int = 0) -> Token:
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else Token("end", "", True)

    def next(self) -> Token:
        token = self.peek()
        self.at += 1
        return token

    def accept(self, kind: str, *values: str) -> bool:
        token = self.peek()
        if token.kind == kind and token.value in values:
            self.at += 1
            return True
        return False

    def symbolic(self, *values: str) -> bool:
        """Takes one of these, written as an operator or as a macro."""
        return self.accept("op", *values) or self.accept("macro", *values)

    def expect(self, *values: str) -> str:
        token = self.next()
        if token.kind not in ("op", "macro") or token.value not in values:
            raise NotMathematics(f"{values[0]} expected, {token.value!r} found")
        return token.value

    # -- answers

    def whole(self) -> Node:
        node = self.sequence()
        if self.peek().kind != "end":
            raise NotMathematics(f"{self.peek().value!r} left over")
        return node

    def sequence(self, *closing: str) -> Node:
        """Answers between separators; a single one stands for itself."""
        items = [self.answer()]
        separator = "comma"
        while not (self.peek().kind in ("op", "macro") and self.peek().value in closing):
            found = self.separator()
            if not found:
                break
            separator = found if separator in ("comma", found) else "mixed"
            if self.peek().kind == "end" and found == "comma":
                break
            items.append(self.answer())
        return items[0] if len(items) == 1 else Node("list", tuple(items), separator)

    def separator(self) -> str:
        found = ""
        while True:
            token = self.peek()
            word = token.value.strip(" ,").lower() if token.kind in ("text", "word", "macro") else ""
            if token.kind == "op" and token.value in (",", ";"):
                found = found or "comma"
            elif word in ("and", "or"):
                found = word
            elif token.kind == "text" and not word:
                found = found or ("comma" if "," in token.value else "")
            else:
                return found
            self.at += 1

    def answer(self) -> Node:
        """One member of a sequence: a value with its unit, a set, or a chain of relations."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise NotMathematics("nested too deeply")
        if self.symbolic("approx"):
            pass  # "≈ 8.24 mph" states 8.24 mph
        operands, operators = [self.side()], list[str]()
        while (operator := self.relation()) is not None:
            operators.append(operator)
            operands.append(self.side())
        self.depth -= 1
        if not operators:
            return operands[0]
        if set(operators) == {":"}:
            return Node("ratio", tuple(map(syntax.scalar, operands)))
        return _chain(operands, operators)

    def relation(self) -> str | None:
        token = self.peek()
        if token.kind in ("op", "macro") and token.value in _RELATIONS:
            self.at += 1
            return _RELATIONS[token.value]
        return None

    def side(self) -> Node:
        """A union of sets, or an expression with its unit."""
        node = self.measured()
        while (token := self.peek()).kind == "macro" and token.value in ("cup", "cap", "setminus"):
            self.at += 1
            kind = {"cup": "union", "cap": "intersection", "setminus": "difference"}[token.value]
            other = self.measured()
            if kind == "union" and node.kind == "union":
                node = Node(kind, (*node.args, other))
            else:
                node = Node(kind, (node, other))
        return node

    def measured(self) -> Node:
        outer, self.currency = self.currency, ""
        node = self.expression()
        currency, self.currency = self.currency, outer
        unit = self.unit_ahead(node)
        if unit is not None:
            unit, self.at = unit[0], unit[1]
            if unit == "percent":
                return Node("percent", (syntax.scalar(node),))
            if unit == "degree":
                return Node("degree", (syntax.scalar(node),))
        elif currency:
            unit = read_unit(currency, nouns=False)
        return Node("quantity", (syntax.scalar(node),), unit) if unit else node

    def unit_ahead(self, node: Node) -> tuple[Unit | str, int] | None:
        """The unit that the tokens up to the next separator spell, and where it ends."""
        end, words, texts = self.at, list[str](), False
        while end < len(self.tokens):
            token = self.tokens[end]
            if token.kind in ("text", "word") and token.value.strip(" ,").lower() in ("and", "or", ""):
                break
            if token.kind not in ("text", "word", "number") and not (
                token.kind in ("op", "macro") and token.value in ("^", "/", "{", "}", "cdot", "*", ".", "$", "-")
            ):
                break
            texts = texts or token.kind == "text"
            words.append((" " if token.spaced else "") + token.value.replace("cdot", "*"))
            end += 1
        following = self.tokens[end] if end < len(self.tokens) else None
        if end == self.at or (following is not None and following.kind == "op" and following.value in "([+-*|!"):
            return None
        phrase = "".join(words) if not texts else " ".join(words)
        bare = phrase.strip(" .").lower()
        if bare in ("pct", "percent", "per cent", "percents", "percentage"):
            return "percent", end
        if bare in ("degree", "degrees", "deg"):
            return "degree", end
        if not texts and not self.spells_unit(phrase):
            return None
        unit = read_unit(phrase, nouns=node.kind != "text")
        return (unit, end) if unit is not None else None

    def spells_unit(self, phrase: str) -> bool:
        """Whether bare letters after a value are a unit: several letters, or a quotient set off by a space."""
        letters = re.findall(r"[A-Za-z]+", phrase)
        if not letters or not phrase[0].isspace() and len(letters[0]) < 2:
            return False
        if read_unit(phrase, nouns=False) is not None:
            return max(map(len, letters)) > 1 or (phrase[0].isspace() and "/" in phrase)
        return phrase[0].isspace() and all(len(word) > 3 for word in letters[-1:]) and len(letters) <= 3

    # -- expressions

    def expression(self) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise NotMathematics("nested too deeply")
        node: Node | None = None
        while True:
            token = self.peek()
            sign = token.value if token.kind in ("op", "macro") and token.value in ("+", "-", "pm", "mp") else ""
            if node is not None and not sign:
                self.depth -= 1
                return node
            if sign:
                self.at += 1
            node = _signed(node, sign, self.term())

    def term(self) -> Node:
        if self.accept("op", "-"):
            return syntax.negate(self.term())
        factors = [self.power()]
        while True:
            if self.accept("op", "*") or self.accept("macro", "cdot", "times"):
                factors.append(self.signed_power())
            elif self.accept("op", "/") or self.accept("macro", "div"):
                factors = [
                    Node("divide", (syntax.scalar(syntax.multiply(factors)), syntax.scalar(self.signed_power())))
                ]
            elif self.factor_ahead(factors[-1]):
                factors.append(self.mixed(factors) or self.power())
                if factors[-1].data == "mixed":
                    factors = [*factors[:-2], syntax.add([factors[-2], *factors[-1].args])]
            else:
                return syntax.multiply(factors)

    def signed_power(self) -> Node:
        return syntax.negate(self.power()) if self.accept("op", "-") else self.power()

    def mixed(self, factors: list[Node]) -> Node | None:
        r"""The fraction of a mixed number, ``2\frac{1}{3}`` or ``2 1/3``."""
        whole, start = factors[-1], self.at
        if len(factors) > 1 or whole.kind != "number" or not isinstance(whole.data, Number) or whole.data.decimal:
            return None
        if self.peek().kind == "number":
            top, slash, bottom = self.peek(), self.peek(1), self.peek(2)
            if slash.value != "/" or bottom.kind != "number" or not (top.value + bottom.value).isdigit():
                raise NotMathematics("two numbers side by side")
            self.at += 3
            fraction = Node("divide", (syntax.literal(top.value), syntax.literal(bottom.value)))
        elif self.peek().value == "frac":
            fraction = self.power()
        else:
            return None
        parts = [part.data for part in fraction.args]
        if fraction.kind == "divide" and all(isinstance(part, Number) and not part.decimal for part in parts):
            top, bottom = (part.value for part in parts if isinstance(part, Number))
            if 0 < top < bottom:
                return Node("opaque", (fraction,), "mixed")
        self.at = start
        return None

    def factor_ahead(self, last: Node) -> bool:
        """Whether a factor follows without an operator."""
        token = self.peek()
        if token.kind in ("number", "repeating"):
            if last.kind != "number" and self.tokens[self.at - 1].kind in ("word", "number"):
                raise NotMathematics("a number after a letter")
            return True
        if token.kind == "word":
            if token.value in ("and", "or") or self.unit_ahead(last) is not None and last.kind in ("number", "multiply", "root", "divide", "degree"):  # fmt: skip
                return False
            previous = self.tokens[self.at - 1]
            if token.spaced and previous.kind == "word" and len(token.value + previous.value) > 2 and not {token.value, previous.value} & set(_WORDS):  # fmt: skip
                raise NotMathematics("words side by side")
            return True
        if token.kind == "text":
            return len(token.value) == 1 and token.value in "ei"
        if token.kind == "macro":
            return token.value in _FACTOR_MACROS and token.value not in ("$", "euro", "pound")
        return token.kind == "op" and (token.value in "([{" or (token.value == "|" and not self.bars))

    def power(self) -> Node:
        node = self.postfix(self.atom())
        if not (self.accept("op", "^") or self.accept("op", "**")):
            return node
        if self.peek().value == "circ" or (self.peek().value == "{" and self.peek(1).value == "circ" and self.peek(2).value == "}"):  # fmt: skip
            self.at += 1 if self.peek().value == "circ" else 3
            return self.postfix(Node("degree", (syntax.scalar(node),)))
        exponent = self.argument(signed=True)
        return self.postfix(Node("power", (syntax.scalar(node), syntax.scalar(exponent))))

    def postfix(self, node: Node) -> Node:
        while True:
            if self.accept("op", "!"):
                node = Node("factorial", (syntax.scalar(node),))
            elif self.accept("op", "%") or self.accept("macro", "%"):
                node = Node("percent", (syntax.scalar(node),))
            elif self.accept("macro", "circ"):
                node = Node("degree", (syntax.scalar(node),))
            else:
                return node

    def argument(self, *, signed: bool = False) -> Node:
        """What a macro takes: a group in braces, or the next digit, letter or macro."""
        if self.accept("op", "{"):
            node = self.sequence("}")
            self.expect("}")
            return node
        if signed and self.accept("op", "-"):
            return syntax.negate(self.argument())
        token = self.peek()
        if token.kind in ("number", "word") and len(token.value) > 1 and not signed:
            self.tokens[self.at] = Token(token.kind, token.value[1:], False)  # \frac12, \sqrt2x: one character each
            return syntax.literal(token.value[0]) if token.kind == "number" else _letter(token.value[0])
        return self.atom()

    def atom(self) -> Node:
        token = self.next()
        if token.kind == "number":
            return self.numeral(token.value)
        if token.kind == "repeating":
            return _repeating(token.value)
        if token.kind == "word":
            return self.word(token)
        if token.kind == "text":
            if self.accept("op", "_"):
                return Node("based", (), (token.value.strip().upper(), self.base()))
            name = token.value.strip()
            if len(name) == 1 and name.isalpha():
                return _letter(name)
            if name in _WORDS:
                return self.macro(_SYNONYMS.get(name, name))
            if name.isalpha() and self.accept("op", "_"):
                return syntax.symbol(name + self.subscript())
            raise NotMathematics("words")
        if token.kind == "macro":
            return self.macro(token.value)
        if token.kind == "op" and token.value in ("(", "[", "{"):
            return self.bracket(token.value)
        if token.kind == "op" and token.value == "|":
            return self.bar()
        raise NotMathematics(f"{token.value!r} where a value is expected")

    def numeral(self, value: str) -> Node:
        if self.accept("op", "_"):
            return Node("based", (), (value, self.base()))
        if self.peek().kind == "word" and not self.peek().spaced and self.peek(1).value == "_" and value.isdigit():
            return Node("based", (), (value + self.next().value.upper(), self.base() if self.accept("op", "_") else 0))
        return syntax.literal(value)

    def base(self) -> int:
        braced = self.accept("op", "{")
        token = self.next()
        if braced:
            self.expect("}")
        digits = token.value.strip()
        if token.kind not in ("number", "text") or not digits.isdigit() or not 2 <= int(digits) <= 36:
            raise NotMathematics("not a base")
        return int(digits)

    def word(self, token: Token) -> Node:
        """Letters: a known name, or one variable each; longer runs in lower case are prose."""
        if token.value in _WORDS:
            return self.macro(_SYNONYMS.get(token.value, token.value))
        if len(token.value) > 3 and not (token.value.isupper() and len(token.value) <= 8):
            raise NotMathematics(f"the word {token.value!r}")
        if len(token.value) > 1:
            self.at -= 1
            self.tokens[self.at] = Token("word", token.value[1:], False)
            return _letter(token.value[0])
        return self.name(token.value)

    def name(self, letter: str) -> Node:
        """A variable with its subscript and primes, or an unknown function applied to its arguments."""
        name = letter
        if self.accept("op", "_"):
            name += self.subscript()
        while self.accept("op", "'"):
            name += "'"
        if self.peek().value == "(" and name not in ("e", "i") and (letter in _APPLIED or self.single_argument()):
            self.at += 1
            arguments = self.sequence(")")
            self.expect(")")
            inner = arguments.args if arguments.kind == "list" else (arguments,)
            return Node("apply", tuple(map(syntax.scalar, inner)), name)
        return _letter(name)

    def single_argument(self) -> bool:
        inside, closing = self.peek(1), self.peek(2)
        return closing.value == ")" and (inside.kind == "number" or (inside.kind == "word" and len(inside.value) == 1))

    def subscript(self) -> str:
        if not self.accept("op", "{"):
            return "_" + self.next().value
        parts = list[str]()
        while not self.accept("op", "}"):
            token = self.next()
            if token.kind == "end" or token.value == "{":
                raise NotMathematics("subscript")
            parts.append(token.value.strip())
        return "_" + " ".join(parts)

    def macro(self, name: str) -> Node:
        if name in ("$", "euro", "pound"):
            self.currency = {"$": "$", "euro": "euro", "pound": "sterling"}[name]
            return self.power()
        if name == "frac":
            return Node("divide", (syntax.scalar(self.argument()), syntax.scalar(self.argument())))
        if name == "binom":
            return Node("binomial", (syntax.scalar(self.argument()), syntax.scalar(self.argument())))
        if name == "sqrt":
            return self.root()
        if name in FUNCTIONS:
            return self.function(name)
        if name in ("lfloor", "lceil"):
            inner = self.expression()
            self.expect("rfloor" if name == "lfloor" else "rceil")
            return Node("floor" if name == "lfloor" else "ceiling", (syntax.scalar(inner),))
        if name in _CONSTANTS:
            return Node("constant", (), _CONSTANTS[name])
        if name in _GREEK:
            return self.name("\\" + name)
        if name in _PLAIN_STYLE or name in _ACCENTS:
            return self.styled(name)
        if name in _OPAQUE:
            return self.operator(name)
        if name == "emptyset":
            return Node("set")
        if name == "{":
            return self.set()
        if name == "langle":
            items = self.sequence("rangle")
            self.expect("rangle")
            return Node("tuple", items.args if items.kind == "list" else (items,))
        if name == "begin":
            return self.matrix()
        raise NotMathematics(f"unknown \\{name}")

    def root(self) -> Node:
        degree = syntax.number(2)
        if self.accept("op", "["):
            degree = syntax.scalar(self.expression())
            self.expect("]")
        return Node("root", (syntax.scalar(self.argument()), degree))

    def function(self, name: str) -> Node:
        arguments, exponent = list[Node](), None
        while self.peek().value in ("_", "^"):
            if self.next().value == "_":
                arguments.append(syntax.scalar(self.argument(signed=True)))
            else:
                exponent = syntax.scalar(self.argument(signed=True))
        if name in ("det", "gcd", "lcm", "max", "min", "arg", "Re", "Im") and self.peek().value != "(":
            raise NotMathematics(name)
        if self.peek().value in ("(", "{"):
            inner = self.atom()
            inside = list(inner.args) if inner.kind == "tuple" else [inner]
        else:
            inside = [self.function_argument()]
        node = Node("call", (*map(syntax.scalar, inside), *arguments), name)
        if exponent == syntax.number(-1):
            return Node("call", node.args, "arc" + name)
        return node if exponent is None else Node("power", (node, exponent))

    def function_argument(self) -> Node:
        """``\\sin 2 \\pi t``: a product without operators, up to the next function."""
        factors = [self.signed_power()]
        while self.factor_ahead(factors[-1]) and self.peek().value not in FUNCTIONS and self.peek().value not in "([":
            factors.append(self.power())
        return syntax.multiply(factors)

    def styled(self, name: str) -> Node:
        if name == "mathbb" and self.peek(1).value in ("R", "Z", "Q", "N", "C"):
            letter = self.peek(1).value
            self.argument()
            return Node("reals") if letter == "R" else syntax.symbol("mathbb " + letter)
        inner = self.argument()
        if name in _PLAIN_STYLE:
            return inner
        if inner.kind not in ("symbol", "multiply"):
            raise NotMathematics(f"\\{name} over a formula")
        return self.name(f"{name} {inner}") if inner.kind == "multiply" else self.name(f"{name} {inner.data}")

    def operator(self, name: str) -> Node:
        """A sum, product, integral or limit: compared by structure."""
        bounds = list[Node]()
        while self.peek().value in ("_", "^"):
            mark = syntax.symbol(self.next().value)
            bounds += [mark, self.argument(signed=True)]
        return Node("opaque", (*bounds, syntax.scalar(self.term())), name)

    # -- brackets

    def bracket(self, opening: str) -> Node:
        """Grouping, a tuple, or an interval."""
        if self.peek().value == ")" and opening == "(":
            raise NotMathematics("empty brackets")
        bars, self.bars = self.bars, 0
        items = self.sequence(")", "]", "}")
        self.bars = bars
        closing = self.expect(*((_FENCES[opening],) if opening == "{" else (")", "]")))
        members = items.args if items.kind == "list" else (items,)
        if closing == "}" or len(members) == 1:
            if opening != "{" and closing != _FENCES[opening]:
                raise NotMathematics("brackets do not match")
            return items
        if items.data not in ("comma", None):
            raise NotMathematics("words in brackets")
        if len(members) == 2 and (opening, closing) != ("(", ")"):
            return Node("interval", tuple(map(syntax.scalar, members)), (opening == "[", closing == "]"))
        if closing != _FENCES[opening]:
            raise NotMathematics("brackets do not match")
        return Node("tuple", members)

    def bar(self) -> Node:
        self.bars += 1
        inner = self.expression()
        self.expect("|")
        self.bars -= 1
        return Node("absolute", (syntax.scalar(inner),))

    def set(self) -> Node:
        bars, self.bars = self.bars, 1  # a bar in a set is "such that"
        if self.accept("macro", "}"):
            self.bars = bars
            return Node("set")
        items = self.sequence("}")
        if self.accept("op", "|"):
            items = self.sequence("}")
            if items.kind not in ("relation", "list"):
                raise NotMathematics("a condition is expected")
            self.expect("}")
            self.bars = bars
            return items
        self.expect("}")
        self.bars = bars
        return Node("set", items.args if items.kind == "list" else (items,))

    def matrix(self) -> Node:
        self.expect("{")
        name = self.next().value
        self.expect("}")
        if name not in _MATRICES:
            raise NotMathematics(f"environment {name}")
        if name == "array" and self.accept("op", "{"):
            while not self.accept("op", "}"):
                if self.next().kind == "end":
                    raise NotMathematics("array")
        rows = [[self.expression()]]
        while not self.accept("macro", "end"):
            if self.accept("op", "&"):
                rows[-1].append(self.expression())
            else:
                self.expect("\\")
                if self.peek().value != "end":
                    rows.append([self.expression()])
        self.expect("{")
        self.at += 1
        self.expect("}")
        if len({len(row) for row in rows}) != 1:
            raise NotMathematics("rows of different lengths")
        entries = tuple(syntax.scalar(entry) for row in rows for entry in row)
        return Node("matrix", entries, (len(rows), len(rows[0])))


def _canonical(token: Token) -> Token:
    if token.kind == "macro" and token.value in _SYNONYMS:
        value = _SYNONYMS[token.value]
        return token._replace(value=value, kind="op" if value in "()[]|<>:" else "macro")
    return token


def _letter(name: str) -> Node:
    return Node("constant", (), _CONSTANTS[name]) if name in ("e", "i") else syntax.symbol(name)


def _signed(left: Node | None, sign: str, right: Node) -> Node:
    if sign in ("pm", "mp"):
        kind = "plusminus" if sign == "pm" else "minusplus"
        return Node(kind, (syntax.scalar(left or syntax.ZERO), syntax.scalar(right)))
    right = syntax.negate(right) if sign == "-" else right
    if left is None:
        return right
    if left.kind == "add":
        return syntax.add([*left.args, right])
    return syntax.add([left, right])


def _repeating(text: str) -> Node:
    match = re.fullmatch(r"(\d*)\.(\d*)\\\w+\s*\{\s*(\d+)\s*\}", text)
    if match is None:
        raise NotMathematics("repeating decimal")
    whole, fixed, cycle = match.groups()
    head = Fraction(f"{whole or '0'}.{fixed or '0'}")
    return syntax.number(head + Fraction(int(cycle), 10 ** len(fixed) * (10 ** len(cycle) - 1)))


def _chain(operands: list[Node], operators: list[str]) -> Node:
    if ":" in operators:  # V_1 : V_2 = 11 : 21
        sides, joined = [operands[0]], list[str]()
        for operator, operand in zip(operators, operands[1:], strict=True):
            if operator == ":":
                sides[-1] = Node("ratio", (*(sides[-1].args if sides[-1].kind == "ratio" else (sides[-1],)), operand))
            else:
                joined.append(operator)
                sides.append(operand)
        operands, operators = sides, joined
    return Node("relation", tuple(operands), tuple(operators))
