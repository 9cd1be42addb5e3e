"""An evaluation on disk: every problem's group is stored when it is graded, so that a killed one goes on where it was.

evaluation.json          what is evaluated, how: an evaluation is only ever continued with the same
<benchmark>/             a Parquet file per problem while it runs
<benchmark>.parquet      all its groups
vocabulary.jsonl         the pieces of text that tokens stand for, where responses came as text
results.json             the figures, written last
"""

import json
import shutil
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from brorl.engines.pieces import Pieces
from brorl.engines.protocol import SampleRequest, Sampling
from brorl.errors import DataError, RunError
from brorl.evaluation.answers import PART, answer_classes
from brorl.evaluation.benchmark_data import LoadedBenchmark
from brorl.evaluation.policies import Policy
from brorl.group import Outcome, Prompt, ScoredGroup
from brorl.rollouts import Rollouts
from brorl.rundir import write_json
from brorl.storage import read_groups, write_groups
from brorl.verifiers.grading import PendingGroup, scored
from brorl.verifiers.pool import VerifierPool

SPEC, RESULTS, VOCABULARY = "evaluation.json", "results.json", "vocabulary.jsonl"

_MOST_ERRORS = 0.05  # share of the rollouts of a benchmark
_IN_GRADING = 64  # groups; more wait for the oldest

Progress = Callable[[str, int, int], None]


def open_directory(spec: Mapping[str, Any], *, path: Path | None, name: str, parent: Path = Path("evals")) -> Path:
    """The directory of an evaluation: `path`, else an unfinished one of the same evaluation, else ``evals/<name>-<n>``.

    Raises:
        RunError: `path` holds another evaluation (the difference is named), or cannot be written.
    """
    try:
        if path is None:
            unfinished = [p for p in sorted(parent.glob(f"{name}-*")) if not (p / RESULTS).exists()]
            path = next((p for p in unfinished if _read_spec(p) == spec), None)
        if path is None:
            parent.mkdir(parents=True, exist_ok=True)
            taken = {p.name for p in parent.iterdir()}
            path = next(parent / f"{name}-{n}" for n in range(1, len(taken) + 2) if f"{name}-{n}" not in taken)
        path.mkdir(parents=True, exist_ok=True)
        there = _read_spec(path)
        if there is None and any(path.iterdir()):
            raise RunError(f"{path}: already holds something that is no evaluation; name another directory by -o")
        if there is not None and there != spec:
            raise RunError(
                f"{path}: holds another evaluation: {'; '.join(differences(there, spec))}. Name another directory by -o"
            )
        if there is None:
            write_json(path / SPEC, spec)
    except OSError as error:
        raise RunError(f"{path or parent}: cannot write an evaluation there ({error.strerror})") from error
    return path


