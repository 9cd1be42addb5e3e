"""LaTeX and Unicode mathematics as a list of tokens; spacing, delimiters and markup without meaning are dropped."""

# ruff: noqa: RUF001 - confusable characters are what it is about

import re
import unicodedata
from typing import NamedTuple

MAX_CHARACTERS = 2_000
MAX_TOKENS = 800


class NotMathematics(ValueError):
    """The text is not a formula this grammar knows, or it is over a size limit; it is then compared as text."""


class Token(NamedTuple):
    """`kind` is number, word (letters), text (words set as text), macro (without its backslash) or op."""

    kind: str
    value: str
    spaced: bool
    """white space stands before it"""


_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋", "0123456789+-")
_GREEK_NAMES = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho varsigma sigma tau "
    "upsilon phi chi psi omega"
)
_GREEK = {chr(0x3B1 + i): name for i, name in enumerate(_GREEK_NAMES.split())} | {
    "Γ": "Gamma", "Δ": "Delta", "Θ": "Theta", "Λ": "Lambda", "Σ": "Sigma", "Φ": "Phi", "Ψ": "Psi", "Ω": "Omega",
}  # fmt: skip
_CHARACTERS = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "×": "\\times ", "÷": "\\div ", "·": "\\cdot ", "⋅": "\\cdot ",
    "∙": "\\cdot ", "•": "\\cdot ", "√": "\\sqrt ", "∞": "\\infty ", "°": "^\\circ ", "º": "^\\circ ", "±": "\\pm ",
    "∓": "\\mp ", "≤": "\\le ", "≥": "\\ge ", "≠": "\\ne ", "≈": "\\approx ", "≃": "\\approx ", "∈": "\\in ",
    "∪": "\\cup ", "∩": "\\cap ", "∖": "\\setminus ", "∅": "\\emptyset ", "ℝ": "\\mathbb{R}", "€": "\\euro ",
    "£": "\\pound ", "’": "'", "‘": "'", "′": "'", "“": '"', "”": '"', "⌊": "\\lfloor ", "⌋": "\\rfloor ",
    "⌈": "\\lceil ", "⌉": "\\rceil ", "⟨": "\\langle ", "⟩": "\\rangle ", "⇒": "\\Rightarrow ", "→": "\\to ",
    "。": ".", "∶": ":", "⁄": "/", "ℏ": "\\hbar ", "∀": "\\forall ", "∃": "\\exists ", "\u200b": "", "\ufeff": "",
} | {letter: f"\\{name} " for letter, name in _GREEK.items()}  # fmt: skip
_SPECIAL = re.compile("|".join(map(re.escape, sorted(_CHARACTERS, key=len, reverse=True))))

# Spacing and sizing; \phantom and \hspace with what they hold.
_NO_MEANING = r"""(?:quad|qquad|thinspace|enspace|displaystyle|textstyle|limits|nolimits|left|right|middle|bigl|bigr
    |Bigl|Bigr|big|Big|bigg|Bigg|mathstrut|allowbreak|rm|bf|it|(?:hspace|phantom)\{[^{}]*\}|phantom)(?![a-zA-Z])"""
_TEXT_MACRO = r"\\(?:text(?:bf|rm|it|normal|tt|sf)?|[mh]box|math(?:rm|sf|it)|operatorname)\*?\s*"
_GROUPED = r"\d{1,3}(?:(?:,\\!|\{\s*,\s*\}|\\,|~|\\[ ])\s*\d{3})+(?!\d)"  # 14,\!400 and 10{,}000
_FRACTION = r"(?:\.\d+|(?<=\d)\.(?![.\d]))"
_EXPONENT = r"(?:[eE][+-]?\d+(?![\d.a-zA-Z]))?"
_TOKEN = re.compile(
    rf"""(?P<space>(?:\s|~|\\[,;:!>]|\\[ ]|\\{_NO_MEANING}|\\[()\[\]]|\$)+)
    | {_TEXT_MACRO}\{{(?P<text>[^{{}}]*)\}}
    | (?P<repeating>\d*\.\d*\\(?:overline|bar|dot)\s*\{{\s*\d+\s*\}})
    | (?P<number>(?:{_GROUPED}|\d+)?{_FRACTION}{_EXPONENT} | {_GROUPED} | \d+{_EXPONENT})
    | (?P<word>[a-zA-Z]+)
    | \\(?P<macro>[a-zA-Z]+|[^a-zA-Z\s])
    | (?P<op><=|>=|!=|==|\*\*|_|[^\s\w\\])
    | (?P<bad>.)""",
    re.VERBOSE | re.DOTALL,
)
_PLAIN_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])(?!,\d)")
_SPACED_THOUSANDS = re.compile(r"(?<![\d.,/}])\d{1,3}(?: \d{3})+(?![\d/.])")


