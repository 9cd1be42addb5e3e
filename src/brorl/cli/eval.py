"""`brorl eval`: benchmarks of a model, a run, or a server."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from brorl.cli import app
from brorl.cli.score import settings, whole_numbers
from brorl.errors import RunError

Target = Annotated[
    str | None,
    typer.Argument(
        help="a model directory, brorl-tiny, the directory of a run, the URL of a server (with /v1), golds or canary",
        show_default=False,
    ),
]
Benchmarks = Annotated[
    list[str] | None,
    typer.Option("--benchmark", "-b", help="names, such as aime24,gsm8k (repeatable); see --list", show_default=False),
]
DataFile = Annotated[Path | None, typer.Option("--data", help="the file of the benchmark, where there is one")]
DataFolder = Annotated[
    Path | None, typer.Option("--data-dir", help="folder with <benchmark>.jsonl files; else $BRORL_BENCHMARKS")
]
Samples = Annotated[int | None, typer.Option("--samples", "-n", help="responses to each problem; default 16", min=1)]
Template = Annotated[str | None, typer.Option(help="in place of the benchmark's own, with {question} in it")]
Meta = Annotated[
    list[str] | None,
    typer.Option("--meta", help="a setting for the verifier, such as answer_format=whole (repeatable)"),
]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="directory; default evals/<model>-<n>")]


@app.command("eval")
def evaluate(
    target: Target = None,
    benchmarks: Benchmarks = None,
    data: DataFile = None,
    data_dir: DataFolder = None,
    limit: Annotated[
        int | None, typer.Option(help="at most so many problems of each benchmark (of each gym task)", min=1)
    ] = None,
    samples: Samples = None,
    temperature: Annotated[float | None, typer.Option(help="default: the benchmark's, 0.6", min=0.01)] = None,
    top_p: Annotated[float | None, typer.Option(help="default: the benchmark's, 0.95", min=0.01, max=1.0)] = None,
    max_tokens: Annotated[int | None, typer.Option(help="of a response; default: the benchmark's", min=1)] = None,
    drop_overlong: Annotated[
        bool, typer.Option("--drop-overlong", help="leave out problems that do not fit the model's context")
    ] = False,
    seed: Annotated[int, typer.Option(help="of the draws")] = 0,
    k: Annotated[str | None, typer.Option(help="values of k, such as 1,8,16; default 1, 2, 4 ...")] = None,
    caps: Annotated[str | None, typer.Option(help="shorter limits for token efficiency, such as 4096,16384")] = None,
    template: Template = None,
    meta: Meta = None,
    system: Annotated[str, typer.Option(help="a system message")] = "",
    completions: Annotated[bool, typer.Option("--completions", help="no chat template: for base models")] = False,
    step: Annotated[str | None, typer.Option(help="of a run: a number, last or best")] = None,
    model: Annotated[str | None, typer.Option(help="of a server: the model's name there")] = None,
    key_variable: Annotated[
        str, typer.Option(help="of a server: the environment variable that holds the key")
    ] = "BRORL_API_KEY",
    concurrency: Annotated[int, typer.Option(help="of a server: requests in flight", min=1)] = 16,
    timeout: Annotated[float, typer.Option(help="of a server: seconds for one answer", min=0.01)] = 1800.0,
    retries: Annotated[int, typer.Option(help="of a server: of a failed request", min=0)] = 6,
    dtype: Annotated[str, typer.Option(help="of a model directory: float32, bfloat16 or float64")] = "float32",
    kv_budget_mib: Annotated[int, typer.Option(help="of a model directory: memory for keys and values", min=1)] = 1024,
    engine: Annotated[str, typer.Option(help="of a model directory or a run: local or vllm")] = "local",
    workers: Annotated[
        int | None, typer.Option(help="grading processes; by default one a processor core", min=1)
    ] = None,
    deadline: Annotated[float, typer.Option(help="seconds for one grading", min=0.001)] = 10.0,
    output: Output = None,
    figure: Annotated[Path | None, typer.Option(help="write score against length as one HTML file")] = None,
    json_out: Annotated[Path | None, typer.Option("--json", help="write the results to this file, too")] = None,
    list_all: Annotated[bool, typer.Option("--list", help="show all benchmarks, and do nothing else")] = False,
) -> None:
    """Benchmarks: pass@1 over many samples, pass@k, cons@k, lengths. A killed one goes on where it was."""
    from brorl.engines.openai import ServerSettings
    from brorl.evaluation.benchmark_data import load_benchmark
    from brorl.evaluation.benchmark_jobs import Job, run_job
    from brorl.reports.comparison import write_token_figure
    from brorl.reports.evaluation import evaluation_report
    from brorl.rundir import check_output, write_json

    console = Console(highlight=False, soft_wrap=True)
    if list_all:
        _list(console)
        return
    names = [name.strip() for entry in benchmarks or () for name in entry.split(",") if name.strip()]
    if target is None or not names:
        raise RunError("what is to be evaluated, and on what? brorl eval MODEL --benchmark NAME; --list shows all")
    if data is not None and len(names) > 1:
        raise RunError("--data is the file of one benchmark; for several, put their files into a folder: --data-dir")
    if dtype not in ("float32", "float64", "bfloat16"):
        raise RunError(f"--dtype {dtype}: float32, float64 or bfloat16")
    if engine not in ("local", "vllm"):
        raise RunError(f"--engine {engine}: local or vllm")
    check_output(json_out)
    check_output(figure)
    with console.status("reading the problems"):
        loaded = [
            load_benchmark(n, data=data, folder=data_dir, limit=limit, template=template, meta=settings(meta))
            for n in names
        ]
    server = ServerSettings(
        url=target, model=model, system=system, chat=not completions, key_variable=key_variable,
        concurrency=concurrency, timeout=timeout, retries=retries,
    )  # fmt: skip
    job = Job(
        target=target, benchmarks=loaded, server=server, step=step, system=system, chat=False if completions else None,
        dtype=dtype, kv_budget_mib=kv_budget_mib, engine=engine, samples=samples, temperature=temperature, top_p=top_p,
        max_tokens=max_tokens, drop_overlong=drop_overlong, seed=seed, ks=whole_numbers(k),
        caps=whole_numbers(caps, "--caps") or [], workers=workers or os.cpu_count() or 1, deadline=deadline,
        output=output,
    )  # fmt: skip
    with _progress() as progress:
        results = run_job(job, progress, lambda path: console.print(f"evaluation in [bold]{path}[/]"))
    console.print(*evaluation_report(results), sep="\n")
    if "engine" in results:
        found = results["engine"]
        console.print(
            f"vLLM: prefix cache hit rate {found['prefix_hit_rate']:.2f} (prompts shorter than a block get no hits); "
            f"{found['logprob_mismatches']} copies of log-probabilities off their mean by more than "
            f"{found['logprob_tolerance']:g} nats, the farthest {found['largest_logprob_spread']:.1e}"
        )
    if json_out:
        write_json(json_out, results)
    if figure:
        found = results["benchmarks"]
        write_token_figure(figure, {results["name"]: {name: found[name]["token_efficiency"] for name in found}})


def _list(console: Console) -> None:
    from brorl.evaluation.benchmarks import BENCHMARKS
    from brorl.reports.evaluation import benchmark_list

    console.print(*benchmark_list(BENCHMARKS), sep="\n")
    console.print(
        "No data is shipped. Licences are as remembered of their sources: read them there before you rely on one."
    )


@contextmanager
def _progress() -> Iterator[Any]:
    """A bar for each benchmark on a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        tasks: dict[str, Any] = {}

        def report(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=total)
            bar.update(tasks[name], completed=done)

        yield report
