"""The key-value budget holds where the trie shares nothing but the prompt."""

import json
import subprocess
import sys

import pytest

WORST_CASE = """
import json, sys
from pathlib import Path
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from brorl.engines.local import LocalEngine
from brorl.engines.protocol import SampleRequest, Sampling
from brorl.group import Prompt

prompts, rollouts, tokens, budget = map(int, sys.argv[1:])
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=512, hidden_size=128, intermediate_size=384, num_hidden_layers=4, num_attention_heads=4,
    num_key_value_heads=4, max_position_embeddings=256, tie_word_embeddings=True,
))
rng = np.random.default_rng(0)

def peak_kib():  # not ru_maxrss, which a new process inherits from its parent
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])

before = peak_kib()
asked = [
    SampleRequest(prompt=Prompt(id=str(i), text="", token_ids=rng.integers(0, 512, 30).astype(np.int32)),
                  rollouts=rollouts, key=(i,))
    for i in range(prompts)
]
nodes = total = 0
for _, group in LocalEngine(model, kv_budget_mib=budget).sample(
    asked, Sampling(max_new_tokens=tokens, stop_token_ids=())
):
    nodes, total = nodes + group.nodes, total + group.total_tokens
peak = peak_kib()
print(json.dumps({
    "parameters": model.num_parameters(), "share": nodes / total, "total": total,
    "before_mib": before / 1024, "peak_mib": peak / 1024,
}))
"""


def run(prompts: int, rollouts: int, tokens: int, budget: int) -> dict[str, float]:
    arguments = [str(value) for value in (prompts, rollouts, tokens, budget)]
    done = subprocess.run([sys.executable, "-c", WORST_CASE, *arguments], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.slow
def test_peak_memory_follows_the_budget() -> None:
    # 8 x 128 different responses of 48 tokens are 190 MiB of keys and values.
    small = run(8, 128, 48, 16)
    assert small["share"] > 0.9
    assert small["peak_mib"] - small["before_mib"] < 130
    large = run(8, 128, 48, 1024)
    assert large["peak_mib"] - small["peak_mib"] > 50


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_64_prompts_with_512_rollouts_of_64_tokens_stay_under_2_gib() -> None:
    measured = run(64, 512, 64, 1024)
    assert 0.9e6 < measured["parameters"] < 1.2e6
    assert measured["total"] == 64 * 512 * 64
    assert measured["share"] > 0.9
    assert measured["peak_mib"] < 2048
