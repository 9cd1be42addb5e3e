"""`brorl compare`: evaluations of the same problems, side by side."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from brorl.cli import app
from brorl.cli.score import whole_numbers


@app.command()
def compare(
    evaluations: Annotated[
        list[str],
        typer.Argument(help="two or more: directories of brorl eval, runs, or RUN:STEP; the first is the base"),
    ],
    benchmarks: Annotated[
        list[str] | None, typer.Option("--benchmark", "-b", help="only these, such as gsm8k,held-out (repeatable)")
    ] = None,
    k: Annotated[str | None, typer.Option(help="values of k, such as 1,8,16; default 1, 2, 4 ...")] = None,
    caps: Annotated[str | None, typer.Option(help="shorter limits for token efficiency, such as 4096,16384")] = None,
    listed: Annotated[int, typer.Option("--list", help="problems named of each kind", min=0)] = 10,
    figure: Annotated[Path | None, typer.Option(help="write score against length as one HTML file")] = None,
    json_out: Annotated[Path | None, typer.Option("--json", help="write the figures to this file")] = None,
) -> None:
    """Two or more evaluations of the same problems: differences with paired tests, problems won and lost, lengths."""
    from brorl.evaluation.comparison import chosen_benchmarks
    from brorl.evaluation.comparison import compare as compare_evaluations
    from brorl.evaluation.stored import read_evaluation
    from brorl.reports.comparison import comparison_report, write_token_figure
    from brorl.rundir import check_output, write_json

    for path in (json_out, figure):
        check_output(path)
    names = [name.strip() for entry in benchmarks or () for name in entry.split(",") if name.strip()]
    stored = [read_evaluation(target) for target in evaluations]
    stored = [replace(e, benchmarks=chosen_benchmarks(e, names)) for e in stored]
    labels = [e.label for e in stored]
    if len(set(labels)) < len(labels):  # two directories of one name: the paths tell them apart
        stored = [replace(e, label=target) for e, target in zip(stored, evaluations, strict=True)]
    figures = compare_evaluations(stored, ks=whole_numbers(k), caps=whole_numbers(caps, "--caps") or ())
    Console(highlight=False, soft_wrap=True).print(*comparison_report(figures, listed=listed), sep="\n")
    if json_out:
        write_json(json_out, figures)
    if figure:
        write_token_figure(figure, figures["token_efficiency"])
