"""Every benchmark, end to end through the path of an evaluation: its golds score 1, answers that are none score 0."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from brorl.engines.openai import ServerSettings
from brorl.errors import DataError
from brorl.evaluation.benchmark_data import LoadedBenchmark, load_benchmark
from brorl.evaluation.benchmark_jobs import Job, run_job
from brorl.evaluation.benchmarks import BENCHMARKS, benchmark
from brorl.evaluation.fixed import CANARIES, FIXED
from public_rows import PUBLIC_ROWS
from sandbox_needed import require_sandbox
from shared_data import shared, shared_rows
from tiny_policy import write_rows

SHARED = {
    "aime24": 30, "amc": 40, "math500": 236, "minerva": 150, "olympiadbench": 343, "gsm8k": 677, "humaneval": 84,
    "humaneval_plus": 81, "mbpp": 252, "mbpp_plus": 213, "arc": 596, "knights_and_knaves": 268,
}  # fmt: skip
"""benchmark -> problems in the shared data"""


def rows_of(name: str) -> list[dict[str, Any]]:
    text = (Path(__file__).resolve().parents[2] / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.split("\n") if line]


def evaluated(target: str, loaded: Sequence[LoadedBenchmark], where: Path) -> dict[str, Any]:
    job = Job(target=target, benchmarks=loaded, server=ServerSettings(url=target), output=where, deadline=30.0)
    return run_job(job, lambda *_: None, lambda _: None)["benchmarks"]


def check(loaded: Sequence[LoadedBenchmark], where: Path) -> None:
    golds = evaluated("golds", loaded, where / "golds")
    canary = evaluated("canary", loaded, where / "canary")
    for one in loaded:
        gold, wrong = golds[one.name], canary[one.name]
        assert gold["problems"] == len(one.rows)
        assert gold["pass_at"]["1"]["value"] == 1.0, [p for p in gold["by_problem"] if not p["correct"]]
        assert wrong["outcomes"]["correct"] == 0, [p for p in wrong["by_problem"] if p["correct"]]
        assert wrong["mean_reward"]["value"] == 0.0, one.name


def test_public_layouts(tmp_path: Path) -> None:
    require_sandbox()
    loaded = [
        load_benchmark(name, data=write_rows(tmp_path / f"{name}.jsonl", rows)) for name, rows in PUBLIC_ROWS.items()
    ]
    asked = {name: sum(not row.get("generated_checker") for row in rows) for name, rows in PUBLIC_ROWS.items()}
    assert {found.name: len(found.rows) for found in loaded} == asked
    check(loaded, tmp_path)


def test_a_slice_of_the_shared_data(tmp_path: Path) -> None:
    names = set(SHARED) - {"humaneval", "humaneval_plus", "mbpp", "mbpp_plus"}  # programs take long: the slow test
    check([load_benchmark(name, folder=shared("data"), limit=12) for name in sorted(names)], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SHARED))
def test_all_of_the_shared_data(name: str, tmp_path: Path) -> None:
    """Of EvalPlus, with its many inputs, the first 30."""
    limit = 30 if name.endswith("_plus") else None
    if BENCHMARKS[name].verifier == "code":
        require_sandbox()
    assert len(load_benchmark(name, folder=shared("data")).rows) == SHARED[name]
    golds = evaluated("golds", [load_benchmark(name, folder=shared("data"), limit=limit)], tmp_path)[name]
    assert golds["problems"] == (limit or SHARED[name])
    assert golds["pass_at"]["1"]["value"] == 1.0, [p for p in golds["by_problem"] if not p["correct"]]


def test_a_parquet_file_reads_as_its_lines_do(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(PUBLIC_ROWS["arc"]), tmp_path / "arc.parquet")
    lines = load_benchmark("arc", data=write_rows(tmp_path / "other.jsonl", PUBLIC_ROWS["arc"]))
    assert load_benchmark("arc", folder=tmp_path).fingerprint == lines.fingerprint


def test_options_are_shuffled_by_the_question_alone(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "gpqa.jsonl", PUBLIC_ROWS["gpqa"])
    rows = load_benchmark("gpqa", data=path).rows
    again = load_benchmark("gpqa", data=write_rows(tmp_path / "one.jsonl", PUBLIC_ROWS["gpqa"][1:])).rows
    assert rows[1].question == again[0].question
    for row, record in zip(rows, PUBLIC_ROWS["gpqa"], strict=True):
        assert row.meta["choices"]["ABCD".index(row.answer)] == record["Correct Answer"]


def test_rows_that_cannot_be_judged_are_left_out_and_counted(tmp_path: Path) -> None:
    loaded = load_benchmark("codeforces", data=write_rows(tmp_path / "c.jsonl", PUBLIC_ROWS["codeforces"]))
    assert list(loaded.left_out.values()) == [1]
    assert "checker" in next(iter(loaded.left_out))
    ifbench = load_benchmark("ifbench", data=shared("data/ifbench.jsonl"))
    assert len(ifbench.rows) + sum(ifbench.left_out.values()) == 145
    assert all(reason.startswith("cannot be scored: no check for ") for reason in ifbench.left_out)


def test_instructions_followed_and_not(tmp_path: Path) -> None:
    """IFEval has no golds: responses written for it, through the evaluation of a server's kind of responses."""
    rows = [
        {"key": 1, "prompt": "No commas.", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]},
        {"key": 2, "prompt": "Mention cats and dogs.", "instruction_id_list": ["keywords:existence"],
         "kwargs": [{"keywords": ["cats", "dogs"], "num_words": None}]},
    ]  # fmt: skip
    loaded = load_benchmark("ifeval", data=write_rows(tmp_path / "ifeval.jsonl", rows))
    found = evaluated("canary", [loaded], tmp_path / "out")["ifeval"]
    correct = {problem["id"]: problem["correct"] for problem in found["by_problem"]}
    with_comma_or_empty = sum("," in text or not text.strip() for text in CANARIES)
    assert correct == {"1": len(CANARIES) - with_comma_or_empty, "2": 0}
    with pytest.raises(DataError, match="no reference answers to check"):
        evaluated("golds", [loaded], tmp_path / "golds")


