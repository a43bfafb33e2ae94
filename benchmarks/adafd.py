"""How AdaFD's runs went, drawn from a benchmark's folder: weights by β and round, F1 and loss by round beside clients alone.

    motet bench adafd
    python -m benchmarks.adafd [--runs runs/bench/adafd] [--seeds 3] [--out docs/figures]

Lines are means over seeds. Clients alone are judged as in the tables: the mean of their own models on the global test set.
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

SIZES = {"same": "one architecture", "fewer": "fewer texts", "unlike": "different architectures, fewer texts"}
MEASURES = {"f1_weighted": "weighted F1", "loss": "cross-entropy"}
Lines = dict[str, list[tuple[int, float]]]


def rows_of(benchmark: Benchmark, table: str, row: str) -> list[Row]:
    """What the runs of a table's row wrote down, over all seeds."""
    runs = {
        c.run.name for c in benchmark.cells if (c.table, c.row) == (table, row) and benchmark.store.is_done(c.run.name)
    }
    return [row for run in sorted(runs) for row in read_metrics(benchmark.store.run_folder(run)).rows]


def means(rows: list[Row], split: str, name: str) -> Lines:
    """For everybody the mean over seeds, round by round."""
    found: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if (row["split"], row["name"]) == (split, name):
            found[row["who"]][row["round"]].append(row["value"])
    return {
        who: [(number, fmean(values)) for number, values in sorted(by.items())] for who, by in sorted(found.items())
    }


def draw_betas(benchmark: Benchmark, path: Path) -> None:
    betas = list(dict.fromkeys(c.row for c in benchmark.cells if c.table == "beta"))
    figure, panels = plt.subplots(1, len(betas), figsize=(12, 3), dpi=150, layout="constrained", sharey=True)
    for axes, beta in zip(panels, betas, strict=True):
        for who, line in means(rows_of(benchmark, "beta", beta), "distillation", "weight").items():
            axes.plot(*zip(*line, strict=True), marker="o", markersize=3.5, label=who)
        _dress(axes, beta)
        axes.set_xlabel("round")
    panels[0].set_ylabel("weight in the pool")
    panels[0].legend(frameon=False, fontsize=8)
    figure.savefig(path)
    plt.close(figure)


def draw_course(benchmark: Benchmark, path: Path) -> None:
    figure, panels = plt.subplots(2, len(SIZES), figsize=(11, 6), dpi=150, layout="constrained", sharex=True)
    for column, (table, title) in enumerate(SIZES.items()):
        methods = [
            r for r in dict.fromkeys(c.row for c in benchmark.cells if c.table == table) if r != "FedKD"
        ]  # one round
        for row, (measure, said) in enumerate(MEASURES.items()):
            axes = panels[row][column]
            for method in methods:
                line = means(rows_of(benchmark, table, method), "global", measure).get("server", [])
                look: dict[str, Any] = {"marker": "o", "markersize": 3.5}
                look |= (
                    {"color": "black", "linestyle": "--" if method == "isolated" else ":"} if method in BOUNDS else {}
                )
                axes.plot(*zip(*line, strict=True), label=BOUNDS.get(method, method), **look)
            _dress(axes, title if row == 0 else "")
            axes.set_ylabel(said if column == 0 else "")
        panels[-1][column].set_xlabel("round")
    figure.legend(
        *panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False, fontsize=8
    )
    figure.savefig(path)
    plt.close(figure)


BOUNDS = {"isolated": "clients alone", "centralised": "all texts in one place"}


def _dress(axes: Any, title: str) -> None:
    axes.set_title(title)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/bench/adafd"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("docs/figures"))
    asked = parser.parse_args()
    benchmark = Benchmark(asked.runs, BenchmarkRequest("adafd", seeds=asked.seeds), load_suite("adafd"))
    draw_betas(benchmark, asked.out / "adafd-betas.png")
    draw_course(benchmark, asked.out / "adafd-course.png")


if __name__ == "__main__":
    main()
