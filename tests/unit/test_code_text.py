import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brorl.group import Outcome
from brorl.verifiers.code_text import Program, continued, find_program

FOUND = {
    "the last block": ("Draft:\n```python\nprint(1)\n```\nFinal:\n```python\nprint(2)\n```", "print(2)\n"),
    "closed at the end of a line": ("```python\nprint(2)```", "print(2)\n"),
    "closed before a tag": ("<answer>```python\nprint(2)\n```</answer>", "print(2)\n"),
    "opened after prose": ("Here: ```py\nprint(2)\n```", "print(2)\n"),
    "tildes around backticks": ("~~~\nx = '```'\n~~~", "x = '```'\n"),
    "longer fences": ("````\n```\n````", "```\n"),
    "an output block after it": ("```python\nprint(1)\n```\nOutput:\n```text\n1\n```", "print(1)\n"),
    "no tag": ("```\nprint(1)\n```", "print(1)\n"),
    "only another language": ("```cpp\nint x;\n```", "int x;\n"),
    "an attribute": ("```{.python}\ny = 1\n```", "y = 1\n"),
    "an indented block": ("1. So:\n   ```python\n   if x:\n       y\n   ```", "if x:\n    y\n"),
    "an indented body": ("```python\n    return 1\n```", "    return 1\n"),
    "a fence inside a string": ("```python\nx = '''\n```'''\n```", "x = '''\n```'''\n"),
    "an unclosed block, then a closed one": ("```python\na\n```python\nb\n```", "b\n"),
    "a closed block, then an unclosed one": ("```python\na\n```\nBetter:\n```python\nb", "a\n"),
    "carriage returns": ("```python\r\nx = 1\r\n```\r\n", "x = 1\n"),
    "after the thought": ("<think>```python\na\n```</think>\n```python\nb\n```", "b\n"),
    "no opening think tag": ("Let me see.</think>```python\nb\n```", "b\n"),
}


@pytest.mark.parametrize("name", FOUND)
def test_found(name: str) -> None:
    response, source = FOUND[name]
    assert find_program(response) == Program(source=source, fenced=True)


@pytest.mark.parametrize(
    ("response", "outcome"),
    [
        ("", Outcome.NO_ANSWER),
        (" \n", Outcome.NO_ANSWER),
        ("<think>```python\nprint(1)\n```", Outcome.NO_ANSWER),
        ("</think>", Outcome.NO_ANSWER),
        ("```python\nprint(2", Outcome.TRUNCATED),
        ("```", Outcome.TRUNCATED),
    ],
)
def test_missing(response: str, outcome: Outcome) -> None:
    assert find_program(response).missing is outcome


def test_without_a_fence_the_whole_response_is_taken() -> None:
    assert find_program("print(1)\n") == Program(source="print(1)\n", fenced=False)


def test_prefill_is_part_of_the_answer() -> None:
    found = find_program("    return a + b\n```", prefill="```python\ndef add(a, b):\n")
    assert found.source == "def add(a, b):\n    return a + b\n"


@settings(deadline=None)
@given(st.text(alphabet="`~\n pyx</think>", max_size=60))
def test_any_text_has_a_verdict(response: str) -> None:
    found = find_program(response)
    assert (found.missing is None) == (found.source != "" or found.fenced)


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(["x = 1", "", "    y = '`'", "# ``"]), max_size=6), st.sampled_from(["```", "````", "~~~"])
)
def test_what_is_fenced_is_found(lines: list[str], fence: str) -> None:
    source = "\n".join(lines) + "\n"
    assert find_program(f"Text.\n{fence}python\n{source}{fence}\nMore text.").source == source


START = 'import math\n\ndef f(x):\n    """Doc."""\n'


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("    return x\n", START + "    return x\n\n"),
        ("return x", START + "    return x\n"),
        ("\n    y = x\n\n    return y\n\nprint(f(1))\n", START + "    y = x\n\n    return y\n\n"),
        ("    return x\n\ndef g(): pass", START + "    return x\n\n"),
        ("def f(x):\n    return x\n", START + "\n\ndef f(x):\n    return x\n"),
        ("async  def f(x): pass", START + "\n\nasync  def f(x): pass"),
        ("    def f(y): return y\n    return f(x)", START + "    def f(y): return y\n    return f(x)\n"),
    ],
)
def test_continued(source: str, expected: str) -> None:
    assert continued(START, Program(source=source), "f") == expected
