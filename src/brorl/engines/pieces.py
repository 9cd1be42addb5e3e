"""Responses that come as text, as tokens all the same: a token is a piece of text, numbered as it first appears.

Servers give the text of a response and, where they can, the text of each of its tokens; the numbers of these in the
model's vocabulary they mostly keep to themselves. The pieces are a vocabulary of their own, stored beside the groups.
"""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from brorl.errors import DataError

SILENT = "\ud800"
"""Begins a piece that is no text; no UTF-8 holds it, and no byte that was escaped."""

_WORDS = re.compile(r"\s*\S+|\s+")


class Pieces:
    """A growing vocabulary of pieces, and the decoder of groups made of them."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._ids: dict[str, int] = {}
        self._stored = 0
        self._lock = Lock()

    def ids(self, pieces: Iterable[str]) -> list[int]:
        """The number of each piece; new pieces get the next ones."""
        with self._lock:
            for piece in (pieces := list(pieces)):
                if piece not in self._ids:
                    self._ids[piece] = len(self._pieces)
                    self._pieces.append(piece)
            return [self._ids[piece] for piece in pieces]

    def decode(self, token_ids: Any, /, *, skip_special_tokens: bool = True) -> str:
        """The text of some tokens; pieces of one character that was cut between tokens are put together again."""
        pieces = (self._pieces[int(i)] for i in token_ids)
        text = "".join(piece for piece in pieces if not piece.startswith(SILENT))
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")

    def append_to(self, path: Path) -> None:
        """Add the pieces that the file lacks, a JSON string a line; it is the file that `load` read, or a new one."""
        with self._lock:
            fresh = self._pieces[self._stored :]
            with path.open("a", encoding="ascii") as file:
                file.write("".join(json.dumps(piece) + "\n" for piece in fresh))
            self._stored += len(fresh)

    def continue_from(self, path: Path) -> None:
        """Take up the vocabulary of a file, if there is one; a last line that a crash cut off is cut away.

        Raises:
            DataError: it cannot be read.
            ValueError: pieces were numbered before.
        """
        if self._pieces:
            raise ValueError("a vocabulary is taken up before it gives out numbers")
        if not path.exists():
            return
        try:
            whole, _, cut = path.read_text(encoding="ascii").rpartition("\n")
            if cut:
                path.write_text(f"{whole}\n" if whole else "", encoding="ascii")
            self.ids(json.loads(line) for line in whole.split("\n") if line)
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: not a vocabulary of pieces ({error})") from error
        self._stored = len(self._pieces)


def token_pieces(text: str, tokens: Sequence[bytes]) -> list[str] | None:
    """A response as the pieces that its tokens are; None where the tokens do not spell the text.

    Tokens that are no part of the text, such as a stop token, become silent pieces: lengths hold them.
    """
    data, at = text.encode("utf-8", "replace"), 0
    pieces: list[str] = []
    for token in tokens:
        spelled = token.decode("utf-8", "surrogateescape")
        if data.startswith(token, at):
            at += len(token)
            pieces.append(spelled)
        else:
            pieces.append(SILENT + spelled)
    return pieces if at == len(data) else None


def word_pieces(text: str, length: int | None = None) -> list[str]:
    """A response as its words; where `length`, its number of tokens, is known, filled up with silent pieces."""
    words = _WORDS.findall(text.encode("utf-8", "replace").decode("utf-8"))
    if length is None or length == len(words):
        return words
    if length > len(words):
        return words + [SILENT] * (length - len(words))
    return [*words[: length - 1], "".join(words[length - 1 :])] if length else []
