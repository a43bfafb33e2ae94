"""A benchmark as plain values, for its page: the tables, and every run that has begun, told by the cells it serves."""

from __future__ import annotations

from typing import Any

from motet.benchmark.benchmark_folder import Benchmark, bench_command, collect_results
from motet.core.errors import ConfigError
from motet.experiment.commands.report_data import RunReport, read_run_report


def collect_benchmark_report(benchmark: Benchmark) -> tuple[list[RunReport], dict[str, Any]]:
    results = collect_results(benchmark, benchmark.tables())  # nothing is written: the folder may be somebody else's
    found: dict[str, RunReport] = {}
    for cell in benchmark.cells:
        setting = f"{cell.table} · {cell.column}"
        if cell.run.name in found:
            if setting not in found[cell.run.name]["settings_too"]:
                found[cell.run.name]["settings_too"].append(setting)
        elif benchmark.store.is_done(cell.run.name):
            story = read_run_report(benchmark.store.run_folder(cell.run.name), cell.row, setting)
            found[cell.run.name] = {
                **story,
                "settings_too": [],
                "command": f"{bench_command(benchmark)} --only '{cell.table}/{cell.row}/{cell.column}'",
            }
    if not found:
        raise ConfigError(
            f"'{benchmark.folder}': no run of this benchmark is finished yet; carry it out with: {bench_command(benchmark)}"
        )
    return list(found.values()), results
