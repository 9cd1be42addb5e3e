"""What a report needs of a run, read from its directory once: counts and small tables, no tries."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brorl.config import Recipe
from brorl.errors import DataError
from brorl.group import Fate, ScoredGroup
from brorl.rundir import RunDirectory
from brorl.storage import Tallies, read_groups, read_tallies
from brorl.theory.curves import CurvePoint, curve, whole_groups
from brorl.theory.groups import group_table

CURVE_GROUPS = 48
"""newest groups behind the figures at each N"""
CURVE_NODES = 400_000
"""their trie nodes together, at most (reading and sub-sampling take seconds beyond)"""
CURVE_DRAWS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One run as it lies on disk; a run that has just begun has empty parts."""

    name: str
    """short, and different for every run of a report"""
    run: RunDirectory
    recipe: Recipe
    info: dict[str, Any]
    records: list[dict[str, Any]]
    """a mapping per step, as in metrics.jsonl"""
    evaluations: list[dict[str, Any]]
    """by step; each as in evals/*.json"""
    evaluated: dict[tuple[str, int], Tallies]
    """(set, step) -> its prompts"""
    visits: dict[int, Tallies]
    """step -> every group it generated, dropped ones included"""
    curve: list[CurvePoint]
    """measures of the newest groups against N"""
    unreadable: list[str]
    """files that are damaged, in words"""

    @property
    def threshold(self) -> float:
        return self.recipe.verification.correct_threshold

    @property
    def given_up(self) -> int:
        """Groups that sequential allocation gave up early; what is left of the others is no fair sample of prompts."""
        return sum(fate == Fate.STOPPED for tallies in self.visits.values() for fate in tallies.fates)

    def spent(self, name: str) -> NDArray[np.float64]:
        """f64[S+1], what was spent before each step and in the end: ``steps``, ``samples``, ``tokens`` or ``hours``."""
        per_step = [_spent(record, name) for record in self.records]
        return np.concatenate([[0.0], np.cumsum(per_step, dtype=np.float64)])


def _spent(record: dict[str, Any], name: str) -> float:
    match name:
        case "steps":
            return 1.0
        case "samples":
            return float(record.get("rollouts", 0))
        case "tokens":
            return float(record.get("tokens", 0))
        case _:
            return float(record["seconds"]["total"]) / 3600


def read_views(paths: Sequence[Path]) -> list[RunView]:
    """Read the runs of a report.

    Raises:
        RunError: a path that is not a run directory.
    """
    runs = [RunDirectory.open(path) for path in paths]
    return [_view(run, name) for run, name in zip(runs, _names(paths), strict=True)]


def _names(paths: Sequence[Path]) -> list[str]:
    """The shortest ends of the paths that tell them apart."""
    parts = [path.resolve().parts for path in paths]
    for size in range(1, max(map(len, parts)) + 1):
        names = ["/".join(p[-size:]) for p in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{path} ({i})" for i, path in enumerate(paths, 1)]


def _view(run: RunDirectory, name: str) -> RunView:
    recipe, records = run.recipe(), run.read_metrics()
    threshold = recipe.verification.correct_threshold
    unreadable: list[str] = []
    evaluations = _evaluations(run, unreadable)
    evaluated: dict[tuple[str, int], Tallies] = {}
    for scores in evaluations:
        key = (scores["name"], scores["step"])
        tallies = _tallies(run.evaluation_file(key[1], key[0]).with_suffix(".parquet"), threshold, unreadable)
        if tallies:
            evaluated[key] = tallies
    visits: dict[int, Tallies] = {}
    for record in records:
        tallies = _tallies(run.group_file(record["step"]), threshold, unreadable)
        if tallies:
            visits[record["step"]] = tallies
    return RunView(
        name=name,
        run=run,
        recipe=recipe,
        info=run.read_info(),
        records=records,
        evaluations=evaluations,
        evaluated=evaluated,
        visits=visits,
        curve=_curve(run, visits, threshold, unreadable),
        unreadable=unreadable,
    )


def _evaluations(run: RunDirectory, unreadable: list[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for path in sorted(run.evals.glob("step_*.json")):
        try:
            scores = json.loads(path.read_text(encoding="utf-8"))
            found.append({**scores, "step": int(scores["step"]), "name": str(scores["name"])})
        except (OSError, ValueError, KeyError, TypeError) as error:
            unreadable.append(f"{path.name}: {error}")
    return sorted(found, key=lambda scores: scores["step"])


def _tallies(path: Path, threshold: float, unreadable: list[str]) -> Tallies | None:
    try:
        return read_tallies(path, correct_threshold=threshold)
    except DataError as error:
        unreadable.append(str(error))
        return None


def spread(count: int, wanted: int) -> list[int]:
    """At most `wanted` of the numbers below `count`, evenly: a step's file holds trained groups first, dropped last."""
    return sorted({round(i) for i in np.linspace(0, count - 1, min(wanted, count)).tolist()}) if count else []


def _curve(
    run: RunDirectory, visits: Mapping[int, Tallies], threshold: float, unreadable: list[str]
) -> list[CurvePoint]:
    """Groups of the newest steps, dropped ones included, sub-sampled to each power of two."""
    groups: list[ScoredGroup] = []
    for step in sorted(visits, reverse=True):
        room = CURVE_GROUPS - len(groups)
        if room <= 0 or sum(g.group.nodes for g in groups) > CURVE_NODES:
            break
        groups += read_groups(run.group_file(step), spread(len(visits[step].prompt_ids), room))
    whole, _ = whole_groups([g for g in groups if g.scored_rollouts >= 2])
    if len({g.group.prompt.id for g in whole}) < 2:
        return []
    tables = [group_table(g, correct_threshold=threshold) for g in whole]
    largest = max(g.scored_rollouts for g in whole)
    sizes = [1 << i for i in range(1, largest.bit_length()) if 1 << i < largest] + [largest]
    try:
        return curve(tables, [size for size in sizes if size >= 2], draws=CURVE_DRAWS)
    except ValueError as error:  # log-probabilities that are none
        unreadable.append(f"figures against N: {error}")
        return []
