"""An OpenAI-compatible server that serves a tiny model: ``python tests/tiny_server.py MODEL_DIRECTORY`` prints its URL.

The first part of the path chooses how it behaves, as real servers do: ``/full/v1`` gives log-probabilities,
``/usage/v1`` only counts, and so on; ``/<behaviour>/log`` lists the requests it got.
"""

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import httpx2
import numpy as np

BEHAVIOURS = (
    "full",  # log-probabilities, counts, several choices
    "usage",  # counts of tokens, no log-probabilities
    "words",  # text alone
    "strict",  # refuses logprobs and seed
    "one",  # one choice, whatever n is
    "keyed",  # wants the key "secret"
    "small",  # refuses what is longer than its context
    "limited",  # every second request: too many requests
    "flaky",  # the first two answers fail
    "slow",  # the first answer comes too late
    "down",  # never works
    "html",  # is no such server
    "two",  # serves two models
)


@contextmanager
def serving(model: Path) -> Iterator[str]:
    """The server in a process of its own, on a port of the loopback interface; its URL."""
    with Popen([sys.executable, __file__, str(model)], stdout=PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def requests_of(url: str) -> list[dict[str, Any]]:
    """What a server was asked under ``<url>/<behaviour>/v1``."""
    return httpx2.get(f"{url.removesuffix('/v1')}/log").json()["requests"]


class Served:
    """A model that answers chats and completions, one request at a time."""

    def __init__(self, directory: Path) -> None:
        from brorl.engines.local import LocalEngine, stop_token_ids
        from brorl.learner.model import load_model

        model, self.tokenizer = load_model(directory)
        self.engine, self.stops = LocalEngine(model, kv_budget_mib=64), stop_token_ids(model, self.tokenizer)
        self.lock = threading.Lock()

    def answer(self, request: dict[str, Any], behaviour: str) -> dict[str, Any]:
        from brorl.engines.protocol import SampleRequest, Sampling
        from brorl.group import Prompt

        chat = "messages" in request
        text = "\n".join(m["content"] for m in request["messages"]) if chat else request["prompt"]
        ids = np.array(self.tokenizer.encode(text, add_special_tokens=False), np.int32)
        wanted = 1 if behaviour == "one" else request.get("n", 1)
        sampling = Sampling(
            max_new_tokens=min(request["max_tokens"], 64 - len(ids)),
            stop_token_ids=self.stops,
            temperature=request.get("temperature", 1.0),
            top_p=request.get("top_p", 1.0),
        )
        prompt = Prompt(id="served", text=text, token_ids=ids)
        key = ("server", request.get("seed", 0), text)
        with self.lock:
            [(_, group)] = self.engine.sample([SampleRequest(prompt=prompt, rollouts=wanted, key=key)], sampling)
        choices, total = [], 0
        for path, count, finish in zip(group.paths(), group.end_counts.tolist(), group.finish.tolist(), strict=True):
            tokens, logprobs = group.tokens[path].tolist(), group.logprobs[path].tolist()  # type: ignore[index]
            choice = self.choice(tokens, logprobs, finish, chat)
            if behaviour not in ("full", "one") or not request.get("logprobs"):
                choice.pop("logprobs")
            choices += [choice] * count
            total += count * len(tokens)
        usage = {} if behaviour == "words" else {"usage": {"completion_tokens": total, "prompt_tokens": len(ids)}}
        return {"choices": [{**choice, "index": i} for i, choice in enumerate(choices)], **usage}

    def choice(self, tokens: list[int], logprobs: list[float], finish: int, chat: bool) -> dict[str, Any]:
        text = self.tokenizer.decode(tokens, skip_special_tokens=True)
        pieces = [str(self.tokenizer.decode([token])) for token in tokens]
        entries = [
            {"token": piece, "bytes": list(piece.encode()), "logprob": value}
            for piece, value in zip(pieces, logprobs, strict=True)
        ]
        flat = {"tokens": pieces, "token_logprobs": logprobs}
        content = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        return {
            **content,
            "logprobs": {"content": entries} if chat else flat,
            "finish_reason": "length" if finish else "stop",
        }


class Handler(BaseHTTPRequestHandler):
    served: Served
    log: dict[str, list[dict[str, Any]]]

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def send(self, status: int, content: Any, **headers: str) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        behaviour, _, path = self.path.strip("/").partition("/")
        if path == "log":
            self.send(200, {"requests": self.log.get(behaviour, [])})
        elif behaviour == "html":
            self.send(200, b"<html>hello</html>")
        elif behaviour == "keyed" and self.headers.get("Authorization") != "Bearer secret":
            self.send(401, {"error": {"message": "no such key"}})
        elif path == "v1/models" and behaviour in BEHAVIOURS:
            names = ["tiny", "tiny-base"] if behaviour == "two" else ["tiny"]
            self.send(200, {"data": [{"id": name} for name in names]})
        else:
            self.send(404, {"detail": "not found"})

    def do_POST(self) -> None:
        behaviour = self.path.strip("/").partition("/")[0]
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        log = self.log.setdefault(behaviour, [])
        log.append(request)
        match behaviour:
            case "keyed" if self.headers.get("Authorization") != "Bearer secret":
                self.send(401, {"error": {"message": "no such key"}})
            case "strict" if "logprobs" in request or "seed" in request:
                self.send(400, {"error": {"message": "unknown field: logprobs or seed"}})
            case "small" if request["max_tokens"] > 32:
                self.send(400, {"error": {"message": "This model's maximum context length is 32 tokens"}})
            case "limited" if len(log) % 2:
                self.send(429, {"error": "slow down"}, Retry_After="0.02")
            case "flaky" if len(log) <= 2:
                self.send(503, {"error": "loading"})
            case "down":
                self.send(500, {"error": "out of memory"})
            case "slow" if len(log) == 1:
                time.sleep(1.0)  # longer than the client waits
                self.send(200, {"choices": []})
            case _:
                self.send(200, self.served.answer(request, behaviour))


if __name__ == "__main__":
    Handler.served, Handler.log = Served(Path(sys.argv[1])), {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()
