"""Gold programs with one token of their logic broken, always the same one for the same program."""

import io
import token
import tokenize
from collections.abc import Iterator

from brorl.seeding import generator

_OPPOSITE = {
    "==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">", "and": "or", "or": "and", "True": "False",
    "False": "True", "min": "max", "max": "min", "all": "any", "any": "all", "not": "bool", "is": "is not",
    "+": "-", "-": "+", "*": "-", "/": "-", "//": "-", "%": "*", "**": "+", "&": "|", "|": "&", "^": "|", "<<": ">>",
    ">>": "<<", "+=": "-=", "-=": "+=", "*=": "+=", "/=": "*=", "//=": "*=", "append": "count", "add": "discard",
    "upper": "lower", "lower": "upper", "break": "continue", "keys": "values", "values": "keys", "sorted": "max",
    "sum": "len", "len": "sum", "tuple": "list", "list": "len", "set": "list", "reversed": "list", "map": "filter",
    "filter": "map", "sort": "reverse", "count": "index", "index": "count", "join": "split", "replace": "strip",
    "findall": "split", "str": "int", "union": "intersection", "nlargest": "nsmallest", "nsmallest": "nlargest",
}  # fmt: skip
_COMPARISONS = ("==", "!=", "<", ">=", ">", "<=")


def break_one(source: str, *key: str, anywhere: bool = False) -> str | None:
    """The program with one token replaced; None where no token is fit for it.

    The token is drawn from the last return statement that computes something, else from the comparisons and updates,
    else from operators and constants, else from arguments; with `anywhere`, from all.
    """
    places = list(_places(source))
    best = min((rank for rank, _, _ in places), default=0)
    places = [(item, new) for rank, item, new in places if anywhere or rank == best]
    if not places:
        return None
    place, new = places[int(generator("broken gold", *key).integers(len(places)))]
    (row, start), (_, end) = place.start, place.end
    lines = source.splitlines(keepends=True)
    line = lines[row - 1]
    lines[row - 1] = line[:start] + new + line[end:]
    return "".join(lines)


def _places(source: str) -> Iterator[tuple[int, tokenize.TokenInfo, str]]:
    """Tokens that carry logic: rank, token, replacement. Headers, imports, decorators and docstrings carry none."""
    statements = list(_statements(source))
    # A bare constant, as in `return False`, is often the case that no test reaches.
    returns = [items[0] for items in statements if items[0].string == "return" and _computes(items)]
    for statement in statements:
        texts = [item.string for item in statement]
        if texts[0] in ("def", "class", "import", "from", "@", "async", "global", "raise", "print", "assert"):
            continue
        if all(item.type in (token.STRING, token.NEWLINE) for item in statement):
            continue  # a docstring
        is_result = bool(returns) and statement[0] is returns[-1]
        for before, item, after in zip(["", *texts], statement, [*texts[1:], ""], strict=False):
            first = before in ("", "(", ",", "=", "[", "return", ":", "*", "lambda")
            if item.string in ("*", "**") and first:
                continue  # unpacking
            rank = 0 if is_result else 1 if item.string in _COMPARISONS or item.string.endswith("=") else 2
            if item.string in _OPPOSITE and (before, item.string) != ("is", "not"):
                yield rank, item, _OPPOSITE[item.string]
            elif item.type == token.NUMBER and item.string.isdigit():
                yield rank, item, str(int(item.string) + 7)
            elif item.type == token.STRING and len(item.string) > 2 and item.string[0] in "'\"":
                yield rank, item, item.string[:-1] + "!" + item.string[-1]
            elif item.type == token.NAME and before in ("(", ",") and after in (")", ","):
                yield 3, item, "None"  # an argument


def _computes(statement: list[tokenize.TokenInfo]) -> bool:
    return sum(item.type in (token.NAME, token.NUMBER, token.STRING) for item in statement) > 2


def _statements(source: str) -> Iterator[list[tokenize.TokenInfo]]:
    statement: list[tokenize.TokenInfo] = []
    for item in tokenize.generate_tokens(io.StringIO(source).readline):
        if item.type in (token.NL, token.COMMENT, token.INDENT, token.DEDENT, token.ENDMARKER):
            continue
        statement.append(item)
        if item.type == token.NEWLINE:
            yield statement
            statement = []
