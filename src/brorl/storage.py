"""Groups on disk: one Parquet file per step, a row per group, a list column per array; knows nothing of runs."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from brorl.errors import DataError
from brorl.group import Fate, Outcome, Prompt, RolloutGroup, ScoredGroup

_ARRAYS = {
    "token_ids": np.int32,
    "tokens": np.int32,
    "parents": np.int32,
    "counts": np.int32,
    "logprobs": np.float32,
    "undrawn2": np.float32,
    "ends": np.int32,
    "end_counts": np.int32,
    "finish": np.uint8,
    "rewards": np.float32,
    "outcomes": np.uint8,
}


def _row(scored: ScoredGroup) -> dict[str, Any]:
    group, prompt = scored.group, scored.group.prompt
    return {
        "prompt_id": prompt.id,
        "text": prompt.text,
        "verifier": prompt.verifier,
        "answer": prompt.answer,
        "meta": json.dumps(dict(prompt.meta), ensure_ascii=False),
        "policy_version": group.policy_version,
        "fate": str(scored.fate),
        "parts": json.dumps({name: values.tolist() for name, values in scored.parts.items()}),
        "token_ids": prompt.token_ids,
        "tokens": group.tokens,
        "parents": group.parents,
        "counts": group.counts,
        "logprobs": group.logprobs,
        "undrawn2": group.undrawn2,
        "ends": group.ends,
        "end_counts": group.end_counts,
        "finish": group.finish,
        "rewards": scored.rewards,
        "outcomes": scored.outcomes,
    }


def _column(name: str, rows: list[dict[str, Any]]) -> pa.Array:
    values = [row[name] for row in rows]
    if name not in _ARRAYS:
        return pa.array(values)
    dtypes = {value.dtype for value in values if value is not None}
    dtype = np.float64 if np.dtype(np.float64) in dtypes else _ARRAYS[name]
    return pa.array(values, pa.list_(pa.from_numpy_dtype(np.dtype(dtype))))


def write_groups(path: Path, groups: Sequence[ScoredGroup]) -> None:
    """Write groups to a Parquet file, through a temporary name, so that the file is whole or absent.

    Log-probabilities of float64 engines stay float64. Raises OSError as the file system does.
    """
    rows = [_row(group) for group in groups]
    names = list(rows[0]) if rows else []
    table = pa.table({name: _column(name, rows) for name in names})
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            pq.write_table(table, file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def read_groups(path: Path, rows: Sequence[int] | None = None) -> list[ScoredGroup]:
    """Read the groups of a file that `write_groups` made, or those at `rows`, counted from 0.

    Raises:
        DataError: the file is missing, damaged, or not one of ours.
    """
    table = _read(path, None, {"prompt_id", *_ARRAYS})
    return [_group(row) for row in (table if rows is None else table.take(list(rows))).to_pylist()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tallies:
    """What became of each of G groups, without their tries."""

    prompt_ids: list[str]
    fates: list[str]
    rollouts: NDArray[np.int64]
    """i64[G], N of each group"""
    scored: NDArray[np.int64]
    """i64[G], rollouts with a verdict"""
    correct: NDArray[np.int64]
    """i64[G], of them correct"""
    distinct: NDArray[np.int64]
    """i64[G], distinct responses"""


def read_tallies(path: Path, *, correct_threshold: float = 1.0) -> Tallies:
    """Count the correct rollouts of every group of a file, reading only the columns that say so.

    Raises:
        DataError: as `read_groups`.
    """
    names = ["prompt_id", "fate", "end_counts", "rewards", "outcomes"]
    table = _read(path, names, set(names))
    if not table.num_columns:
        none = np.zeros(0, np.int64)
        return Tallies(prompt_ids=[], fates=[], rollouts=none, scored=none, correct=none, distinct=none)
    sizes = table["end_counts"].combine_chunks().value_lengths().to_numpy(zero_copy_only=False)
    group = np.repeat(np.arange(len(table)), sizes)

    def flat(name: str) -> NDArray[Any]:
        return table[name].combine_chunks().flatten().to_numpy(zero_copy_only=False)

    counts, scorable = flat("end_counts"), ~np.isin(flat("outcomes"), (Outcome.UNSCORABLE, Outcome.ERROR))
    correct = scorable & (flat("rewards") >= correct_threshold)

    def total(weights: NDArray[Any]) -> NDArray[np.int64]:
        return np.bincount(group, weights=weights, minlength=len(table)).astype(np.int64)

    return Tallies(
        prompt_ids=table["prompt_id"].to_pylist(),
        fates=table["fate"].to_pylist(),
        rollouts=total(counts),
        scored=total(counts * scorable),
        correct=total(counts * correct),
        distinct=sizes.astype(np.int64),
    )


def _read(path: Path, columns: list[str] | None, needed: set[str]) -> pa.Table:
    try:
        with pq.ParquetFile(path) as file:
            present = set(file.schema_arrow.names)
            missing = needed - present if present else set[str]()
            if missing:
                raise DataError(
                    f"{path}: not a file of rollout groups; it lacks the columns {', '.join(sorted(missing))}"
                )
            return file.read(columns=columns if present else None)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: cannot be read as a Parquet file of rollout groups ({error})") from error


def _group(row: dict[str, Any]) -> ScoredGroup:
    def array(name: str) -> Any:
        return np.asarray(row[name], _ARRAYS[name])

    def floats(name: str) -> Any:
        if row[name] is None:
            return None
        values = np.asarray(row[name], np.float64)
        narrow = values.astype(np.float32)
        return narrow if np.array_equal(narrow.astype(np.float64), values, equal_nan=True) else values

    prompt = Prompt(
        id=row["prompt_id"],
        text=row["text"],
        token_ids=array("token_ids"),
        verifier=row["verifier"],
        answer=row["answer"],
        meta=json.loads(row["meta"]),
    )
    group = RolloutGroup(
        prompt=prompt,
        policy_version=row["policy_version"],
        tokens=array("tokens"),
        parents=array("parents"),
        counts=array("counts"),
        logprobs=floats("logprobs"),
        undrawn2=floats("undrawn2"),
        ends=array("ends"),
        end_counts=array("end_counts"),
        finish=array("finish"),
    )
    return ScoredGroup(
        group=group,
        rewards=array("rewards"),
        outcomes=array("outcomes"),
        parts={name: np.asarray(values, np.float32) for name, values in json.loads(row["parts"]).items()},
        fate=Fate(row["fate"]),
    )
