"""One command's worth of work: a run and its baselines, in a folder that says everything about them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

from motet.algorithms.fedavg import FedAvg
from motet.core.errors import ConfigError
from motet.core.work import Executor
from motet.experiment.build.component_builders import build_components, resolve_defaults
from motet.experiment.build.executor_builder import resolve_device
from motet.experiment.build.federation import ClientGroup, Federation
from motet.experiment.build.federation_builder import build_federation, build_federations
from motet.experiment.build.run_plan import RunPlan, build_plan
from motet.experiment.build.traffic_estimate import estimate_client_bytes, round_bytes
from motet.experiment.commands.environment import describe_machine, package_versions
from motet.experiment.commands.model_export import folder_name, save_model
from motet.experiment.commands.partition_commands import partition_facts
from motet.experiment.commands.partition_table import client_label_table
from motet.experiment.deploy.client_launcher import build_executor, launch_clients
from motet.experiment.loop.example_scores import write_example_scores
from motet.experiment.loop.json_files import write_json
from motet.experiment.loop.metrics_log import cost_to_reach, read_metrics, score_spread
from motet.experiment.loop.peak_memory import PeakMemory
from motet.experiment.loop.run_loop import FederatedRun, RunResult, execute_plan
from motet.experiment.loop.tracking import find_trackers, track_run
from motet.experiment.recipe.recipe_files import baseline_config
from motet.experiment.recipe.run_config import GroupConfig, RunConfig
from motet.learning.executors.serial_executor import PrefixCache, SerialExecutor
from motet.learning.modules.model import Model
from motet.report.cluster_plots import draw_relations, read_relations
from motet.report.curves import draw_curves, draw_traffic_curves
from motet.report.progress import RunCallback, SilentProgress
from motet.report.weight_plots import draw_weights
from motet.transport.spill_store import write_atomically


@dataclass(frozen=True)
class FinishedRun:
    """What a session leaves: its folder, and a summary for the run and for each baseline."""

    folder: Path
    summary: dict[str, Any]
    baselines: dict[str, dict[str, Any]]


def new_folder(recipe: str, under: Path = Path("runs")) -> Path:
    number = 1
    while (under / f"{recipe}-{number}").exists():
        number += 1
    return under / f"{recipe}-{number}"


def run_recipe(
    config: RunConfig, folder: Path, *, resume: bool = False, callback: RunCallback | None = None
) -> FinishedRun:
    """Run a recipe and its baselines. What is already done in the folder is not done again."""
    callback = callback or SilentProgress()
    configs = _configs(config, folder, resume)
    for each in configs.values():
        build_components(each)
        find_trackers(each)
    if not resume:
        require_empty(folder)
    federations = build_federations(configs)
    for name, each in configs.items():
        prepare_plan(each, federations[name])
    scratch = PrefixCache()
    executor = build_executor([*configs.values()], list({id(f): f for f in federations.values()}.values()), scratch)
    found: dict[str, dict[str, Any]] = {}
    try:
        if not resume:
            create_run_folder(folder, configs)
        for name, each in configs.items():
            place = folder / "baselines" / name if name else folder
            done = load_summary(place)
            if done is None:
                done = run_experiment(each, place, federations[name], executor, resume=resume, callback=callback)
            found[name] = done
    finally:
        executor.close()
        scratch.close()
    summary = found.pop("")
    return FinishedRun(folder, summary, found)


def prepare_plan(config: RunConfig, federation: Federation) -> RunPlan:
    """A plan whose algorithm can begin on its models and texts. A mistake in the last baseline is said before the first round,
    and before there is a folder."""
    plan = build_plan(config, federation, build_components(config))
    estimate_client_bytes(plan)  # letters need what they are about: public texts, say
    plan.initial_state  # noqa: B018
    return plan


def run_experiment(
    config: RunConfig,
    place: Path,
    federation: Federation,
    executor: Executor,
    *,
    resume: bool = False,
    callback: RunCallback | None = None,
    keep_model: bool = True,
) -> dict[str, Any]:
    """One run, on a federation and a executor that may serve others too; what it leaves in its folder, and its summary."""
    plan = build_plan(config, federation, build_components(config))
    with (
        PeakMemory() as memory,
        track_run(config, place, callback or SilentProgress()) as told,
        launch_clients(config, federation, place) as where,
    ):
        result, running = execute_plan(plan, executor, folder=place, resume=resume, callback=told, **where._asdict())
    return write_results(place, config, federation, result, running, memory.peak, keep_model)


def write_results(
    place: Path,
    config: RunConfig,
    federation: Federation,
    result: RunResult,
    running: FederatedRun,
    peak: int,
    keep_model: bool = True,
    **changes: Any,
) -> dict[str, Any]:
    """Write down how a run ended, and its model."""
    if keep_model and not running.personal:
        save_model(federation.server, result.params, place / "model")
    write_example_scores(place, result.items)
    write_json(place / "partition.json", client_label_table(federation))
    summary = {**_summary(config, federation, result, running, peak), **changes}
    write_json(place / "summary.json", summary)
    return summary


def load_config(folder: Path) -> RunConfig:
    """The configuration a run was begun with."""
    path = folder / "config.yaml"
    if not path.exists():
        raise ConfigError(f"'{folder}' is no run: there is no config.yaml in it. Runs lie in runs/<recipe>-<number>.")
    given = yaml.safe_load(path.read_text("utf-8"))
    return RunConfig.from_settings(str(given.pop("recipe", folder.name)), given)


def load_summary(folder: Path) -> dict[str, Any] | None:
    path = folder / "summary.json"
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def _configs(config: RunConfig, folder: Path, resume: bool) -> dict[str, RunConfig]:
    """The run's configuration under "", and its baselines' under their names; a run that goes on has them written down."""
    if resume:
        return {"": config, **{name: load_config(folder / "baselines" / name) for name in config.baselines}}
    return {
        "": resolve_defaults(config),
        **{name: resolve_defaults(baseline_config(config, name)) for name in config.baselines},
    }


def require_empty(folder: Path) -> None:
    if folder.is_file() or (folder.exists() and any(folder.iterdir())):
        resume = f" To go on with the run in it: motet resume {folder}." if (folder / "config.yaml").exists() else ""
        raise ConfigError(f"'{folder}' is not an empty folder; name a new one, so that nothing is lost.{resume}")


def create_run_folder(folder: Path, configs: Mapping[str, RunConfig]) -> None:
    """A new run's folder, with its configuration in it."""
    for name, config in reversed(list(configs.items())):  # the run's own last: where it stands, all stand
        place = folder / "baselines" / name if name else folder
        place.mkdir(parents=True, exist_ok=True)
        text = yaml.safe_dump(config.to_dict(), sort_keys=False, allow_unicode=True)
        write_atomically(place / "config.yaml", text.encode())


