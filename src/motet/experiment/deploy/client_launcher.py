"""Launch the simulated clients of a run: in this process, in others on this machine, or on a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from motet.core.errors import ConfigError, RunError
from motet.core.work import Executor
from motet.experiment.build.executor_builder import create_executor, resolve_device
from motet.experiment.build.federation import Federation
from motet.experiment.build.in_process_options import InProcessOptions
from motet.experiment.deploy.client_listener import ClientListener, open_listener
from motet.experiment.deploy.network_options import FLOWER_HINT, TRANSPORTS, NetworkOptions
from motet.experiment.loop.round_engine import ConnectClients
from motet.experiment.loop.traced_executor import unwrap_executor
from motet.experiment.recipe.config_parsing import instantiate, look_up
from motet.experiment.recipe.run_config import RunConfig
from motet.models.loading_permissions import is_remote_code_allowed
from motet.transport.admission import RunFinished, generate_token, hash_token
from motet.transport.fault_injection import FaultyTransport
from motet.transport.in_process import InProcessTransport

EXIT_TIMEOUT = 30  # seconds that client processes have to exit after the run


class LaunchedClients(NamedTuple):
    """How to connect to the clients of a run. Remote ones keep their own state."""

    connect: ConnectClients = InProcessTransport
    is_remote: bool = False


def build_executor(configs: Sequence[RunConfig], federations: Sequence[Federation]) -> Executor:
    """Build the executor of a run and its baselines, which share one transport."""
    config = configs[0]
    look_up(TRANSPORTS, config.transport.type, "transport.type")
    device = resolve_device(config.device)
    if config.transport.type == "in_process":
        options = instantiate(InProcessOptions, config.transport.options, "transport")
        return create_executor(device, options, federations, config.precision)
    # The clients train elsewhere, and worker processes must not be forked next to the threads of a network.
    local = create_executor(device, InProcessOptions(workers=0), federations, config.precision)
    if config.transport.type != "ray":
        return local
    from motet.experiment.deploy.ray_executor import RayOptions, connect_ray

    return connect_ray(instantiate(RayOptions, config.transport.options, "transport"), local, configs)


@contextmanager
def launch_clients(
    config: RunConfig, federation: Federation, folder: Path, executor: Executor
) -> Iterator[LaunchedClients]:
    """Launch the clients of a simulation for the time of a run. `folder` holds the run's config.yaml."""
    match config.transport.type:
        case "grpc" | "mqtt":
            with _launch_processes(config, federation, folder) as listener:
                yield LaunchedClients(lambda runtime: listener.connections, is_remote=True)
        case "flower":
            raise ConfigError(FLOWER_HINT)
        case "mpi":
            from motet.experiment.deploy.mpi_launch import connect_ranks

            with connect_ranks(config, federation, folder) as transport:
                yield LaunchedClients(lambda runtime: transport, is_remote=True)
        case "in_process":
            faults = instantiate(InProcessOptions, config.transport.options, "transport").faults
            if faults.is_enabled:
                yield LaunchedClients(
                    lambda runtime: FaultyTransport(InProcessTransport(runtime), faults, federation.seed)
                )
            else:
                yield LaunchedClients()
        case "ray":
            from motet.experiment.deploy.ray_transport import connect_actors

            yield LaunchedClients(connect_actors(config, federation, unwrap_executor(executor)))
        case _:
            yield LaunchedClients()


@contextmanager
def _launch_processes(config: RunConfig, federation: Federation, folder: Path) -> Iterator[ClientListener]:
    """Start `transport.processes` processes on this machine. Each simulates a share of the clients."""
    options = instantiate(NetworkOptions, config.transport.options, "transport")
    if options.clients_bring_data:
        raise ConfigError(
            "transport.clients and transport.allow are for clients with their own data; "
            "remove them, or use: motet serve"
        )
    clients, token = list(federation.clients), generate_token()  # other processes on this machine cannot join
    tokens = dict.fromkeys(clients, hash_token(token))
    listener = open_listener(config, folder, options, federation, tokens)
    shares = [clients[k :: options.processes] for k in range(min(options.processes, len(clients)))]
    environment = {**os.environ, "MOTET_TOKEN": token}
    commands = [_join_command(config, options, listener, folder, share) for share in shares]
    processes = [subprocess.Popen(command, env=environment) for command in commands]
    try:
        listener.connections.wait_for_clients(len(clients), lambda connected: _require_alive(processes))
        yield listener
        listener.connections.close(RunFinished("the run is over"))
        for process in processes:
            process.wait(timeout=EXIT_TIMEOUT)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _join_command(
    config: RunConfig, options: NetworkOptions, listener: ClientListener, folder: Path, clients: Sequence[str]
) -> list[str]:
    """Return the command line of a process that simulates some of the clients."""
    flags = {
        "--recipe": str(folder / "config.yaml"),
        "--server": listener.address,
        "--transport": config.transport.type,
        "--device": config.device,
        "--precision": config.precision,
        "--state-dir": str(folder / "checkpoint" / "clients"),
    }
    if config.transport.type == "mqtt":
        flags |= {"--channel": options.channel, "--server-key": listener.server_key}
        flags |= {"--user": options.user} if options.user else {}
        flags |= {"--ca": options.ca} if options.ca else {}
    names = [word for client in clients for word in ("--name", client)]
    words = [word for flag in flags.items() for word in flag]
    permission = ["--trust-remote-code"] if is_remote_code_allowed() else []
    return [sys.executable, "-m", "motet", "join", "--quiet", *permission, *words, *names]


def _require_alive(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    failed = next((process for process in processes if process.poll() is not None), None)
    if failed is not None:
        raise RunError(
            f"a client process exited with status {failed.returncode} before the run started; see its error above."
        )