def plain(text: str) -> str:
    """The same mathematics in ASCII: compatibility forms folded, signs and Greek letters as macros."""
    if text.isascii():
        return text
    text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+", lambda m: "^{" + m.group().translate(_SUPERSCRIPTS) + "}", text)
    text = re.sub("[₀₁₂₃₄₅₆₇₈₉₊₋]+", lambda m: "_{" + m.group().translate(_SUBSCRIPTS) + "}", text)
    text = re.sub("[¼-¾⅐-⅞]", _vulgar_fraction, text)
    text = _SPECIAL.sub(lambda m: _CHARACTERS[m.group()], text)
    text = unicodedata.normalize("NFKC", text)
    return _SPECIAL.sub(lambda m: _CHARACTERS[m.group()], text)


def _vulgar_fraction(match: re.Match[str]) -> str:
    top, bottom = unicodedata.normalize("NFKC", match.group()).split("⁄")
    return f"\\frac{{{top}}}{{{bottom}}}"


def join_thousands(text: str) -> str:
    """Without commas and blanks between groups of three digits, outside brackets: ``(2,251,252)`` is a triple."""
    if not any(mark in text for mark in (",", " ")):
        return text
    depth, start, parts = 0, 0, []
    for match in re.finditer(r"\\?[(\[{}\])]", text):
        group = match.group()
        opens = group in ("(", "[", "\\{")
        if opens or group in (")", "]", "\\}"):
            if depth == 0 and opens:
                parts.append(_joined(text[start : match.start()]))
                start = match.start()
            depth = max(0, depth + (1 if opens else -1))
            if depth == 0 and not opens:
                parts.append(text[start : match.end()])
                start = match.end()
    parts.append(_joined(text[start:]) if depth == 0 else text[start:])
    return "".join(parts)


def _joined(text: str) -> str:
    text = _PLAIN_THOUSANDS.sub(lambda m: m.group().replace(",", ""), text)
    return _SPACED_THOUSANDS.sub(lambda m: m.group().replace(" ", ""), text)


def tokenize(text: str) -> list[Token]:
    """The tokens of ASCII mathematics (see `plain`).

    Raises:
        NotMathematics: over a size limit, or a character that no formula holds.
    """
    if len(text) > MAX_CHARACTERS:
        raise NotMathematics("too long")
    tokens: list[Token] = []
    spaced = False
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        value = match.group(kind) if kind else ""
        if kind == "space":
            spaced = True
            continue
        if kind is None or kind == "bad":
            raise NotMathematics(f"unknown character {match.group()!r}")
        tokens.append(_token(kind, value, spaced))
        spaced = False
    if len(tokens) > MAX_TOKENS:
        raise NotMathematics("too many tokens")
    return tokens


def _token(kind: str, value: str, spaced: bool) -> Token:
    if kind == "number":
        return Token(kind, re.sub(r"[^\d.eE+-]", "", value), spaced)
    if kind == "repeating":
        return Token(kind, value, spaced)
    if kind == "text":
        return Token(kind, re.sub(r"\\[,;:! ]|~|\\", " ", value).strip(), spaced)
    return Token(kind, value, spaced)
