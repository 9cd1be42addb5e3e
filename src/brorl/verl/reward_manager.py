"""verl's reward manager with what a reward function cannot know there: length in tokens, truncation, the step."""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from verl import DataProto  # pyright: ignore
from verl.experimental.reward_loop.reward_manager.naive import (  # pyright: ignore[reportMissingImports]
    NaiveRewardManager,
)


class ResponseRewardManager(NaiveRewardManager):
    """The naive manager; ``extra_info`` also holds `response_tokens`, `truncated` and `global_steps`."""

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """Grade the last sequence of a trajectory: ``reward_score`` and ``reward_extra_info``."""
        data = data[-1:]
        item = data[0]
        width = item.batch["responses"].shape[-1]
        length = int(item.batch["attention_mask"][-width:].sum())
        last = int(item.batch["responses"][length - 1]) if length else None
        extra = dict(item.non_tensor_batch.get("extra_info", {}))
        extra["response_tokens"] = length
        cut = length >= self.config.data.max_response_length
        extra["truncated"] = cut and last not in _stop_ids(self.tokenizer, self.config.actor_rollout_ref.model.path)
        if "global_steps" in item.non_tensor_batch:
            extra["global_steps"] = int(item.non_tensor_batch["global_steps"])
        # A copy: the rows of one prompt may share their dictionary.
        data.non_tensor_batch["extra_info"] = np.array([extra], dtype=object)
        return await super().run_single(data)


def _stop_ids(tokenizer: Any, model: str) -> set[int]:
    """What ends a response in vLLM: the tokenizer's token and those of the model's configuration."""
    return {tokenizer.eos_token_id, *_configured_stop_ids(model)}


@lru_cache(maxsize=8)
def _configured_stop_ids(model: str) -> tuple[int, ...]:
    found: list[int] = []
    for name in ("generation_config.json", "config.json"):
        path = Path(model).expanduser() / name
        ids = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id") if path.is_file() else None
        found += [ids] if isinstance(ids, int) else ids or []
    return tuple(found)
