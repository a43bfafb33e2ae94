"""Plot AdaFD's runs from a benchmark folder: weights by β and round, and F1 and loss by round next to isolated clients.

    motet bench adafd
    python -m benchmarks.adafd [--runs runs/bench/adafd] [--seeds 3] [--out docs/papers/figures]

Lines are means over seeds. Isolated clients are evaluated as in the tables: the mean of their models on the global test set.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import MaxNLocator

from motet.benchmark.benchmark_folder import Benchmark, BenchmarkRequest
from motet.benchmark.suite import load_suite
from motet.experiment.loop.metrics_log import Row, read_metrics

TABLES = {"same": "one architecture", "fewer": "fewer texts", "unlike": "different architectures, fewer texts"}
METRICS = {"f1_weighted": "weighted F1", "loss": "cross-entropy"}
Lines = dict[str, list[tuple[int, float]]]


def read_rows(benchmark: Benchmark, table: str, row: str) -> list[Row]:
    """Return the metrics of all runs of a table row, over all seeds."""
    runs = {
        c.run.name for c in benchmark.cells if (c.table, c.row) == (table, row) and benchmark.store.is_done(c.run.name)
    }
    return [row for run in sorted(runs) for row in read_metrics(benchmark.store.run_folder(run)).rows]


def mean_over_seeds(rows: list[Row], split: str, name: str) -> Lines:
    """Return each participant's mean per round."""
    values: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if (row["split"], row["name"]) == (split, name):
            values[row["who"]][row["round"]].append(row["value"])
    return {
        who: [(round, fmean(seeds)) for round, seeds in sorted(by_round.items())]
        for who, by_round in sorted(values.items())
    }


def plot_betas(benchmark: Benchmark, path: Path) -> None:
    betas = list(dict.fromkeys(c.row for c in benchmark.cells if c.table == "beta"))
    figure, panels = plt.subplots(1, len(betas), figsize=(12, 3), dpi=150, layout="constrained", sharey=True)
    for axes, beta in zip(panels, betas, strict=True):
        for who, line in mean_over_seeds(read_rows(benchmark, "beta", beta), "distillation", "weight").items():
            axes.plot(*zip(*line, strict=True), marker="o", markersize=3.5, label=who)
        _format_axes(axes, beta)
        axes.set_xlabel("round")
    panels[0].set_ylabel("weight in the pool")
    panels[0].legend(frameon=False, fontsize=8)
    figure.savefig(path)
    plt.close(figure)


def plot_rounds(benchmark: Benchmark, path: Path) -> None:
    figure, panels = plt.subplots(2, len(TABLES), figsize=(11, 6), dpi=150, layout="constrained", sharex=True)
    for column, (table, title) in enumerate(TABLES.items()):
        rows = dict.fromkeys(cell.row for cell in benchmark.cells if cell.table == table)
        methods = [row for row in rows if row != "FedKD"]  # which has only one round
        for row, (metric, label) in enumerate(METRICS.items()):
            axes = panels[row][column]
            for method in methods:
                line = mean_over_seeds(read_rows(benchmark, table, method), "global", metric).get("server", [])
                style: dict[str, Any] = {"marker": "o", "markersize": 3.5}
                if method in BOUNDS:
                    style |= {"color": "black", "linestyle": "--" if method == "isolated" else ":"}
                axes.plot(*zip(*line, strict=True), label=BOUNDS.get(method, method), **style)
            _format_axes(axes, title if row == 0 else "")
            axes.set_ylabel(label if column == 0 else "")
        panels[-1][column].set_xlabel("round")
    figure.legend(
        *panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False, fontsize=8
    )
    figure.savefig(path)
    plt.close(figure)


BOUNDS = {"isolated": "isolated clients", "centralized": "all texts in one place"}


def _format_axes(axes: Any, title: str) -> None:
    axes.set_title(title)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/bench/adafd"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("docs/papers/figures"))
    args = parser.parse_args()
    benchmark = Benchmark(args.runs, BenchmarkRequest("adafd", seeds=args.seeds), load_suite("adafd"))
    plot_betas(benchmark, args.out / "adafd-betas.png")
    plot_rounds(benchmark, args.out / "adafd-course.png")


if __name__ == "__main__":
    main()