def _read_spec(path: Path) -> dict[str, Any] | None:
    try:
        return json.loads((path / SPEC).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def differences(first: Any, second: Any, at: str = "") -> list[str]:
    """Where two JSON values differ, as ``key: 1, 2``."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return [
            found
            for key in sorted({*first, *second})
            for found in differences(first.get(key), second.get(key), f"{at}.{key}" if at else str(key))
        ]
    return [] if first == second else [f"{at}: {first!r}, now {second!r}"]


def sampling_of(
    loaded: LoadedBenchmark,
    policy: Policy,
    prompts: Sequence[Prompt],
    *,
    temperature: float | None,
    top_p: float | None,
    max_tokens: int | None,
) -> Sampling:
    """The benchmark's sampling, changed where the user says so; its length limit gives way to a short context.

    Raises:
        DataError: a prompt that leaves no room for an answer, or a limit that was asked for and does not fit.
    """
    definition = loaded.definition
    limit = max_tokens or definition.max_tokens
    if policy.context is not None:
        longest = max(prompts, key=lambda prompt: len(prompt.token_ids))
        room = policy.context - len(longest.token_ids)
        if room < 1 or (max_tokens is not None and max_tokens > room):
            raise DataError(
                f"{loaded.name}: prompt {longest.id} has {len(longest.token_ids)} tokens, the model's context is "
                f"{policy.context}: {f'at most --max-tokens {room}' if room > 0 else 'it does not fit'}, or leave such "
                "problems out: --drop-overlong"
            )
        limit = min(limit, room)
    return Sampling(
        max_new_tokens=limit,
        stop_token_ids=policy.stop_token_ids,
        temperature=temperature or definition.temperature,
        top_p=top_p or definition.top_p,
    )


def run_benchmark(
    directory: Path,
    loaded: LoadedBenchmark,
    policy: Policy,
    prompts: Sequence[Prompt],
    sampling: Sampling,
    pool: VerifierPool,
    *,
    per_prompt: int,
    seed: int,
    pieces: Pieces,
    progress: Progress,
) -> list[ScoredGroup]:
    """All groups of a benchmark: those on disk, and the missing ones drawn, graded and stored.

    Draws depend on `seed`, the benchmark and the problem alone, so two policies meet the same random numbers.

    Raises:
        RunError: more than 5 % of the rollouts could not be graded, or the disk is full.
    """
    stem = loaded.name.replace("/", "-")
    whole, parts = directory / f"{stem}.parquet", directory / stem
    if whole.exists():
        return read_groups(whole)
    try:
        parts.mkdir(exist_ok=True)
        files = [parts / f"{i:06d}.parquet" for i in range(len(prompts))]
        missing = [i for i, file in enumerate(files) if not file.exists()]
        done = len(prompts) - len(missing)
        progress(loaded.name, done, len(prompts))
        requests = [
            SampleRequest(prompt=prompts[i], rollouts=per_prompt, key=(seed, "benchmark", loaded.name, prompts[i].id))
            for i in missing
        ]
        waiting: deque[tuple[Path, PendingGroup]] = deque()
        for index, pending in Rollouts(policy.engine, pool, policy.decoder).stream(requests, sampling):
            waiting.append((files[missing[index]], pending))
            done += _store(waiting, directory / VOCABULARY, pieces, policy, most=_IN_GRADING)
            progress(loaded.name, done, len(prompts))
        _store(waiting, directory / VOCABULARY, pieces, policy, most=0)
        groups = [read_groups(file)[0] for file in files]
        failed = [_errors(group) for group in groups]
        if sum(failed) > _MOST_ERRORS * per_prompt * len(groups):
            for file, errors in zip(files, failed, strict=True):
                if errors:
                    file.unlink()
            raise RunError(
                f"{loaded.name}: {sum(failed)} of the responses could not be graded, and not by their own "
                "fault; look at the verifier (docs/verifiers.md), and run the command again: the others are kept"
            )
        write_groups(whole, groups)
        shutil.rmtree(parts)
    except OSError as error:
        raise RunError(f"{directory}: cannot write ({error.strerror}). Make room and run the command again") from error
    progress(loaded.name, len(prompts), len(prompts))
    return groups


def _store(
    waiting: deque[tuple[Path, PendingGroup]], vocabulary: Path, pieces: Pieces, policy: Policy, *, most: int
) -> int:
    """Write the groups at the front that are graded, waiting for some until at most `most` are left: how many."""
    stored = 0
    while waiting and (waiting[0][1].done() or len(waiting) > most):
        file, pending = waiting.popleft()
        scores = pending.scores()
        group = scored(pending.group, scores)
        classes = answer_classes(group.group.prompt, scores)
        if classes is not None:
            group = replace(group, parts={**group.parts, PART: classes})
        if policy.decoder is pieces:
            pieces.append_to(vocabulary)  # before the group that needs it
        write_groups(file, [group])
        stored += 1
    return stored


def _errors(group: ScoredGroup) -> int:
    """Rollouts that could not be graded, for reasons of the grader's own."""
    return int(group.group.end_counts[group.outcomes == Outcome.ERROR].sum())
