"""The page of a study: the verdict and its rule, the arms side by side, and their scores against every axis."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from brorl.reports.plots import Chart, bare, chart, line
from brorl.reports.rendering import rendered
from brorl.reports.sections import panel_group
from brorl.theory.agreement import mean_interval

AXES = {
    "steps": "steps",
    "kept_samples": "kept samples",
    "generated_samples": "generated samples",
    "tokens": "tokens",
    "distinct_nodes": "distinct nodes",
    "seconds": "seconds, by the replay",
}
LEVELS = {"N helps beyond batch size": "good", "worse": "bad", "batch size explains it": "neutral"}
Table = dict[str, Any]


def study_page(results: Mapping[str, Any]) -> str:
    """The page as text; `results` as `study_results` makes them."""
    charts: list[Chart] = []
    axes = {axis: label for axis, label in AXES.items() if all(run["used"][axis] for run in results["runs"])}
    sections = [
        {
            "id": "scores",
            "title": "Scores",
            "lead": "Means over the whole seeds of an arm, with 95 % t intervals over them, at each evaluation.",
            "axes": axes,
            "groups": [panel_group(charts, score_panels(results, axes))],
        }
    ]
    return rendered(
        "study.html",
        ("page.js", "study.js"),
        {"charts": [bare(panel) for panel in charts]},
        name=results["name"],
        lead=_lead(results),
        verdict=_verdict(results["verdict"]),
        tables=study_tables(results),
        sections=sections if results["runs"] else [],
    )


def score_panels(results: Mapping[str, Any], axes: Mapping[str, str]) -> list[Chart]:
    """A panel per score; the points of an arm know every axis."""
    names = dict.fromkeys(name for run in results["runs"] for name in run["scores"])
    panels: list[Chart] = []
    for name in names:
        traces: list[dict[str, Any]] = []
        for index, arm in enumerate(a["arm"] for a in results["arms"]):
            runs = [run for run in results["runs"] if run["arm"] == arm and run["status"] == "finished"]
            if runs:
                traces.append(_course(runs, arm, index, name, axes))
        if traces:
            panels.append({**chart(name, traces, x=AXES["steps"], y=name.split()[-1]), "axes": dict(axes)})
    return panels


def _course(
    runs: Sequence[Mapping[str, Any]], arm: str, index: int, name: str, axes: Mapping[str, str]
) -> dict[str, Any]:
    values = np.array([run["scores"][name] for run in runs])
    intervals = [mean_interval(column, 0.95) for column in values.T]
    trace = line(
        runs[0]["steps"],
        values.mean(axis=0).tolist(),
        arm,
        index,
        low=[found and found.low for found in intervals],
        high=[found and found.high for found in intervals],
    )
    trace["meta"] = {axis: np.mean([run["used"][axis] for run in runs], axis=0).tolist() for axis in axes}
    return trace


def study_tables(results: Mapping[str, Any]) -> list[Table]:
    """The tables of page and terminal: `title`, `note`, `head`, `rows` of text."""
    made = (_scores, _cost, _exploration, _equal, _planner, _runs, _prompts)
    return [make(results) for make in made]


def _scores(results: Mapping[str, Any]) -> Table:
    others = dict.fromkeys(name for arm in results["arms"] for name in arm["end"] if name != "held-out pass@1")
    rows = [
        [
            arm["arm"], f"{arm['rollouts_per_prompt']:,}", f"{arm['prompts_per_step']:,}", f"{arm['lr']:.3g}",
            f"{arm['steps']:,}", str(arm["finished_runs"]), _interval(arm["start"]),
            _interval(arm["end"].get("held-out pass@1")), *(_interval(arm["end"].get(name)) for name in others),
            _change(arm["over_baseline"]), _p((arm["over_baseline"] or {}).get("p_holm")),
        ]
        for arm in results["arms"]
    ]  # fmt: skip
    return {
        "title": "Scores at the end of the budget",
        "note": "Means and 95 % t intervals over seeds. Differences to the baseline are paired by seed; p of a paired "
        "t-test over seeds, by Holm over the arms.",
        "head": [
            "arm",
            "N",
            "prompts",
            "lr",
            "steps",
            "seeds",
            "start",
            "held-out pass@1",
            *others,
            "over baseline",
            "p",
        ],
        "rows": rows,
    }


def _cost(results: Mapping[str, Any]) -> Table:
    rows: list[list[str]] = []
    for arm in results["arms"]:
        step, facts, tokens = arm["step"] or {}, arm["facts"], arm["tokens"] or {}
        rows.append(
            [
                arm["arm"], _number(facts.get("kept_share"), ".2f"), _number(facts.get("distinct_node_share"), ".3f"),
                _number(step.get("seconds"), ".2f"), _number(step.get("generated_per_second_generation"), ",.0f"),
                _number(step.get("kept_per_second"), ",.0f"), _number(tokens.get("mean_tokens"), ".1f"),
                _number(tokens.get("score_per_1k_tokens"), ".1f"), _number(tokens.get("tokens_per_correct"), ".1f"),
            ]
        )  # fmt: skip
    return {
        "title": "Cost",
        "note": "Kept share and distinct nodes of the whole runs; seconds and rates by the replay; tokens of the last "
        "held-out evaluation.",
        "head": ["arm", "kept share", "distinct nodes / tokens", "s a step", "samples/s, generation",
                 "kept samples/s, end to end", "mean tokens", "score per 1k tokens", "tokens per right answer"],
        "rows": rows,
    }  # fmt: skip


def _exploration(results: Mapping[str, Any]) -> Table:
    rows = [
        [
            arm["arm"], _number(arm["facts"].get("entropy_first_tenth"), ".3f"),
            _number(arm["facts"].get("entropy_last_tenth"), ".3f"), _number(arm["facts"].get("kl_last_tenth"), ".3f"),
            *(_mean_of(results, arm["arm"], key) for key in
              ("solved_at_start", "still_solved", "lost_by_chance", "newly_solved")),
            _number(arm["facts"].get("retained_mass"), ".3f"),
        ]
        for arm in results["arms"]
    ]  # fmt: skip
    return {
        "title": "What was kept and what was found",
        "note": "Entropy and KL in nats; held-out prompts with a right answer at the start, of these at the end too, "
        "how many fewer chance alone would leave, and those that are new; retained mass where a probe measures it.",
        "head": ["arm", "entropy, first", "last tenth", "KL, last tenth", "solved at start", "still solved",
                 "lost by chance", "newly solved", "retained mass"],
        "rows": rows,
    }  # fmt: skip


def _equal(results: Mapping[str, Any]) -> Table:
    axes = results["equal_amounts"]
    return {
        "title": "Held-out pass@1 at equal amounts",
        "note": "The most of each axis that every finished run has used; linear between the evaluations of a run.",
        "head": ["arm", *(f"{AXES[axis]}: {found['amount']:,.0f}" for axis, found in axes.items())],
        "rows": [
            [arm["arm"], *(_interval(found["arms"][arm["arm"]]) for found in axes.values())] for arm in results["arms"]
        ],
    }


def _planner(results: Mapping[str, Any]) -> Table:
    rows: list[list[str]] = []
    for arm, found in results["planner"].items():
        kept, nodes, seconds = found["kept_share"], found["nodes"], found["seconds"]
        rows.append(
            [
                arm, f"{kept['predicted']:.2f} ({kept['low']:.2f} to {kept['high']:.2f})", f"{kept['measured']:.2f}",
                _number(nodes["predicted"], ",.0f"), _number(nodes["measured"], ",.0f"),
                _number(seconds["predicted"], ".2f"), _number(seconds["measured"], ".2f"),
            ]
        )  # fmt: skip
    return {
        "title": "What brorl plan would have said",
        "note": "Predicted of each arm from the baseline's first step, seconds from its replay; measured in the arm's "
        "own first step, seconds in its replay. Kept share with its 90 % interval.",
        "head": ["arm", "kept share, predicted", "measured", "nodes of a group, predicted", "measured",
                 "s a step, predicted", "measured"],
        "rows": rows,
    }  # fmt: skip


def _runs(results: Mapping[str, Any]) -> Table:
    return {
        "title": "Runs",
        "note": "Runs that are not finished are left out of every comparison.",
        "head": ["run", "status", "steps", "held-out pass@1, start", "end"],
        "rows": [
            [
                f"{run['arm']}, seed {run['seed']}", run["status"], f"{run['steps'][-1]:,}",
                f"{run['scores']['held-out pass@1'][0]:.4f}", f"{run['scores']['held-out pass@1'][-1]:.4f}",
            ]
            for run in results["runs"]
        ],
    }  # fmt: skip


def _prompts(results: Mapping[str, Any]) -> Table:
    return {
        "title": "Prompt by prompt, against the baseline's run of the same seed",
        "note": "About these very runs: another seed of the same arm would differ too.",
        "head": ["run", "difference", "p, t-test", "p, permutation", "prompts"],
        "rows": [
            [
                f"{row['arm']}, seed {row['seed']}", _change({**row, "mean": row["difference"]}), _p(row["p_t"]),
                _p(row["p_permutation"]), str(row["prompts"]),
            ]
            for row in results["by_prompt"]
        ],
    }  # fmt: skip


def _lead(results: Mapping[str, Any]) -> str:
    ((axis, amount),) = results["budget"].items()
    done = sum(run["status"] == "finished" for run in results["runs"])
    wanted = len(results["arms"]) * len(results["seeds"])
    return f"{done} of {wanted} runs are finished; each is given {AXES[axis]}: {amount:,g}."


def _verdict(found: Mapping[str, Any]) -> dict[str, Any]:
    evidence = [
        f"{found['broad']} over {found[role]} ({role}): {_change(found[key])}, {found[key]['seeds']} seeds"
        for role, key in (("baseline", "broad_over_baseline"), ("control", "broad_over_control"))
        if found[key]
    ]
    return {
        "words": found["words"][0].upper() + found["words"][1:],
        "level": LEVELS.get(found["words"], "neutral"),
        "rule": found["rule"],
        "evidence": evidence,
    }


def _mean_of(results: Mapping[str, Any], arm: str, key: str) -> str:
    values = [run[key] for run in results["runs"] if run["arm"] == arm and run["status"] == "finished"]
    return f"{np.mean(values):.1f}" if values else "-"


def _interval(found: Mapping[str, Any] | None) -> str:
    if not found:
        return "-"
    if found["low"] is None:
        return f"{found['mean']:.4f}"
    return f"{found['mean']:.4f} ({found['low']:.4f} to {found['high']:.4f})"


def _change(found: Mapping[str, Any] | None) -> str:
    if not found:
        return "-"
    if found["low"] is None:
        return f"{found['mean']:+.4f}"
    return f"{found['mean']:+.4f} ({found['low']:+.4f} to {found['high']:+.4f})"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _p(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"
