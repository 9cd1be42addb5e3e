"""Where in a response its program stands, and how the two become one source text.

The rule, in order:

1. Everything up to the last ``</think>`` is dropped; a thinking block that never closes holds no program.
2. The last complete fenced block that is tagged as Python or not tagged; without one, the last complete block.
3. An opened fence without a complete block: the response was cut off.
4. No fence at all: the whole response (if it turns out not to be Python, there was no answer).

A fence is three or more backticks or tildes. It may open at the end of a line of prose; it closes on a line of its own,
at the end of a line of code, or before a closing tag such as ``</answer>``.
"""

import re
from dataclasses import dataclass

from brorl.group import Outcome

_OPEN = re.compile(r"(`{3,}|~{3,})[ \t]*(?:\{?\.?([\w+#.-]*)[^`\n]*)$")
_PYTHON = ("", "python", "py", "python3", "py3", "python2", "pycon", "sage")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What was found: source text, or the outcome of a response without any."""

    source: str = ""
    fenced: bool = False
    missing: Outcome | None = None


def find_program(response: str, *, prefill: str = "") -> Program:
    """The program in a response.

    Args:
        prefill: the beginning of the answer that the policy was given and did not write itself, an open fence included.
    """
    text = (prefill + response).rpartition("</think>")[2]
    if "<think>" in text:
        return Program(missing=Outcome.NO_ANSWER)
    blocks, opened = _blocks(text)
    if blocks:
        python = [source for tag, source in blocks if tag in _PYTHON]
        return Program(source=python[-1] if python else blocks[-1][1], fenced=True)
    if opened:
        return Program(missing=Outcome.TRUNCATED)
    if not text.strip():
        return Program(missing=Outcome.NO_ANSWER)
    return Program(source=text)


def _blocks(text: str) -> tuple[list[tuple[str, str]], bool]:
    """The complete blocks as (tag, source), and whether any fence was opened."""
    blocks: list[tuple[str, str]] = []
    fence, tag, indent, opened = "", "", 0, False
    lines: list[str] = []
    for line in text.replace("\r\n", "\n").split("\n"):
        opening = _OPEN.search(line)
        if fence:
            before, mark, after = line.rpartition(fence)
            starts_again = opening is not None and not before.strip() and opening[2]
            if mark and not starts_again and re.match(r"\s*($|</)", after):
                if before.strip():
                    lines.append(_unindented(before, indent))
                blocks.append((tag, "\n".join(lines) + "\n"))
                fence = ""
                continue
            if not starts_again:
                lines.append(_unindented(line, indent))
                continue
        if opening is not None:
            fence, tag, lines, opened = opening[1], opening[2].lower(), [], True
            indent = opening.start() if not line[: opening.start()].strip() else 0
    return blocks, opened


def _unindented(line: str, indent: int) -> str:
    """A line of a block whose fence is indented, as inside a list."""
    return line[min(indent, len(line) - len(line.lstrip(" "))) :]


def continued(start: str, program: Program, entry_point: str) -> str:
    """The source of a program that may continue the code it was given, as in HumanEval.

    A program that defines `entry_point` itself follows the given code. Any other is the body of the function that the
    given code ends with: it stops before the first line that is not indented, as completions are cut in HumanEval.
    """
    if re.search(rf"^(?:async\s+)?(?:def|class)\s+{re.escape(entry_point)}\b", program.source, re.MULTILINE):
        return f"{start.rstrip()}\n\n\n{program.source}"
    lines = program.source.split("\n")
    while lines and not lines[0].strip():
        del lines[0]
    if lines and not lines[0][:1].isspace():
        lines[0] = "    " + lines[0]  # its indentation was stripped with the white space around the response
    end = next((i for i, line in enumerate(lines) if line.strip() and not line[:1].isspace()), len(lines))
    return f"{start.rstrip()}\n" + "\n".join(lines[:end]) + "\n"
