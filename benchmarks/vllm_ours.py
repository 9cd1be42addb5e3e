"""Our side of `vs_vllm.py`: the trie engine on the same prompts, per line of standard input."""

import json
import sys
import time

import numpy as np
import torch
from beside import answer
from transformers import AutoModelForCausalLM

from brorl.engines.local import LocalEngine
from brorl.engines.protocol import SampleRequest, Sampling
from brorl.group import Prompt


def main() -> None:
    torch.set_num_threads(2)
    settings = json.loads(sys.argv[1])
    model = AutoModelForCausalLM.from_pretrained(settings["model"], dtype=torch.float32)
    engine = LocalEngine(model, kv_budget_mib=4096)
    sampling = Sampling(max_new_tokens=settings["new_tokens"], stop_token_ids=tuple(settings["stops"]))

    def step(number: int) -> dict[str, float]:
        requests = [
            SampleRequest(
                prompt=Prompt(id=str(slot), text="", token_ids=np.array(ids, np.int32)),
                rollouts=settings["rollouts"],
                key=(0, "vs_vllm", number, slot),
            )
            for slot, ids in enumerate(settings["rounds"][number])
        ]
        started = time.perf_counter()
        groups = [group for _, group in engine.sample(requests, sampling)]
        seconds = time.perf_counter() - started
        rollouts, tokens = sum(g.rollouts for g in groups), sum(g.total_tokens for g in groups)
        return {
            "seconds": seconds,
            "rollouts_per_second": rollouts / seconds,
            "mean_tokens": tokens / rollouts,
            "distinct_node_share": sum(g.nodes for g in groups) / tokens,
        }

    answer(step)


if __name__ == "__main__":
    main()
