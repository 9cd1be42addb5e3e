"""Every verdict's rule: where it fires, where it does not, and the figure that it shows."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from brorl.group import Fate
from brorl.reports.reading import RunView, read_views
from brorl.reports.sections import chart_sections
from brorl.reports.verdicts import Verdict, direction, paired_change, verdicts
from brorl.rundir import RunDirectory
from brorl.storage import read_groups
from report_runs import made_run, metrics, probe_figures, record


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return made_run(tmp_path_factory.mktemp("verdicts") / "run", rollouts=32)


def found(run: RunDirectory, records: list[dict[str, Any]], topic: str) -> Verdict | None:
    metrics(run, records)
    return next((v for v in verdicts(read_views([run.path])) if v.topic == topic), None)


def course(key: str, values: list[float], **more: Any) -> list[dict[str, Any]]:
    return [record(step, **{key: value}, **more) for step, value in enumerate(values)]


def test_scores_rise_fall_and_stay_by_a_paired_interval() -> None:
    rng = np.random.default_rng(0)
    before = {f"p{i}": value for i, value in enumerate(rng.random(60))}
    noise = {p: v + e for (p, v), e in zip(before.items(), rng.normal(0, 0.02, 60), strict=True)}
    up, down = ({p: v + shift for p, v in noise.items()} for shift in (0.05, -0.05))
    for after, wanted in ((noise, "flat"), (up, "rising"), (down, "falling")):
        change = paired_change(before, {**after, "unknown": 1.0})
        assert change is not None
        assert direction(change) == wanted
        assert change.problems == 60
        assert change.low <= change.value <= change.high
    assert paired_change({"a": 1.0}, {"a": 0.0}) is None


def test_a_paired_interval_seldom_sees_what_is_not_there() -> None:
    rng = np.random.default_rng(1)
    false = 0
    for _ in range(200):
        rates = rng.random(40)
        draws = rng.binomial(64, rates, (2, 40)) / 64
        change = paired_change(*({str(i): float(v) for i, v in enumerate(row)} for row in draws))
        false += change is not None and direction(change) != "flat"
    assert false <= 24  # 5 % expected of 200, a little more for a percentile bootstrap


def test_evaluations_of_the_run(run: RunDirectory) -> None:
    verdict = found(run, [record(step) for step in range(4)], "held-out pass@1")
    assert verdict is not None
    assert (verdict.level, verdict.figures["prompts"]) == ("good", 8)
    assert "rising" in verdict.text
    lost = found(run, [record(0)], "held-out prompts lost")
    assert lost is not None
    assert lost.figures["lost"] <= lost.figures["solved"] <= 8


@pytest.mark.parametrize(
    ("topic", "key", "quiet", "loud"),
    [
        ("kept share", "kept_share", [0.8, 0.7], [0.8, 0.1]),
        ("entropy", "entropy", [0.5, 0.4], [0.5, 0.1]),
        ("KL", "kl", [0.0, 0.001, 0.001, 0.001, 0.002], [0.001, 0.001, 0.5, 0.001, 0.001]),
        ("KL", "kl", [0.0, 0.05], [0.0, 0.2]),
        ("clipping", "clip_high", [0.1, 0.1], [0.3, 0.3]),
        ("truncation", "truncated_share", [0.5, 0.05], [0.01, 0.2]),
        ("verification", "outcome_error", [0.0, 0.005], [0.0, 0.02]),
        ("skipped updates", "skipped", [0.0, 0.0], [0.0, 1.0]),
        ("skipped updates", "fate_trained", [4, 4], [4, 0]),
    ],
)
def test_health_rules(run: RunDirectory, topic: str, key: str, quiet: list[float], loud: list[float]) -> None:
    calm = found(run, course(key, quiet), topic)
    assert calm is None or calm.level in ("good", "neutral")
    alarmed = found(run, course(key, loud), topic)
    assert alarmed is not None
    assert alarmed.level in ("warning", "bad")
    assert alarmed.figures
    assert alarmed.rule


def test_collapsed_entropy_is_bad_and_a_short_or_empty_run_is_no_verdict(run: RunDirectory) -> None:
    verdict = found(run, course("entropy", [0.5, 0.01]), "entropy")
    assert verdict is not None
    assert verdict.level == "bad"
    assert found(run, course("entropy", [0.5]), "entropy") is None
    assert found(run, course("entropy", [float("nan"), float("nan")]), "entropy") is None
    metrics(run, [])
    assert {v.topic for v in verdicts(read_views([run.path]))} >= {"status"}


@pytest.mark.parametrize(
    ("values", "level"), [((0.01, 0.01), "good"), ((-0.01,), "warning"), ((0.01, -0.01), "neutral")]
)
def test_measured_updates(run: RunDirectory, values: tuple[float, ...], level: str) -> None:
    seconds = {"probe": 0.1, "total": 1.0}
    rows = [record(i, probe=probe_figures(value), seconds=seconds) for i, value in enumerate(values)]
    verdict = found(run, rows, "measured updates")
    assert verdict is not None
    assert verdict.level == level
    assert "90% of the starting policy" in verdict.text


def test_time_names_the_longest_phase(run: RunDirectory) -> None:
    seconds = {"sampling": 1.0, "update": 3.0, "total": 5.0}
    verdict = found(run, [record(0, seconds=seconds), record(1, seconds=seconds)], "time")
    assert verdict is not None
    assert "A step takes 5.0 s; update is most of it (60%)" in verdict.text


def test_what_n_buys_counts_dropped_groups_too(run: RunDirectory) -> None:
    verdict = found(run, [record(0)], "what N buys")
    assert verdict is not None
    assert verdict.figures["n"] == 32
    assert verdict.figures["at_16"]["value"] <= verdict.figures["at_n"]["value"]


def test_groups_given_up_early_leave_no_verdict_about_n(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", steps=1, rollouts=32)
    groups = read_groups(run.group_file(0))
    run.write_step(0, [*groups[:-1], replace(groups[-1], fate=Fate.STOPPED)])
    views = read_views([run.path])
    assert views[0].given_up == 1
    assert "what N buys" not in {verdict.topic for verdict in verdicts(views)}
    assert "1 groups that sequential allocation gave up" in chart_sections(views)[0][1]["missing"]


@pytest.mark.parametrize(("status", "level"), [("finished", "good"), ("failed", "bad"), ("running", "neutral")])
def test_status_and_recorded_warnings(run: RunDirectory, status: str, level: str) -> None:
    run.note(
        status=status, reason="a full disk", warnings=[{"message": "entropy fell", "advice": "Slow down", "step": 3}]
    )
    verdict = found(run, [record(0)], "status")
    assert verdict is not None
    assert verdict.level == level
    warned = found(run, [record(0)], "warning of the run")
    assert warned is not None
    assert (warned.text, warned.figures) == ("entropy fell. Slow down", {"step": 3})
    run.note(status="finished", warnings=[])


def test_two_runs_are_compared_on_the_same_prompts(run: RunDirectory, tmp_path: Path) -> None:
    worse = made_run(tmp_path / "worse", rollouts=32, skill=(0.2, 0.05))
    views: list[RunView] = read_views([run.path, worse.path])
    verdict = next(v for v in verdicts(views) if v.topic == "against run")
    assert verdict.run == "worse"
    assert "ends below run" in verdict.text
    assert verdict.figures["high"] < 0
