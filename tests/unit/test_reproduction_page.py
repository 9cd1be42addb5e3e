"""docs/reproduction.md shows the committed results, and says so where there are none."""

import json
from pathlib import Path

import pytest
from reproduction_table import MARKED, MISSING, PAGE, STUDIES, STUDY_CELLS, cell, filled, theory_rows


def test_the_cells_are_those_of_the_committed_results() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert filled(page) == page, "run: python scripts/reproduction_table.py --write"


def test_every_claim_has_a_row_with_a_judgement() -> None:
    table = PAGE.read_text(encoding="utf-8").split("## Claim by claim", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("|").split("|") for line in table.split("\n") if line.startswith("|")][2:]
    assert len(rows) == 9
    for row in rows:
        assert len(row) == 4
        assert all(part.strip() for part in row)


@pytest.mark.parametrize("study", ["laptop", "smollm2"])
def test_no_cell_of_a_committed_study_reads_unmeasured(study: str) -> None:
    path = STUDIES / study / "results.json"
    if not path.exists():
        pytest.skip(f"no results of this study are committed at docs/studies/{study}/results.json")
    results = json.loads(path.read_text(encoding="utf-8"))
    assert path.stat().st_size < 200_000
    if all(arm["finished_runs"] for arm in results["arms"]):
        shown = [found for found in MARKED.finditer(PAGE.read_text(encoding="utf-8")) if found[2] == study]
        assert shown
        assert all(cell(study, found[3]) != MISSING for found in shown)


def test_a_study_without_results_reads_not_measured_yet(tmp_path: Path) -> None:
    assert {cell("laptop", name, tmp_path) for name in STUDY_CELLS} == {MISSING}
    page = "<!-- from: laptop/verdict -->N helps<!-- end --> and <!-- from: laptop/tokens -->few<!-- end -->"
    assert filled(page, tmp_path).count(MISSING) == 2
    with pytest.raises(KeyError):
        filled("<!-- from: laptop/guess --><!-- end -->", tmp_path)


def test_figures_of_the_theory_page_are_read_from_it() -> None:
    assert theory_rows("The simulation")["512"][:2] == ["0.6341", "62.4 %"]
    assert [*theory_rows("Signal-to-noise, measured")] == ["16", "64", "512"]
