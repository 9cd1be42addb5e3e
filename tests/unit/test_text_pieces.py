"""Responses that come as text, as tokens: nothing of the text is lost, and lengths are those of the model."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brorl.engines.pieces import Pieces, token_pieces, word_pieces
from brorl.errors import DataError


@given(st.text())
def test_words_are_the_text(text: str) -> None:
    pieces = Pieces()
    assert pieces.decode(pieces.ids(word_pieces(text))) == text.encode("utf-8", "replace").decode("utf-8")


@given(st.text(), st.integers(0, 12))
def test_a_known_length_is_kept(text: str, length: int) -> None:
    pieces = Pieces()
    found = word_pieces(text, length=length)
    assert len(found) == length
    if length:
        assert pieces.decode(pieces.ids(found)) == text.encode("utf-8", "replace").decode("utf-8")


def test_tokens_that_cut_a_character_and_tokens_that_are_no_text() -> None:
    pieces = Pieces()
    found = token_pieces("caf\u00e9", [b"<s>", b"caf", b"\xc3", b"\xa9", b"</s>"])
    assert found is not None
    ids = pieces.ids(found)
    assert len(set(ids)) == 5
    assert pieces.decode(ids) == "caf\u00e9"
    assert pieces.decode(ids[:3]) == "caf\ufffd"
    assert token_pieces("something else", [b"some", b"thing"]) is None


def test_the_vocabulary_survives_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.jsonl"
    pieces = Pieces()
    ids = pieces.ids(["a", "b", "\udcc3", "a"])
    assert ids == [0, 1, 2, 0]
    pieces.append_to(path)
    pieces.append_to(path)
    with path.open("a") as file:
        file.write('"cut o')
    again = Pieces()
    again.continue_from(path)
    assert again.ids(["b", "new"]) == [1, 3]
    again.append_to(path)
    third = Pieces()
    third.continue_from(path)
    assert third.ids(["new"]) == [3]
    path.write_text("not JSON\n")
    with pytest.raises(DataError, match="not a vocabulary"):
        Pieces().continue_from(path)
