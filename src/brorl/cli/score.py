"""`brorl score` and `brorl audit`: grade a file of responses, and hold the verdicts against others."""

import json
import os
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from brorl.cli import app
from brorl.errors import DataError, RecipeError, RunError

_MOST_ERRORS = 0.05  # share of the gradings; more of them fail the command

File = Annotated[Path, typer.Argument(help="JSON lines, one response or a list of them a line", show_default=False)]
VerifierName = Annotated[
    str, typer.Option("--verifier", "-v", help="a verifier's name, or package.module:function", show_default=False)
]
IdColumn = Annotated[str, typer.Option("--id", help="column with the row's id")]
ProblemColumn = Annotated[str, typer.Option("--problem", help="column that groups rows; without it, the id does")]
AnswerColumn = Annotated[str, typer.Option("--answer", help="column with the reference answer")]
CompletionColumn = Annotated[
    str, typer.Option("--completion", help="column with the response, or a list of responses; else 'completions'")
]
FinishColumn = Annotated[str, typer.Option("--finish", help="column that says 'length' for truncated responses")]
ProblemFiles = Annotated[
    list[Path] | None,
    typer.Option("--problems", help="JSON lines with tests and other columns, joined on the problem (repeatable)"),
]
Meta = Annotated[
    list[str] | None,
    typer.Option("--meta", help="a setting for the verifier, such as --meta mode=lenient (repeatable)"),
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="leave malformed rows out, and name them")]
Workers = Annotated[int | None, typer.Option(help="grading processes; by default one a processor core", min=1)]
Deadline = Annotated[float, typer.Option(help="seconds for one grading", min=0.001)]
Memory = Annotated[int, typer.Option("--memory-mib", help="memory of a grading process", min=256)]
JsonLines = Annotated[Path | None, typer.Option("--json", help="write one JSON line per row to this file")]
SummaryFile = Annotated[Path | None, typer.Option("--summary", help="write the printed figures to this file")]


@app.command()
def score(
    file: File,
    verifier: VerifierName,
    id_column: IdColumn = "id",
    problem: ProblemColumn = "problem_id",
    answer: AnswerColumn = "answer",
    completion: CompletionColumn = "completion",
    finish: FinishColumn = "finish_reason",
    problems: ProblemFiles = None,
    meta: Meta = None,
    k: Annotated[str | None, typer.Option(help="values of k for pass@k, such as 1,8,64; default 1, 2, 4 ...")] = None,
    skip_bad: SkipBad = False,
    workers: Workers = None,
    deadline: Deadline = 10.0,
    memory_mib: Memory = 1024,
    json_out: JsonLines = None,
    summary_out: SummaryFile = None,
) -> None:
    """Grade a file of responses: pass@1, pass@k with intervals, and the table of outcomes."""
    from brorl.evaluation.responses import Columns, read_responses
    from brorl.evaluation.scoring import as_line, check_ks, grade, summarise_scores, throughput
    from brorl.rundir import check_output
    from brorl.verifiers.pool import VerifierPool

    ks = whole_numbers(k)
    check_output(json_out, file, *(problems or ()))
    check_output(summary_out, file, json_out, *(problems or ()))
    _check_verifier(verifier)
    columns = Columns(id=id_column, problem=problem, answer=answer, completion=completion, finish=finish)
    responses, bad = read_responses(
        file, verifier, columns=columns, problems=problems or (), meta=settings(meta), skip_bad=skip_bad
    )
    check_ks(responses, ks or ())
    with VerifierPool(workers=workers or os.cpu_count() or 1, deadline=deadline, memory_mib=memory_mib) as pool:
        with _progress("grading", len(responses)) as advance:
            scores = grade(pool, responses, advance)
        done = throughput(pool.counters())
    _write(json_out, [as_line(r, s) for r, s in zip(responses, scores, strict=True)])
    figures = {
        "file": str(file),
        "verifier": verifier,
        "skipped": [{"line": row.line, "reason": row.reason} for row in bad],
        **summarise_scores(responses, scores, ks),
        "grading": done,
    }
    _write(summary_out, [figures], indent=2)
    console = Console(highlight=False, soft_wrap=True)
    _print_skipped(bad)
    console.print(*_score_tables(figures), sep="\n")
    console.print(_throughput_line(done))
    _fail_on_errors(scores)