def test_recorded_responses_to_ifeval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of golds: responses whose recorded verdict is that they follow everything; and ones that do not."""
    disputed = {row["id"] for row in rows_of("docs/adjudications/outputs_ifeval.jsonl")}
    rows = [row for row in shared_rows("data/outputs_ifeval.jsonl") if row["id"] not in disputed]
    loaded = load_benchmark("ifeval", folder=shared("data"))
    for verdict in (True, False):
        found = {row["problem_id"]: row["completion"] for row in rows if row["strict_all"] is verdict}
        asked = [row for row in loaded.rows if row.id in found][:60]
        monkeypatch.setitem(FIXED, "canary", lambda prompt, found=found: [found[prompt.id]])
        part = replace(loaded, rows=asked, fingerprint=str(verdict))
        figures = evaluated("canary", [part], tmp_path / str(verdict))["ifeval"]
        assert figures["problems"] == 60
        assert figures["pass_at"]["1"]["value"] == float(verdict)


def test_golds_are_checked_where_there_are_some(tmp_path: Path) -> None:
    rows = [
        {**PUBLIC_ROWS["taco"][0], "solutions": solutions} for solutions in (PUBLIC_ROWS["taco"][0]["solutions"], "")
    ]
    loaded = load_benchmark("taco", data=write_rows(tmp_path / "taco.jsonl", rows))
    require_sandbox()
    found = evaluated("golds", [loaded], tmp_path / "golds")["taco"]
    assert (found["problems"], found["left_out"]) == (1, {"no reference answer": 1})
    assert found["pass_at"]["1"]["value"] == 1.0


def test_reasoning_gym_by_category(tmp_path: Path) -> None:
    loaded = load_benchmark("reasoning_gym/geometry", limit=3)
    golds = evaluated("golds", [loaded], tmp_path)[loaded.name]
    assert golds["problems"] == 6
    assert golds["mean_reward"]["value"] == 1.0
    assert list(golds["by_category"]) == ["geometry"]
    both = [load_benchmark("reasoning_gym/gcd", limit=4).rows for _ in range(2)]
    assert both[0] == both[1]


def test_generated_knights_and_knaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BRORL_BENCHMARKS", raising=False)
    golds = evaluated("golds", [load_benchmark("knights_and_knaves", limit=2)], tmp_path)["knights_and_knaves"]
    assert golds["problems"] == 10
    assert golds["pass_at"]["1"]["value"] == 1.0
    assert list(golds["by_category"]) == [f"{n} people" for n in range(3, 8)]


@pytest.mark.parametrize(
    ("written", "meant"), [("MATH-500", "math500"), ("HumanEval+", "humaneval_plus"), ("mbpp-plus", "mbpp_plus")]
)
def test_names_are_read_generously(written: str, meant: str) -> None:
    assert benchmark(written)[0] == meant


def test_errors_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BRORL_BENCHMARKS", raising=False)
    with pytest.raises(DataError, match="did you mean olympiadbench"):
        benchmark("olympia-bench")
    with pytest.raises(DataError, match=r"aime25\.jsonl .*--data-dir.*question or problem.*math-ai/aime25"):
        load_benchmark("aime25", folder=tmp_path)
    with pytest.raises(DataError, match="no data file"):
        load_benchmark("aime25", data=tmp_path / "none.jsonl")
    wrong = write_rows(tmp_path / "wrong.jsonl", [{"q": "2+2?", "a": "4"}])
    with pytest.raises(DataError, match=r"1 rows: no question or no answer in it.*It needs the columns"):
        load_benchmark("aime25", data=wrong)
    with pytest.raises(DataError, match="takes no file"):
        load_benchmark("reasoning_gym", data=wrong)
    with pytest.raises(DataError, match=r"no task or category 'cooking'; categories: algebra"):
        load_benchmark("reasoning_gym/cooking")


def test_definitions_are_complete() -> None:
    for name, found in BENCHMARKS.items():
        assert "{question}" in found.template, name
        assert (found.layout is None) <= (found.generated is not None), name
        assert found.source, name
        assert found.licence, name
        json.dumps(dict(found.meta))


def test_an_interrupted_evaluation_goes_on(tmp_path: Path) -> None:
    """Without some of its groups on disk, the same command makes the same file again."""
    path = write_rows(tmp_path / "gsm8k.jsonl", [{"question": f"{i}+1?", "answer": str(i + 1)} for i in range(6)])
    loaded = [load_benchmark("gsm8k", data=path)]
    whole = evaluated("canary", loaded, tmp_path / "out")
    shutil.copytree(tmp_path / "out", tmp_path / "cut")
    (tmp_path / "cut" / "gsm8k.parquet").unlink()
    (tmp_path / "cut" / "results.json").unlink()
    assert evaluated("canary", loaded, tmp_path / "cut") == whole
