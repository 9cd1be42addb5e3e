"""Rollouts on disk, ours and others', as one kind of object: our groups, verl's dumps, TRL's completions, OpenRLHF's
outputs, plain rows of responses, and tables of counts.

A layout is recognised by its columns or named. What a source does not record (tokens, log-probabilities, texts) is
listed with what cannot be computed for want of it; the rest is computed.
"""

import csv
import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from brorl.errors import DataError
from brorl.group import Fate, Outcome, Prompt, RolloutGroup, ScoredGroup
from brorl.storage import read_groups

LAYOUTS: dict[str, dict[str, tuple[str, ...]]] = {
    # role: the names its column may have, the likeliest first
    "verl": {"problem": ("input",), "completion": ("output",), "reward": ("acc", "score"), "step": ("step",)},
    "openrlhf": {"problem": ("input", "prompt"), "completion": ("output", "response"), "reward": ("reward", "rewards")},
    "trl": {"problem": ("prompt",), "completion": ("completion",), "reward": (), "step": ("step",)},
    "rows": {
        "problem": ("problem_id", "problem", "prompt_id", "question", "prompt", "id"),
        "completion": ("completion", "response", "output", "text", "completions", "responses"),
        "reward": ("is_correct", "correct", "reward", "score"),
        "step": ("step",),
    },
    "counts": {
        "problem": ("problem", "problem_id", "id", "prompt_id", "problem_idx"),
        "samples": ("samples", "num_samples", "n", "rollouts"),
        "correct": ("correct", "num_correct", "c", "successes"),
    },
}
"""Others' layouts in the order in which they are tried, the richest first; TRL names rewards after their functions."""

OPTIONAL = ("step",)
_NOT_REWARDS = ("mode", "step", "prompt", "completion", "advantage", "advantages")
_NO_LOGPROBS = "log-probabilities: no drawn or unseen mass, no mass balance, no certificate, no entropy"
_NO_TOKENS = "tokens: lengths are in characters, and how the trie grows with N is not known"
_STOPPED = (
    "full groups of every prompt: {stopped} of {groups} were given up early by sequential allocation and stay out of "
    "the figures at N, which are of the prompts that ran to the end"
)
_NO_TEXTS = "responses: no distinct answers, no lengths"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollouts:
    """What a source holds."""

    layout: str
    """"groups" for ours, else a name in `LAYOUTS`"""
    groups: tuple[ScoredGroup, ...]
    """one per prompt and step, in reading order; empty for counts"""
    steps: tuple[int, ...]
    """the step of each group or row of counts; 0 where the source has none"""
    problems: tuple[str, ...]
    """the prompt of each group, or of each row of counts"""
    samples: NDArray[np.int64]
    """scorable rollouts of each"""
    correct: NDArray[np.int64]
    """correct ones of each"""
    unscorable: int
    unit: str | None
    """of lengths: "tokens", "characters", or None"""
    correct_threshold: float
    lacks: tuple[str, ...] = field(default_factory=tuple)
    """what the source does not record, each with what cannot be computed without it"""


def read_rollouts(
    paths: Sequence[Path],
    *,
    layout: str | None = None,
    columns: Mapping[str, str] | None = None,
    correct_threshold: float = 1.0,
) -> Rollouts:
    """Read files, directories of files, or one run directory.

    Args:
        paths: CSV, JSON lines or Parquet; all of one layout.
        layout: "groups", or a name in `LAYOUTS`; recognised by the columns if None.
        columns: names of columns by role (problem, completion, reward, step, samples, correct) where they differ.
        correct_threshold: a reward at or above it is correct.

    Raises:
        DataError: nothing to read, an unknown layout, a missing column, or a bad row; the message names file and row.
    """
    files = [file for path in paths for file in _files(path)]
    if not files:
        raise DataError("no file of rollouts: give CSV, JSONL or Parquet files, or a run directory")
    if layout is not None and layout not in ("groups", *LAYOUTS):
        raise DataError(f'unknown layout "{layout}": choose one of groups, {", ".join(LAYOUTS)}')
    if layout == "groups" or (layout is None and _is_ours(files[0])):
        return _ours(files, correct_threshold)
    tables = [(file, _rows(file)) for file in files]
    first = next(((file, rows[0]) for file, rows in tables if rows), None)
    if first is None:
        raise DataError(f"{files[0]}: no rows")
    name, roles = _recognise(first[0], first[1], layout, columns or {})
    rows = [(f"{file}, row {i}", row) for file, table in tables for i, row in enumerate(table, start=1)]
    return _counts(rows, roles, correct_threshold) if name == "counts" else _flat(rows, name, roles, correct_threshold)


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.exists():
        raise DataError(f"{path}: no such file or directory")
    inner = path / "groups" if (path / "groups").is_dir() else path
    found = [file for suffix in ("parquet", "jsonl", "csv") for file in inner.glob(f"*.{suffix}")]
    if not found:
        raise DataError(f"{inner}: holds no .parquet, .jsonl or .csv file")
    # 9.jsonl comes before 10.jsonl: files are named by step.
    return sorted(found, key=lambda file: (len(file.stem), file.stem))


