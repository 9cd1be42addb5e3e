"""The pool against verifiers that really hang, crash, hoard and print."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from brorl.errors import RunError
from brorl.group import Finish, Outcome, Prompt, RolloutGroup
from brorl.verifiers import DEADLINES
from brorl.verifiers.grading import score_group, submit_group
from brorl.verifiers.pool import VerifierPool
from brorl.verifiers.sandbox import Limits

OBEY = "hostile_verifiers:obey"
DEADLINE = 0.7


def prompt(verifier: str = OBEY, *, name: str = "p", **meta: object) -> Prompt:
    return Prompt(id=name, text="?", verifier=verifier, answer="right", meta=meta)


@pytest.fixture(scope="module")
def pool() -> Iterator[VerifierPool]:
    with VerifierPool(workers=2, deadline=DEADLINE, memory_mib=512) as opened:
        yield opened


@pytest.fixture(scope="module")
def patient() -> Iterator[VerifierPool]:
    """A pool whose deadline nothing but a real hang meets, even on a busy machine."""
    with VerifierPool(workers=1, deadline=60.0, memory_mib=512) as opened:
        yield opened


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def gone(pids: list[int], seconds: float = 10.0) -> bool:
    """Whether all of these processes end within some time."""
    until = time.monotonic() + seconds
    while any(alive(pid) for pid in pids) and time.monotonic() < until:
        time.sleep(0.02)
    return not any(alive(pid) for pid in pids)


def test_right_and_wrong(pool: VerifierPool) -> None:
    right, wrong = pool.submit(prompt(), "right"), pool.submit(prompt(), "something else")
    assert (right.result().outcome, right.result().reward) == (Outcome.CORRECT, 1.0)
    assert (wrong.result().outcome, wrong.result().reward) == (Outcome.WRONG, 0.0)
    assert right.result().seconds > 0


@pytest.mark.parametrize("attack", ["loop", "hold-gil", "sleep:600"])
def test_what_hangs_twice_is_wrong(pool: VerifierPool, attack: str) -> None:
    before = pool.counters()
    start = time.monotonic()
    score = pool.submit(prompt(), attack).result()
    assert score.outcome is Outcome.WRONG
    assert score.reward == 0.0
    assert "twice" in score.note
    assert f"longer than {DEADLINE} s" in score.note
    assert 2 * DEADLINE <= score.seconds < time.monotonic() - start < 2 * DEADLINE + 10
    assert pool.counters().timeouts == before.timeouts + 2
    assert pool.counters().retried == before.retried + 1


@pytest.mark.parametrize("attack", ["memory", "exit", "sys-exit", "segfault", "scribble"])
def test_what_crashes_twice_is_wrong(patient: VerifierPool, attack: str) -> None:
    before = patient.counters().crashes
    score = patient.submit(prompt(), attack).result()
    assert score.outcome is Outcome.WRONG
    assert "crashed" in score.note
    assert patient.counters().crashes == before + 2
    assert patient.submit(prompt(), "right").result().outcome is Outcome.CORRECT


def test_deep_recursion_is_wrong(patient: VerifierPool) -> None:
    assert patient.submit(prompt(), "recursion").result().outcome is Outcome.WRONG


def test_what_a_verifier_prints_is_dropped(pool: VerifierPool, capfd: pytest.CaptureFixture[str]) -> None:
    assert pool.submit(prompt(), "flood").result().outcome is Outcome.WRONG
    assert pool.submit(prompt(), "right").result().outcome is Outcome.CORRECT
    assert capfd.readouterr() == ("", "")


def test_a_crash_that_does_not_repeat_is_forgiven(pool: VerifierPool, tmp_path: Path) -> None:
    once = Prompt(id="once", text="?", verifier=OBEY, answer="once", meta={"file": str(tmp_path / "marker")})
    assert pool.submit(once, "once").result().outcome is Outcome.CORRECT


def test_hanging_delays_nobody_else() -> None:
    with VerifierPool(workers=2, deadline=12.0) as pool:
        assert pool.submit(prompt(), "right").result().outcome is Outcome.CORRECT
        hanging = [pool.submit(prompt(), f"loop:{i}") for i in range(2)]
        others = [pool.submit(prompt(), f"fine {i}") for i in range(500)]
        assert all(f.result().outcome is Outcome.WRONG for f in others)
        assert not any(f.done() for f in hanging), "the others must be graded before the two that hang are killed"


def test_items_behind_a_crash_are_graded(pool: VerifierPool) -> None:
    texts = ["exit:batch" if i == 50 else "right" if i % 2 else f"wrong {i}" for i in range(100)]
    futures = [pool.submit(prompt(name="batch"), text) for text in texts]
    expected = [Outcome.CORRECT if text == "right" else Outcome.WRONG for text in texts]
    assert [f.result().outcome for f in futures] == expected


def test_an_exception_belongs_to_the_response_or_to_the_verifier(pool: VerifierPool) -> None:
    by_response = pool.submit(prompt(), "raise").result()
    assert by_response.outcome is Outcome.WRONG
    assert "ValueError: bad response" in by_response.note
    by_verifier = pool.submit(prompt("hostile_verifiers:always_raises"), "right").result()
    assert by_verifier.outcome is Outcome.ERROR
    assert np.isnan(by_verifier.reward)
    assert "KeyError" in by_verifier.note
    assert pool.submit(prompt("hostile_verifiers:broken_parts"), "right").result().outcome is Outcome.ERROR


@pytest.mark.parametrize("told", ["CORRECT inf", "WRONG -inf", "PARTIAL nan", "CORRECT 1e39"])
def test_a_reward_that_is_no_finite_number_reaches_nobody(pool: VerifierPool, told: str) -> None:
    score = pool.submit(prompt("hostile_verifiers:rewards_as_told"), told).result()
    assert (score.outcome, "finite" in score.note) == (Outcome.ERROR, True)
    left_out = pool.submit(prompt("hostile_verifiers:rewards_as_told"), "UNSCORABLE 1").result()
    assert left_out.outcome is Outcome.UNSCORABLE
    assert np.isnan(left_out.reward)


@pytest.mark.parametrize("verifier", ["always_hangs", "always_crashes"])
def test_a_verifier_that_fails_on_every_response_is_an_error(verifier: str) -> None:
    """No response is at fault: the prompt's responses stay out of the baseline, and the run stops at its threshold."""
    with VerifierPool(workers=2, deadline=0.3) as pool:
        broken = [pool.submit(prompt(f"hostile_verifiers:{verifier}"), f"response {i}") for i in range(40)]
        sound = [pool.submit(prompt(), "right"), pool.submit(prompt(), "exit:sound")]
        scores = [future.result(timeout=120) for future in broken]
        assert {score.outcome for score in scores} == {Outcome.ERROR}
        assert all("fails on any response" in score.note for score in scores)
        assert [future.result().outcome for future in sound] == [Outcome.CORRECT, Outcome.WRONG]
        counters = pool.counters()
        assert counters.errors == 40
        assert counters.graded == 42, "the dispatcher's own question is not counted"
        assert counters.timeouts + counters.crashes <= 2 * (2 + 6 + 2), "not every response is waited for"
        late = pool.submit(prompt(f"hostile_verifiers:{verifier}"), "another").result(timeout=120)
        assert late.outcome is Outcome.ERROR
        assert pool.counters().timeouts == counters.timeouts


