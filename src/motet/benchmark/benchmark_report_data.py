"""The data of a benchmark's report page: its tables and its finished runs."""

from __future__ import annotations

from typing import Any

from motet.benchmark.benchmark_folder import Benchmark, bench_command, collect_results
from motet.core.errors import ConfigError
from motet.experiment.commands.report_data import RunReport, read_run_report


def collect_benchmark_report(benchmark: Benchmark) -> tuple[list[RunReport], dict[str, Any]]:
    """Return the report data of each finished run, and the results. Writes nothing to the benchmark's folder."""
    results = collect_results(benchmark, benchmark.tables())
    reports: dict[str, RunReport] = {}
    for cell in benchmark.cells:
        setting = f"{cell.table} · {cell.column}"
        if cell.run.name in reports:
            if setting not in reports[cell.run.name]["other_settings"]:
                reports[cell.run.name]["other_settings"].append(setting)
        elif benchmark.store.is_done(cell.run.name):
            reports[cell.run.name] = {
                **read_run_report(benchmark.store.run_folder(cell.run.name), cell.row, setting),
                "other_settings": [],
                "command": f"{bench_command(benchmark)} --only '{cell.table}/{cell.row}/{cell.column}'",
            }
    if not reports:
        raise ConfigError(
            f"'{benchmark.folder}': no run of this benchmark is finished. Run it with: {bench_command(benchmark)}"
        )
    return list(reports.values()), results
