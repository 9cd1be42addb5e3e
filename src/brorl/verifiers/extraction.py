"""Where in a response its answer stands: one documented rule for each answer format.

First, everything up to the last ``</think>`` is dropped; a thinking block that never closes holds no answer. Then:

- ``tag`` (default): the last complete ``<answer>...</answer>``;
- ``anchor``: what follows the last of ``####``, ``Answer:``, ``Final answer:``, ``the (final) answer is``, to the end
  of its line;
- ``first_line``, ``last_line``: the first or last line that is not blank, for short or base-model responses;
- ``whole``: all of it.

A format that finds nothing finds no answer: there is no fallback from one to the next, for a policy would learn it.
An anchor phrase at the start of what was found is dropped ("The answer is 5" answers 5).
"""

import re

from brorl.errors import RecipeError

_TAG = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL | re.IGNORECASE)
_ANCHOR = re.compile(r"(?:####|\b(?:final\s+)?answer\s*:|\bthe\s+(?:final\s+)?answer\s+is\b:?)", re.IGNORECASE)

FORMATS = ("tag", "anchor", "first_line", "last_line", "whole")


def extract(response: str, answer_format: str = "tag") -> str | None:
    """The answer in a response, without surrounding white space; None where there is none.

    Raises:
        RecipeError: an unknown format.
    """
    if answer_format not in FORMATS:
        raise RecipeError(f"answer_format is {answer_format!r}; known: {', '.join(FORMATS)}")
    text = response.rpartition("</think>")[2]
    if "<think>" in text:
        return None
    if answer_format == "tag":
        found = _TAG.findall(text)
        text = found[-1] if found else ""
    elif answer_format == "anchor":
        anchors = list(_ANCHOR.finditer(text))
        text = text[anchors[-1].end() :].partition("\n")[0] if anchors else ""
    elif answer_format != "whole":
        lines = [line for line in text.split("\n") if line.strip()]
        text = "" if not lines else lines[0] if answer_format == "first_line" else lines[-1]
    leading = _ANCHOR.match(text.lstrip())
    text = text.lstrip()[leading.end() :] if leading else text
    return text.strip() or None
