"""docs/performance.md shows the committed results."""

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tables", ROOT / "benchmarks" / "tables.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_those_of_the_results() -> None:
    module = tables()
    page = module.PAGE.read_text(encoding="utf-8")
    assert module.filled(page) == page, "run: python benchmarks/tables.py --write"


def test_every_result_is_on_the_page() -> None:
    module = tables()
    shown = {found[1] for found in module.MARKED.findall(module.PAGE.read_text(encoding="utf-8"))}
    assert {path.stem for path in (ROOT / "benchmarks" / "results").glob("*.json")} <= shown


def test_aims_are_judged() -> None:
    module = tables()
    assert module.verdict({"ratio": 2.0, "aim": ">= 1.5"}) == "reached"
    assert module.verdict({"ratio": 2.0, "aim": "<= 1.5"}) == "**missed**"
    assert module.verdict({"ratio": 2.0, "aim": "reported"}) == ""
