"""The table of agreement with recorded and adjudicated verdicts in docs/verifiers.md, from files of recorded outputs.

Adjudications are JSON lines in docs/adjudications. Exits with 1 where fewer than 99.5 % of a file's verdicts agree with
the adjudicated ones, or where a reference answer is refused.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from brorl.evaluation.auditing import compare_verdicts, read_adjudications, summarise_audit
from brorl.evaluation.golds import refused_golds
from brorl.evaluation.responses import Columns, read_responses
from brorl.evaluation.scoring import grade
from brorl.verifiers.pool import VerifierPool

ROOT = Path(__file__).resolve().parents[1]
AIM = 0.995
FILES: dict[str, tuple[str, str]] = {
    "outputs_gsm8k_openai": ("math", "is_correct"),
    "outputs_math_greedy": ("math", "is_correct"),
    "outputs_math_qwen_n8": ("math", "is_correct"),
    "outputs_mathverify_pairs": ("math", "expected"),
    "outputs_rollouts_aime24": ("math", "reward"),
    "outputs_ifeval": ("instruction", "strict_all"),
    "outputs_code_evalplus": ("code", "is_correct_base"),
}
"""file -> verifier and column of recorded verdicts"""
PROBLEMS = {"code": ("humaneval", "mbpp_plus")}


def audit(pool: VerifierPool, data: Path, name: str) -> dict[str, Any]:
    """The figures of `brorl audit --golds --adjudicated ...` for one file.

    Raises:
        DataError: a file that cannot be read.
    """
    verifier, column = FILES[name]
    problems = [data / f"{problem}.jsonl" for problem in PROBLEMS.get(verifier, ())]
    columns = Columns(recorded=column)
    responses, _ = read_responses(data / f"{name}.jsonl", verifier, columns=columns, problems=problems)
    decisions = ROOT / "docs" / "adjudications" / f"{name}.jsonl"
    decided = read_adjudications(decisions) if decisions.exists() else {}
    comparisons = compare_verdicts(responses, grade(pool, responses), None, decided)
    checked, refused = refused_golds(pool, [response.prompt for response in responses])
    agree = [c.agrees_with_adjudicated for c in comparisons]
    return {
        **summarise_audit(comparisons),
        "rows": len(comparisons),
        "final": sum(map(bool, agree)) / len(agree),
        "golds": checked,
        "refused": [gold.prompt.id for gold in refused],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="folder of the outputs")
    parser.add_argument("--files", nargs="+", choices=FILES, default=list(FILES))
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    failed = False
    print("| data | verifier | gradings | agree with the recorded | with the adjudicated verdict | golds refused |")
    print("|---|---|---:|---:|---:|---:|")
    with VerifierPool(workers=options.workers, deadline=10.0) as pool:
        for name in options.files:
            found = audit(pool, options.data, name)
            recorded = f"{found['recorded']['agree']} ({found['recorded']['agreement']:.2%})"
            golds = f"{len(found['refused'])} of {found['golds']}"
            row = (name, FILES[name][0], f"{found['rows']:,}", recorded, f"{found['final']:.2%}", golds)
            print("|", " | ".join(row), "|", flush=True)
            failed |= found["final"] < AIM or bool(found["refused"])
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
