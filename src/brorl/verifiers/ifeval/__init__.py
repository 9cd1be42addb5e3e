"""The checks behind `brorl.verifiers.instruction`: one plain function per instruction id.

A check is ``(text, kwargs) -> bool | None``: followed, violated, or None where this text cannot be judged. It raises
`BadInstruction` where its arguments are missing or make no sense; nothing is ever drawn at random in their place.
"""

from brorl.verifiers.ifeval.arguments import BadInstruction, Check
from brorl.verifiers.ifeval.bench import BENCH_CHECKS
from brorl.verifiers.ifeval.content import CONTENT_CHECKS
from brorl.verifiers.ifeval.layout import LAYOUT_CHECKS

CHECKS: dict[str, Check] = {**CONTENT_CHECKS, **LAYOUT_CHECKS, **BENCH_CHECKS}

__all__ = ["CHECKS", "BadInstruction", "Check"]
