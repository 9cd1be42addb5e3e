"""Mangled LaTeX, Unicode and junk through the pool: no crash, no verdict later than its deadline + 1 s, no worker lost.

`BRORL_FUZZ` says how many (default 3,000); `pytest -s` prints the figures.
"""

import os
import time
from collections import Counter

import numpy as np
import pytest

from brorl.group import Outcome, Prompt
from brorl.seeding import generator
from brorl.verifiers.pool import VerifierPool
from brorl.verifiers.score import Score
from mangled_answers import mangled
from shared_data import shared_rows

DEADLINE = 5.0
CHUNK = 2_000
FORMS = (r"\boxed{%s}", "%s", "Answer: %s", "<answer>%s</answer>", "<think>so</think> the answer is %s", "#### %s")
VERIFIERS = ("math", "math", "math", "math", "choice", "numeric", "text", "instruction")
FATES = {Outcome.CORRECT, Outcome.WRONG, Outcome.NO_ANSWER, Outcome.TRUNCATED, Outcome.UNSCORABLE}


def asked(verifier: str, gold: str, number: int) -> Prompt:
    meta: dict[str, object] = {}
    if verifier == "choice":
        meta, gold = {"choices": ["w", "x", "y", "z"]}, "ABCD"[number % 4]
    elif verifier == "numeric":
        gold = str(number)
    elif verifier == "instruction":
        meta = {
            "instruction_id_list": [
                "punctuation:no_comma",
                "startend:quotation",
                "length_constraints:number_sentences",
            ],
            "kwargs": [{}, {}, {"relation": "at least", "num_sentences": 3}],
            "reward": "all",
        }
    return Prompt(id=str(number), text="?", verifier=verifier, answer=gold, meta=meta)


def pairs(rng: np.random.Generator, golds: list[str], size: int) -> list[tuple[Prompt, str]]:
    made: list[tuple[Prompt, str]] = []
    for number, text in enumerate(mangled(rng, golds, size)):
        gold = text if rng.random() < 0.3 else golds[rng.integers(len(golds))]
        verifier = VERIFIERS[rng.integers(len(VERIFIERS))]
        made.append((asked(verifier, gold, number), FORMS[rng.integers(len(FORMS))].replace("%s", text)))
    return made


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_mangled_answers_through_the_pool() -> None:
    size = int(os.environ.get("BRORL_FUZZ", "3000"))
    names = ("math_test", "minerva_math", "olympiadbench_math_en", "gaokao2023en")
    golds = [row["answer"] for name in names for row in shared_rows(f"data/{name}.jsonl")]
    rng = generator("mangled answers through the pool")
    outcomes: Counter[Outcome] = Counter()
    slowest = 0.0
    start = time.monotonic()
    with VerifierPool(workers=2, deadline=DEADLINE, recycle_after=10 * size) as pool:
        for done in range(0, size, CHUNK):
            batch = pairs(rng, golds, min(CHUNK, size - done))
            scores: list[Score] = [future.result() for future in [pool.submit(p, text) for p, text in batch]]
            outcomes.update(score.outcome for score in scores)
            slowest = max(slowest, *(score.seconds for score in scores))
            for (prompt, text), score in zip(batch, scores, strict=True):
                assert score.outcome in FATES, (prompt.verifier, text, score)
                assert "makes the verifier fail" not in score.note, (prompt.verifier, text, score)
        counters = pool.counters()
    assert slowest <= DEADLINE + 1.0
    assert (counters.timeouts, counters.crashes, counters.retried, counters.errors) == (0, 0, 0, 0)
    assert counters.workers_started == 2, "a worker was lost"
    assert counters.graded + counters.repeated == size
    told = ", ".join(f"{outcome.name.lower()} {count}" for outcome, count in sorted(outcomes.items()))
    print(f"\n{size} answers in {time.monotonic() - start:.0f} s, slowest {slowest:.2f} s, {told}\n{counters}")
