"""The measured cells of docs/reproduction.md from committed results: prints them, or writes them into the page.

python scripts/reproduction_table.py            # print
python scripts/reproduction_table.py --write    # between the page's markers

A marker names its source and the cell: ``laptop/verdict`` is made of docs/studies/laptop/results.json,
``benchmarks/...`` of benchmarks/results, ``theory/...`` of the tables in docs/theory.md. What has no results yet reads
"not measured yet".
"""

import argparse
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reproduction.md"
STUDIES = ROOT / "docs" / "studies"
MARKED = re.compile(r"(<!-- from: (\w+)/(\w+) -->).*?(<!-- end -->)", re.DOTALL)
MISSING = "not measured yet"
SCORES = ("held-out pass@1", "training pass@1")
Results = Mapping[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    page = PAGE.read_text(encoding="utf-8")
    if parser.parse_args().write:
        PAGE.write_text(filled(page), encoding="utf-8")
        return
    for found in MARKED.finditer(page):
        print(f"{found[2]}/{found[3]}: {cell(found[2], found[3])}")


def filled(page: str, studies: Path = STUDIES) -> str:
    """The page with every marked cell as the committed results have it.

    Raises:
        KeyError: a marker that names no cell.
    """
    return MARKED.sub(lambda found: f"{found[1]}{cell(found[2], found[3], studies)}{found[4]}", page)


def cell(source: str, name: str, studies: Path = STUDIES) -> str:
    """One cell's text."""
    if source == "benchmarks":
        return BENCHMARK_CELLS[name]()
    if source == "theory":
        return THEORY_CELLS[name]()
    make, path = STUDY_CELLS[name], studies / source / "results.json"
    return make(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else MISSING


def finished(results: Results) -> str:
    done = sum(run["status"] == "finished" for run in results["runs"])
    ((axis, amount),) = results["budget"].items()
    return f"{done} of {len(results['arms']) * len(results['seeds'])} runs, {axis.replace('_', ' ')} {amount:,g} each"


def words(results: Results) -> str:
    found = results["verdict"]
    over = [
        f"{found['broad']} over {found[role]}: {change(found[key])}"
        for role, key in (("baseline", "broad_over_baseline"), ("control", "broad_over_control"))
        if found[key]
    ]
    return "; ".join([f"**{found['words']}**", *over])


def course(results: Results) -> str:
    """Start, half-way and end of every score that the claim is about, means over the whole seeds of an arm."""
    lines: list[str] = []
    for arm in roles(results):
        runs = [run for run in results["runs"] if run["arm"] == arm["arm"] and run["status"] == "finished"]
        parts: list[str] = []
        for score in SCORES if runs else ():
            points = [mean([run["scores"][score][at] for run in runs]) for at in (0, len(runs[0]["steps"]) // 2, -1)]
            parts.append(f"{score} {' → '.join(f'{value:.3f}' for value in points)}")
        lines.append(f"{label(arm)}: {', '.join(parts) or MISSING}")
    return "<br>".join(lines)


def kept(results: Results) -> str:
    """Of the whole runs, and in the first step beside what the planner had predicted of it."""
    lines: list[str] = []
    for arm in results["arms"]:
        share, first = arm["facts"].get("kept_share"), results["planner"].get(arm["arm"], {}).get("kept_share")
        text = f"{label(arm)}: {number(share, '.2f')}"
        if first:
            text += f" (first step {first['measured']:.2f}, predicted {first['predicted']:.2f})"
        lines.append(text)
    return "<br>".join(lines)


def throughput(results: Results) -> str:
    """By the replay."""
    return "<br>".join(
        f"{label(arm)}: {arm['step']['generated_per_second_generation']:,.0f} samples/s, end to end "
        f"{arm['step']['generated_per_second']:,.0f} generated and {arm['step']['kept_per_second']:,.0f} kept"
        if arm["step"]
        else f"{label(arm)}: {MISSING}"
        for arm in results["arms"]
    )


def equal(axis: str) -> Callable[[Results], str]:
    def text(results: Results) -> str:
        found = results["equal_amounts"].get(axis)
        if not found:
            return MISSING
        arms = [f"{arm['arm']} {interval(found['arms'][arm['arm']])}" for arm in results["arms"]]
        amount = found["amount"]
        return f"at {amount:{',.0f' if amount >= 100 else '.3g'}}: {', '.join(arms)}"

    return text


def tokens(results: Results) -> str:
    return "<br>".join(
        f"{label(arm)}: {arm['tokens']['mean_tokens']:.1f} tokens an answer, "
        f"{number(arm['tokens']['score_per_1k_tokens'], '.1f')} score per 1k tokens"
        if arm["tokens"]
        else f"{label(arm)}: {MISSING}"
        for arm in results["arms"]
    )


def retained(results: Results) -> str:
    lines: list[str] = []
    for arm in results["arms"]:
        runs = [run for run in results["runs"] if run["arm"] == arm["arm"] and run["status"] == "finished"]
        if not runs:
            lines.append(f"{label(arm)}: {MISSING}")
            continue
        start, still, chance, new = (
            mean([run[key] for run in runs])
            for key in ("solved_at_start", "still_solved", "lost_by_chance", "newly_solved")
        )
        lines.append(
            f"{label(arm)}: {still:.1f} of {start:.1f} prompts still solved ({chance:.1f} would look lost by chance), "
            f"{new:.1f} new"
        )
    return "<br>".join(lines)


def planner(results: Results) -> str:
    """A table of its own: a row for each arm."""
    lines = [
        "",
        "| arm | kept share, predicted (90 %) | measured | nodes of a group, predicted | measured "
        "| s a step, predicted | measured |",
        "|---|---|---|---|---|---|---|",
    ]
    for arm, found in results["planner"].items():
        share, nodes, seconds = found["kept_share"], found["nodes"], found["seconds"]
        lines.append(
            f"| {arm} | {share['predicted']:.2f} ({share['low']:.2f} to {share['high']:.2f}) | {share['measured']:.2f} "
            f"| {nodes['predicted']:,.0f} | {nodes['measured']:,.0f} "
            f"| {number(seconds['predicted'], '.2f')} | {number(seconds['measured'], '.2f')} |"
        )
    return "\n".join([*lines, ""]) if results["planner"] else MISSING


def dynamic_sampling(what: str, form: str) -> str:
    """N = 16 and N = 512 of a row of benchmarks/results/pipeline.json."""
    rows = json.loads((ROOT / "benchmarks" / "results" / "pipeline.json").read_text(encoding="utf-8"))
    (row,) = [row for row in rows if row["name"] == f"dynamic sampling: {what}, N = 512 over N = 16"]
    narrow, wide = (format(row["widths"][n]["median"], form) for n in ("16", "512"))
    return f"{narrow} → {wide}"


def rates() -> str:
    found = {
        "samples/s of generation": "generated samples/s, generation only",
        "generated end to end": "generated samples/s, end to end",
        "kept end to end": "kept samples/s, end to end",
    }
    parts = [f"{dynamic_sampling(what, ',.0f')} {name}" for name, what in found.items()]
    return "; ".join([*parts, f"distinct nodes / tokens {dynamic_sampling('distinct-node share', '.2f')}"])


def roofline() -> str:
    rows = json.loads((ROOT / "benchmarks" / "results" / "roofline.json").read_text(encoding="utf-8"))
    shares = {row["name"]: row["ratio"] for row in rows}
    return "; ".join(
        f"{part} {shares[f'{part} at N = 16: share of the matrix rate']:.2f} → "
        f"{shares[f'{part} at N = 512: share of the matrix rate']:.2f}"
        for part in ("sampling", "learning")
    )


def theory_rows(heading: str) -> dict[str, list[str]]:
    """The rows of the first table under a heading of docs/theory.md, by their first cell."""
    page = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
    part = page.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [[c.strip() for c in line.strip("|").split("|")] for line in part.split("\n") if line.startswith("|")]
    return {row[0]: row[1:] for row in rows[2:]}


def signal_to_noise() -> str:
    return "<br>".join(
        f"N = {n}: cosine {cosine}, norm ratio {ratio}, signal / noise {noise}"
        for n, (cosine, ratio, _, _, noise) in theory_rows("Signal-to-noise, measured").items()
    )


def simulation() -> str:
    return "<br>".join(
        f"N = {n}: correct mass {mass}, {improved} of correct actions improved, retained mass {kept_mass}"
        for n, (mass, improved, _, kept_mass, _) in theory_rows("The simulation").items()
    )


STUDY_CELLS: dict[str, Callable[[Results], str]] = {
    "runs": finished,
    "verdict": words,
    "course": course,
    "kept_share": kept,
    "throughput": throughput,
    "equal_seconds": equal("seconds"),
    "equal_kept_samples": equal("kept_samples"),
    "tokens": tokens,
    "retained": retained,
    "planner": planner,
}
BENCHMARK_CELLS: dict[str, Callable[[], str]] = {
    "kept_share": lambda: dynamic_sampling("kept share", ".2f"),
    "throughput": rates,
    "roofline": roofline,
}
THEORY_CELLS: dict[str, Callable[[], str]] = {"signal_to_noise": signal_to_noise, "simulation": simulation}


def roles(results: Results) -> list[Results]:
    """The arms of the verdict."""
    named = [results["verdict"][role] for role in ("baseline", "broad", "control")]
    return [arm for arm in results["arms"] if arm["arm"] in named]


def label(arm: Results) -> str:
    return f"{arm['arm']} ({arm['rollouts_per_prompt']} x {arm['prompts_per_step']})"


def interval(found: Mapping[str, Any] | None) -> str:
    if not found:
        return MISSING
    return f"{found['mean']:.3f}" + ("" if found["low"] is None else f" ({found['low']:.3f} to {found['high']:.3f})")


def change(found: Mapping[str, Any]) -> str:
    reach = "" if found["low"] is None else f" ({found['low']:+.4f} to {found['high']:+.4f})"
    return f"{found['mean']:+.4f}{reach}, {found['seeds']} seeds"


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def number(value: float | None, form: str) -> str:
    return MISSING if value is None else format(value, form)


if __name__ == "__main__":
    main()
