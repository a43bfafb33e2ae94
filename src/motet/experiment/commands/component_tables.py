"""The sections of a recipe that name a component, each with the components that it can name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from motet.algorithms import ALGORITHM_REGISTRY
from motet.codecs import CODEC_REGISTRY
from motet.core.plugins import Registry
from motet.experiment.build.in_process_options import InProcessOptions
from motet.experiment.deploy.network_options import MpiOptions, NetworkOptions
from motet.optim import SERVER_OPTIMIZERS
from motet.partitions import PARTITION_REGISTRY
from motet.privacy import PRIVACY
from motet.robust import ROBUST
from motet.robust.attacks import ATTACKS
from motet.secure import SECURE
from motet.tasks import TASK_REGISTRY


@dataclass(frozen=True)
class SectionTable:
    """The components of a section by name. `fixed` are parameters that a recipe cannot set, `common` options of all."""

    entries: Mapping[str, Any]
    default: str = ""  # of a section without a type
    fixed: tuple[str, ...] = ()
    common: Mapping[str, Any] = field(default_factory=dict)


def auto() -> None:
    """The task formulation of the corpus."""


def section_tables() -> dict[str, SectionTable]:
    """Return the table of each section that names a component."""
    network = dict.fromkeys(("grpc", "mqtt"), NetworkOptions)
    transports = {"in_process": InProcessOptions, **network, "mpi": MpiOptions, "ray": "jobs run on Ray actors"}
    splits = {"local_test": {"type": ["number", "null"]}, "merge": {"type": "boolean"}, "clients": {"type": "integer"}}
    return {
        "task": SectionTable({"auto": auto, **_describe(TASK_REGISTRY)}, "auto", ("corpus",)),
        "partition": SectionTable(_describe(PARTITION_REGISTRY), "auto", ("corpus", "seed"), splits),
        "algorithm": SectionTable(_describe(ALGORITHM_REGISTRY), "fedavg", ("solver", "server")),
        "server": SectionTable(SERVER_OPTIMIZERS),
        "codec": SectionTable(_describe(CODEC_REGISTRY)),
        "secure": SectionTable(SECURE, "none", ("codecs",)),
        "privacy": SectionTable(PRIVACY, "none"),
        "robust": SectionTable(ROBUST, "none"),
        "attack": SectionTable(ATTACKS, "none"),
        "transport": SectionTable(transports, "in_process"),
    }


def _describe(registry: Registry) -> Mapping[str, Any]:
    return registry.describe()
