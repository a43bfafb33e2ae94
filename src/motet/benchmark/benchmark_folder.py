"""A benchmark in a folder: the request, the suite, the runs, and the results as Markdown, LaTeX, JSON and figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from textwrap import shorten
from typing import Any

from motet.benchmark.cells import BenchmarkRun, Cell, build_cells, check_runs, order_runs, unique_runs
from motet.benchmark.measured_settings import ADVICE_FILE, MeasuredSetting, collect_settings, settings_to_dict
from motet.benchmark.overview import draw_overview, rank_methods, render_overview, render_verdicts
from motet.benchmark.render import describe_tests, render_latex, render_legend, render_markdown
from motet.benchmark.result_tables import ResultTable, add_search, build_tables, metrics_by_run
from motet.benchmark.run_store import RunStore, find_renamed_runs
from motet.benchmark.suite import Suite, load_suite, parse_suite, read_suite_text
from motet.benchmark.suite_search import RowSearch, TunedRow, build_searches, choose_settings, tuned_settings
from motet.benchmark.table_curves import draw_learning_curves
from motet.benchmark.table_figures import draw_table
from motet.benchmark.table_metrics import TableMetric
from motet.core.errors import ConfigError
from motet.experiment.recipe.config_parsing import instantiate
from motet.experiment.recipe.flat_settings import flatten_settings
from motet.missing_paths import describe_missing
from motet.report.number_text import format_duration
from motet.report.significance import MIN_SEEDS
from motet.transport.json_files import read_json, write_json
from motet.transport.private_files import write_atomically

FIRST_SEED = 42
DEFAULT_SEEDS = MIN_SEEDS
QUICK_TITLE = "Toy numbers of a quick test"
QUICK_WARNING = "It shows that everything works, not which method is better."
REQUEST_FILE = "request.json"
RESULTS_VERSION = 2  # of results.json


@dataclass(frozen=True)
class BenchmarkRequest:
    """The options of `motet bench`. They are stored with the runs, so that --resume can repeat them."""

    suite: str
    seeds: int | None = None
    quick: bool = False
    only: tuple[str, ...] = ()
    device: str = "auto"

    def cli_args(self) -> list[str]:
        """Return the arguments of the motet command with these options."""
        seeds = [] if self.seeds is None else ["--seeds", str(self.seeds)]
        only = [word for pattern in self.only for word in ("--only", pattern)]
        return ["bench", self.suite, *(["--quick"] if self.quick else []), *seeds, *only, "--device", self.device]


@dataclass(frozen=True, eq=False)
class Benchmark:
    """A suite with the options it is run with and the folder of its runs."""

    folder: Path
    request: BenchmarkRequest
    suite: Suite

    @cached_property
    def store(self) -> RunStore:
        return RunStore(self.folder, find_renamed_runs(self.folder, {**self.trial_runs, **self.runs}))

    @property
    def seeds(self) -> list[int]:
        default = self.suite.quick.seeds if self.request.quick else DEFAULT_SEEDS
        count = default if self.request.seeds is None else self.request.seeds
        if count < 1:
            raise ConfigError(f"--seeds is {count}; expected at least 1.")
        return list(range(FIRST_SEED, FIRST_SEED + count))

    @cached_property
    def searches(self) -> list[RowSearch]:
        """The searches for settings that come before the runs."""
        request = self.request
        return build_searches(self.suite, quick=request.quick, only=request.only, device=request.device)

    @property
    def trial_runs(self) -> dict[str, BenchmarkRun]:
        return order_runs(run for search in self.searches for run in search.runs)

    @cached_property
    def tuned(self) -> dict[str, list[TunedRow]]:
        """The settings that the searches have chosen, by table. Call `reopen` after new trials."""
        store = RunStore(self.folder, find_renamed_runs(self.folder, self.trial_runs))
        return choose_settings(self.searches, store)

    def reopen(self) -> Benchmark:
        """Return the benchmark with the settings that finished searches have chosen."""
        return replace(self)

    def phases(self) -> Iterator[tuple[dict[str, BenchmarkRun], RunStore]]:
        """Yield the trials, and then the runs of the tables, which are known when the trials have ended."""
        yield self.trial_runs, self.store
        reopened = self.reopen()
        yield reopened.runs, reopened.store

    @cached_property
    def cells(self) -> list[Cell]:
        request, tuned = self.request, tuned_settings(self.tuned)
        options: dict[str, Any] = {"quick": request.quick, "only": request.only, "device": request.device}
        return build_cells(self.suite, self.seeds, **options, tuned=tuned)

    @cached_property
    def runs(self) -> dict[str, BenchmarkRun]:
        return unique_runs(self.cells)

    @property
    def metrics(self) -> dict[str, list[TableMetric]]:
        """The metrics that tables read from each run, by its name."""
        return metrics_by_run(self.suite, self.cells)

    def summaries(self, table: str | None = None) -> list[dict[str, Any]]:
        """Return the summaries of the finished runs of one table, or of all."""
        names: Iterable[str] = self.runs
        if table is not None:
            names = dict.fromkeys(cell.run.name for cell in self.cells if cell.table == table)
        return [summary for name in names if (summary := self.store.summary(name)) is not None]

    def failures(self) -> dict[str, str]:
        """Return the reason for each cell without a result because its run failed."""
        reasons = {str(cell): self.store.failure(cell.run.name) for cell in self.cells}
        return {cell: reason for cell, reason in reasons.items() if reason is not None}

    @property
    def title(self) -> str:
        """The title of the results. It says if they are the toy numbers of a quick run."""
        return f"{QUICK_TITLE}: {self.suite.title}" if self.request.quick else self.suite.title

    def tables(self) -> list[ResultTable]:
        """Build the result tables.

        A quick run uses toy corpora, so it leaves out the published numbers and the claims, and its titles say so. Notes
        describe the full suite; in their place are the settings that the quick run changes.
        """
        suite = self.suite
        if self.request.quick:
            changes = ", ".join(f"{path}={value}" for path, value in flatten_settings(suite.quick.set).items())
            note = f"Settings that the quick run changes: {changes}." if changes else ""
            toy: dict[str, Any] = {"published": {}, "claims": [], "note": note}
            titles = {name: f"{QUICK_TITLE}, in place of {t.get('title', name)}" for name, t in suite.tables.items()}
            tables = {name: {**table, **toy, "title": titles[name]} for name, table in suite.tables.items()}
            suite = replace(suite, tables=tables)
        return [
            add_search(table, self.tuned.get(table.name, ())) for table in build_tables(suite, self.cells, self.store)
        ]

    def settings(self, tables: Sequence[ResultTable]) -> list[MeasuredSetting]:
        """Return what the tables have measured, setting by setting."""
        return list(collect_settings(self.suite, tables, self.cells, self.store))

    def figure_path(self, table: str) -> Path:
        """Return the path of a table's figure, which exists if the table has numbers."""
        return self.folder / f"{table}.png"

    def curves_path(self, table: str) -> Path:
        """Return the path of a table's learning curves, which exist if its runs were evaluated several times."""
        return self.folder / f"{table}-curves.png"


