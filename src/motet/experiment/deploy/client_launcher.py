"""Where a run's clients are: in this process, in others on this machine, in a cluster."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from motet.core.errors import ConfigError, RunError
from motet.core.work import Executor
from motet.experiment.build.executor_builder import InProcessOptions, create_executor, resolve_device
from motet.experiment.build.federation import Federation
from motet.experiment.deploy.mpi_launch import connect_ranks
from motet.experiment.deploy.server import ClientListener, NetworkOptions, open_listener
from motet.experiment.loop.run_loop import ConnectTransport
from motet.experiment.recipe.config_parsing import instantiate, look_up
from motet.experiment.recipe.run_config import RunConfig
from motet.learning.executors.serial_executor import PrefixCache
from motet.transport.fault_injection import FaultyTransport
from motet.transport.in_process import InProcessTransport

TRANSPORTS = {
    "in_process": "simulated clients in this process; their jobs run in worker processes or on the GPU",
    "grpc": "remote clients with their own data (motet serve, motet join); with motet run, processes on this machine",
    "mqtt": "like grpc over a broker (transport.broker=host:port), for clients that come and go; default: a built-in broker",
    "mpi": "simulated clients, spread over the processes of a cluster: mpirun -n 5 motet run … --transport mpi",
    "ray": "simulated clients in this process; their jobs run on Ray actors, one per GPU or core (transport.address=…)",
}


def build_executor(configs: Sequence[RunConfig], federations: Sequence[Federation], cache: PrefixCache) -> Executor:
    """Build the executor of a run and its baselines, which share one transport."""
    config = configs[0]
    look_up(TRANSPORTS, config.transport.type, "transport.type")
    device = resolve_device(config.device)
    if config.transport.type == "in_process":
        options = instantiate(InProcessOptions, config.transport.options, "transport")
        return create_executor(device, options, federations, cache)
    # The clients train elsewhere, and worker processes must not be forked next to the threads of a network.
    local = create_executor(device, InProcessOptions(workers=0), federations, cache)
    if config.transport.type != "ray":
        return local
    from motet.experiment.deploy.ray_executor import RayOptions, connect_ray

    return connect_ray(instantiate(RayOptions, config.transport.options, "transport"), local, configs)


class ClientTransport(NamedTuple):
    """How clients are reached, and whether they keep their own memories."""

    connect: ConnectTransport = InProcessTransport
    apart: bool = False


@contextmanager
def launch_clients(config: RunConfig, federation: Federation, place: Path) -> Iterator[ClientTransport]:
    """The clients of a simulation, for as long as a run needs them. `place` holds the run's config.yaml."""
    match config.transport.type:
        case "grpc" | "mqtt":
            with _processes(config, federation, place) as office:
                yield ClientTransport(lambda host: office.links, apart=True)
        case "mpi":
            with connect_ranks(config, federation, place) as transport:
                yield ClientTransport(lambda host: transport, apart=True)
        case "in_process":
            faults = instantiate(InProcessOptions, config.transport.options, "transport").faults
            seed = federation.seed
            yield (
                ClientTransport(lambda host: FaultyTransport(InProcessTransport(host), faults, seed))
                if faults.is_enabled
                else ClientTransport()
            )
        case _:
            yield ClientTransport()


@contextmanager
def _processes(config: RunConfig, federation: Federation, place: Path) -> Iterator[ClientListener]:
    """A network of this machine's own: as many processes as `transport.processes`, each playing its share of the clients."""
    options = instantiate(NetworkOptions, config.transport.options, "transport")
    if options.clients is not None or options.allow is not None:
        raise ConfigError("transport.clients and transport.allow are for silos with their own data; use: motet serve")
    office = open_listener(config, place, options, federation)
    names = [*office.here.clients]
    shares = [names[k :: options.processes] for k in range(min(options.processes, len(names)))]
    children = [subprocess.Popen(_command(config, options, office.address, place, share)) for share in shares]
    try:
        office.links.wait_for_clients(len(names), lambda here: _alive(children))
        yield office
        office.links.close("the run is over", run_finished=True)
        for child in children:
            child.wait(timeout=30)
    finally:
        for child in children:
            child.kill()
            child.wait()


def _command(config: RunConfig, options: NetworkOptions, address: str, place: Path, names: list[str]) -> list[str]:
    named = [word for name in names for word in ("--name", name)]
    where = ["--server", address, "--transport", config.transport.type, "--device", config.device]
    if config.transport.type == "mqtt":
        where += ["--channel", options.channel, *(["--user", options.user] if options.user else [])]
        where += ["--ca", options.ca] if options.ca else []
    memory = ["--state-dir", str(place / "checkpoint" / "silos")]
    return [
        sys.executable,
        "-m",
        "motet",
        "join",
        "--recipe",
        str(place / "config.yaml"),
        "--quiet",
        *where,
        *memory,
        *named,
    ]


def _alive(children: list[subprocess.Popen[bytes]]) -> None:
    dead = next((c for c in children if c.poll() is not None), None)
    if dead is not None:
        raise RunError(
            f"a client's process ended with status {dead.returncode} before the run began; see what it said above."
        )
