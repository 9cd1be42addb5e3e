"""The engine for OpenAI-compatible servers, against a real server process that serves a tiny model."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from brorl.engines.openai import OpenAIEngine, ServerSettings
from brorl.engines.pieces import Pieces
from brorl.engines.protocol import SampleRequest, Sampling
from brorl.errors import DataError, RunError
from brorl.group import Prompt, RolloutGroup
from brorl.storage import read_groups
from command_line import brorl, refused
from tiny_policy import save_tiny_policy, write_rows
from tiny_server import requests_of, serving

SAMPLING = Sampling(max_new_tokens=6, stop_token_ids=(), temperature=1.0)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(save_tiny_policy(tmp_path_factory.mktemp("served") / "model")) as url:
        yield url


def settings(url: str, **changes: Any) -> ServerSettings:
    return replace(ServerSettings(url=f"{url}/v1", backoff=0.01, retries=3, most_choices=4), **changes)


def drawn(
    url: str, *, rollouts: int = 10, prompts: int = 2, sampling: Sampling = SAMPLING, **changes: Any
) -> tuple[OpenAIEngine, list[RolloutGroup]]:
    engine = OpenAIEngine(settings(url, **changes), Pieces())
    try:
        asked = [
            SampleRequest(prompt=Prompt(id=f"p{i}", text=f"say {i}?"), rollouts=rollouts, key=(1, i))
            for i in range(prompts)
        ]
        groups = dict(engine.sample(asked, sampling))
    finally:
        engine.close()
    return engine, [groups[i] for i in range(prompts)]


@pytest.mark.parametrize("chat", [True, False])
def test_tokens_and_logprobs_where_the_server_gives_them(server: str, chat: bool) -> None:
    engine, groups = drawn(f"{server}/full", chat=chat)
    assert engine.lengths == "tokens"
    for group in groups:
        assert group.rollouts == 10
        assert group.lengths().max() <= 6
        assert group.logprobs is not None
        assert (group.logprobs <= 0).all()
        # One character is one token of the served model, special tokens aside.
        assert (np.array([len(t) for t in group.texts(engine.pieces)]) <= group.lengths()).all()
    again = drawn(f"{server}/full", chat=chat)[1]
    assert all(np.array_equal(a.end_counts, b.end_counts) for a, b in zip(groups, again, strict=True))
    nucleus = drawn(f"{server}/full", chat=chat, sampling=replace(SAMPLING, top_p=0.9))[1]
    assert all(group.logprobs is None for group in nucleus)


def test_many_responses_take_several_requests(server: str) -> None:
    before = len(requests_of(f"{server}/full"))
    drawn(f"{server}/full", prompts=1)
    asked = [request for request in requests_of(f"{server}/full")[before:] if request["max_tokens"] == 6]
    assert [request.get("n", 1) for request in asked] == [4, 4, 2]
    assert len({request["seed"] for request in asked}) == 3


def test_exact_lengths_from_counts_alone(server: str) -> None:
    engine, groups = drawn(f"{server}/usage")
    assert engine.lengths == "usage"
    asked = requests_of(f"{server}/usage")
    assert all("n" not in request and "logprobs" not in request for request in asked[2:])
    full = drawn(f"{server}/full", most_choices=1)[1]
    for counted, known in zip(groups, full, strict=True):
        assert counted.total_tokens == known.total_tokens
        assert counted.logprobs is None


def test_text_alone(server: str) -> None:
    engine, groups = drawn(f"{server}/words")
    assert engine.lengths == "words"
    assert all(group.rollouts == 10 for group in groups)


def test_a_server_that_refuses_what_it_does_not_know(server: str) -> None:
    engine, groups = drawn(f"{server}/strict")
    assert engine.lengths == "usage"
    assert all("seed" not in request for request in requests_of(f"{server}/strict")[3:])
    assert groups[0].rollouts == 10


def test_a_server_that_gives_one_choice_whatever_is_asked(server: str) -> None:
    assert [group.rollouts for group in drawn(f"{server}/one")[1]] == [10, 10]


@pytest.mark.parametrize("behaviour", ["limited", "flaky", "slow"])
def test_troubles_that_pass(server: str, behaviour: str) -> None:
    _, groups = drawn(f"{server}/{behaviour}", rollouts=2, timeout=0.3 if behaviour == "slow" else 30.0)
    assert [group.rollouts for group in groups] == [2, 2]


def test_keys_come_from_the_environment_alone(server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("BRORL_API_KEY", raising=False)
    with pytest.raises(RunError, match=r"no such key.*BRORL_API_KEY is not set"):
        drawn(f"{server}/keyed")
    monkeypatch.setenv("BRORL_API_KEY", "wrong")
    with pytest.raises(RunError, match="BRORL_API_KEY holds a key that it refuses"):
        drawn(f"{server}/keyed")
    monkeypatch.setenv("OTHER_KEY", "secret")
    data = write_rows(tmp_path / "gsm8k.jsonl", [{"question": "2+2?", "answer": "4"}])
    flags = ("-b", "gsm8k", "--data", data, "--template", "{question}", "-n", "2", "--max-tokens", "5")
    brorl("eval", f"{server}/keyed/v1", *flags, "--key-variable", "OTHER_KEY", "-o", "out", cwd=tmp_path)
    assert not any("secret" in file.read_text(errors="replace") for file in (tmp_path / "out").iterdir())


def test_errors_say_what_to_do(server: str) -> None:
    with pytest.raises(DataError, match=r"prompt p\d and 40 new tokens do not fit .*maximum context.*--max-tokens"):
        drawn(f"{server}/small", sampling=replace(SAMPLING, max_new_tokens=40))
    with pytest.raises(RunError, match="HTTP 500: out of memory, 3 times"):
        drawn(f"{server}/down", retries=2)
    with pytest.raises(RunError, match="is this an OpenAI-compatible server"):
        drawn(f"{server}/html")
    with pytest.raises(RunError, match="serves tiny, tiny-base: name one by --model"):
        drawn(f"{server}/two")
    with pytest.raises(RunError, match=r"HTTP 404.*Is the base URL right"):
        OpenAIEngine(ServerSettings(url=f"{server}/full"), Pieces())
    with pytest.raises(RunError, match=r"cannot be reached.*Is the server running"):
        OpenAIEngine(ServerSettings(url="http://127.0.0.1:1/v1", retries=1, backoff=0.01), Pieces())
    with pytest.raises(RunError, match="cannot be changed from here"):
        drawn(f"{server}/two", model="tiny")[0].load_weights({}, 1)


def test_evaluating_a_server(server: str, tmp_path: Path) -> None:
    rows = [{"id": f"q{i}", "question": f"say {c}?", "answer": c} for i, c in enumerate("abcdef")]
    data = write_rows(tmp_path / "gsm8k.jsonl", rows)
    flags = (
        "-b",
        "gsm8k",
        "--data",
        data,
        "--template",
        "{question}",
        "-n",
        "6",
        "--max-tokens",
        "5",
        "--workers",
        "1",
    )
    brorl("eval", f"{server}/full/v1", *flags, "--json", "out.json", cwd=tmp_path)
    results = json.loads((tmp_path / "out.json").read_text())
    assert results["policy"]["model"] == "tiny"
    assert results["benchmarks"]["gsm8k"]["samples_per_problem"] == {"fewest": 6, "most": 6}
    pieces = Pieces()
    pieces.continue_from(tmp_path / "evals/tiny-1/vocabulary.jsonl")
    groups = read_groups(tmp_path / "evals/tiny-1/gsm8k.parquet")
    assert {group.group.prompt.id for group in groups} == {row["id"] for row in rows}
    assert all(set(text) <= set("abcdefghijklmnopqrstuvwxyz0123456789 ?+=\n<>/.,:-") for g in groups
               for text in g.group.texts(pieces))  # fmt: skip
    refused("eval", f"{server}/two/v1", *flags, cwd=tmp_path, says="name one by --model")
