"""A place in the token list of one answer."""

from collections.abc import Callable
from dataclasses import dataclass

from brorl.verifiers.mathematics.lexer import NotMathematics, Token
from brorl.verifiers.mathematics.syntax import Node
from brorl.verifiers.mathematics.units import Unit
from brorl.verifiers.mathematics.vocabulary import SYNONYMS

MAX_DEPTH = 60
_END = Token("end", "", True)


@dataclass(slots=True, kw_only=True)
class Cursor:
    """Where the parser is. The one piece of state that its functions share."""

    tokens: list[Token]
    enclosed: Callable[["Cursor", str], Node]
    """reads what an opening bracket, already taken, encloses: the way from expressions back to whole answers"""
    unit_ahead: Callable[["Cursor", Node], tuple[Unit | str, int] | None]
    """the unit that starts here, if what stands here is one, and where it ends"""
    at: int = 0
    depth: int = 0
    bars: int = 0
    """absolute values that are open"""
    currency: str = ""
    """the currency sign met in the expression being read"""

    def peek(self, ahead: int = 0) -> Token:
        """The next token, or the one after."""
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else _END

    def next(self) -> Token:
        """Takes the next token.

        Raises:
            NotMathematics: there is none.
        """
        if self.at >= len(self.tokens):
            raise NotMathematics("incomplete")
        self.at += 1
        return self.tokens[self.at - 1]

    def ahead(self, *values: str) -> bool:
        """Whether the next token is one of these, as an operator or as a macro."""
        token = self.peek()
        return token.kind in ("op", "macro") and token.value in values

    def accept(self, kind: str, *values: str) -> bool:
        """Takes the next token if it is one of these."""
        token = self.peek()
        if token.kind == kind and token.value in values:
            self.at += 1
            return True
        return False

    def expect(self, *values: str) -> str:
        """Takes one of these, as an operator or as a macro.

        Raises:
            NotMathematics: something else stands here.
        """
        if not self.ahead(*values):
            raise NotMathematics(f"{values[0]} expected, {self.peek().value!r} found")
        return self.next().value

    def replace(self, token: Token) -> None:
        """Puts a token in the place of the next one."""
        self.tokens[self.at] = token

    def deeper(self) -> None:
        """Counts a level of nesting; the caller takes it off again.

        Raises:
            NotMathematics: nested too deeply.
        """
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise NotMathematics("nested too deeply")


def canonical(token: Token) -> Token:
    """A macro by its standard name."""
    if token.kind == "macro" and token.value in SYNONYMS:
        value = SYNONYMS[token.value]
        return token._replace(value=value, kind="op" if value in ("(", ")", "[", "]", "|", "<", ">", ":") else "macro")
    return token
