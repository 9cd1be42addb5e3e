"""The thread that owns the workers of a pool: deadlines, retries, replacements. All of its state is its own."""

import contextlib
import json
import math
import os
import selectors
import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, replace

from brorl.errors import RunError
from brorl.group import Outcome
from brorl.verifiers import DEADLINES
from brorl.verifiers.process import Item, Phase, WorkerProcess
from brorl.verifiers.score import Score

_BATCH_SECONDS = 0.02  # a batch holds about this much work: cheap to send, and little waits behind a slow item
_BATCH_ITEMS = 128
_LOAD_SECONDS = 60.0  # to start a worker, and to load a verifier
_START_FAILURES = 3  # in a row, before waiting items are given up
_PLAIN_RESPONSE = "0"  # a verifier that hangs or crashes on this does so on anything


@dataclass(slots=True, kw_only=True)
class Tally:
    """Running totals of a dispatcher."""

    graded: int = 0
    retried: int = 0
    timeouts: int = 0
    crashes: int = 0
    errors: int = 0
    workers_started: int = 0
    grading_seconds: float = 0.0


class Dispatcher(threading.Thread):
    """Feeds workers and watches their clocks until closed."""

    def __init__(self, *, workers: int, deadline: float, memory_mib: int, recycle_after: int) -> None:
        super().__init__(name="brorl-verifiers", daemon=True)
        self.tally = Tally()
        self._limit, self._deadline = workers, deadline
        self._patience = deadline / 4  # after this an item is slow: a substitute starts, others no longer wait
        self._memory_mib, self._recycle_after = memory_mib, recycle_after
        self._arrivals: deque[Item] = deque()  # the only thing that other threads write (append is atomic)
        self._closing = threading.Event()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._queue: deque[Item] = deque()
        self._suspects: deque[Item] = deque()
        self._workers: list[WorkerProcess] = []
        self._selector = selectors.DefaultSelector()
        self._seconds: dict[str, float] = {}  # running mean per verifier
        self._failed_starts = 0
        self._broken: dict[bytes, str] = {}  # prompts whose verifier cannot be loaded, or grades nothing
        self._sound: set[bytes] = set()  # prompts whose verifier has graded a plain response
        self._accused: dict[bytes, list[tuple[Item, str]]] = {}  # until a plain response of the prompt is graded

    # Called from any thread.

    def add(self, item: Item) -> None:
        """Queue an item; its future is set from the dispatcher's thread."""
        self._arrivals.append(item)
        self._wake()

    def close(self) -> None:
        """Kill all workers, fail what is not graded, and return when nothing is left."""
        self._closing.set()
        self._wake()
        self.join()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # a full pipe wakes it as well
            os.write(self._wake_write, b"x")

    # Everything below runs in the dispatcher's own thread.

    def run(self) -> None:
        """Serve until closed. Whatever happens, no worker outlives it and no future stays open."""
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        try:
            while not self._closing.is_set():
                self._admit()
                self._staff()
                self._assign()
                for key, _ in self._selector.select(self._until_next_limit()):
                    self._attend(key.data)
                self._check_clocks()
        finally:
            self._shut_down()

    def _shut_down(self) -> None:
        self._closing.set()
        waiting = [*self._arrivals, *self._queue, *self._suspects, *(i for w in self._workers for i in w.batch)]
        waiting += [item for accused in self._accused.values() for item, _ in accused]
        for worker in self._workers:
            worker.kill()
        self._workers.clear()
        self._selector.close()
        for item in waiting:
            if not item.future.done():
                item.future.set_exception(RunError("the verifier pool was closed before this response was graded"))

    def _admit(self) -> None:
        while self._arrivals:
            item = self._arrivals.popleft()
            if item.prompt in self._broken:
                self._give_up(item, self._broken[item.prompt])
            else:
                self._queue.append(item)

    # Staff: how many workers there are.

    def _slow(self, worker: WorkerProcess, now: float) -> bool:
        return worker.phase is Phase.GRADING and now - worker.since > self._patience

    def _staff(self) -> None:
        """Keep `workers` that are not held up by a slow item, and never more than three times as many in all."""
        now = time.monotonic()
        available = [w for w in self._workers if not self._slow(w, now)]
        for worker in [w for w in available if w.phase is Phase.IDLE]:
            surplus = len(available) > self._limit
            stale = worker.served >= self._recycle_after
            in_the_way = bool(self._suspects) and len(available) == self._limit and all(w.served for w in available)
            if surplus or stale or in_the_way:
                self._dismiss(worker)
                available.remove(worker)
        for _ in range(min(self._limit - len(available), 3 * self._limit - len(self._workers))):
            worker = WorkerProcess(self._memory_mib)
            self.tally.workers_started += 1
            self._workers.append(worker)
            self._selector.register(worker.reading, selectors.EVENT_READ, worker)
            self._watch_output(worker)

    def _dismiss(self, worker: WorkerProcess) -> str:
        self._selector.unregister(worker.reading)
        if worker.writing in self._selector.get_map():
            self._selector.unregister(worker.writing)
        self._workers.remove(worker)
        return worker.kill()

    def _watch_output(self, worker: WorkerProcess) -> None:
        watched = worker.writing in self._selector.get_map()
        if worker.has_output and not watched:
            self._selector.register(worker.writing, selectors.EVENT_WRITE, worker)
        elif watched and not worker.has_output:
            self._selector.unregister(worker.writing)

    # Work: who grades what.

    def _assign(self) -> None:
        idle = [w for w in self._workers if w.phase is Phase.IDLE]
        for worker in idle:
            batch = self._next_batch(fresh=worker.served == 0)
            if not batch:
                continue
            worker.give(batch)
            self._watch_output(worker)

    def _next_batch(self, *, fresh: bool) -> list[Item]:
        """A suspect alone, for a fresh worker; else as many items as make up `_BATCH_SECONDS`, fairly shared."""
        if self._suspects and fresh:
            return [self._suspects.popleft()]
        most = min(_BATCH_ITEMS, math.ceil(len(self._queue) / self._limit))
        batch: list[Item] = []
        seconds = 0.0
        while self._queue and len(batch) < most:
            item = self._queue[0]
            seconds += self._seconds.get(item.verifier, _BATCH_SECONDS)
            if batch and seconds > _BATCH_SECONDS:
                break
            self._queue.popleft()
            if not item.future.done():  # graded meanwhile by the worker that it was taken back from
                batch.append(item)
        return batch

    def _attend(self, worker: WorkerProcess | None) -> None:
        """Something happened: an arrival, a message, room to write, or a death."""
        if worker is None:
            os.read(self._wake_read, 1 << 16)
            return
        if worker not in self._workers:
            return  # dismissed earlier in this round
        worker.flush()
        self._watch_output(worker)
        messages, alive = worker.receive()
        sane = all(self._hear(worker, message) for message in messages)
        if not (alive and sane):
            self._lose(worker, "crashed its grader")

    def _hear(self, worker: WorkerProcess, data: bytes) -> bool:
        """Act on one message; False for one that makes no sense, which can only come from a corrupted worker."""
        try:
            kind, *rest = json.loads(data)
            if kind == "score":
                item_id, outcome, reward, extracted, parts, seconds, note = rest
                score = Score(
                    outcome=Outcome(outcome),
                    reward=float(reward),
                    extracted=extracted,
                    parts=parts,
                    seconds=seconds,
                    note=note,
                )
                return self._finish(worker, item_id, score)
        except (ValueError, TypeError, RecursionError):
            return False
        if kind == "ready":
            self._failed_starts = 0
            worker.enter(Phase.IDLE)
        elif kind == "prepared" and worker.batch:
            worker.enter(Phase.GRADING)
        else:
            return False
        return True

    def _finish(self, worker: WorkerProcess, item_id: int, score: Score) -> bool:
        if not worker.batch or worker.batch[0].id != item_id:
            return False
        item = worker.batch.popleft()
        worker.served += 1
        if not worker.batch:
            worker.enter(Phase.IDLE)
        elif worker.batch[0].prompt is item.prompt:
            worker.enter(worker.phase)
        else:
            worker.enter(Phase.PREPARING)
        if item.probe:
            self._acquit(item)
            return True
        mean = self._seconds.get(item.verifier, score.seconds)
        self._seconds[item.verifier] = mean + 0.05 * (score.seconds - mean)
        self.tally.grading_seconds += score.seconds
        self._settle(item, score)
        return True

    def _settle(self, item: Item, score: Score) -> None:
        if not item.future.done() and not item.probe:
            self.tally.graded += 1
            self.tally.errors += score.outcome is Outcome.ERROR
            item.future.set_result(score)

    # Clocks and losses.

    def _limit_of(self, worker: WorkerProcess, now: float) -> float:
        """When this worker next needs attention."""
        if worker.phase is Phase.IDLE:
            return math.inf
        if worker.phase is not Phase.GRADING:
            return worker.since + _LOAD_SECONDS
        slow_at = worker.since + self._patience
        return slow_at if now <= slow_at else worker.since + self._deadline_of(worker)

    def _deadline_of(self, worker: WorkerProcess) -> float:
        """The time that the response being graded has."""
        return max(self._deadline, DEADLINES.get(worker.batch[0].verifier, 0.0))

    def _until_next_limit(self) -> float | None:
        now = time.monotonic()
        soonest = min((self._limit_of(w, now) for w in self._workers), default=math.inf)
        return None if soonest == math.inf else max(0.0, soonest - now) + 0.001

    def _check_clocks(self) -> None:
        for worker in list(self._workers):
            if worker.phase is Phase.IDLE:
                continue
            limit = self._deadline_of(worker) if worker.phase is Phase.GRADING else _LOAD_SECONDS
            now = time.monotonic()
            if now - worker.since > limit:
                self._attend(worker)  # its answer may have arrived in the meantime
                if worker in self._workers and now - worker.since > limit:
                    self.tally.timeouts += worker.phase is Phase.GRADING
                    self._lose(worker, f"took longer than {limit:g} s")
            elif self._slow(worker, now) and not worker.lent:
                worker.lent = True
                self._queue.extendleft(reversed(list(worker.batch)[1:]))

    def _lose(self, worker: WorkerProcess, reason: str) -> None:
        """Bury a worker; its current item is a suspect, the items behind it go back to the front of the queue."""
        phase, batch = worker.phase, worker.batch
        how = self._dismiss(worker)
        if phase is Phase.STARTING:
            self._failed_starts += 1
            if self._failed_starts >= _START_FAILURES:
                for item in [*self._queue, *self._suspects]:
                    self._give_up(item, f"no grading process can be started: {how}")
                self._queue.clear()
                self._suspects.clear()
            return
        if reason.startswith("crashed"):
            self.tally.crashes += 1
            reason = f"{reason} ({how})"
        if not batch:
            return
        item = batch.popleft()
        item.lost_seconds += time.monotonic() - worker.since if phase is Phase.GRADING else 0.0
        if not worker.lent:
            self._queue.extendleft(reversed(batch))
        self._strike(item, phase, reason)

    def _strike(self, item: Item, phase: Phase, reason: str) -> None:
        """The first time it may have been bad luck: once more, alone, in a fresh worker. The second time it was not."""
        item.strikes += 1
        if item.future.done():
            return
        if item.strikes == 1:
            self.tally.retried += not item.probe
            self._suspects.append(item)
        elif phase is Phase.PREPARING:
            self._break(item, f"its verifier cannot be loaded: {reason}")
        elif item.probe:
            self._break(item, f"its verifier fails on any response: on {_PLAIN_RESPONSE!r} as well it twice {reason}")
        else:
            self._accuse(item, f"the response, twice, {reason}")

    def _accuse(self, item: Item, reason: str) -> None:
        """Wrong if the verifier grades a plain response of the prompt; else it was not the response's fault."""
        if item.prompt in self._broken:
            self._give_up(item, self._broken[item.prompt])
        elif item.prompt in self._sound:
            self._settle(item, Score(outcome=Outcome.WRONG, reward=0.0, seconds=item.lost_seconds, note=reason))
        elif item.prompt in self._accused:
            self._accused[item.prompt].append((item, reason))
        else:
            self._accused[item.prompt] = [(item, reason)]
            self._suspects.append(
                replace(item, id=-item.id, response=_PLAIN_RESPONSE, strikes=0, future=Future(), probe=True)
            )

    def _acquit(self, probe: Item) -> None:
        """The verifier works: who failed it is wrong."""
        probe.future.cancel()
        self._sound.add(probe.prompt)
        for item, reason in self._accused.pop(probe.prompt, []):
            self._accuse(item, reason)

    def _break(self, item: Item, reason: str) -> None:
        """Nothing of this prompt can be graded, now or later."""
        self._broken[item.prompt] = reason
        for other in [item, *(accused for accused, _ in self._accused.pop(item.prompt, []))]:
            self._give_up(other, reason)
        waiting, self._queue = self._queue, deque[Item]()
        self._arrivals.extendleft(reversed(waiting))

    def _give_up(self, item: Item, reason: str) -> None:
        for accused, _ in self._accused.pop(item.prompt, []) if item.probe else ():
            self._give_up(accused, reason)
        self._settle(item, Score(outcome=Outcome.ERROR, reward=math.nan, note=reason))