def test_closing_fails_what_waits_for_a_verdict_on_its_verifier() -> None:
    pool = VerifierPool(workers=2, deadline=0.3)
    waiting = [pool.submit(prompt("hostile_verifiers:always_hangs"), f"{i}") for i in range(3)]
    while pool.counters().timeouts < 4:
        threading.Event().wait(0.01)
    pool.close()
    for future in waiting:
        with pytest.raises(RunError, match="closed"):
            future.result(timeout=1)


def test_a_verifier_may_need_a_longer_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code is judged by its sandbox, whose limits are longer than a pool's usual deadline."""
    assert DEADLINES["code"] > 2 * Limits().wall_seconds
    monkeypatch.setitem(DEADLINES, OBEY, 60.0)
    with VerifierPool(workers=1, deadline=0.3) as pool:
        score = pool.submit(prompt(), "sleep:1.5").result()
        assert (score.outcome, score.note) == (Outcome.WRONG, "")
        assert score.seconds > 1.4
        assert pool.counters().timeouts == 0


@pytest.mark.parametrize(
    ("verifier", "reason"),
    [
        ("no_such_verifier", "known: "),
        ("no.such.module:f", "cannot import"),
        ("hostile_verifiers:nothing", "no function"),
    ],
)
def test_a_verifier_that_cannot_be_loaded_is_an_error(pool: VerifierPool, verifier: str, reason: str) -> None:
    score = pool.submit(prompt(verifier), "right").result()
    assert score.outcome is Outcome.ERROR
    assert reason in score.note


