"""Draw the figures of a finished run: learning curves, relations between clients, and weights."""

from __future__ import annotations

from motet.experiment.commands.recipe_runner import FinishedRun
from motet.experiment.commands.run_folder import load_config
from motet.experiment.commands.run_records import is_personal
from motet.experiment.loop.metrics_log import INITIAL_SPLIT, read_metrics
from motet.report.cluster_plots import draw_relations, read_relations
from motet.report.curves import draw_curves, draw_traffic_curves
from motet.report.weight_plots import draw_weights

_SETS = {"test": "mean over clients' test sets", "global": "global test set", "dev": "development set"}


def draw_figures(finished: FinishedRun) -> None:
    """Draw the curves of the run and its baselines: curves.png over rounds, traffic.png over megabytes.

    For each of them, also draw the relations between clients and the weights that its algorithm noted.
    """
    summary, folders = finished.summary, finished.folders
    metric = summary["primary_metric"]
    logs = {name: read_metrics(folder) for name, folder in folders.items()}
    title = f"{summary['dataset']}, {summary['model']}, {summary['clients']} clients"
    has_local_curves = all(len(log.traffic_curve(metric, "test", "clients")) > 1 for log in logs.values())
    is_local = is_personal(summary) and has_local_curves
    global_split = "global" if load_config(finished.folder).evaluation.test else "dev"
    curves = {
        name: log.curve(metric, "test", "clients")
        if is_local
        else [*log.curve(metric, INITIAL_SPLIT), *log.curve(metric, global_split)]
        for name, log in logs.items()
    }
    label = f"{metric}, {_SETS['test' if is_local else global_split]}"
    draw_curves(curves, label, title, finished.folder / "curves.png")
    for name, folder in folders.items():
        neighbors = int(load_config(folder).algorithm.options.get("neighbors", 8))
        relations = read_relations(logs[name].rows, neighbors)
        if relations is not None:
            draw_relations(relations, folder)
        draw_weights(logs[name].rows, title, folder / "weights.png")
    split, who = ("test", "clients") if has_local_curves else (global_split, "server")
    traffic_curves = {name: log.traffic_curve(metric, split, who) for name, log in logs.items()}
    label = f"{metric}, {_SETS[split]}"
    draw_traffic_curves(traffic_curves, label, title, finished.folder / "traffic.png")
