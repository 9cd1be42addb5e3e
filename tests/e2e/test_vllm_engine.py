"""vLLM as an engine, against the learner's log-probabilities and the local engine's scores; needs vllm installed."""

import importlib.util
import json
import multiprocessing
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from brorl.engines.local import stop_token_ids
from brorl.engines.protocol import SampleRequest, Sampling
from brorl.engines.vllm import TOLERANCE, VllmEngine, spread
from brorl.errors import DataError, RunError
from brorl.group import Finish, Prompt
from brorl.learner.learner import Learner, LearnerSettings
from brorl.learner.model import load_model, model_directory
from command_line import brorl

HAS_VLLM = importlib.util.find_spec("vllm") is not None
needs_vllm = pytest.mark.skipif(not HAS_VLLM, reason="vllm is not installed here; make test-cluster")
TINY = model_directory("brorl-tiny")
AGREEMENT = 1e-4  # nats, float32 on both sides


def test_spread_of_copies() -> None:
    largest, mismatches = spread([[1, 2], [1, 3], [2]], [[-1.0, -2.0], [-1.01, -2.0], [-3.0]])
    assert largest == pytest.approx(0.005)
    assert mismatches == 2
    assert spread([[1], [1]], [[-1.0], [-1.0 - TOLERANCE]])[1] == 0


@pytest.mark.skipif(HAS_VLLM, reason="vllm is installed here")
def test_a_missing_package_is_named() -> None:
    with pytest.raises(RunError, match=r"brorl\[vllm\]"):
        VllmEngine(TINY, context=64)


@pytest.fixture(scope="module")
def engine() -> Iterator[VllmEngine]:
    subject = VllmEngine(TINY, context=256)
    yield subject
    subject.close()
    for child in multiprocessing.active_children():
        child.join(60)
    assert not multiprocessing.active_children()


@pytest.mark.cluster
@needs_vllm
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_counts_stops_and_logprobs_are_the_learners(engine: VllmEngine, temperature: float) -> None:
    model, tokenizer = load_model(TINY)
    stops = stop_token_ids(model, tokenizer)
    texts = ["3 + 4 = ?", "12 + 30 = ?"]
    prompts = [Prompt(id=t, text=t, token_ids=np.array(tokenizer.encode(t), np.int32)) for t in texts]
    sampling = Sampling(max_new_tokens=24, stop_token_ids=stops, temperature=temperature)
    requests = [SampleRequest(prompt=p, rollouts=100, key=(0, i)) for i, p in enumerate(prompts)]
    groups = dict(engine.sample(requests, sampling))
    learner = Learner(model, LearnerSettings(temperature=temperature))
    expected = learner.logprobs([groups[0], groups[1]])
    for group, values in zip((groups[0], groups[1]), expected, strict=True):
        assert group.rollouts == group.end_counts.sum() == 100
        ended = np.isin(group.tokens[group.ends], stops)
        assert (ended == (group.finish == Finish.STOP)).all()
        assert group.logprobs is not None
        print("largest difference", np.abs(group.logprobs - values).max())
        assert np.abs(group.logprobs - values).max() < AGREEMENT
    assert engine.mismatches == 0
    assert 0 <= engine.prefix_hit_rate() <= 1


@pytest.mark.cluster
@needs_vllm
def test_an_abandoned_sample_leaves_nothing_in_flight(engine: VllmEngine) -> None:
    prompt = Prompt(id="p", text="", token_ids=np.array([1, 2, 3], np.int32))
    requests = [SampleRequest(prompt=prompt, rollouts=8, key=(i,)) for i in range(20)]
    drawn = engine.sample(requests, Sampling(max_new_tokens=32, stop_token_ids=()))
    next(drawn)
    drawn.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert not engine._llm.llm_engine.has_unfinished_requests()
    with pytest.raises(DataError, match="exceeds the context"):
        next(engine.sample(requests, Sampling(max_new_tokens=10_000, stop_token_ids=())))
    with pytest.raises(RunError, match="not built yet"):
        engine.load_weights({}, 1)


@pytest.mark.cluster
@needs_vllm
def test_an_evaluation_scores_as_the_local_engine_does(tmp_path: Path) -> None:
    sums = [(3, 4), (8, 7), (12, 30), (45, 27), (61, 18), (77, 46)]
    rows = [
        {
            "question": f"State the final answer to the following arithmetic problem: {a} + {b} =",
            "answer": f"#### {a + b}",
        }
        for a, b in sums
    ]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = {}
    for name in ("local", "vllm"):
        brorl(
            "eval", TINY, "-b", "gsm8k", "--data", "sums.jsonl", "--template", "{question}\n", "--samples", 64,
            "--temperature", 1, "--top-p", 1, "--max-tokens", 48, "--meta", "answer_format=whole", "--engine", name,
            "--json", f"{name}.json", "-o", name, "--workers", 1, cwd=tmp_path,
        )  # fmt: skip
        found[name] = json.loads((tmp_path / f"{name}.json").read_text())
    assert found["vllm"]["engine"]["logprob_mismatches"] == 0
    p, q = found["local"]["average"], found["vllm"]["average"]
    print("pass@1: local", p, "vllm", q)
    assert 0.1 < p < 1
    error = np.sqrt((p * (1 - p) + q * (1 - q)) / (64 * len(sums)))  # draws alone: the problems are the same
    assert abs(p - q) < 4 * error
