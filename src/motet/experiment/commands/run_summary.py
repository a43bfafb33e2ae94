"""Write the results of a run: summary.json, per-example scores, the partition and the model."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from motet.algorithms.fedavg import FedAvg
from motet.algorithms.percfl import PerCFL
from motet.experiment.build.executor_builder import resolve_device
from motet.experiment.build.federation import ClientGroup, Federation
from motet.experiment.build.run_plan import RunPlan
from motet.experiment.build.traffic_estimate import round_bytes
from motet.experiment.commands.environment import describe_machine, package_versions
from motet.experiment.commands.model_card import describe_run
from motet.experiment.commands.model_export import save_model as save_model_directory
from motet.experiment.commands.partition_commands import partition_facts
from motet.experiment.commands.partition_table import client_label_table
from motet.experiment.loop.example_scores import write_example_scores
from motet.experiment.loop.run_result import RunResult
from motet.experiment.loop.scores import cost_to_reach, score_spread
from motet.experiment.recipe.run_config import GroupConfig, RunConfig
from motet.learning.modules.model import Model
from motet.transport.json_files import write_json
from motet.transport.traffic import Traffic

LABELS_FILE = "labels.json"  # the scores of each label, and confusion matrices


def write_results(
    folder: Path,
    config: RunConfig,
    federation: Federation,
    plan: RunPlan,
    result: RunResult,
    *,
    peak_memory: int,
    save_model: bool = True,
    **changes: Any,
) -> dict[str, Any]:
    """Write the results of a run and return its summary. `changes` replace entries of the summary.

    `federation` is the one on this machine; with remote clients, the plan has another.
    """
    write_example_scores(folder, result.example_scores)
    confusions = {name: confusion.to_dict() for name, confusion in result.confusions.items()}
    if confusions:
        write_json(folder / LABELS_FILE, confusions, indent=None)  # a matrix of many labels is large
    summary = {
        **_describe_setup(config, federation, plan),
        **_collect_scores(config, federation, plan, result),
        **_collect_costs(config, federation, plan, result),
        "peak_memory_bytes": peak_memory,
        "versions": package_versions(),
        "machine": describe_machine(resolve_device(config.device)),
        **changes,
    }
    if save_model and not result.has_personal_models:
        card = describe_run(config, summary, folder)
        save_model_directory(federation.server, result.params, folder / "model", card)
    write_json(folder / "summary.json", summary)
    return summary


def write_partition(folder: Path, federation: Federation) -> None:
    """Write how the examples are divided over simulated clients, so that it can be seen while the run is going on."""
    write_json(folder / "partition.json", client_label_table(federation))


def _describe_setup(config: RunConfig, federation: Federation, plan: RunPlan) -> dict[str, Any]:
    return {
        "recipe": config.recipe,
        "algorithm": config.algorithm.type,
        "task": federation.task.name,
        "model": ", ".join(dict.fromkeys(group.model.name for group in config.client_groups)),
        "dataset": ", ".join(dict.fromkeys(group.corpus.name for group in federation.groups)),
        "partition": {
            **federation.partition.recipe,
            "digest": federation.partition.digest,
            "measures": partition_facts(federation.partition, federation.corpus),
        },
        "clients": len(plan.federation.clients),
        "cohort": config.cohort.size or len(plan.federation.clients),
        "train_examples": int(sum(group.sizes.sum() for group in federation.groups)),
        "seed": config.seed,
        "primary_metric": federation.task.primary_metric,
        "primary_metric_split": "local" if plan.has_personal_models else "global",
        "items": federation.test_digest,
    }


def _collect_scores(config: RunConfig, federation: Federation, plan: RunPlan, result: RunResult) -> dict[str, Any]:
    pairs = zip(config.client_groups, federation.groups, strict=True)
    return {
        "rounds": result.rounds,
        "kept_round": result.kept_round,
        "initial": result.initial,
        "final": result.final,
        "best": result.best,
        "dev_best": result.best_dev_round._asdict() if result.best_dev_round else None,
        "clients_final": result.client_spread,
        "clients_judged": result.evaluated_clients,
        "groups": [_summarize_group(group_config, group, plan, result) for group_config, group in pairs],
        "local_test": result.local_test,
        "labels": {name: confusion.score_labels() for name, confusion in result.confusions.items()},
        "remarks": plan.algorithm.remarks(result.state) if isinstance(plan.algorithm, PerCFL) else [],
    }


def _summarize_group(group_config: GroupConfig, group: ClientGroup, plan: RunPlan, result: RunResult) -> dict[str, Any]:
    federation, clients = plan.federation, [*group.clients]
    if not isinstance(federation, Federation):  # the server's corpus is not divided over remote clients
        clients = [client for client in federation.clients if federation.group_for(client) is group]
    primary_metric = group.task.primary_metric
    scores = [result.client_scores[client][primary_metric] for client in clients if client in result.client_scores]
    return {
        "name": group.name,
        "task": group.task.name,
        "model": group_config.model.name,
        "dataset": group.corpus.name,
        "clients": len(clients),
        "primary_metric": primary_metric,
        "metric_details": dict(group.task.metric_details),
        "final": result.group_scores.get(group.name, {}),
        "clients_final": score_spread(scores),
    }


def describe_metrics(summary: Mapping[str, Any], names: Collection[str]) -> str:
    """Return how these metrics were computed: tokenizer, stemmer, script. Empty if there is nothing to say."""
    names_by_detail: dict[str, dict[str, None]] = {}
    for group in summary.get("groups", ()):
        for name, detail in group.get("metric_details", {}).items():
            if name in names:
                names_by_detail.setdefault(detail, {})[name] = None
    return ". ".join(f"{', '.join(metrics)}: {detail}" for detail, metrics in names_by_detail.items())


def _collect_costs(config: RunConfig, federation: Federation, plan: RunPlan, result: RunResult) -> dict[str, Any]:
    epsilon = {} if result.epsilon is None else {"epsilon": result.epsilon}
    settings = config.to_dict()
    return {
        "bytes": _traffic_bytes(result.traffic),
        "bytes_a_round": _bytes_per_round(plan, federation.model),
        "network_seconds": round(result.traffic.network_seconds, 3) if config.network else None,
        "reached": cost_to_reach(result.metrics, federation.task.primary_metric, config.evaluation.target_scores),
        "seconds": round(result.seconds, 2),
        "examples_per_second": round(result.examples_per_second, 1),
        "secure": settings["secure"],
        "privacy": {**settings["privacy"], **epsilon},
        "lost": [list(failure) for failure in result.failures],
    }


def _traffic_bytes(traffic: Traffic) -> dict[str, int]:
    return {name: count for name, count in asdict(traffic).items() if name not in ("requests", "network_seconds")}


def _bytes_per_round(plan: RunPlan, model: Model) -> dict[str, int] | None:
    """Return the bytes of a round for algorithms of FedAvg's family, in which every round is the same."""
    if not isinstance(plan.algorithm, FedAvg):
        return None
    return round_bytes(plan.algorithm, model.layout, plan.cohort_size, plan.components.channel)._asdict()