def _is_ours(file: Path) -> bool:
    return file.suffix == ".parquet" and {"end_counts", "parents"} <= set(_parquet(file).schema_arrow.names)


def _ours(files: Sequence[Path], threshold: float) -> Rollouts:
    steps: list[int] = []
    groups: list[ScoredGroup] = []
    for index, file in enumerate(files):
        read = read_groups(file)
        digits = "".join(c for c in file.stem if c.isdigit())
        groups += read
        steps += [int(digits) if digits else index] * len(read)
    if not groups:
        raise DataError(f"{files[0]}: no groups")
    with_logprobs = any(scored.group.logprobs is not None for scored in groups)
    lacks = [] if with_logprobs else [_NO_LOGPROBS]
    stopped = sum(scored.fate is Fate.STOPPED for scored in groups)
    if stopped:
        lacks.append(_STOPPED.format(stopped=stopped, groups=len(groups)))
    return _rollouts("groups", groups, steps, "tokens", threshold, tuple(lacks))


def _rows(file: Path) -> list[dict[str, Any]]:
    try:
        match file.suffix:
            case ".csv":
                with file.open(newline="", encoding="utf-8-sig") as lines:  # spreadsheets write a mark
                    return list(csv.DictReader(lines))
            case ".parquet":
                return _parquet(file).read().to_pylist()
            case ".jsonl" | ".json":
                return list(_json_lines(file))
            case _:
                raise DataError(f"{file}: unknown kind of file; give .csv, .jsonl or .parquet")
    except (OSError, UnicodeDecodeError, csv.Error, pa.ArrowException) as error:
        raise DataError(f"{file}: cannot be read: {error}") from error


