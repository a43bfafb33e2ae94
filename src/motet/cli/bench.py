"""The command motet bench."""

from __future__ import annotations

import os
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from motet.cli.app import RESULTS, Device, app, handle_errors
from motet.cli.terminal import create_console, echo
from motet.report.number_text import count_of, format_duration

if TYPE_CHECKING:
    from motet.benchmark.benchmark_folder import Benchmark
    from motet.benchmark.cells import BenchmarkRun
    from motet.benchmark.run_store import RunStore
    from motet.benchmark.scheduler import BenchmarkWorkers
    from motet.benchmark.shared_resources import SharedResources
    from motet.benchmark.time_estimate import TimeEstimate

SuiteName = Annotated[
    str, typer.Argument(metavar="SUITE", help="Name of a shipped suite (see: motet list suites) or a YAML file.")
]
Seeds = Annotated[int | None, typer.Option(help="Number of seeds.", show_default="5; with --quick, set by the suite")]
Quick = Annotated[bool, typer.Option("--quick", help="Run a small version that takes minutes on two cores.")]
Only = Annotated[
    list[str] | None,
    typer.Option(help="Run only these cells: a table, a row, a column, or table/row/column. Repeat it for more."),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue the benchmark in --out with its options; retry failed runs.")
]
Refresh = Annotated[bool, typer.Option("--refresh", help="Repeat finished runs of other versions of Motet.")]
Out = Annotated[Path | None, typer.Option(help="Output folder.", show_default="runs/bench/SUITE")]
Jobs = Annotated[
    int | None, typer.Option(min=1, help="Number of runs that train at the same time.", show_default="as many as fit")
]
MemoryShare = Annotated[
    float,
    typer.Option(min=0.01, max=1.0, help="Share of the memory for this benchmark, if others run on the same GPU."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the number of runs and the expected time, and stop.")]
Into = Annotated[
    Path | None,
    typer.Option(help="Write the tables into a Markdown file with markers. With --dry-run, use the finished runs."),
]
WorkerOf = Annotated[int | None, typer.Option(hidden=True, help="Process id of the benchmark this process works for.")]


@app.command(rich_help_panel=RESULTS)
@handle_errors
def bench(
    suite: SuiteName,
    seeds: Seeds = None,
    device: Device = "auto",
    quick: Quick = False,
    only: Only = None,
    resume: Resume = False,
    refresh: Refresh = False,
    out: Out = None,
    jobs: Jobs = None,
    memory_share: MemoryShare = 1.0,
    dry_run: DryRun = False,
    into: Into = None,
    worker_of: WorkerOf = None,
) -> None:
    """Reproduce the tables of a paper: train every method, dataset and seed of a suite. Finished runs are reused."""
    from motet.benchmark.benchmark_folder import BenchmarkRequest, default_folder, load_benchmark, open_benchmark
    from motet.benchmark.scheduler import suite_copy_name

    folder = out or default_folder(suite, quick)
    request = BenchmarkRequest(suite=suite, seeds=seeds, quick=quick, only=tuple(only or ()), device=device)
    if worker_of is not None:  # use the parent's request: the one in the folder may have been replaced
        _run_worker(load_benchmark(folder, request, suite_copy_name(worker_of)), worker_of, jobs or 1, memory_share)
        return
    benchmark = load_benchmark(folder) if resume else open_benchmark(request, folder)
    tables_only = dry_run and into is not None
    options = PhaseOptions(jobs=jobs, memory_share=memory_share, dry_run=dry_run, retry=resume, refresh=refresh)
    if not tables_only:
        try:
            benchmark = _run_phases(benchmark, options)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"motet bench {suite} --resume --out {folder}") from None
    if tables_only or not dry_run:
        _print_results(benchmark, into)


class PhaseOptions(NamedTuple):
    """How the runs of a phase are executed: first those of the search for settings, then those of the tables."""

    jobs: int | None
    memory_share: float
    dry_run: bool
    retry: bool
    refresh: bool


def _run_phases(benchmark: Benchmark, options: PhaseOptions) -> Benchmark:
    """Search for settings, then run the tables with them. Workers serve both, because they start slowly."""
    from motet.benchmark.scheduler import BenchmarkWorkers
    from motet.benchmark.shared_resources import SharedResources

    worker_args = [*benchmark.request.cli_args(), "--out", str(benchmark.folder), "--worker-of", str(os.getpid())]
    worker_args += ["--memory-share", str(options.memory_share)]
    with SharedResources() as resources, BenchmarkWorkers(worker_args, benchmark.folder) as workers:
        _run_phase(benchmark, benchmark.trial_runs, options, resources, workers, is_search=True)
        benchmark = benchmark.reopen()
        _run_phase(benchmark, benchmark.runs, options, resources, workers, is_search=False)
    return benchmark


def _run_phase(
    benchmark: Benchmark,
    runs: dict[str, BenchmarkRun],
    options: PhaseOptions,
    resources: SharedResources,
    workers: BenchmarkWorkers,
    *,
    is_search: bool,
) -> None:
    from motet.benchmark.scheduler import run_benchmark, split_resources
    from motet.benchmark.time_estimate import estimate_time
    from motet.report.benchmark_progress import create_benchmark_progress

    store, device, jobs, dry_run = benchmark.store, benchmark.request.device, options.jobs, options.dry_run
    _clear_old_runs(store, runs, options)
    pending = {name: run for name, run in runs.items() if not store.is_settled(name)}
    if not runs or (is_search and not pending):
        return
    title = f"{benchmark.title}, search" if is_search else benchmark.title
    searches, cells = count_of(len(benchmark.searches), "search", "searches"), count_of(len(benchmark.cells), "cell")
    echo(f"{title}: {searches if is_search else cells}, {_count_runs(runs, pending, store)}.")
    if not pending:
        return
    if jobs is not None and not dry_run:  # the number of jobs is known, so workers need not wait for the estimate
        jobs = min(jobs, len(pending))
        split_resources(device, jobs, options.memory_share)
        _announce_kernels(device, jobs)
        workers.start(jobs)
    else:  # the memory decides how many jobs there are
        split_resources(device, 1, options.memory_share)
    others = {name: run for name, run in {**benchmark.trial_runs, **runs}.items() if name not in pending}
    finished = store.finished(others)
    estimate = estimate_time(pending, resources, jobs, {} if is_search else benchmark.metrics, finished)
    echo(f"{_describe_estimate(estimate, pending)} Results: {benchmark.folder}/")
    if not dry_run:
        split_resources(device, estimate.jobs, options.memory_share)
        workers.start(estimate.jobs)
        run_benchmark(runs, store, resources, estimate, create_benchmark_progress(create_console()))
        if estimate.jobs > 1:
            _retry_crowded(pending, store, resources, estimate, workers, options.memory_share)


def _describe_estimate(estimate: TimeEstimate, pending: dict[str, BenchmarkRun]) -> str:
    parallel = "" if estimate.jobs == 1 else f", {estimate.jobs} at a time"
    duration = format_duration(estimate.seconds_left(pending))
    return f"About {duration} for {count_of(len(pending), 'remaining run')}{parallel}."


def _retry_crowded(
    runs: dict[str, BenchmarkRun],
    store: RunStore,
    resources: SharedResources,
    estimate: TimeEstimate,
    workers: BenchmarkWorkers,
    memory_share: float,
) -> None:
    """Repeat the runs that ran out of memory beside others."""

    from motet.benchmark.scheduler import retry_alone
    from motet.report.benchmark_progress import create_benchmark_progress

    crowded = {name: run for name, run in runs.items() if store.lacked_memory(name)}
    if crowded:
        echo(f"{len(crowded)} of {len(runs)} runs ran out of memory beside others. They are repeated one at a time.")
        workers.stop()
        progress = create_benchmark_progress(create_console())
        retry_alone(crowded, store, resources, estimate, progress, memory_share)


def _count_runs(runs: dict[str, BenchmarkRun], pending: dict[str, BenchmarkRun], store: RunStore) -> str:
    num_done = store.count_done(runs)
    num_failed = len(runs) - len(pending) - num_done
    failed = f", {num_failed} failed (--resume retries them)" if num_failed else ""
    return f"{count_of(len(runs), 'run')}, {num_done} done{failed}"


def _announce_kernels(device: str, jobs: int) -> None:
    """Say that jobs wait for each other, if they do: the estimate of the time is printed after the first steps."""
    from motet.experiment.build.cache_folder import measure_cache
    from motet.experiment.build.executor_builder import resolve_device

    if jobs > 1 and resolve_device(device).type == "cuda" and not measure_cache()["kernels"].entries:
        echo(f"Compiling GPU kernels once for all {jobs} jobs. This takes about half a minute, and only once.")


def _clear_old_runs(store: RunStore, runs: dict[str, BenchmarkRun], options: PhaseOptions) -> None:
    """Make room for retries of failed runs, and for new runs in place of those of other versions."""
    if options.retry:
        store.clear_failures(runs)
    if options.refresh and not options.dry_run and (outdated := store.remove_outdated(runs)):
        echo(f"Refresh: {len(outdated)} runs of other versions are repeated.")


def _run_worker(benchmark: Benchmark, parent: int, jobs: int, memory_share: float) -> None:

    from motet.benchmark.scheduler import run_worker, split_resources
    from motet.report.benchmark_progress import BenchmarkLineProgress

    split_resources(benchmark.request.device, jobs, memory_share)
    run_worker(benchmark.phases(), BenchmarkLineProgress(create_console()), parent)


def _print_results(benchmark: Benchmark, into: Path | None) -> None:
    from rich.markdown import Markdown

    from motet.benchmark.benchmark_folder import write_results
    from motet.benchmark.fill_markdown import fill_markdown_tables
    from motet.core.errors import RunError

    tables, folder = write_results(benchmark), benchmark.folder
    console: Any = create_console()
    text = (folder / "results.md").read_text("utf-8")
    if console.is_terminal:
        console.print(Markdown(text))
    else:
        echo(text)
    echo(f"Results: {folder}/results.md, .tex, .json and figures. HTML report: motet report {folder}")
    if into is not None:
        echo(fill_markdown_tables(into, benchmark, tables))
    if failures := benchmark.failures():
        cell, reason = next(iter(failures.items()))
        raise RunError(
            f"{len(failures)} cells have no result. The first is {cell}: {shorten(reason, 300)} Retry with --resume."
        )
