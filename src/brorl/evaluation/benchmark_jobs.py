"""One evaluation from beginning to end: what `brorl eval` does."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from brorl import __version__
from brorl.engines.openai import ServerSettings
from brorl.engines.pieces import Pieces
from brorl.engines.protocol import Sampling
from brorl.engines.vllm import VllmEngine
from brorl.errors import DataError
from brorl.evaluation.benchmark_data import LoadedBenchmark
from brorl.evaluation.benchmark_run import RESULTS, VOCABULARY, Progress, open_directory, run_benchmark, sampling_of
from brorl.evaluation.benchmark_scores import benchmark_figures
from brorl.evaluation.fixed import CANARIES, FIXED, gold_responses
from brorl.evaluation.policies import Policy, open_policy
from brorl.group import Prompt
from brorl.rundir import write_json
from brorl.verifiers.pool import VerifierPool

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to evaluate, on what, how. None: the benchmark's own."""

    target: str
    benchmarks: Sequence[LoadedBenchmark]
    server: ServerSettings
    step: str | None = None
    system: str = ""
    chat: bool | None = None
    dtype: str = "float32"
    kv_budget_mib: int = 1024
    engine: str = "local"
    samples: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    drop_overlong: bool = False
    """leave out problems that do not fit the model's context, in place of an error"""
    seed: int = 0
    ks: Sequence[int] | None = None
    caps: Sequence[int] = ()
    workers: int = 2
    deadline: float = 10.0
    memory_mib: int = 1024
    output: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A benchmark as this policy is asked it."""

    loaded: LoadedBenchmark
    prompts: list[Prompt]
    sampling: Sampling
    samples: int


def run_job(job: Job, progress: Progress, opened: Callable[[Path], object]) -> dict[str, Any]:
    """Draw, grade and store everything, and return what results.json holds.

    Args:
        opened: told the directory as soon as it is known.

    Raises:
        UserError: whatever of the model, the server, the data or the directory cannot be used.
    """
    pieces = Pieces()
    with open_policy(
        job.target, server=job.server, pieces=pieces, step=job.step, system=job.system, chat=job.chat,
        dtype=job.dtype, kv_budget_mib=job.kv_budget_mib, engine_name=job.engine, seed=job.seed,
    ) as policy:  # fmt: skip
        parts = [_part(job, policy, loaded) for loaded in job.benchmarks]
        spec = _specification(job, policy, parts)
        directory = open_directory(spec, path=job.output, name=policy.name)
        opened(directory)
        pieces.continue_from(directory / VOCABULARY)
        figures: dict[str, Any] = {}
        engine_figures: dict[str, Any] = {}
        with VerifierPool(workers=job.workers, deadline=job.deadline, memory_mib=job.memory_mib) as pool:
            for part in parts:
                groups = run_benchmark(
                    directory, part.loaded, policy, part.prompts, part.sampling, pool, per_prompt=part.samples,
                    seed=job.seed, pieces=pieces, progress=progress,
                )  # fmt: skip
                definition = part.loaded.definition
                figures[part.loaded.name] = {
                    "title": definition.title,
                    "source": part.loaded.source,
                    "left_out": part.loaded.left_out,
                    **benchmark_figures(groups, ks=job.ks, caps=job.caps),
                }
        if isinstance(policy.engine, VllmEngine):
            engine_figures = {"engine": policy.engine.figures()}
    merged = {name: {**spec["benchmarks"][name], **found} for name, found in figures.items()}
    average = sum(headline(found) for found in merged.values()) / len(merged)
    results = {
        **spec, "name": policy.name, "directory": str(directory), "average": average, "benchmarks": merged,
        **engine_figures,
    }  # fmt: skip
    write_json(directory / RESULTS, results)
    return results


def headline(figures: dict[str, Any]) -> float:
    """A benchmark's score: pass@1, or the mean reward where part of an answer counts; NaN where nothing was scored."""
    found = figures["mean_reward"] if figures["score"] == "reward" else figures["pass_at"].get("1")
    return found["value"] if found else float("nan")


def _part(job: Job, policy: Policy, loaded: LoadedBenchmark) -> _Part:
    prompts = policy.prompts(loaded.rows, loaded.template)
    if job.target == "golds":
        loaded, prompts = _with_golds(loaded, prompts)
    if job.drop_overlong and policy.context is not None:
        loaded, prompts = _fitting(loaded, prompts, policy.context, job.max_tokens)
    sampling = sampling_of(
        loaded, policy, prompts, temperature=job.temperature, top_p=job.top_p, max_tokens=job.max_tokens
    )
    fixed = {"golds": 1, "canary": len(CANARIES)}.get(job.target) if job.target in FIXED else None
    samples = job.samples or fixed or loaded.definition.per_prompt
    if job.ks and max(job.ks) > samples:
        raise DataError(f"pass@{max(job.ks)} needs as many responses to each problem: raise --samples or lower --k")
    return _Part(loaded=loaded, prompts=prompts, sampling=sampling, samples=samples)


def _with_golds(loaded: LoadedBenchmark, prompts: list[Prompt]) -> tuple[LoadedBenchmark, list[Prompt]]:
    """The problems that have a reference answer; the others are counted as left out."""
    kept = [prompt for prompt in prompts if gold_responses(prompt)]
    if not kept:
        raise DataError(f"{loaded.name}: its problems have no reference answers to check; canary needs none")
    missing = len(prompts) - len(kept)
    left_out = {**loaded.left_out, **({"no reference answer": missing} if missing else {})}
    return replace(loaded, left_out=left_out), kept


def _fitting(
    loaded: LoadedBenchmark, prompts: list[Prompt], context: int, max_tokens: int | None
) -> tuple[LoadedBenchmark, list[Prompt]]:
    """The problems that leave room for a response: for `max_tokens`, or else half of the context."""
    room = max_tokens or context // 2
    kept = [prompt for prompt in prompts if len(prompt.token_ids) + room <= context]
    if not kept:
        raise DataError(f"{loaded.name}: not one problem leaves {room} tokens of the model's context of {context}")
    missing = len(prompts) - len(kept)
    reason = f"no room for {room} tokens in a context of {context}"
    left_out = {**loaded.left_out, **({reason: missing} if missing else {})}
    return replace(loaded, left_out=left_out), kept


def _specification(job: Job, policy: Policy, parts: Sequence[_Part]) -> dict[str, Any]:
    """Everything that the responses depend on; what else changes (k, caps, workers) may differ when one goes on."""
    return {
        "format": FORMAT,
        "brorl": __version__,
        "policy": dict(policy.identity),
        "benchmarks": {
            part.loaded.name: {
                "version": part.loaded.definition.version,
                "score": part.loaded.definition.score,
                "data": part.loaded.fingerprint,
                "verifier": part.loaded.definition.verifier,
                "template": part.loaded.template,
                "sampling": {
                    "samples": part.samples,
                    "seed": job.seed,
                    **{k: v for k, v in asdict(part.sampling).items() if k not in ("stop_token_ids", "top_k")},
                },
            }
            for part in parts
        },
    }