def _json_lines(file: Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(file.read_text(encoding="utf-8").split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"{file}, line {number}: not JSON: {error}") from error
        if not isinstance(row, dict):
            raise DataError(f"{file}, line {number}: a row is a JSON object, not {type(row).__name__}")
        yield row


def _parquet(file: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(file)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{file}: cannot be read as Parquet: {error}") from error


def _recognise(
    file: Path, row: Mapping[str, Any], layout: str | None, named: Mapping[str, str]
) -> tuple[str, dict[str, str]]:
    """The layout and, for each role it has, the name of its column."""
    unknown = set(named) - {role for roles in LAYOUTS.values() for role in roles}
    if unknown:
        raise DataError(f"no layout has a column for {', '.join(sorted(unknown))}")
    absent = [column for column in named.values() if column not in row]
    if absent:
        raise DataError(f"{file}: no column {', '.join(absent)}; it has {', '.join(row)}")
    missing: list[str] = []
    for name in [layout] if layout else LAYOUTS:
        roles = {role: next((a for a in aliases if a in row), None) for role, aliases in LAYOUTS[name].items()}
        if name == "trl" and "reward" not in named:
            roles["reward"] = _trl_reward(file, row, quiet=layout is None)
        roles.update({role: column for role, column in named.items() if role in roles})
        missing = [role for role, column in roles.items() if column is None and role not in OPTIONAL]
        if not missing:
            return name, {role: column for role, column in roles.items() if column is not None}
    if layout:
        wanted = "; ".join(f"{role} ({' or '.join(LAYOUTS[layout][role]) or 'any numeric column'})" for role in missing)
        raise DataError(f"{file}: layout {layout} needs a column for {wanted}; it has {', '.join(row)}")
    raise DataError(
        f"{file}: the layout is not recognised from its columns {', '.join(row)}. "
        "Counts need problem, samples and correct; responses need a problem, a completion and a reward. "
        "Name them with --columns, such as --columns completion=answer_text,reward=ok"
    )


def _trl_reward(file: Path, row: Mapping[str, Any], *, quiet: bool) -> str | None:
    """The one numeric column that is not TRL's own bookkeeping."""
    if not {"prompt", "completion", "advantage"} <= set(row):
        return None
    numeric = [n for n, v in row.items() if n not in _NOT_REWARDS and isinstance(v, int | float)]
    if len(numeric) > 1:
        raise DataError(f"{file}: several reward columns ({', '.join(numeric)}); name one with --columns reward=...")
    if not numeric and not quiet:
        raise DataError(f"{file}: no numeric reward column beside {', '.join(row)}")
    return numeric[0] if numeric else None


def _counts(rows: Sequence[tuple[str, dict[str, Any]]], roles: Mapping[str, str], threshold: float) -> Rollouts:
    seen: dict[str, tuple[int, int]] = {}
    for where, row in rows:
        problem = str(_cell(where, row, roles["problem"]))
        samples, correct = (_whole(where, row, roles[role]) for role in ("samples", "correct"))
        if samples < 1 or not 0 <= correct <= samples:
            raise DataError(f"{where}: {correct} correct of {samples} samples cannot be")
        if problem in seen:
            raise DataError(f'{where}: problem "{problem}" appears twice; give the rows of one model, one per problem')
        seen[problem] = samples, correct
    n, c = np.array(list(seen.values()), np.int64).T
    return Rollouts(
        layout="counts",
        groups=(),
        steps=(0,) * len(seen),
        problems=tuple(seen),
        samples=n,
        correct=c,
        unscorable=0,
        unit=None,
        correct_threshold=threshold,
        lacks=(_NO_LOGPROBS, _NO_TEXTS),
    )


def _flat(
    rows: Sequence[tuple[str, dict[str, Any]]], name: str, roles: Mapping[str, str], threshold: float
) -> Rollouts:
    samples: dict[tuple[int, str], list[tuple[str, float]]] = {}
    for where, row in rows:
        problem = _text(_cell(where, row, roles["problem"]))
        step = _whole(where, row, roles["step"]) if "step" in roles else 0
        texts, rewards = _cell(where, row, roles["completion"]), row.get(roles["reward"])
        if name == "rows" and isinstance(texts, list) and isinstance(rewards, list):
            if len(texts) != len(rewards):
                raise DataError(f"{where}: {len(texts)} completions and {len(rewards)} rewards")
        else:
            texts, rewards = [texts], [rewards]
        for text, reward in zip(texts, rewards, strict=True):
            samples.setdefault((step, problem), []).append((_text(text), _reward(where, reward)))
    groups = [_group(problem, pairs, threshold) for (_, problem), pairs in samples.items()]
    steps = [step for step, _ in samples]
    return _rollouts(name, groups, steps, "characters", threshold, (_NO_LOGPROBS, _NO_TOKENS))


def _group(problem: str, pairs: list[tuple[str, float]], threshold: float) -> ScoredGroup:
    """A group whose responses are one node each, a hash of the text: the tokens behind the texts are not known."""
    known: dict[int, tuple[str, float]] = {}
    ids: list[int] = []
    for text, reward in pairs:
        token = int.from_bytes(hashlib.blake2b(f"{reward!r} {text}".encode(), digest_size=4).digest(), "little") >> 1
        while repr(known.setdefault(token, (text, reward))) != repr((text, reward)):
            token = (token + 1) % 2**31  # another text with this hash
        ids.append(token)
    short = problem if len(problem) <= 80 else hashlib.sha256(problem.encode()).hexdigest()[:16]
    group = RolloutGroup.from_sequences(Prompt(id=short, text=problem), [[i] for i in ids])
    drawn = [known[token] for token in group.tokens.tolist()]
    rewards = np.array([reward for _, reward in drawn], np.float32)
    verdict = np.where(rewards >= threshold, Outcome.CORRECT, Outcome.WRONG)
    return ScoredGroup(
        group=group,
        rewards=rewards,
        outcomes=np.where(np.isnan(rewards), Outcome.UNSCORABLE, verdict).astype(np.uint8),
        parts={"characters": np.array([len(text) for text, _ in drawn], np.float32)},
    )


def _rollouts(
    layout: str, groups: list[ScoredGroup], steps: list[int], unit: str, threshold: float, lacks: tuple[str, ...]
) -> Rollouts:
    samples = np.array([scored.scored_rollouts for scored in groups], np.int64)
    return Rollouts(
        layout=layout,
        groups=tuple(groups),
        steps=tuple(steps),
        problems=tuple(scored.group.prompt.id for scored in groups),
        samples=samples,
        correct=np.array([scored.successes(threshold) for scored in groups], np.int64),
        unscorable=sum(scored.group.rollouts for scored in groups) - int(samples.sum()),
        unit=unit,
        correct_threshold=threshold,
        lacks=lacks,
    )


def _cell(where: str, row: Mapping[str, Any], column: str) -> Any:
    value = row.get(column)
    if value is None:
        raise DataError(f"{where}: no {column}")
    return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _whole(where: str, row: Mapping[str, Any], column: str) -> int:
    value = _cell(where, row, column)
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or number != int(number):
        raise DataError(f"{where}: {column} must be a whole number, not {value!r}")
    return int(number)


def _reward(where: str, value: Any) -> float:
    """A reward; NaN, null and nothing mean that the response could not be scored."""
    if value is None or value == "":
        return math.nan
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return float(value.lower() == "true")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise DataError(f"{where}: the reward must be a number, not {value!r}") from None
