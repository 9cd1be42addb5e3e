"""Gradings a second through the pool: mathematics on real outputs beside math-verify, and code in its sandbox.

Runs are made in turn, round after round, each in a new pool with an empty memory; the start of workers is left out.
Code is graded at the isolation level at which every attack test passes (docs/sandbox.md). Run it on an idle machine.
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from measuring import HERE, RESULTS, environment, write_rows

from brorl.evaluation.responses import Response, read_responses
from brorl.evaluation.scoring import with_verifier
from brorl.group import Outcome, Prompt
from brorl.verifiers.pool import VerifierPool
from brorl.verifiers.sandbox import STRONG, isolation

OUTPUTS = ("gsm8k_openai", "gsm8k_tora", "math_greedy", "math_qwen_n8", "rollouts_aime24")
AIMS = {"math": 2000.0, "code": 20.0}
_RATES = "gradings a second on {} workers: "
PROGRAMS = {
    "standard input and output": (
        Prompt(id="sum", text="", verifier="code", meta={"inputs": ["3 4"], "outputs": ["7"]}),
        "```python\nprint(sum(map(int, input().split())))  # {}\n```",
    ),
    "function, tests in another process": (
        Prompt(
            id="double",
            text="",
            verifier="code",
            answer="def double(x):\n    return 2 * x\n",
            meta={"test_list": [f"assert double({i}) == {2 * i}" for i in range(3)]},
        ),
        "```python\ndef double(x):\n    return x + x  # {}\n```",
    ),
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--data", type=Path, default=HERE.parent.parent / "shared" / "data")
    arguments.add_argument("--workers", type=int, default=2)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--rows", type=int, help="mathematics: only the first rows of each file")
    arguments.add_argument("--programs", type=int, default=400)
    arguments.add_argument("--out", type=Path, default=RESULTS / "verifiers.json")
    options = arguments.parse_args()
    responses = [r for name in OUTPUTS for r in _outputs(options.data / f"outputs_{name}.jsonl", options.rows)]
    results = measure_math(responses, options.workers, options.rounds)
    results += measure_code(options.programs, options.workers, options.rounds)
    where = environment(1, ("brorl", "math-verify")) | {"workers": options.workers}
    write_rows(options.out, [{**result, **where} for result in results])
    for result in results:
        print(f"{result['name']}: {result['medians']}, ratio {result['ratio']:.2f} (aim {result['aim']})")


def _outputs(path: Path, rows: int | None) -> list[Response]:
    return read_responses(path, "math")[0][:rows]


def measure_math(responses: Sequence[Response], workers: int, rounds: int) -> list[dict[str, Any]]:
    """Ours and math-verify on the same responses, each once; then ours on the same again, answered from memory."""
    distinct = list({(r.prompt.answer, r.problem, r.text): r for r in responses}.values())
    second = with_verifier(distinct, "math_verify")
    rates: dict[str, list[float]] = {"math": [], "math_verify": [], "repeated": []}
    for _ in range(rounds):
        ours, again = rate([(r.prompt, r.text) for r in distinct], workers, repeat=True)
        theirs, _ = rate([(r.prompt, r.text) for r in second], workers)
        for key, value in (("math", ours), ("repeated", again), ("math_verify", theirs)):
            rates[key].append(value)
    return [
        summarise("math, " + _RATES.format(workers) + "over the aim of 2,000", rates, "math", AIMS["math"], distinct),
        {
            **summarise("math, " + _RATES.format(workers) + "over math-verify's", rates, "math", 1.0, distinct),
            "ratio": statistics.median(a / b for a, b in zip(rates["math"], rates["math_verify"], strict=True)),
        },
    ]


def measure_code(programs: int, workers: int, rounds: int) -> list[dict[str, Any]]:
    """Different right programs of one line."""
    level = isolation()
    assert level == STRONG, f"the aim is for the level {STRONG!r}; this machine has {level!r}"
    rates: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for _ in range(rounds):
        for name, (prompt, text) in PROGRAMS.items():
            rates[name].append(rate([(prompt, text.format(i)) for i in range(programs)], workers, right=True)[0])
    items = range(programs)
    return [
        {
            **summarise(f"code, {name}, " + _RATES.format(workers) + "over the aim of 20", rates, name, 20.0, items),
            "isolation": level,
        }
        for name in PROGRAMS
    ]


def rate(
    pairs: Sequence[tuple[Prompt, str]], workers: int, *, repeat: bool = False, right: bool = False
) -> tuple[float, float]:
    """Gradings a second, and (with `repeat`) answers a second from the pool's memory."""
    first, _ = pairs[0]
    with VerifierPool(workers=workers, deadline=10.0) as pool:
        for future in [pool.submit(first, f"warm {i}") for i in range(64 * workers)]:
            future.result()
        seconds: list[float] = []
        for _ in range(1 + repeat):
            start = time.perf_counter()
            scores = [future.result() for future in [pool.submit(prompt, text) for prompt, text in pairs]]
            seconds.append(time.perf_counter() - start)
        assert not right or all(score.outcome is Outcome.CORRECT for score in scores)
        assert pool.counters().errors == 0
    return len(pairs) / seconds[0], len(pairs) / seconds[-1]


def summarise(
    name: str, rates: dict[str, list[float]], key: str, aim: float, items: Sequence[object]
) -> dict[str, Any]:
    """One result in the form of all benchmarks; `ratio` is the median rate over the aim."""
    return {
        "name": name,
        "ratio": statistics.median(rates[key]) / aim,
        "aim": ">= 1",
        "medians": {other: round(statistics.median(values), 1) for other, values in rates.items()},
        "spreads": {other: [round(min(values), 1), round(max(values), 1)] for other, values in rates.items()},
        "items": len(items),
        "rounds": len(rates[key]),
    }


if __name__ == "__main__":
    main()
