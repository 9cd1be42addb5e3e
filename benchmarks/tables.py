"""The tables of docs/performance.md from benchmarks/results: prints them, or writes them into the page.

python benchmarks/tables.py            # print
python benchmarks/tables.py --write    # between the page's markers
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "performance.md"
MARKED = re.compile(r"(<!-- results: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--write", action="store_true")
    if arguments.parse_args().write:
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return
    for path in sorted((HERE / "results").glob("*.json")):
        print(f"{path.stem}\n\n{table(path)}")


def filled(page: str) -> str:
    """The page with every marked table as the results have it."""
    return MARKED.sub(lambda found: f"{found[1]}{table(HERE / 'results' / f'{found[2]}.json')}{found[3]}", page)


def table(path: Path) -> str:
    """One benchmark's rows in Markdown, and what they were measured on."""
    if not path.exists():
        return "Not measured yet.\n"
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    lines = ["| what | ratio | range | distinct nodes / tokens | aim | |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {row['name']} | {row['ratio']:.3g} | {spread(row)} | {distinct(row)} | {row['aim']} | {verdict(row)} |"
        for row in rows
    ]
    places = sorted({place(row) for row in rows})
    return "\n".join([*lines, "", *places]) + "\n"


def spread(row: dict[str, Any]) -> str:
    low_high = row.get("ratio_spread") or row.get("spread")
    return f"{low_high[0]:.3g} - {low_high[1]:.3g}" if low_high else ""


def distinct(row: dict[str, Any]) -> str:
    share = row.get("distinct_node_share")
    return f"{share['median']:.2g}" if isinstance(share, dict) else ""


def verdict(row: dict[str, Any]) -> str:
    """Whether the aim is reached; nothing where the figure is only reported."""
    sign, _, number = row["aim"].partition(" ")
    if sign not in (">=", "<="):
        return ""
    reached = row["ratio"] >= float(number) if sign == ">=" else row["ratio"] <= float(number)
    return "reached" if reached else "**missed**"


def place(row: dict[str, Any]) -> str:
    """Versions, machine and commit in a line."""
    versions = ", ".join(f"{name} {number}" for name, number in row["versions"].items() if number)
    machine = row["machine"]
    processor = f"{machine['processor']}, " if machine.get("processor") else ""
    return f"{versions}; {processor}{machine['cores']} cores; commit {(row['commit'] or 'unknown')[:10]}."


if __name__ == "__main__":
    main()
