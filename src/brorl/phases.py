"""Where the time of a step goes, and how far it is."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Report = Callable[[str, int, int], None]
"""(phase, done, total): called often, must return at once"""


def silent(phase: str, done: int, total: int) -> None:
    """A `Report` that nobody watches."""


class Phases:
    """Seconds per named phase, since it was made."""

    def __init__(self, report: Report = silent) -> None:
        self.report = report
        self.seconds: dict[str, float] = {}
        self._started = time.perf_counter()

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Add the time of the block to `phase`."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - started

    @property
    def total(self) -> float:
        return time.perf_counter() - self._started
