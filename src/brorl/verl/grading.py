"""verl's reward function: the verifiers of a recipe, in their pool of killable processes."""

import atexit
import json
import logging
import math
import threading
from asyncio import wrap_future
from collections.abc import Callable, Coroutine, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from brorl.algorithms.shaping import SHAPINGS, Responses, Shaping, shape
from brorl.config import Ref
from brorl.group import Outcome, Prompt
from brorl.resolving import resolve
from brorl.verifiers.pool import VerifierPool
from brorl.verifiers.score import Score

RewardFunction = Callable[..., Coroutine[Any, Any, dict[str, float]]]

_log = logging.getLogger(__name__)


def reward_function(settings: Path | Mapping[str, Any]) -> RewardFunction:
    """``async compute_score(data_source, solution_str, ground_truth, extra_info)`` for rows of `brorl export-verl`.

    It returns ``score`` (shaped; NaN where there is no verdict, which brorl's estimators leave out), ``acc`` (1 where
    the unshaped reward reaches the threshold: what groups are filtered by), ``reward`` (unshaped), ``truncated`` and
    ``unscorable``. Held-out rows are not shaped and score 0 where there is no verdict. The pool starts with the first
    response, one in each of verl's reward workers.

    Args:
        settings: the written ``reward.json``, or its content.
    """
    options = json.loads(settings.read_text(encoding="utf-8")) if isinstance(settings, Path) else settings
    shapings = {s["name"]: resolve(Ref(**s), SHAPINGS, "algorithm.shaping") for s in options["shaping"]}
    pool = _lazy_pool(options)
    seen = {"graded": 0, "unscorable": 0}

    async def compute_score(
        data_source: str, solution_str: str, ground_truth: str, extra_info: Mapping[str, Any], **_: Any
    ) -> dict[str, float]:
        prompt = _prompt(extra_info["id"], extra_info["verifier"], ground_truth, extra_info["meta"])
        truncated = bool(extra_info.get("truncated", False))
        if truncated:
            score = Score(outcome=Outcome.TRUNCATED, reward=0.0)
        else:
            score = await wrap_future(pool().submit(prompt, solution_str))
        unscorable = math.isnan(score.reward)
        _count(seen, unscorable, options["max_error_share"], score.note)
        reward = 0.0 if unscorable else float(score.reward)
        shaped = reward
        if extra_info["split"] == "train":
            shaped = math.nan if unscorable else _shaped(reward, shapings, extra_info, options["max_new_tokens"])
        return {
            "score": shaped,
            "acc": float(reward >= options["correct_threshold"] and not unscorable),
            "reward": reward,
            "truncated": float(truncated),
            "unscorable": float(unscorable),
        }

    return compute_score


def _lazy_pool(options: Mapping[str, Any]) -> Callable[[], VerifierPool]:
    lock, opened = threading.Lock(), list[VerifierPool]()

    def pool() -> VerifierPool:
        with lock:
            if not opened:
                opened.append(
                    VerifierPool(
                        workers=options["workers"],
                        deadline=options["deadline_seconds"],
                        memory_mib=options["memory_mib"],
                    )
                )
                atexit.register(opened[0].close)
            return opened[0]

    return pool


@lru_cache(maxsize=1 << 12)
def _prompt(prompt_id: str, verifier: str, answer: str, meta: str) -> Prompt:
    """One object for the rollouts of one prompt: the pool pickles it once."""
    return Prompt(id=prompt_id, text="", verifier=verifier, answer=answer, meta=json.loads(meta))


def _shaped(reward: float, shapings: Mapping[str, Shaping], extra: Mapping[str, Any], max_new_tokens: int) -> float:
    if not shapings:
        return reward
    try:
        length, step = int(extra["response_tokens"]), int(extra["global_steps"]) - 1  # verl counts from 1
    except KeyError as error:
        raise ValueError(
            f"shaping needs the row's {error}: set reward.reward_manager to brorl.verl.reward_manager, as "
            "overrides.txt does"
        ) from error
    responses = Responses(
        rewards=np.array([reward]),
        lengths=np.array([length]),
        truncated=np.array([bool(extra["truncated"])]),
        step=step,
        max_new_tokens=max_new_tokens,
    )
    return float(shape(responses, shapings)[0][0])


def _count(seen: dict[str, int], unscorable: bool, most: float, note: str) -> None:
    """A grader that is down must not look like a policy that is wrong: say so, once per thousand gradings."""
    seen["graded"] += 1
    seen["unscorable"] += unscorable
    if seen["graded"] == 1000:
        if seen["unscorable"] > most * seen["graded"]:
            _log.error(
                "%d of the last 1000 responses could not be scored, the last because: %s", seen["unscorable"], note
            )
        seen["graded"] = seen["unscorable"] = 0
