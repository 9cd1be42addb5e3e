"""What verdicts come to: outcomes, pass@k averaged over problems, agreement with others' verdicts."""

import json
import math
from pathlib import Path

import pytest

from brorl.errors import DataError
from brorl.evaluation.auditing import compare_verdicts, read_adjudications, summarise_audit
from brorl.evaluation.golds import gold_response
from brorl.evaluation.responses import Response
from brorl.evaluation.scoring import as_line, summarise_scores, with_verifier
from brorl.group import Outcome, Prompt
from brorl.verifiers.score import Score
from shared_data import cases


def scored(problem: str, correct: int, wrong: int, unscorable: int = 0) -> list[tuple[Response, Score]]:
    outcomes = [Outcome.CORRECT] * correct + [Outcome.WRONG] * wrong + [Outcome.UNSCORABLE] * unscorable
    rewards = {Outcome.CORRECT: 1.0, Outcome.WRONG: 0.0, Outcome.UNSCORABLE: math.nan}
    prompt = Prompt(id=problem, text="")
    return [
        (Response(id=f"{problem}#{i}", problem=problem, prompt=prompt, text=""), Score(outcome=o, reward=rewards[o]))
        for i, o in enumerate(outcomes)
    ]


def summary(*groups: list[tuple[Response, Score]], ks: list[int] | None = None):
    pairs = [pair for group in groups for pair in group]
    return summarise_scores([r for r, _ in pairs], [s for _, s in pairs], ks)


def test_the_handed_cases_of_pass_at_k():
    for row in cases("passk"):
        given, expected = row["input"], row["expect"]
        if "problems" in given:
            groups = [scored(f"p{i}", p["c"], p["n"] - p["c"]) for i, p in enumerate(given["problems"])]
        elif "repeats" in given:
            groups = [scored("p", 1, given["repeats"] - 1)]
            assert summary(*groups)["samples_per_problem"]["fewest"] == 64
            continue
        else:
            lost = given.get("unscorable", 0)
            groups = [scored("p", given["c"], given["n"] - given["c"] - lost, lost)]
        if isinstance(expected, str):
            with pytest.raises(DataError, match="draw more or lower --k"):
                summary(*groups, ks=[given["k"]])
        else:
            figures = summary(*groups, ks=[given["k"]])
            assert figures["pass_at"][str(given["k"])]["value"] == pytest.approx(expected, abs=1e-6)


def test_default_ks_and_intervals():
    figures = summary(scored("a", 3, 3), scored("b", 0, 7))
    assert list(figures["pass_at"]) == ["1", "2", "4", "6"]
    one = figures["pass_at"]["1"]
    assert one["value"] == 0.25
    assert one["low"] <= 0.25 <= one["high"]
    assert one["problems"] == 2


def test_one_problem_has_no_interval():
    figures = summary(scored("a", 1, 1))
    assert figures["pass_at"]["1"] == {"value": 0.5, "low": None, "high": None, "level": 0.95, "problems": 1}


def test_problems_without_a_scorable_response_are_in_no_average():
    figures = summary(scored("a", 1, 0), scored("b", 0, 0, unscorable=2))
    assert figures["unscored_problems"] == 1
    assert figures["pass_at"]["1"]["value"] == 1.0
    assert figures["outcomes"]["unscorable"] == 2
    nothing = summary(scored("b", 0, 0, unscorable=2))
    assert nothing["pass_at"] == {}
    assert nothing["mean_reward"] is None
    json.dumps(nothing, allow_nan=False)


def test_a_line_is_json_with_the_documented_keys():
    (response, score), *_ = scored("a", 0, 0, unscorable=1)
    line = as_line(response, score)
    assert {"id", "outcome", "reward", "extracted", "parts", "seconds"} <= set(line)
    assert (line["outcome"], line["reward"]) == ("unscorable", None)
    json.dumps(line, allow_nan=False)
    no_answer = as_line(response, Score(outcome=Outcome.NO_ANSWER, reward=0.0))
    assert no_answer["outcome"] == "no answer"


def test_with_verifier_goes_on_sharing_prompts():
    responses = [r for r, _ in scored("a", 3, 0)]
    others = with_verifier(responses, "math_verify")
    assert {r.prompt.verifier for r in others} == {"math_verify"}
    assert len({id(r.prompt) for r in others}) == 1


def audited(ours: Outcome, recorded: bool | None, second: Outcome | None = None, adjudicated: bool | None = None):
    response = Response(id="a", problem="a", prompt=Prompt(id="a", text=""), text="", recorded=recorded)
    other = None if second is None else [Score(outcome=second, reward=0.0)]
    decided = {} if adjudicated is None else {"a": adjudicated}
    return compare_verdicts([response], [Score(outcome=ours, reward=0.0)], other, decided)


def test_agreement():
    assert audited(Outcome.CORRECT, True)[0].agrees_with_recorded
    assert audited(Outcome.PARTIAL, False)[0].agrees_with_recorded
    assert audited(Outcome.UNSCORABLE, False)[0].agrees_with_recorded is False
    assert audited(Outcome.WRONG, None)[0].agrees_with_recorded is None
    assert audited(Outcome.WRONG, None, Outcome.CORRECT)[0].disputed
    assert not audited(Outcome.WRONG, None, Outcome.ERROR)[0].disputed
    settled = audited(Outcome.WRONG, True, Outcome.WRONG, adjudicated=False)
    figures = summarise_audit(settled)
    assert settled[0].disputed
    assert figures["recorded"]["agreement"] == 0.0
    assert figures["second"]["agreement"] == 1.0
    assert figures["recorded_against_second"]["agreement"] == 0.0
    assert figures["adjudicated"]["agreement"] == 1.0
    assert figures["table"] == {"wrong": {"correct": 1}}


def test_adjudications(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": "a", "correct": true, "why": "read"}\n\n', "utf-8")
    assert read_adjudications(path) == {"a": True}
    with pytest.raises(DataError, match="ids that no row has: a"):
        compare_verdicts([], [], None, {"a": True})
    path.write_text('{"id": "a", "correct": 1}', "utf-8")
    with pytest.raises(DataError, match="line 1"):
        read_adjudications(path)


def test_gold_responses():
    def gold(verifier: str, **meta: str) -> str | None:
        return gold_response(Prompt(id="p", text="", verifier=verifier, answer="5", meta=meta))

    assert gold("math") == "\\boxed{5}"
    assert gold("text") == "<answer>5</answer>"
    assert gold("text", answer_format="last_line") == "5"
    assert gold("mine:grade") == "5"
    assert gold("instruction") is None
