"""Text of a model cannot steer a terminal, a page, or the reader's eye."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from brorl.reports.untrusted import json_in_html, one_line, visible


def test_known_attacks() -> None:
    assert visible("\x1b[2J\x07\x9b\x7f") == "␛[2J␇⟨U+009B⟩␡"
    assert visible("a\u202eb\u200b\u2066\u2028") == "a⟨U+202E⟩b⟨U+200B⟩⟨U+2066⟩⟨U+2028⟩"
    assert visible("naïve 数学 √2\n") == "naïve 数学 √2\n"
    assert one_line("a\n" + "b" * 50 + "c", 11) == "a⏎bbb…bbbbc"


@given(st.text())
def test_only_newlines_are_left_to_act(text: str) -> None:
    assert all(character == "\n" or character.isprintable() or character.isspace() for character in visible(text))
    assert visible(text).encode("utf-8").decode("utf-8") == visible(text)
    assert "\n" not in one_line(text)
    assert len(one_line(text, 20)) <= 20


values: st.SearchStrategy[Any] = st.recursive(
    st.text() | st.sampled_from(["</script>", "<!--<script>", "]]>", "&lt;", "\u2028"]) | st.integers() | st.booleans(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(values.filter(lambda v: "\\ud" not in json.dumps(v)))
def test_json_comes_back_and_cannot_end_its_block(value: Any) -> None:
    text = json_in_html(value)
    assert json.loads(text) == value
    assert not set(text) & set("<>&\u2028\u2029")


def test_numbers_that_are_not_finite_are_null() -> None:
    assert json_in_html({"a": [float("nan"), float("inf"), 1.5]}) == '{"a":[null,null,1.5]}'
