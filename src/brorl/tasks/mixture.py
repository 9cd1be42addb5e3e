"""Several sources as one endless stream of prompts, addressed by position.

A position alone decides the row, so the state of a stream is one integer and nothing has to be replayed. Sources are
interleaved by nested Beatty sequences: of any p consecutive positions from the start, a source of weight w gets w p up
to less than the number of sources. A finite source is read in epochs, each in an order of its own.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from brorl.errors import RecipeError
from brorl.seeding import generator
from brorl.tasks.rows import Source, TaskRow, fingerprint


class PromptStream:
    """An endless, deterministic stream over weighted sources.

    Raises:
        RecipeError: no source, or weights that are not positive or not one per source.
    """

    def __init__(self, sources: Sequence[Source], *, weights: Sequence[float] | None = None, seed: int = 0) -> None:
        weights = [1.0] * len(sources) if weights is None else list(weights)
        if not sources or len(weights) != len(sources):
            raise RecipeError(
                f"a mixture needs at least one source and one weight for each, not {len(weights)} weights"
            )
        if not all(math.isfinite(w) and w > 0 for w in weights):
            raise RecipeError(
                f"weights must be positive numbers, not {weights}: leave a source out instead of weight 0"
            )
        self.sources, self.seed = tuple(sources), seed
        exact = [Fraction(w).limit_denominator(10**9) for w in weights]
        # What share the first of the sources that are still left gets, before the rest is divided on.
        self._shares = [w / sum(exact[i:]) for i, w in enumerate(exact)]
        self._weights = tuple(weights)
        self._order = lru_cache(maxsize=4 * len(self.sources))(self._permutation)

    @property
    def fingerprint(self) -> str:
        """A hash that changes when any row at any position would."""
        return fingerprint([source.fingerprint for source in self.sources], self._weights, self.seed)

    def at(self, position: int) -> TaskRow:
        """The row at a position.

        Raises:
            IndexError: a negative position.
            DataError: a source that cannot make the row.
        """
        which, count = self.locate(position)
        source = self.sources[which]
        if source.size is None:
            return source.row(count)
        epoch, place = divmod(count, source.size)
        return source.row(int(self._order(which, epoch)[place]))

    def locate(self, position: int) -> tuple[int, int]:
        """Which source a position belongs to, and how many of its rows come before."""
        if position < 0:
            raise IndexError(f"a stream has no position {position}")
        for which, share in enumerate(self._shares):
            before = math.floor(position * share)
            if math.floor((position + 1) * share) > before:
                return which, before
            position -= before
        raise AssertionError("the last share is 1")

    def counts(self, position: int) -> list[int]:
        """How many rows each source has given before a position."""
        counts: list[int] = []
        for share in self._shares:
            counts.append(math.floor(position * share))
            position -= counts[-1]
        return counts

    @property
    def span(self) -> int | None:
        """Positions in a row that are sure to hold every row of every source; None where a source is endless."""
        sizes = [source.size for source in self.sources]
        if None in sizes:
            return None
        # Any p positions give a source of weight w at least w p less twice the number of sources, and twice its size
        # in a row holds a whole epoch.
        slack = 2 * len(self.sources)
        total = sum(self._weights)
        return max(
            math.ceil((2 * size + slack) * total / weight)
            for size, weight in zip(sizes, self._weights, strict=True)
            if size is not None
        )

    def _permutation(self, which: int, epoch: int) -> NDArray[np.int64]:
        size = self.sources[which].size
        assert size is not None
        # By content: the same rows in another folder come in the same order.
        return generator(self.seed, "epoch", which, self.sources[which].fingerprint, epoch).permutation(size)
