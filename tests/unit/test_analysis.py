"""The analysis: known figures on small sources, and what a source lacks is left out."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from brorl.errors import DataError
from brorl.evaluation.analysis import analyze
from brorl.evaluation.foreign import read_rollouts
from brorl.group import Fate
from brorl.reports.analysis import analysis_report
from brorl.storage import write_groups
from toy_language import toy_language


def test_counts_only(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("problem,samples,correct\na,8,0\nb,8,8\nc,8,4\nd,8,2\n")
    figures = analyze(read_rollouts([tmp_path / "c.csv"]))
    rates = figures["pass_rates"]
    assert rates["mean"]["value"] == pytest.approx((0 + 1 + 0.5 + 0.25) / 4)
    assert [rates[f"share_{name}"]["value"] for name in ("all_wrong", "all_right", "kept")] == [0.25, 0.25, 0.5]
    assert sum(rates["histogram"]) == 4
    assert [point["rollouts"] for point in figures["by_rollouts"]] == [2, 4, 8]
    assert figures["by_rollouts"][-1]["kept_share"]["value"] == 0.5
    assert figures["entropy"] is None
    assert figures["length"] is None
    assert figures["shrinkage"] is None
    assert any("no mass balance" in lack for lack in figures["source"]["lacks"])
    json.dumps(figures)


def test_lost_and_gained_prompts(tmp_path: Path) -> None:
    def rows(step: int, answers: dict[str, str]) -> str:
        lines = [
            {"input": problem, "output": letter, "score": float(letter.isupper()), "step": step}
            for problem, letters in answers.items()
            for letter in letters
        ]
        return "".join(json.dumps(line) + "\n" for line in lines)

    (tmp_path / "0.jsonl").write_text(rows(0, {"p": "Aabc", "q": "abcd", "r": "ABCd", "s": "ABab"}))
    (tmp_path / "7.jsonl").write_text(rows(7, {"p": "abcd", "q": "Aabc", "r": "BBde", "t": "AAab"}))
    shrinkage = analyze(read_rollouts([tmp_path]))["shrinkage"]
    assert shrinkage == {
        "prompts_compared": 3,
        "start_step": 0,
        "prompts_solved_at_start": 2,
        "prompts_lost": 1,
        "prompts_lost_expected_by_chance": pytest.approx(0.75**4 + 0.25**4),
        "prompts_gained": 1,
        "correct_answers_at_start": 4,
        "correct_answers_drawn_again": 1,
    }
    base, now = read_rollouts([tmp_path / "0.jsonl"]), read_rollouts([tmp_path / "7.jsonl"])
    assert analyze(now, base=base)["shrinkage"] == shrinkage
    assert analyze(now)["shrinkage"] is None
    assert analyze(now)["length"]["wrong_minus_correct_within_prompt"]["value"] == 0.0


def test_our_groups_have_everything(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    languages = [toy_language(seed) for seed in range(8)]
    for step in (0, 1):
        groups = [lg.group(rng.multinomial(64, lg.p), f"p{i}") for i, lg in enumerate(languages)]
        write_groups(tmp_path / f"step_{step:06d}.parquet", groups)
    figures = analyze(read_rollouts([tmp_path]))
    json.dumps(figures)
    assert figures["source"]["groups"] == 16
    last = figures["by_rollouts"][-1]
    assert (last["rollouts"], last["measurable"]) == (64, 8)
    assert 0 <= last["certified_share"]["value"] <= 1
    assert figures["shrinkage"]["prompts_compared"] == 8
    # The mean of -log p per response is an estimate of the entropy of the response distribution.
    truth = np.mean([-(lg.p * np.log(lg.p)).sum() for lg in languages])
    assert figures["entropy"]["nats_per_response"]["value"] == pytest.approx(truth, abs=0.15)
    assert 0 < figures["node_growth"]["alpha"] < 1
    assert figures["length"]["unit"] == "tokens"


def test_groups_that_were_all_given_up_have_no_figures_at_n(tmp_path: Path) -> None:
    language = toy_language(3)
    counts = np.where(language.correct, 0, 2)
    groups = [replace(language.group(counts, f"p{i}"), fate=Fate.STOPPED) for i in range(4)]
    write_groups(tmp_path / "step_000000.parquet", groups)
    figures = analyze(read_rollouts([tmp_path]))
    assert figures["by_rollouts"] == []
    assert figures["source"]["groups_of_other_size_left_out"] == 4
    assert figures["pass_rates"]["share_all_wrong"]["value"] == 1.0
    assert any("4 of 4 were given up early" in lack for lack in figures["source"]["lacks"])
    assert list(analysis_report(figures))


def test_nothing_to_analyse_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("problem,samples,correct\na,1,0\n")
    with pytest.raises(DataError, match="two scorable"):
        analyze(read_rollouts([tmp_path / "c.csv"]))
