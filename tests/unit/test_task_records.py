"""Where records come from: folders of shards, patterns, and what the library `datasets` saved or cached."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from brorl.errors import DataError
from brorl.tasks.files import read_rows
from brorl.tasks.records import records


def shard(path: Path, *questions: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist([{"question": q, "answer": "1"} for q in questions]), path)


def test_a_folder_of_shards_in_the_order_of_their_names(tmp_path: Path) -> None:
    shard(tmp_path / "d" / "train-00001-of-00002.parquet", "c")
    shard(tmp_path / "d" / "train-00000-of-00002.parquet", "a", "b")
    rows = read_rows(tmp_path / "d")
    assert [row.question for row in rows] == ["a", "b", "c"]
    assert [row.id for row in rows][::2] == ["train-00000-of-00002/1", "train-00001-of-00002/1"]


def test_a_pattern_chooses_the_split(tmp_path: Path) -> None:
    shard(tmp_path / "train-00000.parquet", "a")
    shard(tmp_path / "test-00000.parquet", "b")
    assert [row.question for row in read_rows(tmp_path / "train-*.parquet")] == ["a"]
    with pytest.raises(DataError, match="no data file"):
        read_rows(tmp_path / "validation-*.parquet")


def test_a_folder_of_json_lines(tmp_path: Path) -> None:
    for name in "ba":
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"question": name, "answer": "1"}))
    assert [record.id for record in records(tmp_path)] == ["a/1", "b/1"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"a folder without \.parquet or \.jsonl"):
        list(records(tmp_path / "empty"))


def test_a_broken_array(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"question": "q"}, 3]')
    with pytest.raises(DataError, match=r"a\.json, item 2: expected a JSON object, found int"):
        list(records(tmp_path / "a.json"))


def test_a_saved_data_set(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="needs the extra: pip install 'brorl[datasets]'")
    rows = [{"question": "a", "answer": "1"}, {"question": "b", "answer": "2"}]
    datasets.Dataset.from_list(rows).save_to_disk(tmp_path / "one")
    assert [row.answer for row in read_rows(tmp_path / "one")] == ["1", "2"]
    both = datasets.DatasetDict(train=datasets.Dataset.from_list(rows), test=datasets.Dataset.from_list(rows[1:]))
    both.save_to_disk(tmp_path / "both")
    assert [row.question for row in read_rows(tmp_path / "both")] == ["a", "b"]
    assert [row.question for row in read_rows(tmp_path / "both:test")] == ["b"]
    with pytest.raises(DataError, match=r"no split 'dev'; write .*both:SPLIT with one of train, test"):
        read_rows(tmp_path / "both:dev")


def test_a_name_that_is_not_cached(tmp_path: Path) -> None:
    """In a process of its own, as a user's: the library reads its environment once."""
    pytest.importorskip("datasets", reason="needs the extra: pip install 'brorl[datasets]'")
    program = (
        "from pathlib import Path\nfrom brorl.errors import DataError\nfrom brorl.tasks.files import read_rows\n"
        "try:\n    read_rows(Path('nobody/nothing:RL:train'))\nexcept DataError as error:\n    print(error)"
    )
    environment = {**os.environ, "HF_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert "nobody/nothing:RL:train: neither a file nor a data set that `datasets` has in its cache" in done.stdout, (
        done.stderr
    )
