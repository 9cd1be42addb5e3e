"""Running model-written Python where it can do no harm. See docs/sandbox.md for what is and is not promised."""

from brorl.verifiers.sandbox.launch import ALLOW_WEAK, STRONG, WEAK, SandboxUnavailable, isolation
from brorl.verifiers.sandbox.run import (
    DEFAULT_LIMITS,
    Ended,
    Limits,
    RunResult,
    run_judged,
    run_python,
    run_scorer,
    run_together,
    warm_up,
    warm_up_scorer,
)

__all__ = [
    "ALLOW_WEAK",
    "DEFAULT_LIMITS",
    "STRONG",
    "WEAK",
    "Ended",
    "Limits",
    "RunResult",
    "SandboxUnavailable",
    "isolation",
    "run_judged",
    "run_python",
    "run_scorer",
    "run_together",
    "warm_up",
    "warm_up_scorer",
]
