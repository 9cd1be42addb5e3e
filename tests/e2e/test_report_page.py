"""The report in a real browser: nothing complains, trees open, the table filters, and hostile text stays text."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from brorl.cli.train import _write_report
from brorl.recipe_file import parse_recipe
from brorl.reports.report import write_report
from brorl.rundir import RunDirectory
from browser import browser, opened
from command_line import brorl, refused
from report_runs import made_run
from tiny_policy import write_recipe, write_rows

HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>\x1b[31m\u202eevil {{7*7}}"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def shown(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, list[str]]]:
    """One loaded report of two runs, for every test that looks at it; loading takes seconds."""
    folder = tmp_path_factory.mktemp("report")
    made_run(folder / "first")
    made_run(folder / "second", skill=(0.2, 0.1), seed=7)
    write_report(folder / "report.html", [folder / "first", folder / "second"])
    with opened(chromium, folder / "report.html", color_scheme="dark") as found:
        yield found


def test_the_page_loads_without_a_complaint_and_draws_everything(shown: tuple[Any, list[str]]) -> None:
    page, complaints = shown
    charts = page.locator(".plot").count()
    assert charts >= 20
    assert page.locator(".plot > .plot-container, .plot .svg-container").count() >= charts
    assert page.locator("#trees svg path.ribbon").count() > 20
    assert page.locator("td", has_text="first, step 0").count() > 0
    assert "rising" in page.locator(".verdicts").inner_text()
    assert "seed" in page.locator("table.recipe").first.inner_text()
    assert complaints == []


def test_the_tree_opens_on_a_click_walks_by_keys_and_zooms(shown: tuple[Any, list[str]]) -> None:
    page, complaints = shown
    tree = page.locator("#trees svg").first
    box = tree.bounding_box()
    assert page.locator("#branch").inner_text() == ""
    tree.click(position={"x": 40, "y": box["height"] / 2})
    tree.focus()
    page.keyboard.press("Home")
    first = page.locator("#branch").inner_text()
    assert "rollouts take this branch" in first
    page.keyboard.press("ArrowRight")
    assert page.locator("#branch").inner_text() != first
    assert page.locator("#branch pre .was").inner_text() != ""
    labels = page.locator("#trees svg").first.locator("text").count()
    for _ in range(4):
        page.click("#in")
    assert "scale(1," not in tree.locator("g").first.get_attribute("transform")
    page.click("#fit")
    assert page.locator("#branch").inner_text() == ""
    assert tree.locator("text").count() >= min(labels, 1)
    before = tree.locator("path.ribbon").nth(3).get_attribute("d")
    page.click("[data-scale=token]")
    assert tree.locator("path.ribbon").nth(3).get_attribute("d") != before
    page.select_option("#pair", index=1)
    assert page.locator("#trees svg").count() == 2
    assert complaints == []


def test_the_table_filters_sorts_and_turns_pages(shown: tuple[Any, list[str]]) -> None:
    page, complaints = shown
    rows = page.locator("#table tbody tr")
    assert rows.count() == 50
    total = page.locator("#found").inner_text()
    page.select_option("#outcome", "correct")
    assert page.locator("#found").inner_text() != total
    assert set(rows.locator("td:nth-child(5)").all_inner_texts()) == {"✓ correct"}
    page.fill("#find", "what is 3?")
    assert all("what is 3?" in text for text in rows.locator("td:nth-child(2)").all_inner_texts())
    page.fill("#find", "no such text anywhere")
    assert rows.count() == 0
    page.fill("#find", "")
    page.select_option("#outcome", "")
    page.click("#after")
    assert "page 2 of" in page.locator("#page").inner_text()
    page.locator("#table thead button").nth(3).click()
    counts = [int(text) for text in rows.locator("td:nth-child(4)").all_inner_texts()]
    assert counts == sorted(counts)
    page.select_option("#source", "0")
    assert set(rows.locator("td:nth-child(1)").all_inner_texts()) == {"first, step 0"}
    assert complaints == []


def test_axes_and_theme_switch(shown: tuple[Any, list[str]]) -> None:
    page, complaints = shown
    background = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    page.click("#theme")
    assert page.evaluate(background) != dark
    title = "document.querySelector('#scores .plot').layout.xaxis.title.text"
    assert page.evaluate(title) == "training steps"
    page.click("[data-axis=tokens]")
    assert page.evaluate(title) == "response tokens"
    assert page.evaluate("document.querySelector('#scores .plot').data[0].x") == [0, 4 * 2560]
    assert complaints == []


def test_a_phone_never_scrolls_sideways(shown: tuple[Any, list[str]]) -> None:
    page, complaints = shown
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert complaints == []


def test_hostile_text_is_text(chromium: Any, tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", steps=2, hostile=HOSTILE)
    run.note(status="failed", reason=HOSTILE, command=["brorl", HOSTILE], warnings=[{"message": HOSTILE}])
    write_report(tmp_path / "report.html", [run.path])
    source = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<script>window.hacked" not in source
    assert "<img src=x" not in source
    assert not {"\x1b", "\u202e"} & set(source.split("plotly.js v")[0])
    with opened(chromium, tmp_path / "report.html") as (page, complaints):
        page.locator("#trees svg").first.focus()
        page.keyboard.press("Home")
        assert page.evaluate("window.hacked === undefined")
        assert page.locator("main img").count() == 0
        shown = page.locator(".tree .asked").first.inner_text()
        assert "</script><script>window.hacked=1</script>" in shown
        assert "␛[31m⟨U+202E⟩evil {{7*7}}" in shown
        assert "onerror" in page.locator(".verdicts").inner_text()
        assert complaints == []
        # Even a script that found its way into the page would be refused by its policy.
        page.evaluate("document.body.append(Object.assign(document.createElement('script'), "
                      "{textContent: 'window.hacked = 2'}))")  # fmt: skip
        assert page.evaluate("window.hacked === undefined")
        assert "Content Security Policy" in complaints[0]


@pytest.mark.slow
@pytest.mark.parametrize("state", ["created", "one step", "no evaluation", "damaged"])
def test_runs_that_are_not_whole_say_what_is_missing(chromium: Any, tmp_path: Path, state: str) -> None:
    if state == "created":
        recipe = parse_recipe({"name": "new", "steps": 9, "tasks": [{"kind": "gym", "task": "chain_sum"}]})
        run = RunDirectory.create(recipe, path=tmp_path / "run")
    else:
        run = made_run(tmp_path / "run", steps=1 if state == "one step" else 3)
    if state == "no evaluation":
        for file in run.evals.iterdir():
            file.unlink()
    if state == "damaged":
        run.group_file(1).write_bytes(b"half")
        run.evaluation_file(0, "held-out").write_text("{")
    write_report(tmp_path / "report.html", [run.path])
    with opened(chromium, tmp_path / "report.html") as (page, complaints):
        text = page.locator("main").inner_text()
    assert complaints == []
    wanted = {
        "created": ["0 of 9 steps", "No groups of rollouts are stored", "evaluation.every", "No step is done yet"],
        "one step": ["1 of 1 steps"],
        "no evaluation": ["Without evaluations: run", "evaluation.every"],
        "damaged": ["Not readable and left out", "step_000001.parquet"],
    }
    assert all(words in text for words in wanted[state]), text


def test_the_command_writes_page_and_figures(tmp_path: Path) -> None:
    made_run(tmp_path / "run")
    done = brorl("report", "run", "-o", "out.html", "--json", "out.json", cwd=tmp_path)
    assert "out.html" in done.text
    figures = json.loads((tmp_path / "out.json").read_text())
    assert {verdict["topic"] for verdict in figures["verdicts"]} >= {"status", "held-out pass@1", "kept share", "time"}
    assert figures["runs"] == [{"name": "run", "path": "run", "status": "finished", "steps": 4}]
    refused("report", tmp_path, cwd=tmp_path, says="not a run directory")
    refused("report", "run", "-o", "none/out.html", cwd=tmp_path, says="cannot be written")


def test_evaluations_stand_in_the_report(chromium: Any, tmp_path: Path) -> None:
    made_run(tmp_path / "run", steps=2)
    write_rows(
        tmp_path / "gsm8k.jsonl", [{"id": f"q{i}", "question": f"{i} + 1?", "answer": str(i + 1)} for i in range(4)]
    )
    name = "golds<b>" + chr(0x202E)
    brorl("eval", "golds", "-b", "gsm8k", "--data-dir", tmp_path, "--caps", "1", "-o", name, cwd=tmp_path)
    brorl("eval", "canary", "-b", "gsm8k", "--data-dir", tmp_path, "--caps", "1", "-o", "canary", cwd=tmp_path)
    brorl("report", "run", "--evals", name, "--evals", "canary", cwd=tmp_path)
    with opened(chromium, tmp_path / "report.html") as (page, complaints):
        rows = [row.split("\t") for row in page.locator("#benchmarks table").first.inner_text().splitlines()]
        assert [(row[0], row[1], row[3][:5]) for row in rows[1:]] == [
            ("golds<b>⟨U+202E⟩", "gsm8k", "1.000"), ("canary", "gsm8k", "0.000")]  # fmt: skip
        assert page.locator("#benchmarks .plot .svg-container").count() == 1
        assert page.locator("#benchmarks table").nth(1).locator("tbody tr").count() == 4
        assert page.locator("nav a[href='#benchmarks']").count() == 1
        assert complaints == []
    (tmp_path / "canary" / "results.json").write_text('{"benchmarks": {"gsm8k": {"pass_at": []}}}')
    refused("report", "run", "--evals", "canary", cwd=tmp_path, says="not readable as results of brorl eval")
    refused("report", "run", "--evals", "run", cwd=tmp_path, says="no finished evaluation")


def test_training_writes_the_report_and_survives_without_it(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, steps=2, report={"every": 1})
    done = brorl("train", recipe, "--run", "run", cwd=tmp_path)
    assert done.text.count("report: ") == 3
    assert "brorl report" not in done.text
    assert (tmp_path / "run" / "report.html").stat().st_size > 4_000_000
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked" / "report.html").mkdir()

    class Screen:
        said = ""

        def print(self, *words: object, **_: object) -> None:
            self.said += " ".join(map(str, words))

    screen: Any = Screen()
    _write_report(RunDirectory(tmp_path / "blocked"), screen)
    assert "no report" in screen.said


@pytest.mark.slow
def test_a_large_run_makes_a_small_page_in_time(tmp_path: Path) -> None:
    made_run(tmp_path / "run", steps=500, prompts=32, rollouts=512, length=24, distinct_steps=5)
    started = time.process_time()  # the machine may be busy
    write_report(tmp_path / "report.html", [tmp_path / "run"])
    assert time.process_time() - started < 30
    assert (tmp_path / "report.html").stat().st_size < 10 * 2**20
