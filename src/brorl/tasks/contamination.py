"""Which training prompts share text with evaluation prompts: the same n words in a row, or the same whole text.

Words are runs of letters and digits, whatever their case; n-grams are compared as 64-bit hashes in NumPy and each hit
is confirmed word by word. Prompts of fewer than n words are compared whole, white space and case aside. An n-gram in
more than `BOILERPLATE` different evaluation prompts, or in as many different training prompts of one source, is a
common instruction ("reason step by step and put ...") and counts for nothing (GPT-3, arXiv 2005.14165, appendix C,
leaves out n-grams by the same bound).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brorl.tasks.rows import TaskRow, content_key, fingerprint

BOILERPLATE = 10
_CHUNK = 4096  # rows hashed at once
_BASE = np.uint64(0x9E3779B97F4A7C15)
_WORD = re.compile(r"\w+")

Hashes = NDArray[np.uint64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """One training prompt that shares text with an evaluation prompt."""

    id: str
    """of the training prompt"""
    matched_set: str
    matched_id: str
    shared: str
    """the words in common; the whole text of a short prompt"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContaminationReport:
    """What the check of a recipe's training prompts found."""

    ngram: int
    sets: Mapping[str, int]
    """evaluation sets compared with, and their prompts"""
    checked: int
    """training prompts from files"""
    overlaps: tuple[Overlap, ...]
    """those that are left out, one entry each"""
    generated: bool
    """generated prompts are compared with the evaluation files too, each when it is drawn"""

    def as_json(self) -> dict[str, Any]:
        """The figures; the list of overlaps is `listed`."""
        return {
            "ngram": self.ngram,
            "sets": dict(self.sets),
            "checked": self.checked,
            "removed": len(self.overlaps),
            "generated_prompts_checked_when_drawn": self.generated,
        }

    def listed(self) -> list[dict[str, str]]:
        return [asdict(overlap) for overlap in self.overlaps]

    def text(self) -> str:
        """For people, at most five overlaps named."""
        if not self.sets:
            return "no evaluation prompts from files to compare with; generated splits are disjoint by content"
        sets = ", ".join(f"{name} ({count:,})" for name, count in self.sets.items())
        lines = [
            f"{len(self.overlaps):,} of {self.checked:,} training prompts share {self.ngram} words in a row (or their "
            f"whole text) with an evaluation prompt and are left out. Compared with: {sets}"
        ]
        if self.generated:
            lines.append("generated prompts are compared with the evaluation files when they are drawn")
        lines += [f"  {o.id} ~ {o.matched_set}, {o.matched_id}: {o.shared[:100]}" for o in self.overlaps[:5]]
        if len(self.overlaps) > 5:
            lines.append(f"  and {len(self.overlaps) - 5:,} more (contamination.jsonl in the run's directory)")
        return "\n".join(lines)


