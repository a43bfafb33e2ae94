"""`motet run` and `motet resume`: run a recipe and its baselines in a folder."""

from __future__ import annotations

import math
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from motet.core.work import Executor
from motet.experiment.build.component_builders import build_components, resolve_defaults
from motet.experiment.build.federation import Federation
from motet.experiment.build.federation_builder import build_federations
from motet.experiment.build.run_components import RunComponents
from motet.experiment.build.run_plan import RunPlan, build_plan
from motet.experiment.build.traffic_estimate import estimate_traffic
from motet.experiment.commands.data_inspection import (
    collect_inspections,
    describe_findings,
    write_inspections,
)
from motet.experiment.commands.run_folder import (
    baseline_folder,
    claim_folder,
    create_run_folder,
    load_config,
    load_summary,
    require_empty,
)
from motet.experiment.commands.run_state import record_failure
from motet.experiment.commands.run_summary import write_partition, write_results
from motet.experiment.deploy.client_launcher import build_executor, launch_clients
from motet.experiment.deploy.stored_federation import write_groups
from motet.experiment.loop.metrics_log import read_metrics
from motet.experiment.loop.peak_memory import PeakMemory
from motet.experiment.loop.result_frames import make_frame
from motet.experiment.loop.run_loop import execute_plan
from motet.experiment.loop.traced_executor import trace_executor
from motet.experiment.loop.tracking import find_trackers, track_run
from motet.experiment.recipe.recipe_files import baseline_config
from motet.experiment.recipe.run_config import RunConfig
from motet.experiment.recipe.start_folder import enter_start_folder
from motet.report.profiler import span
from motet.report.run_callback import RunCallback


@dataclass(frozen=True, repr=False)
class FinishedRun:
    """The folder of a run, its summary, and the summaries of its baselines."""

    folder: Path
    summary: dict[str, Any]
    baselines: dict[str, dict[str, Any]]

    def __repr__(self) -> str:
        metric, summaries = self.summary["primary_metric"], self.summaries
        results = ", ".join(f"{name}: {metric} {s['final'].get(metric, math.nan):.4f}" for name, s in summaries.items())
        return f"FinishedRun({self.folder}, {results})"

    @property
    def summaries(self) -> dict[str, dict[str, Any]]:
        """The summaries of the run, under the name of its algorithm, and of its baselines."""
        return {self.summary["algorithm"]: self.summary, **self.baselines}

    @property
    def folders(self) -> dict[str, Path]:
        """The folders of the run and its baselines, under the same names."""
        baselines = {name: baseline_folder(self.folder, name) for name in self.baselines}
        return {self.summary["algorithm"]: self.folder, **baselines}

    def to_pandas(self) -> Any:
        """Return the metrics of the run and its baselines as a DataFrame with one row per value."""
        rows = ({"method": name, **row} for name, path in self.folders.items() for row in read_metrics(path).rows)
        return make_frame(rows)


def run_recipe(
    config: RunConfig, folder: Path, *, resume: bool = False, callback: RunCallback | None = None
) -> FinishedRun:
    """Run a recipe and its baselines; with `resume`, those that are not finished.

    A rejected configuration leaves no folder behind: everything is built and checked before the first round. While the
    run is in progress, no other process can run or resume it.
    """
    with claim_folder(folder), record_failure(folder, is_retry=resume):
        with enter_start_folder(folder) if resume else nullcontext(folder) as path:
            finished = _run_claimed(config, path, resume, callback)
        return replace(finished, folder=folder)


def _run_claimed(config: RunConfig, folder: Path, resume: bool, callback: RunCallback | None) -> FinishedRun:
    configs = _collect_configs(config, folder, resume)
    components = {name: build_components(each) for name, each in configs.items()}
    for each in configs.values():
        find_trackers(each)
    if not resume:
        require_empty(folder)
        configs = {name: resolve_defaults(each, components[name].algorithm) for name, each in configs.items()}
    federations = build_federations(configs)
    unique_federations = list({id(federation): federation for federation in federations.values()}.values())
    with span("prepare the executor", "model"):
        executor = trace_executor(build_executor(list(configs.values()), unique_federations))
    with closing(executor):
        with span("prepare the run", "model"):
            plans = {n: prepare_plan(each, federations[n], components[n]) for n, each in configs.items()}
        if not resume:
            create_run_folder(folder, configs)
            _show_findings(config, federations[""], callback)
        summaries = {}
        for name, each in configs.items():
            path, plan = baseline_folder(folder, name), plans.pop(name)
            summaries[name] = load_summary(path) or run_experiment(
                plan, each, federations[name], path, executor, resume=resume, callback=callback
            )
    return FinishedRun(folder=folder, summary=summaries.pop(""), baselines=summaries)


def _collect_configs(config: RunConfig, folder: Path, resume: bool) -> dict[str, RunConfig]:
    """Return the configurations of the run, under "", and of its baselines; when resuming, those in the folder."""
    if resume:
        return {"": config, **{name: load_config(baseline_folder(folder, name)) for name in config.baselines}}
    return {"": config, **{name: baseline_config(config, name) for name in config.baselines}}


def _show_findings(config: RunConfig, federation: Federation, callback: RunCallback | None) -> None:
    """Show what the inspection of the data found, such as rows that were left out."""
    for text in describe_findings(collect_inspections(config, federation)):
        (callback or RunCallback()).on_note(f"data: {text}")


def prepare_plan(config: RunConfig, federation: Federation, components: RunComponents | None = None) -> RunPlan:
    """Build a plan, and check that its algorithm can start with these models and texts."""
    plan = build_plan(config, federation, components or build_components(config))
    estimate_traffic(plan)  # raises an error if, for example, public texts are missing
    plan.initial_state  # noqa: B018 - raises an error if the models do not fit the algorithm
    return plan


def run_experiment(
    plan: RunPlan,
    config: RunConfig,
    federation: Federation,
    folder: Path,
    executor: Executor,
    *,
    resume: bool = False,
    callback: RunCallback | None = None,
    save_model: bool = True,
) -> dict[str, Any]:
    """Run one plan, write its results to a folder, and return the summary. Runs may share an executor."""
    with span("write the inspection and the partition", "saving"):
        write_groups(folder, config, federation)
        write_inspections(folder, config, federation, with_samples=True)
        write_partition(folder, federation)
    with (
        PeakMemory() as memory,
        track_run(config, folder, callback or RunCallback()) as tracking_callback,
        launch_clients(config, federation, folder, executor) as clients,
    ):
        result = execute_plan(
            plan,
            executor,
            folder=folder,
            resume=resume,
            callback=tracking_callback,
            connect=clients.connect,
            is_remote=clients.is_remote,
        )
    with span("write the results", "saving"):
        return write_results(folder, config, federation, plan, result, peak_memory=memory.peak, save_model=save_model)
