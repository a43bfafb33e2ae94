"""Serve a run to clients elsewhere, or join one: what `motet serve` and `motet join` do."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from motet.core.errors import ConfigError
from motet.core.script import ClientId
from motet.experiment.build.component_builders import build_components, resolve_defaults
from motet.experiment.build.executor_builder import InProcessOptions, create_executor, resolve_device
from motet.experiment.build.run_plan import build_plan
from motet.experiment.commands.run_folder import FinishedRun, create_run_folder, require_empty, write_results
from motet.experiment.deploy.remote_client import ClientBuilder, JoinOptions
from motet.experiment.deploy.server import NetworkOptions, check_remote_data, open_listener
from motet.experiment.loop.peak_memory import PeakMemory
from motet.experiment.loop.run_loop import execute_plan
from motet.experiment.recipe.config_parsing import instantiate
from motet.experiment.recipe.run_config import CheckpointConfig, RunConfig
from motet.learning.executors.serial_executor import PrefixCache
from motet.report.progress import RunCallback, SilentProgress
from motet.report.run_status import RunStatus
from motet.report.status_server import start_status_server
from motet.transport.admission import PROTOCOL_VERSION, JoinRequest
from motet.transport.client_connection import ClientConnection, ServerLink
from motet.transport.connections import Connections
from motet.transport.reply_timer import TimedTransport

Told = Callable[[str], None]


def serve(
    config: RunConfig, folder: Path, *, resume: bool, told: Told, callback: RunCallback | None = None
) -> FinishedRun:
    """Run a recipe with clients who come over a network. Baselines are a simulation's, and are left out."""
    components = build_components(config)
    config = config if resume else resolve_defaults(replace(config, baselines={}), components.algorithm)
    options = instantiate(NetworkOptions, config.transport.options, "transport")
    check_remote_data(config, options)  # what cannot work is said before anybody is let in
    if not resume:
        require_empty(folder)
        create_run_folder(folder, {"": config})
    office = open_listener(config, folder, options)
    told(
        f"listening on {office.address}; clients join with: motet join --server {office.address} --name NAME --data FILE"
    )
    metered = TimedTransport(office.links)
    status = RunStatus(
        callback or SilentProgress(), lambda: connection_status(office.links, metered), folder / "status.json"
    )
    scratch, hide = PrefixCache(), _shown(options, status, told)
    executor = create_executor(resolve_device(config.device), InProcessOptions(0), [office.here], scratch)
    try:
        office.wait(config.wait_policy.quorum, told)
        every_round = replace(config, checkpoint=CheckpointConfig(seconds=0.0))
        plan = build_plan(every_round, office.participants(), components)
        with PeakMemory() as memory:
            result, running = execute_plan(
                plan, executor, folder=folder, resume=resume, callback=status, connect=lambda host: metered, apart=True
            )
        changes: dict[str, Any] = {"partition": {"type": "silos"}} if office.silos else {}
        changes["refused"] = dict(office.links.rejected + running.mailbox.rejected)
        summary = write_results(folder, config, office.here, result, running, memory.peak, **changes)
        office.links.close("the run is over", run_finished=True)
    except BaseException:
        office.links.close()
        raise
    finally:
        hide()
        executor.close()
        scratch.close()
    return FinishedRun(folder, summary, {})


def connection_status(links: Connections, metered: TimedTransport) -> dict[str, Any]:
    """Who is there, who is waited for, whose messages were refused."""
    return {
        "connected": links.connected_clients(),
        "away": links.disconnected_clients(),
        "waited_for": {client: round(seconds, 1) for client, seconds in metered.pending_seconds().items()},
        "refused": dict(links.rejected),
    }


def _shown(options: NetworkOptions, status: RunStatus, told: Told) -> Callable[[], None]:
    """The status page, if one is wanted; what takes it away."""
    if options.status is None:
        return lambda: None
    address, hide = start_status_server(options.status, status.snapshot, os.environ.get("MOTET_STATUS_TOKEN", ""))
    told(f"status: {address}")
    return hide


def join(own: JoinOptions, dial: Callable[[], ServerLink], token: str, give_up: float, told: Told) -> str:
    """Take part in a served run until it is over; how it ended."""
    if own.data is None and own.config is None:
        raise ConfigError("join: give --data with your own texts, or --recipe to play clients of a recipe.")
    if own.data is not None and len(own.names) != 1:
        raise ConfigError("join: with --data there is one client; give --name once.")
    digest = resolve_defaults(own.config).digest if own.config is not None else ""
    builder = ClientBuilder(own, told)
    try:
        return ClientConnection(
            dial, JoinRequest(PROTOCOL_VERSION, own.names, digest, token, own.group), builder, give_up, told
        ).run()
    finally:
        builder.close()


def make_dialer(network: str, server: str, options: NetworkOptions) -> Callable[[], ServerLink]:
    """How a client reaches the server."""
    if network == "grpc":
        from motet.transport.grpc import GrpcServerLink, TlsFiles

        files = [Path(f) if f else None for f in (options.key, options.cert, options.ca)]
        security = TlsFiles(*files) if any(files) else None
        return lambda: GrpcServerLink(server, security)
    if network == "mqtt":
        from motet.transport.mqtt import MqttServerLink

        broker = options.at(server)
        return lambda: MqttServerLink(broker)
    raise ConfigError(f"--transport is '{network}'; clients join over grpc or mqtt.")


def parse_names(given: list[ClientId]) -> tuple[ClientId, ...]:
    if not given:
        raise ConfigError("join: give this client a name, as the server knows it: --name NAME")
    return tuple(sorted(set(given)))