class OverlapIndex:
    """Evaluation prompts, ready to be compared with.

    Args:
        sets: name -> rows.
        ngram: words in a row that must agree.
    """

    def __init__(self, sets: Mapping[str, Sequence[TaskRow]], ngram: int) -> None:
        self.ngram = ngram
        self._owners = [(name, row) for name, rows in sets.items() for row in rows]
        self._whole = {content_key(row): at for at, (_, row) in reversed(list(enumerate(self._owners)))}
        self._vocabulary: dict[str, int] = {}
        for _, row in self._owners:
            for word in _words(row):
                self._vocabulary.setdefault(word, len(self._vocabulary) + 1)  # 0: a word of no evaluation prompt
        self._codes = _mixed(np.arange(len(self._vocabulary) + 1, dtype=np.uint64))
        parts = [self._hashed(chunk, at) for at, chunk in _chunks([row for _, row in self._owners])]
        hashes = np.concatenate([part[0] for part in parts]) if parts else np.zeros(0, np.uint64)
        owners = np.concatenate([part[1] for part in parts]) if parts else np.zeros(0, np.int64)
        self._hashes, self._first = _rare(hashes, owners, self._distinct([row for _, row in self._owners]))

    @property
    def fingerprint(self) -> str:
        """A hash of everything that an answer depends on."""
        return fingerprint(self.ngram, [[name, row.id, content_key(row)] for name, row in self._owners])

    def find(self, rows: Sequence[TaskRow]) -> list[Overlap]:
        """The rows of one source that share text with an evaluation prompt, in their order."""
        hits, where = [], []
        for at, chunk in _chunks(rows):
            hashes, owners = self._hashed(chunk, at)
            known = _contains(self._hashes, hashes)
            hits.append(hashes[known])
            where.append(owners[known])
        hashes = np.concatenate(hits) if hits else np.zeros(0, np.uint64)
        owners = np.concatenate(where) if where else np.zeros(0, np.int64)
        rare, _ = _rare(hashes, owners, self._distinct(rows))
        keep = _contains(rare, hashes)
        suspects: dict[int, set[int]] = {}
        for owner, value in zip(owners[keep].tolist(), hashes[keep].tolist(), strict=True):
            suspects.setdefault(owner, set()).add(value)
        found = (self._overlap(at, row, suspects.get(at, set())) for at, row in enumerate(rows))
        return [overlap for overlap in found if overlap is not None]

    def _overlap(self, at: int, row: TaskRow, values: set[int]) -> Overlap | None:
        match = self._whole.get(content_key(row))
        shared = " ".join(content_key(row).split()) if match is not None else ""
        if match is None and values:
            hashes, _ = self._hashed([row], at)
            words = _words(row)
            for start in np.flatnonzero(np.isin(hashes, np.array(sorted(values), np.uint64))).tolist():
                place = int(np.searchsorted(self._hashes, hashes[start]))
                match, shared = int(self._first[place]), " ".join(words[start : start + self.ngram])
                if f" {shared} " in f" {' '.join(_words(self._owners[match][1]))} ":
                    break
                match = None  # two n-grams of one hash
        if match is None:
            return None
        name, other = self._owners[match]
        return Overlap(id=row.id, matched_set=name, matched_id=other.id, shared=shared)

    def _hashed(self, rows: Sequence[TaskRow], first: int) -> tuple[Hashes, Ints]:
        """(hash, owner) of every n-gram within a row; owners count from `first`."""
        words = [[self._vocabulary.get(word, 0) for word in _words(row)] for row in rows]
        sizes = np.array([len(row) for row in words], np.int64)
        ids = np.array([word for row in words for word in row], np.int64)
        starts = len(ids) - self.ngram + 1
        if starts <= 0:
            return np.zeros(0, np.uint64), np.zeros(0, np.int64)
        codes, owners = self._codes[ids], np.repeat(np.arange(len(rows)), sizes)
        hashes = np.zeros(starts, np.uint64)
        for offset in range(self.ngram):
            hashes = hashes * _BASE + codes[offset : offset + starts]
        within = owners[:starts] == owners[self.ngram - 1 :]
        return hashes[within], owners[:starts][within] + first

    def _distinct(self, rows: Sequence[TaskRow]) -> Ints:
        """i64[rows]: equal numbers for rows of equal content."""
        numbers: dict[str, int] = {}
        return np.array([numbers.setdefault(content_key(row), len(numbers)) for row in rows], np.int64)


def _rare(hashes: Hashes, owners: Ints, distinct: Ints) -> tuple[Hashes, Ints]:
    """The sorted n-grams that stand in no more than `BOILERPLATE` different texts, and the first owner of each."""
    if not hashes.size:
        return hashes, owners
    pairs = np.unique(np.stack([hashes, distinct[owners].astype(np.uint64)]), axis=1)[0]
    values, counts = np.unique(pairs, return_counts=True)
    rare = values[counts <= BOILERPLATE]
    _, first = np.unique(hashes, return_index=True)
    return rare, owners[first][counts <= BOILERPLATE]


def _contains(known: Hashes, values: Hashes) -> NDArray[np.bool_]:
    """Which values stand in a sorted array."""
    if not known.size:
        return np.zeros(len(values), np.bool_)
    return known[np.minimum(np.searchsorted(known, values), len(known) - 1)] == values


def _words(row: TaskRow) -> list[str]:
    """The words of what is asked; of a conversation, what its user says: system messages are common to many rows."""
    asked = row.question or "\n".join(m["content"] for m in row.messages if m["role"] == "user")
    return _WORD.findall(asked.casefold())


def _mixed(values: Hashes) -> Hashes:
    """SplitMix64: neighbouring numbers become unlike ones."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9) + _BASE
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _chunks(rows: Sequence[TaskRow]) -> Iterator[tuple[int, Sequence[TaskRow]]]:
    return ((at, rows[at : at + _CHUNK]) for at in range(0, len(rows), _CHUNK))
