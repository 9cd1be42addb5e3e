"""The mass balance of real groups: draw rollouts by a recipe, grade them, and say what one step would do, at several N.

python examples/mass_balance.py recipes/quickstart.yaml [prompts]
"""

import sys

from brorl.build import open_parts
from brorl.engines.protocol import SampleRequest
from brorl.recipe_file import load_recipe
from brorl.seeding import generator
from brorl.theory.groups import group_table, measure


def main(recipe_file: str, prompts: int = 4) -> None:
    recipe = load_recipe(recipe_file)
    threshold, total = recipe.verification.correct_threshold, recipe.rollouts.per_prompt
    with open_parts(recipe) as parts:
        stream = (parts.data.prompt_at(i) for i in range(10 * prompts))
        chosen = [prompt for prompt in stream if prompt is not None][:prompts]
        requests = [SampleRequest(prompt=p, rollouts=total, key=("mass_balance", i)) for i, p in enumerate(chosen)]
        groups = parts.rollouts.draw(requests, parts.sampling)
    print("for a step of size 1; Q_pos and what rests on it lie in an interval, since undrawn answers may be either")
    for scored in groups:
        table = group_table(scored, correct_threshold=threshold)
        print(f"\n{scored.group.prompt.id}: {scored.successes(threshold)} of {scored.scored_rollouts} right")
        for size in sorted({n for n in (4, 16, 64, total) if n <= scored.scored_rollouts}):
            counts = generator("example", size).multivariate_hypergeometric(table.counts, size, method="marginals")
            m = measure(table, counts)
            if m.masses is None:
                print(f"  N {size:4}: drawn mass negligible, not measurable")
                continue
            x = m.masses
            print(
                f"  N {size:4}: Q_pos in [{x.q_pos.low:.4f}, {x.q_pos.high:.4f}]  unseen {x.unseen_mass:.4f}  "
                f"T1 >= {x.t1.low:.2e}  T2 >= {x.t2.low:.2e}  T3 in [{x.t3.low:.1e}, {x.t3.high:.1e}]  "
                f"U2 <= {x.u2_bound:.1e} (estimate {x.u2_estimate:.1e})"
            )
            print(
                f"          paper's surrogate: change in [{x.surrogate.low:.2e}, {x.surrogate.high:.2e}]"
                f"{', certain to grow' if x.certified else ''};  "
                f"REINFORCE, the trainer's: in [{x.reinforce.low:.2e}, {x.reinforce.high:.2e}]"
            )


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1], *map(int, sys.argv[2:3]))
