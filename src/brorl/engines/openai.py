"""Rollouts from any OpenAI-compatible server, for evaluation: vLLM, SGLang, llama.cpp, a hosted API.

What a response consists of depends on what the server tells, which one short request finds out: with log-probabilities
its tokens are known (`length` is exact, prefixes are shared as the model's tokens); with a usage count alone its length
is known and its words stand for tokens; without either, lengths are in words. Groups carry log-probabilities only at
temperature 1 without nucleus sampling: servers report those of the unprocessed distribution.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from brorl.engines.pieces import Pieces, token_pieces, word_pieces
from brorl.engines.protocol import SampleRequest, Sampling
from brorl.engines.transport import ServerRefusal, Transport
from brorl.errors import DataError, RunError
from brorl.group import Finish, Prompt, RolloutGroup
from brorl.seeding import derive_seed

if TYPE_CHECKING:
    from torch import Tensor

Lengths = Literal["tokens", "usage", "words"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """A server, and how to treat it."""

    url: str
    """its base, with ``/v1``"""
    model: str | None = None
    """as the server calls it; None: its only one"""
    system: str = ""
    chat: bool = True
    """the chat endpoint; False: plain completions, for base models"""
    key_variable: str = "BRORL_API_KEY"
    concurrency: int = 16
    """requests in flight"""
    most_choices: int = 8
    """responses asked for in one request"""
    timeout: float = 1800.0
    retries: int = 6
    backoff: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    pieces: list[str]
    logprobs: list[float] | None
    finish: Finish


class OpenAIEngine:
    """A `RolloutEngine` whose weights are somebody else's.

    Args:
        pieces: the vocabulary that responses are put into.

    Raises:
        RunError: the server cannot be reached, refuses the key, or serves no such model.
    """

    def __init__(self, settings: ServerSettings, pieces: Pieces) -> None:
        self.settings, self.pieces = settings, pieces
        self._transport = Transport(
            settings.url,
            key_variable=settings.key_variable,
            timeout=settings.timeout,
            retries=settings.retries,
            backoff=settings.backoff,
            connections=settings.concurrency,
        )
        try:
            self.model = self._model()
            self._options: dict[str, Any] = {}
            self.lengths: Lengths = self._probe()
        except BaseException:
            self._transport.close()
            raise

    @property
    def policy_version(self) -> int:
        """Always 0: a server keeps its weights."""
        return 0

    def load_weights(self, weights: "Mapping[str, Tensor]", version: int) -> None:
        """Refused.

        Raises:
            RunError: always.
        """
        raise RunError(f"{self.settings.url}: the weights of a server cannot be changed from here")

    def close(self) -> None:
        """Drop all connections."""
        self._transport.close()

    def sample(self, requests: Sequence[SampleRequest], sampling: Sampling) -> Iterator[tuple[int, RolloutGroup]]:
        """Yield (index into `requests`, group) as groups complete; requests are in flight side by side.

        Raises:
            DataError: a prompt that does not fit the server's context.
            RunError: the server fails again and again.
        """
        threads = ThreadPoolExecutor(self.settings.concurrency)
        waiting = iter(enumerate(requests))
        running: dict[Future[RolloutGroup], int] = {}
        try:
            while True:
                while len(running) < self.settings.concurrency and (entry := next(waiting, None)) is not None:
                    running[threads.submit(self._group, entry[1], sampling)] = entry[0]
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), future.result()
        finally:  # after an error nobody waits for the other requests: closing the engine ends them
            threads.shutdown(wait=False, cancel_futures=True)

    def _group(self, request: SampleRequest, sampling: Sampling) -> RolloutGroup:
        """All responses to one prompt, over as many requests as it takes."""
        choices: list[_Choice] = []
        most = 1 if self.lengths == "usage" else self.settings.most_choices
        part = 0
        while len(choices) < request.rollouts:
            wanted = min(most, request.rollouts - len(choices))
            found = self._ask(request.prompt, sampling, wanted, derive_seed(*request.key, "request", part) % 2**31)
            choices += found[:wanted]
            part += 1
        exact = sampling.temperature == 1 and sampling.top_p == 1 and sampling.top_k == 0
        known = exact and all(choice.logprobs is not None for choice in choices)
        return RolloutGroup.from_sequences(
            request.prompt,
            [self.pieces.ids(choice.pieces) for choice in choices],
            finish=[choice.finish for choice in choices],
            logprobs=[choice.logprobs or [] for choice in choices] if known else None,
        )

    def _ask(self, prompt: Prompt, sampling: Sampling, wanted: int, seed: int) -> list[_Choice]:
        payload = {
            **self._options,
            **self._prompt(prompt),
            "max_tokens": sampling.max_new_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
        }
        if sampling.top_k:
            payload["top_k"] = sampling.top_k
        if wanted > 1:
            payload["n"] = wanted
        if "seed" in self._options:
            payload["seed"] = seed
        try:
            answer = self._transport.post(self._path, payload)
        except ServerRefusal as refusal:
            raise self._explained(prompt, sampling, str(refusal)) from refusal
        choices = answer.get("choices")
        if not isinstance(choices, list) or not choices:
            raise RunError(f"{self.settings.url}: an answer without a response to prompt {prompt.id}: {answer}"[:600])
        usage = answer.get("usage") or {}
        return [self._choice(choice, usage.get("completion_tokens") if wanted == 1 else None) for choice in choices]

    @property
    def _path(self) -> str:
        return "chat/completions" if self.settings.chat else "completions"

    def _prompt(self, prompt: Prompt) -> dict[str, Any]:
        if not self.settings.chat:
            return {"model": self.model, "prompt": prompt.text}
        messages = list(prompt.meta.get("messages") or [{"role": "user", "content": prompt.text}])
        if self.settings.system and messages[0]["role"] != "system":
            messages.insert(0, {"role": "system", "content": self.settings.system})
        return {"model": self.model, "messages": messages}

    def _choice(self, choice: Mapping[str, Any], completion_tokens: int | None) -> _Choice:
        finish = Finish.LENGTH if choice.get("finish_reason") == "length" else Finish.STOP
        tokens, values = _tokens(choice.get("logprobs"))
        message = choice.get("message") or {}
        text = (message.get("content") if self.settings.chat else choice.get("text")) or ""
        reasoning = message.get("reasoning_content") or message.get("reasoning")
        if reasoning:
            text = f"<think>{reasoning}</think>{text}"
        pieces = token_pieces(text, tokens) if tokens else None
        if pieces is not None:
            return _Choice(pieces=pieces, logprobs=values, finish=finish)
        return _Choice(pieces=word_pieces(text, len(tokens) or completion_tokens), logprobs=None, finish=finish)

    def _explained(self, prompt: Prompt, sampling: Sampling, words: str) -> DataError | RunError:
        """The server's refusal with what to do about it."""
        if any(
            sign in words.lower() for sign in ("context", "too long", "maximum length", "max_tokens", "max_model_len")
        ):
            return DataError(
                f"prompt {prompt.id} and {sampling.max_new_tokens} new tokens do not fit the context of {self.model} "
                f"at {self.settings.url}: {words}. Lower --max-tokens, or serve the model with a longer context"
            )
        return RunError(f"{self.settings.url}: refuses the request for prompt {prompt.id}: {words}")

    def _model(self) -> str:
        if self.settings.model is not None:
            return self.settings.model
        try:
            found = self._transport.get("models").get("data") or []
        except ServerRefusal as refusal:
            raise RunError(
                f"{self.settings.url}: does not list its models ({refusal}): name one by --model"
            ) from refusal
        names = [str(entry.get("id")) for entry in found]
        if len(names) != 1:
            raise RunError(f"{self.settings.url}: serves {', '.join(names) or 'no model'}: name one by --model")
        return names[0]

    def _probe(self) -> Lengths:
        """What the server tells: one short request, less and less asked for. Sets the options of all others."""
        detail: dict[str, Any] = {"logprobs": True} if self.settings.chat else {"logprobs": 1}
        refusal = ""
        for options in ({**detail, "seed": 0}, {"seed": 0}, detail, {}):
            payload = {**options, **self._prompt(Prompt(id="probe", text="Hello")), "max_tokens": 4}
            try:
                answer = self._transport.post(self._path, payload)
            except ServerRefusal as refused:
                refusal = str(refused)
                continue
            choice = (answer.get("choices") or [{}])[0]
            if "logprobs" in options and not _tokens(choice.get("logprobs"))[0]:
                options = {key: value for key, value in options.items() if key != "logprobs"}
            self._options = options
            if "logprobs" in options:
                return "tokens"
            return "usage" if (answer.get("usage") or {}).get("completion_tokens") is not None else "words"
        raise RunError(
            f"{self.settings.url}: refuses every request to {self.model}: {refusal}. Is it a chat model? Base models "
            "need --completions"
        )


def _tokens(logprobs: Any) -> tuple[list[bytes], list[float]]:
    """The bytes and log-probabilities of the tokens of one response, of either endpoint; empty where there are none."""
    if not isinstance(logprobs, Mapping):
        return [], []
    if logprobs.get("content"):
        found = [(entry.get("bytes"), str(entry.get("token")), entry.get("logprob")) for entry in logprobs["content"]]
    else:
        texts, values = logprobs.get("tokens") or [], logprobs.get("token_logprobs") or []
        found = [(None, str(text), value) for text, value in zip(texts, values, strict=False)]
    if any(value is None for _, _, value in found):
        return [], []
    tokens = [bytes(raw) if raw is not None else text.encode("utf-8", "replace") for raw, text, _ in found]
    return tokens, [float(value) for _, _, value in found]