def _summary(
    config: RunConfig, federation: Federation, result: RunResult, running: FederatedRun, peak: int
) -> dict[str, Any]:
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
        "clients": len(running.plan.federation.clients),
        "cohort": config.cohort.size or len(running.plan.federation.clients),
        "rounds": running.done,
        "seed": config.seed,
        "headline": federation.task.primary_metric,
        "final": result.final,
        "best": result.best,
        "dev_best": result.chosen._asdict() if result.chosen else None,
        "clients_final": result.clients_final,
        "clients_judged": len(running.judged()),
        "groups": [
            _group(*each, running.plan, result) for each in zip(config.client_groups, federation.groups, strict=True)
        ],
        "local_test": result.local_test,
        "bytes": {n: c for n, c in asdict(result.traffic).items() if n not in ("requests", "network_seconds")},
        "bytes_a_round": _round_cost(running.plan, federation.model, config),
        "network_seconds": round(result.traffic.network_seconds, 3) if config.network else None,
        "reached": cost_to_reach(result.record, federation.task.primary_metric, config.evaluation.target_scores),
        "seconds": round(result.seconds, 2),
        "examples_per_second": round(result.examples_per_second, 1),
        "peak_memory_bytes": peak,
        "secure": config.to_dict()["secure"],
        "privacy": {**config.to_dict()["privacy"], **({"epsilon": running.ledger.epsilon()} if running.ledger else {})},
        "lost": [list(entry) for entry in result.lost],
        "items": federation.corpus.fingerprint,
        "versions": package_versions(),
        "machine": describe_machine(resolve_device(config.device)),
    }


