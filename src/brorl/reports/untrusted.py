"""Text that a model wrote, made safe to look at: nothing in it can steer a terminal or the reading direction."""

import json
import math
import re
import unicodedata
from typing import Any

_ORDINARY = re.compile(r"[^\x20-\x7e\n]")
_HIDDEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def visible(text: str) -> str:
    """The text with control, format and unassigned characters (ANSI escapes, direction marks) shown as symbols.

    ``\\x1b`` becomes ␛, U+202E becomes ⟨U+202E⟩, newlines stay. Nothing is dropped, so that two
    different texts stay different.
    """
    return _ORDINARY.sub(_shown, text)


def one_line(text: str, width: int = 0) -> str:
    """`visible` text on one line, newlines as ⏎; above `width` characters (0: no limit) the middle is left out."""
    line = visible(text).replace("\n", "⏎")
    if not width or len(line) <= width:
        return line
    head = (width - 1) // 2
    return f"{line[:head]}…{line[len(line) - (width - 1 - head) :]}"


def json_in_html(data: Any) -> str:
    """JSON for a ``<script type="application/json">`` block: no character ends the block; NaN and infinity are null."""
    return json.dumps(finite(data), ensure_ascii=False, separators=(",", ":"), allow_nan=False).translate(_ESCAPES)


def finite(data: Any) -> Any:
    """Plain JSON data in which every number that is not finite is None."""
    if isinstance(data, dict):
        return {key: finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def _shown(match: re.Match[str]) -> str:
    character = match.group()
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)  # the picture of the control character
    if code == 0x7F:
        return "\u2421"
    return f"⟨U+{code:04X}⟩" if unicodedata.category(character) in _HIDDEN else character
