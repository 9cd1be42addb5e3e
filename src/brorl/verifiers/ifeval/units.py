"""Words, sentences and occurrences, by rules that are written down here (no downloaded model).

A word is what a reader counts: "well-known", "It's", "3.50" and "p.m." are one word each. A sentence ends at a
terminator, not at an abbreviation, an initial, a decimal point or the number of a list item.
"""
# ruff: noqa: RUF001, SIM905 - signs of many scripts are meant; word lists read best as text

import re
import unicodedata
from collections.abc import Iterator

# Combining marks belong to the letter before them; Python's \w leaves them out, which would cut Hindi words in pieces.
_MARKS = "".join(chr(c) for c in range(0x300, 0x3100) if unicodedata.category(chr(c)) in ("Mn", "Mc")) + "\u200c\u200d"
_UNIT = rf"(?:[^\W_][{_MARKS}]*)+"
_WORD = re.compile(
    rf"(?<![^\W_])(?:[^\W\d_]\.){{2,}}(?:[^\W\d_](?![^\W_]))?"  # p.m.  U.S.A.  e.g.
    rf"|{_UNIT}(?:(?:[-‐‑'’ʼ]|(?<=\d)[.,:/](?=\d)){_UNIT})*"  # state-of-the-art  It's  3.50  1,000  10:30
)
_SPACE = re.compile(r"\s+")

_NEVER_LAST = frozenset(
    "dr mr mrs ms mx messrs prof rev fr hon gov gen col maj capt lt sgt sen rep pres st mt vs v e.g i.e cf viz al no"
    " nos vol fig figs eq eqs pp approx ca dept".split()
)
_MAY_BE_LAST = frozenset(
    "etc jr sr inc ltd corp bros a.m p.m ph.d m.d b.a m.a b.c a.d u.s u.k u.s.a u.n d.c"
    " jan feb apr jun jul aug sep sept oct nov dec tues thu thurs ave blvd rd oz lb".split()
)
_STARTERS = frozenset(
    "a an the this that these those it its he she they we you i his her their our my your there here in on at by for"
    " from with as if when while where what who why how but and so or yet however then also after before because"
    " although no not all some many most each every once please let do does did is are was were can could will".split()
)
_WIDE = "。！？｡।॥؟۔"  # terminators of scripts that need no space after them
_END = re.compile(rf"([.!?…]+|[{_WIDE}]+)([\"'”’»)\]*_]*)(?=\s|$|[{_WIDE}])|[{_WIDE}]+")
_LAST_TOKEN = re.compile(r"[^\s(\[\"'“‘]+$")
_WINDOW = 40  # characters looked at on each side of a full stop: bounds the work on hostile texts
_NEXT_WORD = re.compile(rf"\W{{0,{_WINDOW}}}({_UNIT})?")
_LIST_NUMBER = re.compile(r"(?:^|\n)\s*[#>*_-]*\s*(?:\d{1,3}|[A-Za-z]|[ivxIVX]{1,4})$")


def words(text: str) -> list[str]:
    """The words of a text, in order, as written."""
    return _WORD.findall(text)


def fold(text: str) -> str:
    """One form for comparing: composed, case folded, straight quotes, single spaces."""
    text = unicodedata.normalize("NFC", text).translate({0x2018: "'", 0x2019: "'", 0x201C: '"', 0x201D: '"'})
    return _SPACE.sub(" ", unicodedata.normalize("NFC", text.casefold()))


def _inside_word(char: str) -> bool:
    return unicodedata.category(char)[0] in "LNM"


def occurrences(phrase: str, text: str) -> int:
    """How often a phrase occurs as whole words, ignoring case: "ant" is not in "plants", "C++" is not in "C only"."""
    return sum(1 for _ in _positions(fold(phrase.strip()), fold(text)))


def _positions(phrase: str, text: str) -> Iterator[int]:
    start = text.find(phrase) if phrase else -1
    while start >= 0:
        end = start + len(phrase)
        before = start > 0 and _inside_word(text[start - 1]) and _inside_word(phrase[0])
        after = end < len(text) and _inside_word(text[end]) and (_inside_word(phrase[-1]) or phrase[-1] in "+#")
        whole = not before and not after
        if whole:
            yield start
        start = text.find(phrase, end if whole else start + 1)


def sentences(text: str) -> list[str]:
    """The sentences of a text; a last one needs no terminator. Pieces without a letter or digit do not count."""
    pieces: list[str] = []
    start = 0
    for match in _END.finditer(text):
        if _ends_sentence(text, match):
            pieces.append(text[start : match.end()])
            start = match.end()
    pieces.append(text[start:])
    return [piece.strip() for piece in pieces if re.search(r"[^\W_]", piece)]


def _ends_sentence(text: str, match: re.Match[str]) -> bool:
    mark, closing = match.group(1) or match.group(0), match.group(2) or ""
    following = _NEXT_WORD.match(text, match.end())
    next_word = (following.group(1) or "") if following else ""
    if not next_word or mark[0] in _WIDE:
        return True
    if closing.strip("*_") and next_word[0].islower():
        return False  # the sentence goes on after a quotation or a bracket: "Really?" she asked.
    if mark == ".":
        return _full_stop_ends(text, match.start(), next_word)
    return bool(mark.strip(".…")) or not next_word[0].islower()  # an ellipsis may stand within a sentence


def _full_stop_ends(text: str, stop: int, next_word: str) -> bool:
    before = text[max(0, stop - _WINDOW) : stop] if stop <= _WINDOW else "…" + text[stop - _WINDOW : stop]
    if _LIST_NUMBER.search(before):
        return False
    last = _LAST_TOKEN.search(before)
    token = last.group(0).strip("*_") if last else ""
    plain = token.casefold()
    starts = next_word[0].isupper() and next_word.casefold() in _STARTERS
    if plain in _NEVER_LAST:
        return plain == "no" and starts  # "Absolutely no. The ..." against "No. 5"
    initial = len(token) == 1 and token.isupper()
    dotted = re.fullmatch(r"(?:[^\W\d_]\.)+[^\W\d_]", token) is not None
    return starts if initial or dotted or plain in _MAY_BE_LAST else True
