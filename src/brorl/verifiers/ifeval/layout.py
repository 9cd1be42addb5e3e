"""Checks of how the response is laid out: lists, sections, markup, beginnings and ends."""

import json
import re
from typing import NoReturn

from brorl.verifiers.ifeval.arguments import Arguments, Check, count_argument, text_argument
from brorl.verifiers.ifeval.units import fold, occurrences

_CONSTRAINED_RESPONSES = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
_RULE = re.compile(r"[^\S\n]*(?:(?:\*[^\S\n]*){3,}|(?:-[^\S\n]*){3,}|(?:_[^\S\n]*){3,})")
_BULLET = re.compile(r"\s*(?:[*+-]\s+\S|-\S|\*[^*\s][^*]*$)")
_BOLD_ITALIC = re.compile(r"(?<![^\W_])(?<!\*)\*{3}([^\s*](?:[^*\n]*[^\s*])?)\*{3}(?!\*)(?![^\W_])")
_DIVIDER = re.compile(r"(?<!\*)\*{3}(?!\*)")
_SIX_STARS = re.compile(r"(?<!\*)\*{6}(?!\*)")
_HIGHLIGHT = re.compile(r"(?<![\\*])(\*{1,3})(?![\s*])((?:[^*\n\\]|\\.)*(?:[^*\s\\]|\\.))\1(?!\*)")
_PLACEHOLDER = re.compile(r"(?<!\\)\[([^\[\]\n]*)\](?!\()")
_TITLE = re.compile(r"(?<![^\W_])(?<!<)<<([^<>\n]+)>>(?!>)")
_FENCE_OPENING = re.compile(r"```[A-Za-z0-9]*")
_OPENING, _CLOSING = '"“„”', '"”“'
_ROMAN = r"(?=[IVXLC])(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})"


def number_placeholders(text: str, kwargs: Arguments) -> bool:
    """At least so many placeholders such as [address]; links and tick boxes are none."""
    found = [inner for inner in _PLACEHOLDER.findall(text) if re.search(r"[^\W_]|_{2,}|#", inner)]
    return len(found) >= count_argument(kwargs, "num_placeholders")


def postscript(text: str, kwargs: Arguments) -> bool:
    """A postscript that begins with the marker."""
    marker = text_argument(kwargs, "postscript_marker")
    letters = [re.escape(c) for c in marker.upper() if c.isalpha()]
    if marker.upper().rstrip(".") in ("P.S", "P.P.S"):
        pattern = r"\.\s?".join(letters) + (r"\." if marker.endswith(".") else r"\.?")
    else:
        pattern = re.escape(marker)
    return re.search(rf"(?<![^\W_])(?<!P\.)(?<!P\.\s){pattern}(?![^\W_]|\.[^\W_])", text, re.IGNORECASE) is not None


def number_bullet_lists(text: str, kwargs: Arguments) -> bool:
    """Exactly so many bullet points; a horizontal rule is none."""
    lines = [line for line in text.split("\n") if not _RULE.fullmatch(line)]
    return sum(_BULLET.match(line) is not None for line in lines) == count_argument(kwargs, "num_bullets")


def constrained_response(text: str, _kwargs: Arguments) -> bool:
    """One of the three fixed answers, and only one of them."""
    return sum(option in text for option in _CONSTRAINED_RESPONSES) == 1


def number_highlighted_sections(text: str, kwargs: Arguments) -> bool:
    """At least so many *highlighted* or **highlighted** parts; a multiplication is none."""
    found = [inner for _, inner in _HIGHLIGHT.findall(text) if re.search(r"\w", inner)]
    return len(found) >= count_argument(kwargs, "num_highlights")


def multiple_sections(text: str, kwargs: Arguments) -> bool:
    """At least so many sections, each begun by the marker with its own Arabic or Roman number."""
    marker = re.escape(text_argument(kwargs, "section_spliter"))
    numbers = re.findall(rf"(?<![^\W_]){marker}[^\S\n]*(\d+|{_ROMAN})(?![^\W_])", text)
    return len(set(numbers)) >= count_argument(kwargs, "num_sections")


def number_paragraphs(text: str, kwargs: Arguments) -> bool:
    """Exactly so many paragraphs, parted by the divider ***, none of them blank."""
    paragraphs = _DIVIDER.split(_BOLD_ITALIC.sub(r"\1", text))
    if not paragraphs[0].strip():
        paragraphs = paragraphs[1:]
    if paragraphs and not paragraphs[-1].strip():
        paragraphs = paragraphs[:-1]
    return all(p.strip() for p in paragraphs) and len(paragraphs) == count_argument(kwargs, "num_paragraphs")


def json_format(text: str, _kwargs: Arguments) -> bool:
    """The whole response is one JSON object or array, in a code fence or bare."""
    text = text.strip()
    fence = _FENCE_OPENING.match(text)
    if fence and text.endswith("```"):
        text = text[fence.end() :].removesuffix("```")
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict | list)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def title(text: str, _kwargs: Arguments) -> bool:
    """A title in double angular brackets; shift operators are none."""
    for match in _TITLE.finditer(text):
        inner = match.group(1)
        if not re.search(r"[^\W_]", inner):
            continue
        line = text[text.rfind("\n", 0, match.start()) + 1 :].split("\n", 1)[0]
        padded = inner != inner.strip()
        if not padded or line.strip().strip("*#_\"' ") == match.group(0):
            return True
    return False


def two_responses(text: str, _kwargs: Arguments) -> bool:
    """Two different responses parted by six asterisks, no more and no fewer."""
    responses = _SIX_STARS.split(text)
    if not responses[0].strip():
        responses = responses[1:]
    if responses and not responses[-1].strip():
        responses = responses[:-1]
    return len(responses) == 2 and all(map(str.strip, responses)) and len({fold(r).strip() for r in responses}) == 2


def repeat_prompt(text: str, kwargs: Arguments) -> bool:
    """The request is repeated first, word for word, before anything else."""
    return fold(text).lstrip().startswith(fold(text_argument(kwargs, "prompt_to_repeat")))


def end_checker(text: str, kwargs: Arguments) -> bool:
    """The response ends with the phrase (a closing quotation mark may follow)."""
    phrase = fold(text_argument(kwargs, "end_phrase"))
    ending = fold(text).strip().strip('"').rstrip()
    return ending.endswith(phrase) and (len(ending) == len(phrase) or occurrences(phrase, ending) > 0)


def quotation(text: str, _kwargs: Arguments) -> bool:
    """Wrapped in double quotation marks, straight or curly."""
    text = text.strip()
    return len(text) > 2 and text[0] in _OPENING and text[-1] in _CLOSING and bool(text[1:-1].strip())


LAYOUT_CHECKS: dict[str, Check] = {
    "detectable_content:number_placeholders": number_placeholders,
    "detectable_content:postscript": postscript,
    "detectable_format:number_bullet_lists": number_bullet_lists,
    "detectable_format:constrained_response": constrained_response,
    "detectable_format:number_highlighted_sections": number_highlighted_sections,
    "detectable_format:multiple_sections": multiple_sections,
    "detectable_format:json_format": json_format,
    "detectable_format:title": title,
    "length_constraints:number_paragraphs": number_paragraphs,
    "combination:two_responses": two_responses,
    "combination:repeat_prompt": repeat_prompt,
    "startend:end_checker": end_checker,
    "startend:quotation": quotation,
}
