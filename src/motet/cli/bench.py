"""Benchmarks: motet bench."""

from __future__ import annotations

import os
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated, Any

import typer

from motet.cli.app import app, handle_errors

if TYPE_CHECKING:
    from motet.benchmark.benchmark_folder import Benchmark

Only = Annotated[list[str] | None, typer.Option(help="Only these cells: a table, row or column, or table/row/column.")]
Into = Annotated[
    Path | None,
    typer.Option(
        help="Fill in this suite's places in a Markdown file (docs/papers.md); with --dry-run, of what is done."
    ),
]


@app.command()
@handle_errors
def bench(
    suite: Annotated[str, typer.Argument(help="A shipped suite's name (see: motet list suites) or a YAML file.")],
    seeds: Annotated[
        int | None, typer.Option(help="How many seeds. Default: 3; with --quick what the suite says.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:0.")] = "auto",
    quick: Annotated[bool, typer.Option("--quick", help="A small version: minutes on two cores.")] = False,
    only: Only = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with what was asked for in --out; try again what failed.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for the results. Default: runs/bench/<suite>.")] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="How many runs side by side. Default: as many as fit.")
    ] = None,
    dry: Annotated[bool, typer.Option("--dry-run", help="Say what would be run and how long it would take.")] = False,
    into: Into = None,
    beside: Annotated[int | None, typer.Option(hidden=True, help="Help the process with this number.")] = None,
) -> None:
    """Every table of a paper with one command: methods × corpora × partitions × seeds. What is done is not done again."""
    from motet.benchmark.benchmark_folder import BenchmarkRequest, default_folder, load_benchmark, open_benchmark
    from motet.benchmark.scheduler import suite_copy_name

    folder, asked = (
        out or default_folder(suite, quick),
        BenchmarkRequest(suite, seeds, quick, tuple(only or ()), device),
    )
    if beside is not None:  # what the other asked, and not what stands in the folder: a third may have asked since
        _help(load_benchmark(folder, asked, suite_copy_name(beside)), beside, jobs or 1)
        return
    benchmark = load_benchmark(folder) if resume else open_benchmark(asked, folder)
    if resume:
        benchmark.store.clear_failures(benchmark.runs)
    told = dry and into is not None  # only the tables, of what is done
    try:
        if not told:
            _carry_out(benchmark, jobs, dry)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"motet bench {suite} --resume --out {folder}") from None
    if told or not dry:
        _tell(benchmark, into)


def _carry_out(benchmark: Benchmark, jobs: int | None, dry: bool) -> None:
    from rich.console import Console

    from motet.benchmark.scheduler import BenchmarkWorkers, run_benchmark, split_resources
    from motet.benchmark.shared_resources import SharedResources
    from motet.benchmark.time_estimate import estimate_time
    from motet.report.benchmark_progress import create_benchmark_progress, format_duration

    store, runs = benchmark.store, benchmark.runs
    waiting = {name: run for name, run in runs.items() if not store.is_settled(name)}
    typer.echo(
        f"{benchmark.suite.title}: {len(benchmark.cells)} cells, {len(runs)} runs, {len(runs) - len(waiting)} of them done."
    )
    if not waiting:
        return
    again = [*benchmark.request.cli_args(), "--out", str(benchmark.folder), "--beside", str(os.getpid())]
    with SharedResources() as stock, BenchmarkWorkers(again, benchmark.folder) as crew:
        if jobs is not None and not dry:  # nobody waits for an estimate whose answer is not asked for
            jobs = min(jobs, len(waiting))
            split_resources(benchmark.request.device, jobs)
            crew.join(jobs)
        estimate = estimate_time(waiting, stock, jobs, benchmark.metrics)
        beside = "" if estimate.jobs == 1 else f", {estimate.jobs} side by side"
        left = f"About {format_duration(estimate.seconds_left(waiting))} for the {len(waiting)} that are left{beside}."
        typer.echo(f"{left} Results: {benchmark.folder}/")
        if not dry:
            split_resources(benchmark.request.device, estimate.jobs)
            crew.join(estimate.jobs)
            run_benchmark(runs, store, stock, estimate, create_benchmark_progress(Console()))


def _help(benchmark: Benchmark, parent: int, jobs: int) -> None:
    from rich.console import Console

    from motet.benchmark.scheduler import run_worker, split_resources
    from motet.report.benchmark_progress import BenchmarkLineProgress

    split_resources(benchmark.request.device, jobs)
    run_worker(benchmark.runs, benchmark.store, BenchmarkLineProgress(Console()), parent)


def _tell(benchmark: Benchmark, into: Path | None) -> None:
    from rich.console import Console
    from rich.markdown import Markdown

    from motet.benchmark.benchmark_folder import write_results
    from motet.benchmark.fill_markdown import fill_markdown_tables
    from motet.core.errors import RunError

    tables = write_results(benchmark)
    console: Any = Console()
    text = (benchmark.folder / "results.md").read_text("utf-8")
    if console.is_terminal:
        console.print(Markdown(text))
    else:
        typer.echo(text)
    typer.echo(
        f"Results: {benchmark.folder}/results.md, .tex, .json and pictures; a page to look at: motet report {benchmark.folder}"
    )
    if into is not None:
        typer.echo(fill_markdown_tables(into, benchmark, tables))
    if failed := benchmark.failures():
        first, why = next(iter(failed.items()))
        raise RunError(
            f"{len(failed)} cells have no run, the first being {first}: {shorten(why, 300)} Try again with --resume."
        )
