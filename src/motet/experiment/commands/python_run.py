"""`motet.run`: the sections of a recipe as arguments of a Python call."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from types import FunctionType
from typing import Any

from motet.codecs.chain import Channel
from motet.core.errors import ConfigError
from motet.core.program import Algorithm
from motet.core.suggestions import name_choices
from motet.core.work import Executor
from motet.datasets.corpus import Corpus
from motet.experiment.build.component_builders import build_components
from motet.experiment.build.data_poisoning import build_attack, poison_federation
from motet.experiment.build.executor_builder import resolve_device
from motet.experiment.build.federation import Federation
from motet.experiment.build.run_plan import AnyFederation, RunPlan, build_plan
from motet.experiment.commands.python_arguments import write_python_argument
from motet.experiment.commands.run_folder import claim_folder, require_empty
from motet.experiment.deploy.client_launcher import build_executor, launch_clients
from motet.experiment.loop.round_engine import ConnectClients
from motet.experiment.loop.run_loop import execute_plan
from motet.experiment.loop.run_result import RunResult
from motet.experiment.loop.traced_executor import trace_executor
from motet.experiment.loop.tracking import track_run
from motet.experiment.recipe.key_synonyms import find_key
from motet.experiment.recipe.renamed_keys import RENAMED_KEYS
from motet.experiment.recipe.run_config import RunConfig
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.solver import Solver
from motet.report.profiler import span
from motet.report.run_callback import RunCallback
from motet.transport.in_process import InProcessTransport

FEDERATION_SECTIONS = ("data", "model", "partition", "task", "groups", "seed")
OBJECT_SECTIONS = ("solver", "server")
SECTIONS = tuple(field.name for field in dataclasses.fields(RunConfig) if field.name != "recipe")


def check_run_arguments(federation: Any, algorithm: Any, callback: Any) -> None:
    """Explain arguments of `motet.run` in the wrong order, and functions in place of objects."""
    if isinstance(federation, Corpus):
        raise ConfigError("run: the first argument is a Corpus; divide it among clients: motet.federation(corpus, …).")
    is_algorithm = isinstance(federation, str | Mapping | FunctionType) or Algorithm in type(federation).__mro__
    if is_algorithm or isinstance(algorithm, Federation):
        kinds = f"{type(federation).__name__} and {type(algorithm).__name__}"
        raise ConfigError(
            f"run: the arguments are {kinds}; the federation comes first: motet.run(federation, algorithm, rounds=…)."
        )
    if isinstance(algorithm, FunctionType):
        name = algorithm.__name__
        raise ConfigError(f"run: the algorithm is the function {name}; call it, {name}(), or pass its name: '{name}'.")
    if not isinstance(callback, RunCallback | None):
        raise ConfigError(
            f"run: callback is a {type(callback).__name__}; expected an object of a subclass of motet.RunCallback, which "
            "has a method for each event."
        )


def build_run_config(algorithm: Algorithm | str | Mapping[str, Any], sections: Mapping[str, Any]) -> RunConfig:
    """Build the configuration of a run from sections of a recipe. The federation has the others."""
    for name in sections:
        if name not in SECTIONS and name not in RENAMED_KEYS:
            raise ConfigError(f"run: unknown argument '{name}'{_suggest_argument(name)}")
        if name in FEDERATION_SECTIONS:
            raise ConfigError(f"run: '{name}' belongs to the federation; pass it to motet.federation instead.")
        if name in OBJECT_SECTIONS and not isinstance(algorithm, str | Mapping):
            raise ConfigError(
                f"run: '{name}' is part of the algorithm; pass it to the algorithm, such as motet.fedavg({name}=…), or "
                "pass the algorithm by its name."
            )
    section = {"algorithm": algorithm} if isinstance(algorithm, str | Mapping) else {}
    if isinstance(solver := sections.get("solver"), Solver):
        changes = {f.name: getattr(solver, f.name) for f in dataclasses.fields(solver)}
        sections = {**sections, "solver": {n: v for n, v in changes.items() if v != getattr(Solver, n)}}
    config = RunConfig.from_settings("python", {**section, **sections})
    if config.transport.type != "in_process":
        raise ConfigError(
            f"run: transport is {config.transport.type}, but a federation in memory is simulated in this process. Run a "
            f"recipe instead: motet.run_recipe(RECIPE, transport='{config.transport.type}')"
        )
    return config


def _suggest_argument(name: str) -> str:
    """Return the end of an error about an unknown argument of `motet.run`."""
    key = find_key(name)
    section, _, option = key.partition(".")
    hint = ""
    if section in FEDERATION_SECTIONS:
        argument = write_python_argument(key)
        call = argument if section == "data" and "(" in argument else f"motet.federation(…, {argument})"
        hint = f" It belongs to the federation: {call}."
    elif section:
        hint = f" Did you mean {section}={{'{option}': …}}?" if option else f" Did you mean {section}=…?"
    choices = [each for each in SECTIONS if each not in FEDERATION_SECTIONS]
    return name_choices(name, choices, verb="it takes", see="help(motet.run)", hint=hint)


def build_run_plan(
    config: RunConfig,
    federation: AnyFederation,
    algorithm: Algorithm | str | Mapping[str, Any],
    channel: Channel | None,
) -> RunPlan:
    """Build the plan of a run, with an algorithm and a channel that may be given as objects."""
    if isinstance(federation, Federation):
        federation = poison_federation(federation, build_attack(config))
    components = build_components(config, None if isinstance(algorithm, str | Mapping) else algorithm, channel)
    plan = build_plan(config, federation, components)
    return dataclasses.replace(plan, name="", digest=_digest_objects(config, algorithm, channel))


def _digest_objects(config: RunConfig, *objects: Any) -> str:
    """Return the digest of the settings of a run and of an algorithm or a channel that is given as an object."""
    given = [each for each in objects if each is not None and not isinstance(each, str | Mapping)]
    text = re.sub(r" at 0x[0-9a-f]+", "", repr(given))  # addresses, which change from process to process
    return f"{config.digest}-{hashlib.sha256(text.encode()).hexdigest()[:16]}" if given else config.digest


def execute_in_process(
    config: RunConfig, plan: RunPlan, folder: Path | None, resume: bool, callback: RunCallback
) -> RunResult:
    """Run a plan with the executor of its configuration."""
    federation = plan.federation
    connect: ConnectClients = InProcessTransport
    executor: Executor = SerialExecutor(resolve_device("cpu"))  # unused by a custom trainer, which trains by itself
    if isinstance(federation, Federation):
        with span("prepare the executor", "model"):
            executor = trace_executor(build_executor([config], [federation]))
        with launch_clients(config, federation, folder or Path(), executor) as clients:
            connect = clients.connect
    with closing(executor):
        return execute_plan(plan, executor, folder=folder, resume=resume, callback=callback, connect=connect)


@contextmanager
def open_run_folder(
    config: RunConfig, folder: Path | None, resume: bool, callback: RunCallback | None
) -> Iterator[RunCallback]:
    """Keep the folder of a run for this process, and yield a callback that also reports to the trackers."""
    callback = callback or RunCallback()
    if folder is None:
        if config.track or resume:
            raise ConfigError(f"run: {'track' if config.track else 'resume'} needs a folder; set out=FOLDER.")
        yield callback
        return
    with claim_folder(folder):
        if not resume:
            require_empty(folder)
        with track_run(config, folder, callback) as tracking_callback:
            yield tracking_callback
