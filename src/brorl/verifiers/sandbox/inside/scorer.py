"""Reasoning Gym's own scorers that evaluate the text of an answer, run where that text can do no harm.

Loaded by the warm server of a scoring sandbox only: this module needs Reasoning Gym, which no other sandbox has.
"""

import json
import os
from functools import lru_cache
from typing import Any

import reasoning_gym


def main(job: dict[str, Any]) -> None:
    """Score ``answer`` by ``task`` against ``entry``; the verdict is one JSON line with the job's token."""
    verdict_to = os.dup(1)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    verdict = {"token": job["token"], "value": 0.0, "why": ""}
    try:
        verdict["value"] = float(scorer(job["task"]).score_answer(job["answer"], job["entry"]))
    except Exception as error:
        verdict["why"] = f"the scorer raises {type(error).__name__}"
    os.write(verdict_to, json.dumps(verdict).encode())
    os._exit(0)


@lru_cache
def scorer(task: str) -> Any:
    """A data set of the task with its default options: these scorers read nothing but the entry."""
    return reasoning_gym.create_dataset(task, seed=0, size=1)


# Loads what SymPy loads at first use: once here, in place of once per answer.
scorer("simple_integration").score_answer(
    "x**2/2 + sin(x) + exp(x) + C", {"metadata": {"integrand": "x + cos(x) + exp(x)", "variable": "x"}}
)
