"""Graders: plain functions (prompt, response) -> Score, and the pool of processes that runs them.

A verifier is named by its key here or, for a user's own, as ``package.module:function``. The values are resolved only
where a verifier runs, so that neither the parent process nor a worker imports a grader that it does not use.
"""

VERIFIERS: dict[str, str] = {
    "choice": "brorl.verifiers.choice:choice",
    "code": "brorl.verifiers.code:verify_code",
    "gym": "brorl.verifiers.gym:verify_gym",
    "instruction": "brorl.verifiers.instruction:verify_instruction",
    "json_schema": "brorl.verifiers.text:verify_json_schema",
    "math": "brorl.verifiers.math:math",
    "math_verify": "brorl.verifiers.second_opinion:math_verify",
    "numeric": "brorl.verifiers.text:verify_numeric",
    "regex": "brorl.verifiers.text:verify_regex",
    "text": "brorl.verifiers.text:verify_text",
}

PREPARATIONS: dict[str, str] = {
    "code": "brorl.verifiers.code:prepare",
    "gym": "brorl.verifiers.gym:prepare",
    "instruction": "brorl.verifiers.instruction:prepare",
    "math": "brorl.verifiers.math:prepare",
    "math_verify": "brorl.verifiers.second_opinion:prepare",
}
"""Slow loading that belongs to a verifier and a prompt, `(Prompt) -> None`; a worker does it before an item's deadline
starts."""

DEADLINES: dict[str, float] = {
    "code": 120.0,
    "gym": 60.0,
}
"""The least deadline that a verifier needs, in seconds; a pool's own raises it. The sandbox ends a program that hangs,
and says why, after at most two runs of 50 s (code) or 25 s (scorers of Reasoning Gym)."""
