"""How many programs the code verifier grades a second, through the pool as in training, at the strong isolation level.

python benchmarks/code_verifier.py [--workers 2] [--programs 400] [--json FILE]
"""

import argparse
import json
import os
import time
from pathlib import Path

from brorl.group import Outcome, Prompt
from brorl.verifiers.pool import VerifierPool
from brorl.verifiers.sandbox import isolation

PROMPTS = {
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


def measure(prompt: Prompt, response: str, workers: int, programs: int) -> float:
    """Gradings a second of different responses; the start of the workers and their sandboxes is left out."""
    with VerifierPool(workers=workers, deadline=60.0) as pool:
        for future in [pool.submit(prompt, response.format(f"warm {i}")) for i in range(4 * workers)]:
            assert future.result().outcome is Outcome.CORRECT
        start = time.monotonic()
        futures = [pool.submit(prompt, response.format(i)) for i in range(programs)]
        scores = [future.result() for future in futures]
        seconds = time.monotonic() - start
    assert all(score.outcome is Outcome.CORRECT for score in scores)
    return programs / seconds


def main() -> None:
    """Measure, print, and write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--programs", type=int, default=400)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rates = {name: measure(*pair, options.workers, options.programs) for name, pair in PROMPTS.items()}
    result = {
        "isolation": isolation(),
        "workers": options.workers,
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "programs_per_second": {name: round(rate, 1) for name, rate in rates.items()},
    }
    print(json.dumps(result, indent=2))
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
