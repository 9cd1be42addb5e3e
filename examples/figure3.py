"""The numbers of the paper's Figure 3: 1,000 AdamW steps on 128,000 actions at five N (about 15 seconds).

python examples/figure3.py [steps]
"""

import sys

from brorl.simulation.bandit import Optimizer, World, simulate


def main(steps: int = 1000) -> None:
    print(f"{'N':>7} {'correct mass':>13} {'improved':>9} {'worst drop':>11} {'retained':>9}")
    for rollouts in (4, 8, 16, 512, 51_200):
        run = simulate(World(), Optimizer(), rollouts=rollouts, steps=steps)
        print(
            f"{rollouts:7,} {run.correct_mass[-1]:13.4f} {run.improved_share[-1]:9.1%} "
            f"{run.worst_drop[-1]:11.1e} {run.retained_mass[-1]:9.4f}"
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
