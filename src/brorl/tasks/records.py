"""Records of data files: JSON lines, JSON, Parquet, folders of shards, and data sets of the `datasets` library."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from brorl.errors import DataError

_JSON_LINES = (".jsonl", ".ndjson", ".json")
_SAVED = ("dataset_dict.json", "dataset_info.json", "state.json")
"""files that `Dataset.save_to_disk` leaves in a folder"""
_HUB_NAME = re.compile(r"(?P<name>[\w-][\w.-]*/[\w.-]+?)(?::(?P<config>[\w.-]+))??(?::(?P<split>[\w.-]+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One row of a file, as it stands there."""

    values: dict[str, Any]
    number: int
    """its line, row or item, from 1"""
    where: str
    """for messages: file and line or row"""
    id: str
    """for rows that have none of their own: the file's name and the row's number"""


def records(path: Path) -> Iterator[Record]:
    """The records of what `path` names.

    ``.jsonl``, ``.ndjson`` or ``.json`` (one object a line, or one array); ``.parquet``; a folder of such files, in the
    order of their names (Parquet first choice); a pattern such as ``data/train-*.parquet``; with the library
    `datasets`, a folder written by ``save_to_disk``, or the name of a data set in its cache,
    ``owner/name[:config][:split]`` (split ``train`` unless named). Nothing is downloaded.

    Raises:
        DataError: nothing there, or not readable; the message names file and line.
    """
    folder, split = _saved_dataset(path)
    if folder is not None:
        yield from _dataset(path, folder=folder, split=split)
    elif files := _files(path):
        for file in files:
            yield from _parquet(file) if file.suffix == ".parquet" else _json(file)
    elif not path.parent.is_dir() and (hub := _HUB_NAME.fullmatch(path.as_posix())):
        yield from _dataset(path, name=hub["name"], config=hub["config"], split=hub["split"])
    else:
        raise DataError(f"no data file {path}")


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if path.is_dir():
        parquet = sorted(path.glob("*.parquet"))
        found = parquet or sorted(file for file in path.iterdir() if file.suffix in _JSON_LINES)
        if not found:
            raise DataError(f"{path}: a folder without .parquet or .jsonl files in it")
        return found
    return sorted(path.parent.glob(path.name)) if "*" in path.name and path.parent.is_dir() else []


def _parquet(path: Path) -> Iterator[Record]:
    number = 0
    try:
        for batch in pq.ParquetFile(path).iter_batches(batch_size=1024):
            for values in batch.to_pylist():
                number += 1
                yield Record(values=values, number=number, where=f"{path}, row {number}", id=f"{path.stem}/{number}")
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is not a readable Parquet file: {error}") from error


def _json(path: Path) -> Iterator[Record]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    if path.suffix == ".json" and data.lstrip()[:1] == b"[":
        items = _parsed(data, str(path))
        numbered = enumerate(items, 1)
        unit = "item"
    else:
        # Only b"\n" ends a line: str.splitlines would also break at characters that texts hold.
        lines = enumerate(data.split(b"\n"), 1)
        numbered = ((n, _parsed(line, f"{path}, line {n}")) for n, line in lines if line.strip())
        unit = "line"
    for number, values in numbered:
        where = f"{path}, {unit} {number}"
        if not isinstance(values, dict):
            raise DataError(f"{where}: expected a JSON object, found {type(values).__name__}")
        yield Record(values=values, number=number, where=where, id=f"{path.stem}/{number}")


def _parsed(data: bytes, where: str) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise DataError(f"{where}: not valid JSON ({error}): mend or remove the line") from error


def _saved_dataset(path: Path) -> tuple[Path | None, str | None]:
    """The folder that `save_to_disk` wrote, and the split that is named behind a colon."""
    name, colon, split = path.name.partition(":")
    for folder, wanted in ((path, None), (path.with_name(name), split) if colon and name else (path, None)):
        if folder.is_dir() and any((folder / file).is_file() for file in _SAVED):
            return folder, wanted
    return None, None


def _dataset(
    path: Path,
    *,
    folder: Path | None = None,
    name: str | None = None,
    config: str | None = None,
    split: str | None = None,
) -> Iterator[Record]:
    try:
        import datasets
        from huggingface_hub import constants
    except ImportError as error:
        raise DataError(
            f"no data file {path}. To read what save_to_disk wrote, or a data set in the cache of Hugging Face's "
            "library, install it: pip install 'brorl[datasets]'"
        ) from error
    # Not through the environment, which counts only before their first import: nothing is downloaded.
    constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True  # pyright: ignore[reportAttributeAccessIssue]
    split = split or "train"
    try:
        data = datasets.load_from_disk(str(folder)) if folder else datasets.load_dataset(str(name), config, split=split)
    except Exception as error:  # whatever the library makes of a damaged folder or a name it has not cached
        raise DataError(
            f"{path}: neither a file nor a data set that `datasets` has in its cache ({_first_line(error)}). "
            "Nothing is downloaded here: download it before, or give a local file"
        ) from error
    if isinstance(data, datasets.DatasetDict):
        if split not in data:
            raise DataError(f"{path}: no split {split!r}; write {folder}:SPLIT with one of {', '.join(map(str, data))}")
        data = data[split]
    for number, values in enumerate(data, 1):
        yield Record(values=dict(values), number=number, where=f"{path}, row {number}", id=f"{path.name}/{number}")


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
