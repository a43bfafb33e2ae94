"""`motet.run`: the sections of a recipe as arguments of a Python call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from motet.codecs.chain import Channel
from motet.core.errors import ConfigError
from motet.core.program import Algorithm
from motet.experiment.build.component_builders import (
    build_channel,
    build_components,
    build_privacy,
    build_robust,
    build_secure,
)
from motet.experiment.build.run_components import RunComponents
from motet.experiment.commands.run_folder import claim_folder, require_empty
from motet.experiment.loop.tracking import track_run
from motet.experiment.recipe.run_config import RunConfig
from motet.report.progress import RunCallback, SilentProgress

FEDERATION_SECTIONS = ("data", "model", "partition", "task", "groups", "seed")
OBJECT_SECTIONS = ("solver", "server")


def build_run_config(algorithm: Algorithm | str | Mapping[str, Any], sections: Mapping[str, Any]) -> RunConfig:
    """Build the configuration of a run from sections of a recipe. The federation has the others."""
    for name in sections:
        if name in FEDERATION_SECTIONS:
            raise ConfigError(f"run: '{name}' belongs to the federation; pass it to motet.federation instead.")
        if name in OBJECT_SECTIONS and not isinstance(algorithm, str | Mapping):
            raise ConfigError(
                f"run: '{name}' is part of the algorithm; pass it to the algorithm, such as motet.fedavg({name}=…), or "
                "give the algorithm by its name."
            )
    if sections.get("transport", "in_process") != "in_process":
        raise ConfigError("run: motet.run simulates all clients in this process. For a transport: motet run RECIPE")
    section = {"algorithm": algorithm} if isinstance(algorithm, str | Mapping) else {}
    return RunConfig.from_settings("python", {**section, **sections})


def build_run_components(
    config: RunConfig, algorithm: Algorithm | str | Mapping[str, Any], channel: Channel | None
) -> RunComponents:
    """Build the components of a run, with an algorithm and a channel that may be given as objects."""
    if isinstance(algorithm, str | Mapping):
        components = build_components(config)
        algorithm = components.algorithm
        if channel is None:
            return components
    channel = channel or build_channel(config)
    return RunComponents(
        algorithm=algorithm,
        channel=channel,
        secure=build_secure(config, algorithm, channel),
        privacy=build_privacy(config, algorithm),
        robust=build_robust(config, algorithm),
    )


@contextmanager
def open_run_folder(
    config: RunConfig, folder: Path | None, resume: bool, callback: RunCallback | None
) -> Iterator[RunCallback]:
    """Keep the folder of a run for this process, and yield a callback that also reports to the trackers."""
    callback = callback or SilentProgress()
    if folder is None:
        if config.track or resume:
            raise ConfigError(f"run: {'track' if config.track else 'resume'} needs a folder; give out=FOLDER.")
        yield callback
        return
    with claim_folder(folder):
        if not resume:
            require_empty(folder)
        with track_run(config, folder, callback) as tracking_callback:
            yield tracking_callback
