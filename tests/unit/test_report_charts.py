"""The charts of a report: valid plotly figures with the run's own numbers, and tables that add up."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest

from brorl.reports.reading import RunView, read_views, spread
from brorl.reports.run_tables import recipe_rows, run_facts, run_table, task_tables
from brorl.reports.samples import table_rows, tree_pairs
from brorl.reports.score_charts import task_charts, task_of, task_titles
from brorl.reports.sections import chart_sections
from brorl.storage import read_groups, write_groups
from report_runs import made_run, metrics, record


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> list[RunView]:
    folder = tmp_path_factory.mktemp("charts")
    made_run(folder / "a")
    made_run(folder / "b", rollouts=32, reference={"reset_every": 2}, seed=5, resets=(1, 3))
    return read_views([folder / "a", folder / "b"])


def test_every_chart_is_a_valid_figure_and_is_placed_once(views: list[RunView]) -> None:
    sections, charts = chart_sections(views)
    placed = [chart["index"] for section in sections for group in section["groups"] for chart in group["charts"]]
    assert placed == list(range(len(charts)))
    titles = [chart["title"] for chart in charts]
    for wanted in ("held-out, pass@1", "kept share", "pass rates over time, a", "unseen mass against N",
                   "certified share against N", "mass balance against N", "change of the correct mass, ΔQ_pos",
                   "retained mass", "entropy", "KL to the reference policy", "clipped tokens", "outcomes, b",
                   "seconds per phase, a", "peak memory", "task0"):  # fmt: skip
        assert wanted in titles
    for chart in charts:
        go.Figure(data=chart["data"], layout=chart["layout"])  # raises on a property that plotly does not know
        names = [trace["name"] for trace in chart["data"] if trace.get("showlegend")]
        assert len(names) == len(set(names))


def test_runs_differ_by_dash_and_marker(views: list[RunView]) -> None:
    _, charts = chart_sections(views)
    entropy = next(chart for chart in charts if chart["title"] == "entropy")
    assert len({trace["line"]["dash"] for trace in entropy["data"]}) == 2
    assert len({trace["marker"]["symbol"] for trace in entropy["data"]}) == 2
    resets = next(chart for chart in charts if chart["title"].startswith("KL"))["layout"]["shapes"]
    assert [(mark["x0"], mark["label"]["text"]) for mark in resets] == [(1, "reset: schedule"), (3, "reset: schedule")]


def test_scores_know_what_they_cost(views: list[RunView]) -> None:
    _, charts = chart_sections(views)
    trace = charts[0]["data"][0]
    assert trace["x"] == [0, 4]
    assert trace["meta"]["steps"] == [0, 4]
    assert trace["meta"]["samples"] == [0, 4 * 256]
    assert trace["meta"]["hours"][1] == pytest.approx(4 * 3.1 / 3600)
    assert trace["y"] == pytest.approx([0.2, 0.24])


def test_pass_rate_bands_are_shares(views: list[RunView]) -> None:
    _, charts = chart_sections(views)
    heat = next(chart for chart in charts if chart["title"] == "pass rates over time, a")["data"][0]
    assert np.array(heat["z"]).sum(axis=0) == pytest.approx(np.ones(len(heat["x"])), abs=1e-3)


def test_tables(views: list[RunView]) -> None:
    differing = {row["key"] for row in recipe_rows(views) if row["differs"]}
    assert differing == {"seed", "reference.reset_every"}
    assert ("steps", "4 of 4") in run_facts(views[0])
    table = run_table(views)
    assert [row[0] for row in table["rows"]] == ["a", "a", "b", "b"]
    assert all(len(row) == len(table["head"]) for row in table["rows"])
    by_task = task_tables(views)
    assert [row[0] for row in by_task[0]["rows"]] == ["task0", "task1", "task2"]
    assert task_of("plain") == "all prompts"
    titles = task_titles(["gcd-0a1b2c", "sum-0a1b2c", "sum-111111", "my-task"])
    assert list(titles.values()) == ["gcd", "sum-0a1b2c", "sum-111111", "my-task"]


def test_trees_show_the_same_prompt_before_and_after(views: list[RunView]) -> None:
    pairs = tree_pairs(views[:1])
    same = [pair for pair in pairs if "same prompt" in pair["title"]]
    assert same
    for pair in same:
        assert pair["left"]["prompt"] == pair["right"]["prompt"]
        assert pair["left"]["label"] != pair["right"]["label"]
        assert len(pair["left"]["texts"]) == len(pair["left"]["parents"])


def test_titles_leave_out_the_template_that_all_prompts_share(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", steps=2)
    for file in [*run.groups.iterdir(), *run.evals.glob("*.parquet")]:
        groups = [
            replace(
                g, group=replace(g.group, prompt=replace(g.group.prompt, text=f"<s>system\nBe brief.\n{text}\n<a>\n"))
            )
            for g in read_groups(file)
            if (text := g.group.prompt.text)
        ]
        write_groups(file, groups)
    pairs = tree_pairs(read_views([run.path]))
    assert all(pair["title"].startswith("… what is") for pair in pairs)
    assert {pair["left"]["prompt"] for pair in pairs} <= {f"… what is {i}? …" for i in range(8)}


def test_rows_are_the_groups_own_counts(views: list[RunView]) -> None:
    table = table_rows(views)
    assert table["parts"] == ["length bonus"]
    first = [row for row in table["rows"] if row[0] == 0]
    assert sum(row[3] for row in first) + table["left_out"] >= 4 * 64
    assert all(row[6] == row[5] / 2 for row in first)
    assert all((row[4] == "correct") == row[2].endswith("42") for row in table["rows"])


def test_wrong_log_probabilities_leave_the_rest_of_the_report_whole(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run")
    groups = read_groups(run.group_file(3))
    for scored in groups:
        assert scored.group.logprobs is not None
        scored.group.logprobs[:] = 0.0
    write_groups(run.group_file(3), groups)
    view = read_views([run.path])[0]
    assert view.curve == []
    assert "sum to" in view.unreadable[0]
    assert len(view.visits) == 4


def test_names_tell_runs_apart_and_rows_are_spread(tmp_path: Path) -> None:
    for parent in ("x", "y"):
        (tmp_path / parent).mkdir()
        run = made_run(tmp_path / parent / "run", steps=1, rollouts=8)
    names = [view.name for view in read_views([tmp_path / "x" / "run", tmp_path / "y" / "run"])]
    assert names == ["x/run", "y/run"]
    metrics(run, [record(0), {**record(1), "kl": float("nan")}])
    assert len(read_views([run.path])[0].records) == 2
    assert spread(10, 4) == [0, 3, 6, 9]
    assert (spread(3, 9), spread(0, 3)) == ([0, 1, 2], [])


def test_runs_without_stored_groups_show_the_tasks_of_their_metrics(tmp_path: Path) -> None:
    runs = [made_run(tmp_path / name, steps=2) for name in ("stored", "bare")]
    figures = {"groups": 2, "kept_share": 1.0, "outcomes": {"correct": 1}}
    for run in runs:
        tasks = [{"sums": {**figures, "pass_at_1": rate}, "words": {**figures, "pass_at_1": 1 - rate}}
                 for rate in (0.25, 0.75)]  # fmt: skip
        tasks[1]["words"]["pass_at_1"] = float("nan")  # none could be scored
        metrics(run, [record(step, tasks=named) for step, named in enumerate(tasks)])
    for file in runs[1].groups.glob("*.parquet"):
        file.unlink()
    charts, left_out = task_charts(read_views([run.path for run in runs]))
    assert left_out == 0
    assert [(chart["title"], [trace["y"] for trace in chart["data"]]) for chart in charts] == [
        ("sums", [[0.25, 0.75]] * 2), ("words", [[0.75]] * 2)]  # fmt: skip
    assert "task0" in {chart["title"] for chart in task_charts(read_views([runs[0].path]))[0]}
