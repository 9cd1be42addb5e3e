"""The HTML report: one file about one or more runs, that needs no network and executes nothing but its own script."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from brorl.errors import RunError
from brorl.reports.benchmark_section import benchmark_section
from brorl.reports.plots import bare
from brorl.reports.reading import RunView, read_views
from brorl.reports.rendering import rendered
from brorl.reports.run_tables import lead_of, recipe_rows, run_facts, run_table, task_tables
from brorl.reports.samples import table_rows, tree_pairs
from brorl.reports.sections import chart_sections
from brorl.reports.untrusted import visible
from brorl.reports.verdicts import Verdict, verdicts
from brorl.rundir import write_text

SCRIPTS = ("page.js", "tree.js", "rollouts.js")
STROKES = ("", "7 4", "2 4", "8 4 2 4", "12 4", "12 4 2 4")
"""dashes of the runs' keys, as those of their lines"""
WORDS = {"good": "Good:", "neutral": "Note:", "warning": "Warning:", "bad": "Bad:"}


def write_report(path: Path, runs: Sequence[Path], evals: Sequence[Path] = ()) -> dict[str, Any]:
    """Write the report of `runs` and `evals` (of `brorl eval`) to `path`; return the figures behind its verdicts.

    Keys: ``runs`` (name, path, status, steps), ``verdicts`` (run, topic, level, text, rule, figures, section).

    Raises:
        RunError: a path that is not a run directory, or a file that cannot be written.
        DataError: a directory of `evals` without readable results.
    """
    views = read_views(runs)
    found = verdicts(views)
    try:
        write_text(path, report_page(views, found, evals))
    except OSError as error:
        raise RunError(f"{path}: cannot write the report ({error.strerror})") from error
    return {
        "runs": [
            {"name": v.name, "path": str(v.run.path), "status": v.info.get("status"), "steps": len(v.records)}
            for v in views
        ],
        "verdicts": [verdict.as_json() for verdict in found],
    }


def report_page(views: Sequence[RunView], found: Sequence[Verdict], evals: Sequence[Path] = ()) -> str:
    """The page as text; every value in it is escaped by the template or as JSON."""
    measured, panels = benchmark_section(evals)
    sections, charts = chart_sections(views, panels)
    tables = {"scores": task_tables(views), "benchmarks": measured}
    for section in sections:
        section["tables"] = tables.get(section["id"], [])
    pairs, table = tree_pairs(views), table_rows(views)
    return rendered(
        "page.html",
        SCRIPTS,
        {"charts": [bare(c) for c in charts], "pairs": pairs, "table": table},
        names=[view.name for view in views],
        lead=lead_of(views),
        runs=[
            {
                "name": view.name,
                "status": view.info.get("status", "unknown"),
                "dash": STROKES[i % len(STROKES)],
                "facts": run_facts(view),
            }
            for i, view in enumerate(views)
        ],
        verdicts=[_shown(verdict) for verdict in found],
        table=run_table(views),
        differences=[[r["key"], *r["cells"]] for r in recipe_rows(views) if r["differs"]] if len(views) > 1 else [],
        recipe=recipe_rows(views),
        sections=sections,
        missing=_missing(views, bool(pairs), bool(table["rows"])),
        rollouts_lead=_rollouts_lead(table),
    )


def _shown(verdict: Verdict) -> dict[str, Any]:
    return {
        "level": verdict.level,
        "word": WORDS[verdict.level],
        "run": verdict.run,
        "text": visible(verdict.text),
        "evidence": _evidence(verdict.figures),
        "rule": verdict.rule,
        "section": verdict.section,
    }


def _evidence(figures: Any) -> str:
    """Figures in a line: numbers short, nested ones by their value."""
    parts: list[str] = []
    bounds = "low" in figures and "high" in figures
    for name, value in figures.items():
        if bounds and name in ("low", "high"):
            continue
        if bounds and name in ("change", "difference"):
            parts.append(f"{name} {value:+.4f} ({figures['low']:+.4f} to {figures['high']:+.4f})")
            continue
        if isinstance(value, dict):
            value = value["value"] if "value" in value else ", ".join(f"{k} {_short(v)}" for k, v in value.items())
        parts.append(f"{name.replace('_', ' ')} {_short(value)}")
    return visible(" · ".join(parts))


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _missing(views: Sequence[RunView], trees: bool, rows: bool) -> dict[str, str]:
    """What the sections of rollouts lack, and how to get it."""
    if trees and rows:
        return {"exploration": "", "rollouts": ""}
    runs = ", ".join(view.name for view in views)
    why = f"No groups of rollouts are stored in {runs} yet: they are written at the end of each step."
    return {"exploration": "" if trees else why, "rollouts": "" if rows else why}


def _rollouts_lead(table: dict[str, Any]) -> str:
    left = table["left_out"]
    more = f" {left:,} rarer ones of these prompts are left out; brorl show draws any group whole." if left else ""
    return (
        "Distinct responses of the first and last step and of the newest evaluations, "
        f"{len(table['rows']):,} of {len(table['prompts']):,} prompts.{more}"
    )
