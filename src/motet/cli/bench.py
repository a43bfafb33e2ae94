"""Benchmarks: motet bench."""

from __future__ import annotations

import os
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated, Any

import typer

from motet.cli.app import app, guarded

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
@guarded
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
    from motet.benchmark.benchmark_folder import Asked, default_folder, load_benchmark, open_benchmark
    from motet.benchmark.scheduler import copy_of

    folder, asked = out or default_folder(suite, quick), Asked(suite, seeds, quick, tuple(only or ()), device)
    if beside is not None:  # what the other asked, and not what stands in the folder: a third may have asked since
        _help(load_benchmark(folder, asked, copy_of(beside)), beside, jobs or 1)
        return
    benchmark = load_benchmark(folder) if resume else open_benchmark(asked, folder)
    if resume:
        benchmark.store.forgive(benchmark.runs)
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

    from motet.benchmark.scheduler import Crew, perform, share_out
    from motet.benchmark.shared_resources import Stock
    from motet.benchmark.time_estimate import estimated
    from motet.report.benchmark_progress import duration, grid_watch_for

    store, runs = benchmark.store, benchmark.runs
    waiting = {name: run for name, run in runs.items() if not store.settled(name)}
    typer.echo(
        f"{benchmark.suite.title}: {len(benchmark.cells)} cells, {len(runs)} runs, {len(runs) - len(waiting)} of them done."
    )
    if not waiting:
        return
    again = [*benchmark.asked.words(), "--out", str(benchmark.folder), "--beside", str(os.getpid())]
    with Stock() as stock, Crew(again, benchmark.folder) as crew:
        if jobs is not None and not dry:  # nobody waits for an estimate whose answer is not asked for
            jobs = min(jobs, len(waiting))
            share_out(benchmark.asked.device, jobs)
            crew.join(jobs)
        estimate = estimated(waiting, stock, jobs, benchmark.readings)
        beside = "" if estimate.jobs == 1 else f", {estimate.jobs} side by side"
        left = f"About {duration(estimate.left(waiting))} for the {len(waiting)} that are left{beside}."
        typer.echo(f"{left} Results: {benchmark.folder}/")
        if not dry:
            share_out(benchmark.asked.device, estimate.jobs)
            crew.join(estimate.jobs)
            perform(runs, store, stock, estimate, grid_watch_for(Console()))


def _help(benchmark: Benchmark, parent: int, jobs: int) -> None:
    from rich.console import Console

    from motet.benchmark.scheduler import run_beside, share_out
    from motet.report.benchmark_progress import GridLines

    share_out(benchmark.asked.device, jobs)
    run_beside(benchmark.runs, benchmark.store, GridLines(Console()), parent)


def _tell(benchmark: Benchmark, into: Path | None) -> None:
    from rich.console import Console
    from rich.markdown import Markdown

    from motet.benchmark.benchmark_folder import write_results
    from motet.benchmark.fill_markdown import fill_in
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
        typer.echo(fill_in(into, benchmark, tables))
    if failed := benchmark.failures():
        first, why = next(iter(failed.items()))
        raise RunError(
            f"{len(failed)} cells have no run, the first being {first}: {shorten(why, 300)} Try again with --resume."
        )