def _group(choice: GroupConfig, group: ClientGroup, plan: RunPlan, result: RunResult) -> dict[str, Any]:
    """What a summary says of one group: what it has, and how it fares."""
    people, members = plan.federation, [*group.clients]
    if not isinstance(people, Federation):  # silos, who are not those that the server's own texts are divided over
        members = [client for client in people.clients if people.group_for(client) is group]
    own = {c: result.clients[c] for c in members if c in result.clients}
    return {
        "name": group.name,
        "task": group.task.name,
        "model": choice.model.name,
        "dataset": group.corpus.name,
        "clients": len(members),
        "headline": group.task.primary_metric,
        "final": result.groups.get(group.name, {}),
        "clients_final": score_spread([scores[group.task.primary_metric] for scores in own.values()]),
    }


def _round_cost(plan: RunPlan, model: Model, config: RunConfig) -> dict[str, int] | None:
    """Of algorithms of FedAvg's family, whose rounds all cost the same."""
    if not isinstance(plan.algorithm, FedAvg):
        return None
    there = len(plan.federation.clients)
    return round_bytes(
        plan.algorithm, model.layout, min(config.cohort.size or there, there), plan.components.channel
    )._asdict()


def export_models(folder: Path, to: Path, client: str | None = None, every: bool = False) -> list[Path]:
    """A finished or interrupted run's model, one client's own, or every client's in a folder each; where they are."""
    config = load_config(folder)
    require_empty(to)
    federation = build_federation(config)
    plan = build_plan(config, federation, build_components(config))
    if client is not None:
        federation.group_for(client)
    running = FederatedRun(plan, SerialExecutor(torch.device("cpu")), folder, SilentProgress())
    if client is None and running.personal and not every:
        first = federation.clients[0]
        raise ConfigError(
            f"{plan.algorithm.name} leaves every client its own model; say whose: --client {first}, or --all"
        )
    if running.restore() is None:
        raise ConfigError(f"'{folder}' has no checkpoint yet, so there is no model to export.")
    places = {c: to / folder_name(c) for c in federation.clients} if every else {client: to}
    for whose, place in places.items():
        save_model(
            federation.server if whose is None else federation.group_for(whose), running.model_params(whose), place
        )
    return list(places.values())


def draw_figures(finished: FinishedRun) -> None:
    """The learning curves of the run and its baselines, as curves.png against rounds and traffic.png against megabytes."""
    primary_metric = finished.summary["headline"]
    folders = {finished.summary["algorithm"]: finished.folder}
    folders |= {name: finished.folder / "baselines" / name for name in finished.baselines}
    records = {name: read_metrics(folder) for name, folder in folders.items()}
    told = f"{finished.summary['dataset']}, {finished.summary['model']}, {finished.summary['clients']} clients"
    curves = {name: record.curve(primary_metric) for name, record in records.items()}
    draw_curves(curves, primary_metric, told, finished.folder / "curves.png")
    for name, folder in folders.items():
        found = read_relations(records[name].rows, int(load_config(folder).algorithm.options.get("neighbors", 8)))
        if found is not None:
            draw_relations(found, folder)
        draw_weights(records[name].rows, told, folder / "weights.png")
    local = all(len(record.traffic_curve(primary_metric, "test", "clients")) > 1 for record in records.values())
    where = ("test", "clients") if local else ("global", "server")
    costs = {name: record.traffic_curve(primary_metric, *where) for name, record in records.items()}
    said = f"{primary_metric}, mean of the clients' own tests" if local else f"{primary_metric} on the global test set"
    draw_traffic_curves(costs, said, told, finished.folder / "traffic.png")