def test_too_little_memory_to_load_is_an_error() -> None:
    with VerifierPool(workers=1, memory_mib=128) as small:
        gym = Prompt(
            id="g", text="?", verifier="gym", answer="1", meta={"task": "chain_sum", "config": {}, "entry": {}}
        )
        assert small.submit(gym, "<answer>1</answer>").result().outcome is Outcome.ERROR


def test_equal_pairs_are_graded_once(pool: VerifierPool, tmp_path: Path) -> None:
    log = tmp_path / "log"
    counted = prompt(name="counted", file=str(log))
    for _ in range(2):
        futures = [pool.submit(counted, "count") for _ in range(50)]
        assert {f.result().outcome for f in futures} == {Outcome.WRONG}
    same_content = prompt(name="counted", file=str(log))
    assert pool.submit(same_content, "count").result().outcome is Outcome.WRONG
    assert log.read_text() == "x"
    other = prompt(name="another", file=str(log))
    assert pool.submit(other, "count").result().outcome is Outcome.WRONG
    assert log.read_text() == "xx"


def test_what_a_verifier_started_dies_with_it(pool: VerifierPool, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    assert pool.submit(prompt(name="child", file=str(file)), "child").result().outcome is Outcome.WRONG
    assert gone([int(file.read_text())])


def test_workers_import_no_torch(pool: VerifierPool) -> None:
    imported = {
        name: pool.submit(prompt(), f"imported:{name}").result().outcome for name in ("numpy", "torch", "sympy")
    }
    assert imported == {"numpy": Outcome.CORRECT, "torch": Outcome.WRONG, "sympy": Outcome.WRONG}


def test_long_responses_and_many_threads(pool: VerifierPool) -> None:
    results: list[Outcome] = []

    def ask(name: str) -> None:
        futures = [pool.submit(prompt(name=name), "y" * (1 << 20) + str(i)) for i in range(3)]
        futures.append(pool.submit(prompt(name=name), "right"))
        results.extend(f.result().outcome for f in futures)

    threads = [threading.Thread(target=ask, args=(f"thread {i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [Outcome.CORRECT] * 4 + [Outcome.WRONG] * 12


def test_workers_are_recycled() -> None:
    with VerifierPool(workers=1, recycle_after=10) as pool:
        pids = {pool.submit(prompt(name=str(i)), "pid").result().extracted for i in range(25)}
        assert len(pids) == 3
    assert gone([int(pid) for pid in pids])


def test_closing_ends_workers_and_fails_what_is_open() -> None:
    pool = VerifierPool(workers=2, deadline=60.0)
    pid = int(pool.submit(prompt(), "pid").result().extracted)
    hanging = pool.submit(prompt(), "loop")
    pool.close()
    with pytest.raises(RunError, match="closed"):
        hanging.result()
    with pytest.raises(RunError, match="closed"):
        pool.submit(prompt(), "right")
    pool.close()
    assert gone([pid])


@pytest.mark.parametrize("bad", [{"workers": 0}, {"deadline": 0.0}, {"memory_mib": 1}, {"recycle_after": 0}])
def test_impossible_settings_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="a pool needs"):
        VerifierPool(**bad)


PARENT = """
import signal
import sys
from brorl.group import Prompt
from brorl.verifiers.pool import VerifierPool
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background ignores it
ask = lambda i: Prompt(id=str(i), text="?", verifier="hostile_verifiers:obey", answer="right")
with VerifierPool(workers=2, deadline=300.0) as pool:
    pids = {pool.submit(ask(i), "pid").result().extracted for i in range(200)}
    hanging = [pool.submit(ask(i), "hold-gil") for i in range(2)]
    print(*pids, flush=True)
    hanging[0].result()
"""


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_no_worker_outlives_its_parent(ending: signal.Signals) -> None:
    path = os.pathsep.join(p for p in sys.path if p)
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert pids
    assert all(alive(pid) for pid in pids)
    parent.send_signal(ending)
    _, errors = parent.communicate(timeout=30)
    assert gone(pids)
    if ending is signal.SIGINT:
        assert errors.rstrip().endswith("KeyboardInterrupt")


def group_of(texts: list[str], finish: list[int], asked: Prompt) -> RolloutGroup:
    return RolloutGroup.from_sequences(asked, [[ord(c) for c in t] for t in texts], finish=finish)


def test_a_group_is_scored_once_per_distinct_response(pool: VerifierPool) -> None:
    texts = ["right", "right", "wrong", "right too long", "raise"]
    group = group_of(texts, [Finish.STOP, Finish.STOP, Finish.STOP, Finish.LENGTH, Finish.STOP], prompt(name="group"))
    decoded = ["".join(chr(t) for t in ids) for ids in group.responses()]
    before = pool.counters().submitted
    pending = submit_group(pool, group, decoded)
    scored = pending.result()
    assert pending.done()
    assert pool.counters().submitted == before + 3, "one grading per distinct response, none for the truncated one"
    outcome = {text: Outcome(o) for text, o in zip(decoded, scored.outcomes, strict=True)}
    assert outcome == {
        "right": Outcome.CORRECT,
        "wrong": Outcome.WRONG,
        "right too long": Outcome.TRUNCATED,
        "raise": Outcome.WRONG,
    }
    assert scored.successes() == 2
    assert scored.rewards.dtype == np.float32


def test_texts_must_match_the_group(pool: VerifierPool) -> None:
    group = group_of(["a", "b"], [0, 0], prompt())
    with pytest.raises(ValueError, match="3 texts for 2 distinct"):
        score_group(pool, group, ["a", "b", "c"])


HOSTILE = ("loop", "exit", "segfault", "memory", "flood", "raise", "recursion", "sys-exit")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_soak_with_hostile_responses() -> None:
    """Many gradings (`BRORL_SOAK`, by default 20,000), one in a hundred hostile: descriptors, processes and memory stay
    flat, and no verdict is lost."""
    size = int(os.environ.get("BRORL_SOAK", "20000"))
    others = _children()  # of a pool that other tests share
    after: list[tuple[int, int, int]] = []  # descriptors, children and KiB of memory after each tenth
    with VerifierPool(workers=2, deadline=0.5, memory_mib=256, recycle_after=1000) as pool:
        for part in range(10):
            numbers = range(part * size // 10, (part + 1) * size // 10)
            texts = [
                f"{HOSTILE[i // 100 % len(HOSTILE)]}:{i}" if i % 100 == 50 else "right" if i % 3 == 0 else f"no {i}"
                for i in numbers
            ]
            futures = [pool.submit(prompt(name=str(i)), text) for i, text in zip(numbers, texts, strict=True)]
            expected = [Outcome.CORRECT if text == "right" else Outcome.WRONG for text in texts]
            assert [f.result(timeout=300).outcome for f in futures] == expected
            after.append((_open_fds(), _children(), _resident_kib()))
        counters = pool.counters()
    assert counters.graded == size
    assert counters.timeouts > 0
    assert counters.crashes > 0
    fds, children, memory = zip(*after, strict=True)
    assert max(fds) <= fds[0] + 12  # a worker has three, and there are two to six of them
    assert max(children) <= others + 6
    assert _children() == others
    # The pool remembers up to 32,768 verdicts and 4,096 prompts, under 1 KiB each.
    assert memory[-1] - memory[2] <= 10_000 + size, f"KiB after each tenth: {memory}"
    print(f"descriptors {fds}, children {children}, KiB {memory}, {counters}")


def _resident_kib() -> int:
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))


def _open_fds() -> int:
    return len(os.listdir("/proc/self/fd"))


def _children() -> int:
    """Child processes of this one, zombies included."""
    me, count = str(os.getpid()), 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                count += (entry / "stat").read_text().rpartition(")")[2].split()[1] == me
            except OSError:
                continue
    return count
