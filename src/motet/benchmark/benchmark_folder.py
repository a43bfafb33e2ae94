"""One benchmark in one folder: what was asked for, the runs, and the results in every form."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from importlib import resources
from pathlib import Path
from textwrap import shorten
from typing import Any

from motet.benchmark.cells import BenchmarkRun, Cell, build_cells, check_runs, unique_runs
from motet.benchmark.render import render_latex, render_legend, render_markdown
from motet.benchmark.result_tables import ResultTable, build_tables, metrics_by_run
from motet.benchmark.run_store import RunStore
from motet.benchmark.suite import Suite, load_suite, parse_suite
from motet.benchmark.table_figures import draw_table
from motet.benchmark.table_metrics import TableMetric
from motet.core.errors import ConfigError
from motet.experiment.loop.json_files import write_json
from motet.experiment.recipe.config_parsing import instantiate
from motet.report.benchmark_progress import format_duration
from motet.transport.spill_store import write_atomically

FIRST_SEED = 42


@dataclass(frozen=True)
class BenchmarkRequest:
    """What a person asked of a suite; kept beside its runs, so that it can be gone on with."""

    suite: str
    seeds: int | None = None
    quick: bool = False
    only: tuple[str, ...] = ()
    device: str = "auto"

    def cli_args(self) -> list[str]:
        """Of the command that asks this."""
        seeds = [] if self.seeds is None else ["--seeds", str(self.seeds)]
        only = [word for pattern in self.only for word in ("--only", pattern)]
        return ["bench", self.suite, *(["--quick"] if self.quick else []), *seeds, *only, "--device", self.device]


@dataclass(frozen=True, eq=False)
class Benchmark:
    folder: Path
    request: BenchmarkRequest
    suite: Suite

    @property
    def store(self) -> RunStore:
        return RunStore(self.folder)

    @property
    def seeds(self) -> list[int]:
        count = (
            self.request.seeds
            if self.request.seeds is not None
            else self.suite.quick.seeds
            if self.request.quick
            else 3
        )
        if count < 1:
            raise ConfigError(f"--seeds is {count}; at least 1 is needed.")
        return list(range(FIRST_SEED, FIRST_SEED + count))

    @cached_property
    def cells(self) -> list[Cell]:
        asked = self.request
        return build_cells(self.suite, self.seeds, quick=asked.quick, only=asked.only, device=asked.device)

    @cached_property
    def runs(self) -> dict[str, BenchmarkRun]:
        return unique_runs(self.cells)

    @property
    def summaries(self) -> list[dict[str, Any]]:
        """Of the runs that are done."""
        return self._summaries(self.runs)

    def summaries_for_table(self, table: str) -> list[dict[str, Any]]:
        """The same, of what stands in one table."""
        return self._summaries(dict.fromkeys(cell.run.name for cell in self.cells if cell.table == table))

    def _summaries(self, names: Iterable[str]) -> list[dict[str, Any]]:
        return [s for name in names if (s := self.store.summary(name)) is not None]

    @property
    def metrics(self) -> dict[str, list[TableMetric]]:
        return metrics_by_run(self.suite, self.cells)

    def tables(self) -> list[ResultTable]:
        """The paper's numbers stand beside the paper's corpora, not beside toys."""
        suite = self.suite
        if self.request.quick:
            suite = replace(suite, tables={name: {**table, "published": {}} for name, table in suite.tables.items()})
        return build_tables(suite, self.cells, self.store)

    def figure_path(self, table: str) -> Path:
        """Where the picture of a table lies, if there is anything on it."""
        return self.folder / f"{table}.png"

    def failures(self) -> dict[str, str]:
        """Runs that failed, by what they were for, and why."""
        return {str(c): why for c in self.cells if (why := self.store.failure(c.run.name)) is not None}


def default_folder(suite: str, quick: bool) -> Path:
    return Path("runs") / "bench" / f"{Path(suite).stem}{'-quick' if quick else ''}"


def open_benchmark(asked: BenchmarkRequest, folder: Path) -> Benchmark:
    """Check what is asked for and write it down. Runs that are already in the folder are not run again."""
    suite = load_suite(asked.suite)
    made = Benchmark(folder, asked, suite)
    check_runs(made.runs)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "asked.json", asdict(asked))
    write_atomically(folder / "suite.yaml", _text(asked.suite).encode())
    return made


def load_benchmark(folder: Path, asked: BenchmarkRequest | None = None, suite: str = "suite.yaml") -> Benchmark:
    """A benchmark as it was begun, whatever has become of the suite since; or what else was `asked` of another suite there."""
    if not (folder / "asked.json").exists():
        raise ConfigError(
            f"'{folder}' is no benchmark: there is no asked.json in it. Begin one with: motet bench SUITE"
        )
    if asked is None:
        asked = instantiate(BenchmarkRequest, json.loads((folder / "asked.json").read_text("utf-8")), "asked.json")
    return Benchmark(folder, asked, parse_suite(Path(asked.suite).stem, (folder / suite).read_text("utf-8")))


def write_results(benchmark: Benchmark) -> list[ResultTable]:
    """results.md, results.tex, results.json, and a picture a table."""
    tables, folder = benchmark.tables(), benchmark.folder
    for table in tables:
        draw_table(table, benchmark.figure_path(table.name))
    text = f"# {benchmark.suite.title}\n\n{render_results(benchmark, tables)}"
    write_atomically(folder / "results.md", text.encode())
    tex = "\n".join(render_latex(table, f"{benchmark.suite.name}-{table.name}") for table in tables)
    write_atomically(folder / "results.tex", (tex + "\n").encode())
    write_json(folder / "results.json", collect_results(benchmark, tables))
    return tables


def collect_results(benchmark: Benchmark, tables: Sequence[ResultTable]) -> dict[str, Any]:
    """The tables and how they came about, as plain values."""
    summaries = benchmark.summaries
    return {
        "suite": benchmark.suite.name,
        "title": benchmark.suite.title,
        "paper": benchmark.suite.paper,
        "asked": asdict(benchmark.request),
        "seeds": benchmark.seeds,
        "runs": {"all": len(benchmark.runs), "done": len(summaries)},
        "seconds": round(sum(s["seconds"] for s in summaries), 1),
        "machines": list_machines(summaries),
        "tables": {table.name: table.plain() for table in tables},
    }


def render_results(benchmark: Benchmark, tables: Sequence[ResultTable]) -> str:
    """The tables as Markdown, and how they came about."""
    summaries = benchmark.summaries
    seconds = sum(s["seconds"] for s in summaries)
    how = (
        f"`{bench_command(benchmark)}`: {len(summaries)} of {len(benchmark.runs)} runs, {format_duration(seconds)} of running on "
        f"{'; '.join(list_machines(summaries)) or 'nothing yet'}."
    )
    parts = [render_markdown(table) for table in tables]
    if benchmark.request.quick:
        small = [(run.config.data.name or "own data", run.config.model.name) for run in benchmark.runs.values()]
        on = dict.fromkeys(f"{corpus} with {model}" for corpus, model in small)
        said = (
            f"A quick trial of the suite ({'; '.join(on)}): what it shows is that everything runs, not who is better."
        )
        parts.insert(0, said)
    failed = [f"- {cell}: {shorten(why, 200)}" for cell, why in benchmark.failures().items()]
    tail = ["Runs that failed:", "\n".join(failed)] if failed else []
    return "\n\n".join([render_legend(tables, benchmark.seeds), *(p.rstrip() for p in parts), *tail, how]) + "\n"


def bench_command(benchmark: Benchmark) -> str:
    asked = benchmark.request
    words = ["motet bench", asked.suite, *(["--quick"] if asked.quick else []), f"--seeds {len(benchmark.seeds)}"]
    return " ".join([*words, *(f"--only '{p}'" for p in asked.only)])


def list_machines(summaries: Sequence[dict[str, Any]]) -> list[str]:
    """What the runs ran on, each once."""
    found = [
        s["machine"].get("gpu") or f"{s['machine'].get('processor', 'a CPU')}, {s['machine']['cores']}"
        for s in summaries
    ]
    return list(dict.fromkeys(found))


def _text(suite: str) -> str:
    if Path(suite).suffix in (".yaml", ".yml"):
        return Path(suite).read_text("utf-8")
    return resources.files("motet.suites").joinpath(f"{suite}.yaml").read_text("utf-8")
