"""A pool of grading processes: a deadline and a memory limit for each response, and nothing graded twice."""

import hashlib
import pickle
import threading
import time
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass, replace
from types import TracebackType

import numpy as np

from brorl.errors import RunError
from brorl.group import Outcome, Prompt
from brorl.verifiers.dispatch import Dispatcher
from brorl.verifiers.process import Item
from brorl.verifiers.score import Score

_REMEMBERED = 1 << 15  # verdicts: a step of 64 prompts with 512 rollouts each
_REMEMBERED_PROMPTS = 1 << 12


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCounters:
    """Totals since the pool was opened."""

    submitted: int
    """gradings asked for"""
    repeated: int
    """of these, answered from an earlier or running grading of the same prompt and response"""
    graded: int
    retried: int
    timeouts: int
    crashes: int
    errors: int
    workers_started: int
    grading_seconds: float
    """time spent inside verifiers, summed over workers"""
    seconds: float
    """wall-clock time since the pool was opened"""

    @property
    def per_second(self) -> float:
        """Gradings per wall-clock second, repeats not counted."""
        return self.graded / self.seconds if self.seconds > 0 else 0.0


class VerifierPool:
    """Grades responses in worker processes.

    Every verifier runs in a process of its own session: at its deadline (the pool's, or the longer one that
    `brorl.verifiers.DEADLINES` states for it), counted from the start of the grading, it is killed with all that it
    started. A response that hangs or crashes its worker is tried once more in a fresh one; if that happens again it is
    WRONG, with the reason in `Score.note`, unless the prompt's verifier twice fails a plain response as well: then no
    response is at fault, and all of the prompt's are ERROR. An exception that a verifier raises on the response but not
    on an empty one makes the response WRONG as well; one that it always raises is an ERROR, as is a verifier that
    cannot be loaded. There is no in-process mode: no verifier is trusted not to hang.

    Example:
        ``with VerifierPool(workers=2, deadline=5.0) as pool: score = pool.submit(prompt, response).result()``

    Raises:
        ValueError: no worker, or a deadline that is not positive.
    """

    def __init__(
        self, *, workers: int = 2, deadline: float = 5.0, memory_mib: int = 1024, recycle_after: int = 20_000
    ) -> None:
        if workers < 1 or deadline <= 0 or memory_mib < 128 or recycle_after < 1:
            raise ValueError("a pool needs workers >= 1, deadline > 0 s, memory_mib >= 128 and recycle_after >= 1")
        self._dispatcher = Dispatcher(
            workers=workers, deadline=deadline, memory_mib=memory_mib, recycle_after=recycle_after
        )
        self._lock = threading.Lock()
        self._memory = threading.Lock()
        self._known: OrderedDict[bytes, Future[Score] | Score] = OrderedDict()
        self._prompts: OrderedDict[int, tuple[Prompt, bytes, bytes]] = OrderedDict()
        self._submitted = self._repeated = 0
        self._opened = time.monotonic()
        self._dispatcher.start()

    def __enter__(self) -> "VerifierPool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill the workers; what is not graded fails with a `RunError`. A second call does nothing."""
        with self._lock:
            if self._dispatcher.is_alive():
                self._dispatcher.close()

    def submit(self, prompt: Prompt, response: str) -> Future[Score]:
        """Ask for the grading of one response; equal pairs of prompt and response share one grading.

        Raises:
            RunError: the pool is closed.
        """
        with self._lock:
            if not self._dispatcher.is_alive():
                raise RunError("the verifier pool is closed: nothing can be graded any more")
            data, digest = self._pickled(prompt)
            key = hashlib.blake2b(digest + response.encode(errors="surrogatepass"), digest_size=16).digest()
            self._submitted += 1
            known, future = self._recall(key)
            if known:
                self._repeated += 1
                return future
            self._dispatcher.add(
                Item(id=self._submitted, verifier=prompt.verifier, prompt=data, response=response, future=future)
            )
        return future

    def _recall(self, key: bytes) -> tuple[bool, Future[Score]]:
        """Whether this pair has been asked for, and its future, else a new one."""
        with self._memory:
            known = self._known.get(key)
            if known is not None and not (isinstance(known, Future) and _failed(known)):
                self._known.move_to_end(key)
                return True, known if isinstance(known, Future) else _done(known)
            future: Future[Score] = Future()
            future.set_running_or_notify_cancel()  # shared by all who ask: nobody may cancel it
            self._known[key] = future
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        future.add_done_callback(lambda done: self._remember(key, done))
        return False, future

    def _remember(self, key: bytes, future: Future[Score]) -> None:
        """Keep a verdict in place of its future, which is several times larger; called in the dispatcher's thread."""
        with self._memory:
            if self._known.get(key) is not future:
                return
            if _failed(future):
                del self._known[key]
            else:
                self._known[key] = future.result()

    def counters(self) -> PoolCounters:
        """Totals so far."""
        tally = self._dispatcher.tally
        return PoolCounters(
            submitted=self._submitted,
            repeated=self._repeated,
            graded=tally.graded,
            retried=tally.retried,
            timeouts=tally.timeouts,
            crashes=tally.crashes,
            errors=tally.errors,
            workers_started=tally.workers_started,
            grading_seconds=tally.grading_seconds,
            seconds=time.monotonic() - self._opened,
        )

    def _pickled(self, prompt: Prompt) -> tuple[bytes, bytes]:
        """The prompt as workers get it (token ids left out), and its digest; made once per `Prompt` object."""
        known = self._prompts.get(id(prompt))
        if known is None:
            data = pickle.dumps(replace(prompt, token_ids=np.zeros(0, np.int32)), protocol=pickle.HIGHEST_PROTOCOL)
            known = (prompt, data, hashlib.blake2b(data, digest_size=16).digest())
            self._prompts[id(prompt)] = known  # it holds the prompt, so the id stays its own
            if len(self._prompts) > _REMEMBERED_PROMPTS:
                self._prompts.popitem(last=False)
        return known[1], known[2]


def _done(score: Score) -> Future[Score]:
    future: Future[Score] = Future()
    future.set_result(score)
    return future


def _failed(future: Future[Score]) -> bool:
    """An infrastructure failure is not remembered: the next grading of the pair may succeed."""
    return future.done() and (future.exception() is not None or future.result().outcome is Outcome.ERROR)
