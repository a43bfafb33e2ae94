"""Plot how near clients with the same kind of task are, with and without ATC's contrastive loss (Figure 6 of the paper).

    motet run benchmarks/atc_neighbors.yaml --out runs/with
    motet run benchmarks/atc_neighbors.yaml algorithm.second_stage=neighbors --out runs/without
    python -m benchmarks.atc --with runs/with --without runs/without --clients aeslc,squad-qg [--out atc-neighbors.png]

The runs can also be folders of `motet bench`, one for each seed. The server ranks all clients by the similarity of
their updates to each client. A line is the mean place of the clients of one corpus in the lists of the clients whose
names start with one of `--clients`; 1 is the nearest.

With `--relations FOLDER`, it also draws clusters.png and ranks.png over all rounds of the runs of `--with`: who was in one
cluster in the first stage, and how near clients were in the second (Figures 4 and 5).
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import MaxNLocator

from motet.experiment.loop.metrics_log import read_metrics
from motet.report.cluster_plots import draw_relations, read_relations

Places = dict[str, list[tuple[int, float]]]  # by corpus: round of the second stage, mean place


def mean_places(runs: Sequence[Path], clients: Sequence[str]) -> Places:
    """Return the mean place of each corpus in the lists of the selected clients, round by round, over all runs."""
    places: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        notes = [row for row in read_metrics(run).rows if row["split"] == "note" and row["name"] == "neighbors"]
        for round, note in enumerate(notes, 1):
            rankings: Any = note["value"]  # client -> all clients, the nearest first and itself at place 0
            for client, ranking in rankings.items():
                for place, other in enumerate(ranking) if client.startswith(tuple(clients)) else ():
                    if other != client:
                        places[other.partition("/")[0]][round].append(place)
    return {
        corpus: [(round, fmean(values)) for round, values in sorted(by_round.items())]
        for corpus, by_round in sorted(places.items())
    }


def plot(panels: dict[str, Places], clients: Sequence[str], path: Path) -> None:
    figure, axes = plt.subplots(1, len(panels), figsize=(9, 3.4), dpi=150, layout="constrained", sharey=True)
    for panel, (title, places) in zip(axes, panels.items(), strict=True):
        for corpus, line in places.items():
            style = "-" if corpus.startswith(tuple(clients)) else "--"
            panel.plot(*zip(*line, strict=True), style, marker="o", markersize=3.5, label=corpus)
        panel.set_title(title)
        panel.set_xlabel("round of the second stage")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel(f"mean place for {', '.join(clients)}\n(1: nearest)")
    axes[0].invert_yaxis()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=6, frameon=False, fontsize=8)
    figure.savefig(path)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--with", dest="contrast", type=Path, nargs="+", required=True)
    parser.add_argument("--without", type=Path, nargs="+", required=True)
    parser.add_argument("--clients", required=True, help="names of groups, separated by commas")
    parser.add_argument("--out", type=Path, default=Path("atc-neighbors.png"))
    parser.add_argument("--relations", type=Path, help="folder for the figures of clusters and ranks")
    parser.add_argument("--nearest", type=int, default=4, help="neighbors of a client, with itself (default: 4)")
    args = parser.parse_args()
    clients = args.clients.split(",")
    panels = {"with the contrastive loss": args.contrast, "without": args.without}
    places = {title: mean_places(runs, clients) for title, runs in panels.items()}
    if not all(places.values()):
        parser.error("a run has no neighbors of these clients; ATC logs them in its second stage")
    plot(places, clients, args.out)
    if args.relations:
        relations = read_relations([row for run in args.contrast for row in read_metrics(run).rows], args.nearest)
        if relations is not None:
            args.relations.mkdir(parents=True, exist_ok=True)
            draw_relations(relations, args.relations)
    for title, by_corpus in places.items():
        print(title, {corpus: round(fmean(place for _, place in line), 1) for corpus, line in by_corpus.items()})


if __name__ == "__main__":
    main()
