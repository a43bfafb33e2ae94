"""One command's worth of work: a run and its baselines, in a folder that says everything about them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

from motet.core.errors import ConfigError
from motet.experiment.build import build_algorithm, build_bench, build_channel, build_federation, check_privacy, resolved
from motet.experiment.config import Config
from motet.experiment.export import save_model
from motet.experiment.federation import Federation
from motet.experiment.memory import PeakMemory
from motet.experiment.recipe import baseline_of
from motet.experiment.record import read_record, traffic_of, versions, write_json
from motet.experiment.run import Participants, Plan, Result, Running, run
from motet.experiment.venue import venue
from motet.learning.bench import Alone, Scratch
from motet.report.curves import draw_curves
from motet.report.progress import Silent, Watch
from motet.transport.memories import write_atomically

_DATA = ("seed", "data", "model", "partition", "task")  # what two runs must share to share a federation


@dataclass(frozen=True)
class Finished:
    """What a session leaves: its folder, and a summary for the run and for each baseline."""

    folder: Path
    summary: dict[str, Any]
    baselines: dict[str, dict[str, Any]]


def new_folder(recipe: str, under: Path = Path("runs")) -> Path:
    number = 1
    while (under / f"{recipe}-{number}").exists():
        number += 1
    return under / f"{recipe}-{number}"


def plan_of(config: Config, federation: Participants) -> Plan:
    algorithm = build_algorithm(config)
    check_privacy(config, algorithm)
    return Plan(
        federation, algorithm, config.rounds, config.cohort, config.evaluation, config.patience,
        build_channel(config), config.checkpoint.seconds, config.recipe, config.digest,
    )  # fmt: skip


def perform(config: Config, folder: Path, *, resume: bool = False, watch: Watch | None = None) -> Finished:
    """Run a recipe and its baselines. What is already done in the folder is not done again."""
    watch = watch or Silent()
    configs = _configs(config, folder, resume)
    for each in configs.values():
        check_privacy(each, build_algorithm(each))  # a mistake in the last baseline is said before the first round
    if not resume:
        open_folder(folder, configs)
    scratch = Scratch()
    federations = federations_of(configs)
    bench = build_bench([*configs.values()], list({id(f): f for f in federations.values()}.values()), scratch)
    found: dict[str, dict[str, Any]] = {}
    try:
        for name, each in configs.items():
            place = folder / "baselines" / name if name else folder
            done = load_summary(place)
            if done is None:
                with PeakMemory() as memory, venue(each, federations[name], place) as where:
                    plan = plan_of(each, federations[name])
                    result, running = run(plan, bench, folder=place, resume=resume, watch=watch, **where._asdict())
                done = finish(place, each, federations[name], result, running, memory.peak)
            found[name] = done
    finally:
        bench.close()
        scratch.close()
    summary = found.pop("")
    return Finished(folder, summary, found)


def load_config(folder: Path) -> Config:
    """The configuration a run was begun with."""
    path = folder / "config.yaml"
    if not path.exists():
        raise ConfigError(f"'{folder}' is no run: there is no config.yaml in it. Runs lie in runs/<recipe>-<number>.")
    given = yaml.safe_load(path.read_text("utf-8"))
    return Config.of(str(given.pop("recipe", folder.name)), given)


def load_summary(folder: Path) -> dict[str, Any] | None:
    path = folder / "summary.json"
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def _configs(config: Config, folder: Path, resume: bool) -> dict[str, Config]:
    """The run's configuration under "", and its baselines' under their names; a run that goes on has them written down."""
    if resume:
        return {"": config, **{name: load_config(folder / "baselines" / name) for name in config.baselines}}
    return {"": resolved(config), **{name: resolved(baseline_of(config, name)) for name in config.baselines}}


def open_folder(folder: Path, configs: Mapping[str, Config]) -> None:
    """A new run's folder, with its configuration in it."""
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(
            f"--out: '{folder}' is not empty. To go on with the run in it: motet resume {folder}; else name a new folder."
        )
    for name, config in reversed(list(configs.items())):  # the run's own last: where it stands, all stand
        place = folder / "baselines" / name if name else folder
        place.mkdir(parents=True, exist_ok=True)
        text = yaml.safe_dump(config.plain(), sort_keys=False, allow_unicode=True)
        write_atomically(place / "config.yaml", text.encode())


def federations_of(configs: Mapping[str, Config]) -> dict[str, Federation]:
    """Runs on the same data share one federation, so that texts are tokenised once."""
    made: dict[str, Federation] = {}
    found = {}
    for name, config in configs.items():
        key = json.dumps({k: v for k, v in config.plain().items() if k in _DATA}, sort_keys=True)
        if key not in made:
            made[key] = build_federation(config)
        found[name] = made[key]
    return found


def finish(
    place: Path, config: Config, federation: Federation, result: Result, running: Running, peak: int, **changes: Any
) -> dict[str, Any]:
    """Write down how a run ended, and its model."""
    if not running.plan.algorithm.personal:
        save_model(federation, result.params, place / "model")
    summary = {
        "recipe": config.recipe,
        "algorithm": config.algorithm.type,
        "task": federation.task.name,
        "model": config.model.name,
        "dataset": federation.corpus.name,
        "partition": {**federation.partition.recipe, "digest": federation.partition.digest},
        "clients": len(running.plan.federation.clients),
        "cohort": config.cohort.size or len(running.plan.federation.clients),
        "rounds": config.rounds,
        "seed": config.seed,
        "headline": federation.task.headline,
        "final": result.final,
        "best": result.best,
        "clients_final": result.clients_final,
        "bytes": traffic_of(result.traffic),
        "seconds": round(result.seconds, 2),
        "examples_per_second": round(result.examples_per_second, 1),
        "peak_memory_bytes": peak,
        "lost": [list(entry) for entry in result.lost],
        "versions": versions(),
        **changes,
    }
    write_json(place / "summary.json", summary)
    return summary


def export_model(folder: Path, to: Path, client: str | None) -> None:
    """A finished or interrupted run's model, or one client's own, from its checkpoint."""
    config = load_config(folder)
    federation = build_federation(config)
    plan = plan_of(config, federation)
    if client is not None:
        federation.partition.index(client)
    elif plan.algorithm.personal:
        first = federation.clients[0]
        raise ConfigError(f"{plan.algorithm.name} leaves every client its own model; say whose: --client {first}")
    running = Running(plan, Alone(torch.device("cpu")), folder, Silent())
    if not running.resume():
        raise ConfigError(f"'{folder}' has no checkpoint yet, so there is no model to export.")
    save_model(federation, running.model_params(client), to)


def draw(finished: Finished) -> None:
    """The learning curves of the run and its baselines, as curves.png."""
    headline = finished.summary["headline"]
    folders = {finished.summary["algorithm"]: finished.folder}
    folders |= {name: finished.folder / "baselines" / name for name in finished.baselines}
    curves = {name: read_record(folder).curve(headline) for name, folder in folders.items()}
    told = f"{finished.summary['dataset']}, {finished.summary['model']}, {finished.summary['clients']} clients"
    draw_curves(curves, headline, told, finished.folder / "curves.png")
