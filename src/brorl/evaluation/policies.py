"""What can be evaluated: a model directory, a run, a server, or fixed responses; each as an engine with its prompts."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from transformers import PreTrainedTokenizerBase

from brorl.engines.local import LocalEngine, stop_token_ids
from brorl.engines.openai import OpenAIEngine, ServerSettings
from brorl.engines.pieces import Pieces
from brorl.engines.protocol import RolloutEngine
from brorl.engines.vllm import VllmEngine
from brorl.errors import DataError, RunError
from brorl.evaluation.fixed import FIXED, FixedResponses
from brorl.group import Decoder, Prompt
from brorl.learner.checkpoint import best_checkpoint, damage, latest_checkpoint
from brorl.learner.model import load_model, model_directory
from brorl.rundir import RunDirectory
from brorl.tasks.rendering import Rendering, Tokenizer, render, with_template
from brorl.tasks.rows import TaskRow, fingerprint


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Something that answers prompts."""

    name: str
    """for the output directory and tables"""
    identity: Mapping[str, Any]
    """JSON values that change when the answers would; never a key"""
    engine: RolloutEngine
    decoder: Decoder
    tokenizer: Tokenizer | None
    """None: prompts stay text"""
    rendering: Rendering
    stop_token_ids: tuple[int, ...] = ()
    context: int | None = None
    """tokens that prompt and response may have together"""

    def prompts(self, rows: Sequence[TaskRow], template: str) -> list[Prompt]:
        """The rows as this policy is asked them.

        Raises:
            DataError: a row that cannot be rendered.
        """
        if self.tokenizer is None:
            return [_as_text(with_template(row, template)) for row in rows]
        rendering = Rendering(
            chat=self.rendering.chat, system=self.rendering.system, prompt_template=template
        )  # fmt: skip
        rendered = [render(row, self.tokenizer, rendering) for row in rows]
        return [prompt for prompt in rendered if prompt is not None]


def _as_text(row: TaskRow) -> Prompt:
    meta = {**row.meta, "messages": [dict(m) for m in row.messages]} if row.messages else row.meta
    text = row.question or "\n\n".join(message["content"] for message in row.messages)
    return Prompt(id=row.id, text=text, verifier=row.verifier, answer=row.answer, meta=meta)


@contextmanager
def open_policy(
    target: str,
    *,
    server: ServerSettings,
    pieces: Pieces,
    step: str | None = None,
    system: str = "",
    chat: bool | None = None,
    dtype: str = "float32",
    kv_budget_mib: int = 1024,
    engine_name: str = "local",
    seed: int = 0,
) -> Iterator[Policy]:
    """The policy that `target` names: ``http(s)://...``, ``golds``, ``canary``, a run, a model directory, brorl-tiny.

    Args:
        server: for a URL; its `url` is replaced.
        pieces: the vocabulary for responses that come as text.
        step: of a run: a number of steps, ``last`` (the default), or ``best``.
        engine_name: of a run or model directory: ``local`` or ``vllm``.
        seed: of the draws, for engines that are seeded as a whole.

    Raises:
        UserError: none of these, or it cannot be used.
    """
    if step is not None and not (Path(target) / "run.json").is_file():
        raise RunError(f"--step is for the directory of a run, and {target} is none")
    if engine_name != "local" and (target in FIXED or target.startswith(("http://", "https://"))):
        raise RunError(f"--engine {engine_name} is for a model directory or a run, and {target} is none")
    if target in FIXED:
        yield Policy(
            name=target, identity={"fixed": target}, engine=FixedResponses(target, pieces), decoder=pieces,
            tokenizer=None, rendering=Rendering(),
        )  # fmt: skip
    elif target.startswith(("http://", "https://")):
        engine = OpenAIEngine(server, pieces)
        try:
            identity = {"server": server.url, "model": engine.model, "chat": server.chat, "system": server.system}
            yield Policy(
                name=engine.model.rpartition("/")[2], identity={**identity, "lengths": engine.lengths}, engine=engine,
                decoder=pieces, tokenizer=None, rendering=Rendering(),
            )  # fmt: skip
        finally:
            engine.close()
    else:
        directory = _directory(target, step)
        local = _local(target, directory, system, chat, dtype, kv_budget_mib)
        if engine_name == "local":
            yield local
            return
        context = local.context or 4096
        identity = {**local.identity, "engine": engine_name}
        served = VllmEngine(directory, context=context, dtype=dtype, seed=seed, kv_budget_mib=kv_budget_mib)
        try:
            local = replace(local, engine=served, identity=identity)  # the model in this process is let go
            yield local
        finally:
            served.close()


def _directory(target: str, step: str | None) -> Path:
    path = Path(target).expanduser()
    return run_checkpoint(path, step) if (path / "run.json").is_file() else model_directory(target)


def _local(target: str, directory: Path, system: str, chat: bool | None, dtype: str, kv_budget_mib: int) -> Policy:
    path = Path(target).expanduser()
    is_run = (path / "run.json").is_file()
    model, tokenizer = load_model(directory, getattr(torch, dtype))
    name = f"{path.resolve().name}-{directory.name}" if is_run else directory.resolve().name
    return Policy(
        name=name,
        identity={
            "model": name, "weights": weights_fingerprint(directory), "dtype": dtype, "system": system, "chat": chat,
        },
        engine=LocalEngine(model, kv_budget_mib=kv_budget_mib),
        decoder=tokenizer,
        tokenizer=cast(Tokenizer, tokenizer),
        rendering=Rendering(chat=chat, system=system),
        stop_token_ids=stop_token_ids(model, cast(PreTrainedTokenizerBase, tokenizer)),
        context=model.config.get_text_config().max_position_embeddings,
    )  # fmt: skip


def run_checkpoint(path: Path, step: str | None) -> Path:
    """The checkpoint of a run: by its number of steps, ``last`` (default), or ``best``.

    Raises:
        RunError: there is none, or it is damaged; the message lists those there are.
    """
    checkpoints = RunDirectory.open(path).checkpoints
    if step in (None, "last"):
        return latest_checkpoint(checkpoints)
    if step == "best":
        found = best_checkpoint(checkpoints) or checkpoints / step
    elif step is not None and step.isdecimal():
        found = checkpoints / f"step_{int(step):06d}"
    else:
        raise RunError(f"--step {step}: a number of steps, last or best")
    if not found.is_dir():
        there = ", ".join(sorted(p.name.removeprefix("step_").lstrip("0") or "0" for p in checkpoints.glob("step_*")))
        hint = " (a run keeps its best one with checkpoint.keep_best: true)" if step == "best" else ""
        raise RunError(f"{path}: no checkpoint {step!r}{hint}; there are: {there or 'none'}")
    problem = damage(found)
    if problem is not None:
        raise RunError(f"{found}: damaged checkpoint: {problem}")
    return found


def weights_fingerprint(directory: Path) -> str:
    """Changes when the weights do: the manifest of a checkpoint, else names, sizes and times of the weight files."""
    manifest = directory / "manifest.json"
    if manifest.is_file():
        return fingerprint(manifest.read_text(encoding="utf-8"))
    files = sorted(directory.glob("*.safetensors"))
    if not files:
        raise DataError(f"{directory}: no safetensors in it")
    return fingerprint([[f.name, f.stat().st_size, f.stat().st_mtime_ns] for f in files])
