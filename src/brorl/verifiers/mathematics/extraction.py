"""Where in a response the final answer is: the one documented rule, the same for every domain with a final answer.

The rule, in order:

1. Only the text after the last ``</think>`` counts; a thinking block that is not closed holds no answer.
2. The content of the last ``\\boxed{...}``; if that box is not closed the response is truncated.
3. Else what follows the last anchor among ``####``, ``<answer>``, ``Answer:``, ``Final answer:``, "the (final) answer
   is", and a line that begins with ``A:`` or ``A.``.
4. Else the whole response, if all of it reads as one answer (the caller decides that).
5. Else there is no answer.
"""

# ruff: noqa: RUF001 - full-width marks are meant

import re
from enum import Enum
from typing import NamedTuple


class Found(Enum):
    """Which step of the rule found the answer, or why there is none."""

    BOX = "box"
    ANCHOR = "anchor"
    WHOLE = "whole response"
    OPEN_BOX = "the last box is not closed"
    OPEN_THINKING = "the thinking block is not closed"
    EMPTY = "the box or the line after the anchor is empty"


class Extraction(NamedTuple):
    """The answer's text as it stands in the response, and where it was found."""

    found: Found
    text: str = ""
    line: str = ""
    """after an anchor, the whole line that the text begins"""


class Rule(Enum):
    """Whether a line that begins with ``A:`` or ``A.`` is an anchor (there is no option A), or names option A."""

    ANSWER = "answer"
    CHOICE = "choice"


_WORDED = (
    r"(?i:\#{4}|<answer>"
    r"|\b(?:final\s{1,3})?answer[ \t]{0,3}(?:\*\*|__)?[ \t]{0,3}[:：]"
    r"|\bthe\s{1,3}(?:final\s{1,3})?answer\s{1,3}is\b:?)"
)
_ANCHORS = {
    Rule.ANSWER: re.compile(_WORDED + r"|^[ \t]*(?:\*\*)?A[:.](?=\s|\*|\$|\\|[-\d(])", re.MULTILINE),
    Rule.CHOICE: re.compile(_WORDED + r"|(?i:\bthe\s{1,3}correct\s{1,3}(?:answer|option|choice)\s{1,3}is\b:?)"),
}
_BOX = re.compile(r"\\boxed(?![a-zA-Z])\s*")
_SENTENCE_END = re.compile(r"(?<![ap]\.m)(?<!sq)(?<!\b[MD][rs])(?<!\bMrs)(?<!\bSt)[.!?](?:\*\*)?\s+(?=[A-Z\[*(\"“$\\])")
_CONTROL_TOKEN = re.compile(r"<[|｜][^<>\n]{1,40}[|｜]>|</s>")
_DISPLAY = {"\\[": "\\]", "$$": "$$", "\\(": "\\)"}
_MARKUP = '*_` \t\r\n"“”'


def extract(response: str, *, prompt: str = "", rule: Rule = Rule.ANSWER) -> Extraction:
    """The final answer's text by the rule above; `prompt` tells whether the chat template opened a thinking block."""
    before, closed, text = response.rpartition("</think>")
    if "<think>" in text or (not closed and not before and prompt.rstrip().endswith("<think>")):
        return Extraction(Found.OPEN_THINKING)
    box = last_box(text)
    if box is not None:
        return box
    anchored = _after_last_anchor(text, _ANCHORS[rule])
    if anchored is not None:
        return anchored
    return Extraction(Found.WHOLE, _CONTROL_TOKEN.sub("", text).strip())


def last_box(text: str) -> Extraction | None:
    """The content of the last ``\\boxed{...}`` or ``\\boxed x``; None if there is no box at all."""
    start = text.rfind("\\boxed")
    match = _BOX.match(text, start) if start >= 0 else None
    if match is None:
        return None
    at = match.end()
    if at == len(text):
        return Extraction(Found.OPEN_BOX)
    if text[at] != "{":
        token = re.compile(r"\\[a-zA-Z]+|-?\d+(?:\.\d+)?|.", re.DOTALL).match(text, at)
        content = token.group() if token and text[at] not in "$}\\" else ""
        return Extraction(Found.BOX, content) if content else Extraction(Found.EMPTY)
    end = _closing_brace(text, at)
    if end < 0:
        return Extraction(Found.OPEN_BOX, text[at + 1 : at + 201])
    content = text[at + 1 : end].strip()
    if start >= 1 and text[start - 1] == "\\" and text[start - 2 : start - 1] != "\\":
        content = re.sub(r"\\\\(?=[a-zA-Z{}])", r"\\", content)  # a response whose backslashes were escaped once more
    return Extraction(Found.BOX, content) if content else Extraction(Found.EMPTY)


def _closing_brace(text: str, opening: int) -> int:
    """The index of the brace that closes the one at `opening`, or -1. Escaped braces do not count."""
    depth = 0
    for match in re.compile(r"\\.|[{}]", re.DOTALL).finditer(text, opening):
        if match.group() == "{":
            depth += 1
        elif match.group() == "}":
            depth -= 1
            if depth == 0:
                return match.start()
    return -1


def _after_last_anchor(text: str, anchor: re.Pattern[str]) -> Extraction | None:
    last = None
    for last in anchor.finditer(text):  # noqa: B007
        pass
    if last is None:
        return None
    rest = _CONTROL_TOKEN.split(text[last.end() :], maxsplit=1)[0]
    if last.group().lower() == "<answer>":
        answer = rest.partition("</answer>")[0].strip(_MARKUP)
    else:
        answer = _first_sentence(rest.lstrip(_MARKUP + ":"))
    line = rest.strip(_MARKUP + ":").partition("\n")[0]
    return Extraction(Found.ANCHOR, answer, line) if answer else Extraction(Found.EMPTY)


def _first_sentence(rest: str) -> str:
    """The rest of the line, or all of a displayed formula that opens it, cut at the end of a sentence."""
    for opening, closing in _DISPLAY.items():
        if rest.startswith(opening):
            inside, found, after = rest[2:].partition(closing)
            after = after.partition("\n")[0]
            if found and not after.strip(_MARKUP + ".,"):
                return inside.strip()
    line = rest.partition("\n")[0]
    end = _SENTENCE_END.search(line)
    line = line[: end.start()] if end else line
    return line.strip(_MARKUP).removesuffix(".").strip(_MARKUP)
