"""An answer's text as something to compare: its readings as mathematics, or its words."""

import re
from functools import lru_cache
from typing import NamedTuple

from brorl.verifiers.mathematics.answers import same_answer
from brorl.verifiers.mathematics.evaluation import OutOfReach
from brorl.verifiers.mathematics.extraction import Found, last_box
from brorl.verifiers.mathematics.lexer import NotMathematics, join_thousands, plain
from brorl.verifiers.mathematics.parser import parse
from brorl.verifiers.mathematics.syntax import Node, number


class Reading(NamedTuple):
    """How a text may be read. Two texts are equal if a reading of one equals a reading of the other."""

    key: str
    """the text without spacing and markup: equal keys are equal answers"""
    words: str
    """lower-case words, for answers in words; empty for mathematics"""
    trees: tuple[Node, ...]


_WRAPPED = re.compile(r"^\\(?:text|textbf|textrm|mbox|mathrm|mathbf|boxed)\s*\{([^{}]*)\}$")
_STYLES = re.compile(r"\\(?:text|textbf|textrm|textit|mbox|mathrm|mathbf|boldsymbol|operatorname)\s*\{([^{}]*)\}")
_SPACING = re.compile(r"\\(?:[,;:! ]|left(?![a-z])|right(?![a-z])|displaystyle|quad|qquad|[()\[\]])|(?<!\\)\$|~")
_TIME = re.compile(r"\d{1,2}:[0-5]\d(?::[0-5]\d)?\s*[ap]\.?\s?m\.?", re.IGNORECASE)
_CLOCK = re.compile(r"(?:[01]?\d|2[0-4]):[0-5]\d(?::[0-5]\d)?")
_PLAIN_LIST = re.compile(r"\d,\d{3}(?!\d)|\d \d{3}(?!\d)")
_THOUSANDS = re.compile(r"\d[, ]0\d\d(?!\d)")
_ESCAPED_TWICE = re.compile(r"\\\\(?:left|frac|dfrac|sqrt|le|leq|ge|geq|cdot|pi|text|boxed)(?![a-z])")
_PROSE = re.compile(r"[a-z0-9:.,'()/ -]*")
_ORDINAL = re.compile(
    r"(?<=\d)(?:\^?\{?\\(?:text|textrm|mathrm)\{\s*(?:st|nd|rd|th)\s*\}\}?|\^\{(?:st|nd|rd|th)\}|(?:st|nd|rd|th)\b)"
)
_NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve"
_NUMBER_WORDS = {word: value for value, word in enumerate(_NUMBERS.split())}
_ARTICLES = frozenset(("a", "an", "the"))


@lru_cache(maxsize=8192)
def read(text: str) -> Reading:
    """All readings of one answer's text. Never raises; a text that is not mathematics has no tree."""
    text = _unwrap(plain(text))
    key = _key(text)
    if _TIME.fullmatch(key):
        return Reading(key, re.sub(r"[\s.]", "", key).lower(), ())
    trees = list[Node]()
    for variant in dict.fromkeys(_variants(text)):
        try:
            trees.append(parse(variant))
        except (NotMathematics, OutOfReach, RecursionError):
            continue
    if key.lower() in _NUMBER_WORDS:
        trees.append(number(_NUMBER_WORDS[key.lower()]))
    return Reading(key, "" if trees and not key.isalpha() else _words(key), tuple(trees))


def _variants(text: str) -> tuple[str, ...]:
    """1,234 is a number or a list of two; 1,000 is a number only, since no list holds 000."""
    if not _PLAIN_LIST.search(text):
        return (text,)
    return (join_thousands(text),) if _THOUSANDS.search(text) else (join_thousands(text), text)


def same_reading(first: Reading, second: Reading) -> bool:
    """Whether two answers are equal in some reading."""
    if first.key == second.key:
        return bool(first.key)
    if first.words and first.words == second.words:
        return True
    if _CLOCK.fullmatch(first.key) and _CLOCK.fullmatch(second.key):
        return False  # 12:00 and 1:00 are times before they are ratios
    try:
        return any(same_answer(one, other) for one in first.trees for other in second.trees)
    except (OutOfReach, NotMathematics, RecursionError):
        return False


def _unwrap(text: str) -> str:
    """Without delimiters, markup and sentence punctuation around the answer."""
    text = text.strip().strip('*_`"').strip()
    if _ESCAPED_TWICE.search(text) and "\\begin" not in text:
        text = re.sub(r"\\\\(?=[a-zA-Z{}])", r"\\", text)
    if "\\boxed" in text:
        box = last_box(text)
        text = box.text if box is not None and box.found is Found.BOX else text
    if text.count("$") % 2 == 1:
        text = re.sub(r"^(-?)\$(?=\s*[\d.])", r"\1\\$", text)  # $45: the currency, not a delimiter
    for _ in range(4):
        before = text
        text = text.strip().removesuffix("\\\\").rstrip(" .,;:\n\t").strip("$").strip()
        for opening, closing in (("\\(", "\\)"), ("\\[", "\\]")):
            if text.startswith(opening) and text.endswith(closing) and text.count(opening) == 1:
                text = text[2:-2].strip()
        match = _WRAPPED.match(text)
        text = match.group(1) if match else text
        if text == before:
            break
    text = _ORDINAL.sub("", text)
    return re.sub(r"\b(?:np|math)\.(?=[a-z])", "", text)


def _key(text: str) -> str:
    text = _STYLES.sub(r"\1", text)
    text = _SPACING.sub(" ", text).replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac")
    text = re.sub(r"(?<![A-Za-z0-9])\s+|\s+(?![A-Za-z0-9])", "", re.sub(r"\s+", " ", text.strip()))
    return text.strip(" .,;*")


def _words(key: str) -> str:
    """Words compared without case, articles and punctuation; a single letter keeps its case."""
    bare = key[1:-1] if key.startswith("(") and key.endswith(")") else key
    if len(bare) < 2 or (len(bare) == 2 and bare.lower() != "no"):
        return bare  # AB is not ab
    lower = bare.lower()
    if not _PROSE.fullmatch(lower) or not re.search(r"[a-z]{2}|\d:\d", lower):
        return ""
    kept = [word for word in re.split(r"[\s.,]+", lower) if word and word not in _ARTICLES]
    return " ".join(kept)
