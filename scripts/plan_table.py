"""How well 16 samples per problem predict the kept share at 512: the table of docs/theory.md, from real counts.

python scripts/plan_table.py ../shared/data/outputs_monkeys_counts.jsonl [pilots]

A set is one (benchmark, model) with at least 50 problems sampled at least 1,000 times. The truth is the unbiased kept
share at 512 of those problems; a pilot draws 16 of each problem's samples without replacement.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

from brorl.seeding import generator
from brorl.theory.planning import beta_binomial_kept_share, fit_pass_rates, kept_share, measured_kept_share

PILOT, ROLLOUTS = 16, 512


def main(path: Path, pilots: int = 20) -> None:
    sets: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for line in path.read_text(encoding="utf-8").split("\n"):
        row = json.loads(line) if line else {}
        if row and row["num_samples"] >= 1000:
            sets[row["benchmark"], row["model"]].append((row["num_samples"], row["num_correct"]))
    known: dict[tuple[int, ...], tuple[float, ...]] = {}
    rows = []
    for (benchmark, model), counts in sorted(sets.items()):
        if len(counts) < 50:
            continue
        n, c = np.array(counts).T
        truth = float(measured_kept_share(n, c, ROLLOUTS).mean())
        results = []
        for pilot in range(pilots):
            drawn = generator("plan_table", benchmark, model, pilot).hypergeometric(c, n - c, PILOT)
            results.append(predictions(drawn, known))
        value, low, high, plain, plug_in = np.array(results).T
        rows.append(
            (
                benchmark, model, len(n), truth, np.mean(value), np.mean(low), np.mean(high),
                np.abs(value - truth).mean(), np.abs(plain - truth).mean(), np.abs(plug_in - truth).mean(),
                ((low <= truth) & (truth <= high)).mean(),
            )
        )  # fmt: skip
    print_tables(rows, pilots)


def predictions(drawn: np.ndarray, known: dict[tuple[int, ...], tuple[float, ...]]) -> tuple[float, ...]:
    """Ours with its interval, the plain beta-binomial's and the plug-in's; pilots with equal counts are fitted once."""
    key = tuple(sorted(drawn.tolist()))
    if key not in known:
        n, rate = np.full(len(drawn), PILOT), drawn / PILOT
        ours = kept_share(fit_pass_rates(n, drawn), ROLLOUTS)
        plain = beta_binomial_kept_share(n, drawn, ROLLOUTS)
        plug_in = float((1 - rate**ROLLOUTS - (1 - rate) ** ROLLOUTS).mean())
        known[key] = (ours.value, ours.low, ours.high, plain, plug_in)
    return known[key]


def print_tables(rows: list[tuple], pilots: int) -> None:
    print(f"| sets ({pilots} pilots each) | sets | mean error | plain beta-binomial | plug-in | covered |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for title, chosen in [
        ("all", rows),
        *((name, [r for r in rows if r[0] == name]) for name in ("gsm8k", "math")),
        ("10,000 samples each", [r for r in rows if " " in r[1]]),
        ("kept share above 0.01", [r for r in rows if r[3] > 0.01]),
        ("kept share above 0.3", [r for r in rows if r[3] > 0.3]),
    ]:
        errors = np.array([r[7:] for r in chosen]).mean(axis=0)
        print(f"| {title} | {len(chosen)} | " + " | ".join(f"{e:.3f}" for e in errors) + " |")
    print("\n| set | problems | truth | predicted | mean interval | error | beta-binomial | covered |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for benchmark, model, problems, truth, value, low, high, error, plain, _, covered in rows:
        mark = " **fails**" if covered < 0.5 else ""
        print(
            f"| {benchmark} {model}{mark} | {problems} | {truth:.3f} | {value:.3f} | {low:.3f} to {high:.3f} "
            f"| {error:.3f} | {plain:.3f} | {covered:.2f} |"
        )


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), *map(int, sys.argv[2:3]))