def default_folder(suite: str, quick: bool) -> Path:
    return Path("runs") / "bench" / f"{Path(suite).stem}{'-quick' if quick else ''}"


def open_benchmark(request: BenchmarkRequest, folder: Path) -> Benchmark:
    """Check the runs of a suite and store the request. Runs that are already in the folder are reused."""
    benchmark = Benchmark(folder=folder, request=request, suite=load_suite(request.suite))
    check_runs({**benchmark.trial_runs, **benchmark.runs})
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / REQUEST_FILE, asdict(request))
    write_atomically(folder / "suite.yaml", read_suite_text(request.suite).encode())
    return benchmark


def is_benchmark_folder(folder: Path) -> bool:
    return (folder / REQUEST_FILE).exists()


def load_benchmark(folder: Path, request: BenchmarkRequest | None = None, suite_file: str = "suite.yaml") -> Benchmark:
    """Load a benchmark with the suite stored in its folder, which is safe from later changes to the original suite.

    `request` replaces the stored request, and `suite_file` names another copy of the suite in the folder.
    """
    if not is_benchmark_folder(folder):
        problem = f"'{folder}' is not a benchmark folder: it has no {REQUEST_FILE}."
        raise ConfigError(
            f"{problem if folder.exists() else describe_missing(folder)} Start one with: motet bench SUITE"
        )
    if request is None:
        advice = "Restore it, or start the benchmark again without --resume; finished runs are reused."
        request = instantiate(
            BenchmarkRequest, read_json(folder / REQUEST_FILE, BenchmarkRequest, advice), REQUEST_FILE
        )
    suite = parse_suite(Path(request.suite).stem, (folder / suite_file).read_text("utf-8"))
    return Benchmark(folder=folder, request=request, suite=suite)