@app.command()
def audit(
    file: File,
    verifier: VerifierName,
    recorded: Annotated[
        str | None, typer.Option(help="column with recorded verdicts; by default is_correct, expected, reward ...")
    ] = None,
    second: Annotated[str | None, typer.Option(help="a second grader, such as math_verify")] = None,
    adjudicated: Annotated[
        Path | None, typer.Option(help="JSON lines with id and correct: verdicts decided by a reader")
    ] = None,
    golds: Annotated[bool, typer.Option("--golds", help="also grade every reference answer as a response")] = False,
    id_column: IdColumn = "id",
    problem: ProblemColumn = "problem_id",
    answer: AnswerColumn = "answer",
    completion: CompletionColumn = "completion",
    finish: FinishColumn = "finish_reason",
    problems: ProblemFiles = None,
    meta: Meta = None,
    skip_bad: SkipBad = False,
    workers: Workers = None,
    deadline: Deadline = 10.0,
    memory_mib: Memory = 1024,
    json_out: JsonLines = None,
    summary_out: SummaryFile = None,
) -> None:
    """Compare our verdicts with recorded ones and a second grader's, and list every disagreement."""
    from brorl.evaluation.auditing import compare_verdicts, read_adjudications, summarise_audit
    from brorl.evaluation.golds import refused_golds
    from brorl.evaluation.responses import Columns, read_responses, recorded_column
    from brorl.evaluation.scoring import grade, with_verifier
    from brorl.rundir import check_output
    from brorl.verifiers.pool import VerifierPool

    check_output(json_out, file, adjudicated, *(problems or ()))
    check_output(summary_out, file, adjudicated, json_out, *(problems or ()))
    _check_verifier(verifier)
    if second is not None:
        _check_verifier(second)
    recorded = recorded or recorded_column(file)
    if recorded is None and second is None and not golds:
        raise DataError(
            f"{file}: nothing to compare with; name a column by --recorded, a --second grader, or ask for --golds"
        )
    columns = Columns(
        id=id_column, problem=problem, answer=answer, completion=completion, finish=finish, recorded=recorded
    )
    responses, bad = read_responses(
        file, verifier, columns=columns, problems=problems or (), meta=settings(meta), skip_bad=skip_bad
    )
    decided = read_adjudications(adjudicated) if adjudicated else {}
    with VerifierPool(workers=workers or os.cpu_count() or 1, deadline=deadline, memory_mib=memory_mib) as pool:
        with _progress("grading", len(responses)) as advance:
            scores = grade(pool, responses, advance)
        others = None
        if second is not None:
            with _progress(f"grading by {second}", len(responses)) as advance:
                others = grade(pool, with_verifier(responses, second), advance)
        checked, refused = refused_golds(pool, [r.prompt for r in responses]) if golds else (0, [])
    comparisons = compare_verdicts(responses, scores, others, decided)
    _write(json_out, [comparison.as_line() for comparison in comparisons])
    figures = {
        "file": str(file),
        "verifier": verifier,
        "recorded_column": recorded,
        "second_grader": second,
        "skipped": [{"line": row.line, "reason": row.reason} for row in bad],
        "rows": len(comparisons),
        **summarise_audit(comparisons),
        "golds": {"checked": checked, "refused": [gold.as_json() for gold in refused]} if golds else None,
    }
    _write(summary_out, [figures], indent=2)
    console = Console(highlight=False, soft_wrap=True)
    _print_skipped(bad)
    for comparison in comparisons:
        if comparison.disputed:
            console.print(_printable(_dispute(comparison.as_line())), markup=False)
    for gold in refused:
        refusal = f"gold refused: {gold.prompt.id}: {_short(gold.prompt.answer)}: {gold.reason}"
        console.print(_printable(refusal), markup=False)
    console.print(*_audit_tables(figures), sep="\n")
    _fail_on_errors(scores)


# Before the work: everything that can be wrong is said at once.


def _check_verifier(name: str) -> None:
    from brorl.verifiers import VERIFIERS
    from brorl.verifiers.custom import resolve

    if ":" in name:
        resolve(name)
    elif name not in VERIFIERS:
        known = ", ".join(sorted(VERIFIERS))
        raise RecipeError(f"no verifier is called {name!r}; known: {known}; your own: 'package.module:function'")


def whole_numbers(text: str | None, flag: str = "--k") -> list[int] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise typer.BadParameter(f"{text!r} is no list of whole numbers such as 1,8,64", param_hint=flag)
    return sorted({int(part) for part in parts})