def write_results(benchmark: Benchmark) -> list[ResultTable]:
    """Write results.md, results.tex, results.json and, for each table, a figure and its learning curves."""
    tables, folder = benchmark.tables(), benchmark.folder
    for table in tables:
        draw_table(table, benchmark.figure_path(table.name))
        cells = [cell for cell in benchmark.cells if cell.table == table.name]
        spec, curves = benchmark.suite.table(table.name), benchmark.curves_path(table.name)
        draw_learning_curves(spec, table, cells, benchmark.store, curves)
    markdown = f"# {benchmark.title}\n\n{render_results(benchmark, tables)}"
    write_atomically(folder / "results.md", markdown.encode())
    labels = {table.name: f"{benchmark.suite.name}-{table.name}" for table in tables}
    latex = [render_latex(table, labels[table.name], render_legend([table], benchmark.seeds)) for table in tables]
    write_atomically(folder / "results.tex", ("\n".join(latex) + "\n").encode())
    write_json(folder / "results.json", collect_results(benchmark, tables))
    write_json(folder / ADVICE_FILE, settings_to_dict(benchmark.settings(tables)))
    return tables


def write_overview(benchmark: Benchmark, tables: Sequence[ResultTable], folder: Path) -> str:
    """Draw the overview over all tables into a folder. Return its text; empty if the suite has none."""
    settings = benchmark.settings(tables)
    ranks = rank_methods(benchmark.suite.overview, settings)
    if not ranks:
        return ""
    draw_overview(ranks, settings, folder)
    verdicts = render_verdicts(tables, benchmark.suite.overview)
    return "\n\n".join(text for text in ("### Overview", verdicts, render_overview(ranks)) if text)


def collect_results(benchmark: Benchmark, tables: Sequence[ResultTable]) -> dict[str, Any]:
    """Return the tables and how they were produced, as plain values."""
    summaries = benchmark.summaries()
    return {
        "version": RESULTS_VERSION,
        "suite": benchmark.suite.name,
        "title": benchmark.title,
        "paper": benchmark.suite.paper,
        "request": asdict(benchmark.request),
        "seeds": benchmark.seeds,
        "runs": {"all": len(benchmark.runs), "done": len(summaries)},
        "seconds": round(sum(s["seconds"] for s in summaries), 1),
        "machines": list_machines(summaries),
        "tables": {table.name: table.to_dict() for table in tables},
    }


def render_results(benchmark: Benchmark, tables: Sequence[ResultTable]) -> str:
    """Render the tables as Markdown, with a legend, the failed runs and the command that produced them."""
    parts = [text for text in (render_legend(tables, benchmark.seeds), describe_tests(tables)) if text]
    if benchmark.request.quick:
        configs = [run.config for run in benchmark.runs.values()]
        data = dict.fromkeys(f"{config.data.name or 'own data'} with {config.model.name}" for config in configs)
        parts.append(f"A quick version of the suite on small data ({'; '.join(data)}). {QUICK_WARNING}")
    parts += [render_markdown(table).rstrip() for table in tables]
    parts += [part for part in (write_overview(benchmark, tables, benchmark.folder),) if part]
    if failures := benchmark.failures():
        lines = [f"- {cell}: {shorten(reason, 200)}" for cell, reason in failures.items()]
        parts += ["Failed runs:", "\n".join(lines)]
    summaries = benchmark.summaries()
    software = ", ".join(dict.fromkeys(table.software for table in tables if table.software))
    duration = format_duration(sum(s["seconds"] for s in summaries))
    parts.append(
        f"`{bench_command(benchmark)}` with {software or 'Motet'}: {len(summaries)} of {len(benchmark.runs)} runs, "
        f"{duration} in total on "
        f"{'; '.join(list_machines(summaries)) or 'no machine yet'}."
    )
    return "\n\n".join(parts) + "\n"


def bench_command(benchmark: Benchmark) -> str:
    """Return the command that repeats the benchmark."""
    request = benchmark.request
    words = ["motet bench", request.suite, *(["--quick"] if request.quick else []), f"--seeds {len(benchmark.seeds)}"]
    return " ".join([*words, *(f"--only '{pattern}'" for pattern in request.only)])


def list_machines(summaries: Sequence[dict[str, Any]]) -> list[str]:
    """Return the GPUs or CPUs of the runs, each once."""
    machines = [s["machine"] for s in summaries if "machine" in s]
    names = (
        m.get("gpu") or ", ".join([m.get("processor", "a CPU"), *filter(None, [m.get("cores")])]) for m in machines
    )
    return list(dict.fromkeys(names))