def settings(pairs: Sequence[str] | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise typer.BadParameter(f"{pair!r} is not KEY=VALUE", param_hint="--meta")
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = value
    return found


# After it.


def _write(path: Path | None, rows: Sequence[dict[str, Any]], indent: int | None = None) -> None:
    """JSON, one row a line or indented; in ASCII, for responses may hold what UTF-8 does not."""
    from brorl.rundir import write_text

    if path is None:
        return
    try:
        write_text(path, "".join(json.dumps(row, indent=indent) + "\n" for row in rows))
    except OSError as error:
        raise RunError(f"{path}: cannot be written: {error.strerror}") from error


def _fail_on_errors(scores: Sequence[Any]) -> None:
    from brorl.group import Outcome

    failed = [s for s in scores if s.outcome is Outcome.ERROR]
    if len(failed) > _MOST_ERRORS * len(scores):
        raise RunError(f"{len(failed)} of {len(scores)} gradings failed, and not by the response: {failed[0].note}")


@contextmanager
def _progress(title: str, total: int):
    console = Console(stderr=True)
    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.advance(task, done)


def _print_skipped(bad: Sequence[Any]) -> None:
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for row in bad:
        console.print(f"[yellow]skipped[/] {escape(_printable(str(row)))}")


def _score_tables(figures: dict[str, Any]) -> list[Table]:
    outcomes = Table(title=f"{figures['rows']} responses to {figures['problems']} problems", title_justify="left")
    outcomes.add_column("outcome")
    outcomes.add_column("responses", justify="right")
    outcomes.add_column("share", justify="right")
    for name, count in figures["outcomes"].items():
        outcomes.add_row(name, str(count), f"{count / figures['rows']:.1%}")
    scores = Table(title="scores (95 % intervals, clustered by problem)", title_justify="left")
    for column, side in (("score", "left"), ("value", "right"), ("interval", "right"), ("problems", "right")):
        scores.add_column(column, justify=side)  # pyright: ignore[reportArgumentType]
    rows = {f"pass@{k}": mean for k, mean in figures["pass_at"].items()} | {"mean reward": figures["mean_reward"]}
    for name, mean in rows.items():
        if mean is not None:
            interval = "-" if mean["low"] is None else f"{mean['low']:.4f} to {mean['high']:.4f}"
            scores.add_row(name, f"{mean['value']:.4f}", interval, str(mean["problems"]))
    if figures["unscored_problems"]:
        scores.caption = f"{figures['unscored_problems']} problems without a scorable response are left out"
    return [outcomes, scores]


def _throughput_line(done: dict[str, Any]) -> str:
    return (
        f"{done['graded']} gradings in {done['seconds']:.1f} s, {done['per_second']:.0f} per second; "
        f"{done['repeated']} answered from an equal one; {done['timeouts']} time-outs, {done['crashes']} crashes"
    )


def _audit_tables(figures: dict[str, Any]) -> list[Table | str]:
    agreement = Table(title=f"{figures['file']}: {figures['rows']} responses", title_justify="left")
    for column in ("compared with", "rows", "agree", "agreement"):
        agreement.add_column(column, justify="left" if column == "compared with" else "right")
    names = {
        "recorded": f"recorded verdicts ({figures['recorded_column']})",
        "second": f"second grader ({figures['second_grader']})",
        "recorded_against_second": "recorded verdicts, second grader's",
        "adjudicated": "adjudicated verdicts",
    }
    for key, name in names.items():
        if figures[key] is not None:
            found = figures[key]
            agreement.add_row(name, str(found["compared"]), str(found["agree"]), f"{found['agreement']:.2%}")
    tables: list[Table | str] = [agreement]
    if figures["table"]:
        against = Table(title="our outcome against the recorded verdict", title_justify="left")
        for column in ("outcome", "correct", "not correct"):
            against.add_column(column, justify="left" if column == "outcome" else "right")
        for name, row in figures["table"].items():
            against.add_row(name, str(row.get("correct", 0)), str(row.get("not correct", 0)))
        tables.append(against)
    if figures["golds"] is not None:
        tables.append(f"golds: {figures['golds']['checked']} checked, {len(figures['golds']['refused'])} refused")
    return tables


def _dispute(line: dict[str, Any]) -> str:
    verdicts = {True: "correct", False: "not correct"}
    said = [f"ours {line['outcome']}"]
    if line["recorded"] is not None:
        said.append(f"recorded {verdicts[line['recorded']]}")
    if line["second"] is not None:
        said.append(f"second {line['second']}")
    if line["adjudicated"] is not None:
        said.append(f"adjudicated {verdicts[line['adjudicated']]}")
    note = f" ({line['note']})" if line["note"] else ""
    return f"{line['id']}: {', '.join(said)}: found {_short(line['extracted'])}, answer {_short(line['answer'])}{note}"


def _short(text: str, most: int = 60) -> str:
    text = " ".join(text.split())
    return repr(text if len(text) <= most else text[: most - 3] + "...")


def _printable(text: str) -> str:
    """Text that any UTF-8 terminal takes: half a surrogate pair is shown escaped."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
