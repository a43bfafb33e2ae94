"""`motet serve`: run a recipe with clients that join over the network."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from motet.core.errors import MotetError
from motet.experiment.build.component_builders import build_components, resolve_defaults
from motet.experiment.build.executor_builder import create_executor, resolve_device
from motet.experiment.build.federation import Federation
from motet.experiment.build.in_process_options import InProcessOptions
from motet.experiment.build.run_components import RunComponents
from motet.experiment.build.run_plan import build_accountant, build_plan
from motet.experiment.commands.data_inspection import write_inspections
from motet.experiment.commands.recipe_runner import FinishedRun
from motet.experiment.commands.run_folder import claim_folder, create_run_folder, require_empty
from motet.experiment.commands.run_records import is_personal
from motet.experiment.commands.run_state import record_failure
from motet.experiment.commands.run_summary import write_partition, write_results
from motet.experiment.commands.server_reports import report_waiting, start_reports
from motet.experiment.deploy.certificates import read_expiry
from motet.experiment.deploy.client_listener import ClientListener, Listen, check_network, open_listener
from motet.experiment.deploy.network_options import NetworkOptions
from motet.experiment.deploy.remote_federation import build_server_federation, check_remote_data, expect_clients
from motet.experiment.deploy.stored_federation import write_groups
from motet.experiment.loop.peak_memory import PeakMemory
from motet.experiment.loop.run_loop import execute_plan
from motet.experiment.recipe.config_parsing import instantiate
from motet.experiment.recipe.run_config import CheckpointConfig, RunConfig
from motet.report.number_text import count_of
from motet.report.run_callback import RunCallback
from motet.report.run_status import RunStatus
from motet.report.status_server import start_status_server
from motet.transport.admission import RunFinished
from motet.transport.connections import Connections
from motet.transport.reply_timer import TimedTransport
from motet.transport.requests import Transport

Log = Callable[[str], None]


def serve_run(
    config: RunConfig,
    folder: Path,
    *,
    resume: bool,
    log: Log,
    callback: RunCallback | None = None,
    listen: Listen | None = None,
) -> FinishedRun:
    """Run a recipe with clients that join over the network. Its baselines, which need a simulation, are left out."""
    with claim_folder(folder), record_failure(folder, is_retry=resume):
        return _serve_claimed(config, folder, resume, log, callback or RunCallback(), listen)


def _serve_claimed(
    config: RunConfig, folder: Path, resume: bool, log: Log, callback: RunCallback, listen: Listen | None
) -> FinishedRun:
    components = build_components(config)
    if not resume:
        config = resolve_defaults(replace(config, baselines={}), components.algorithm)
    options = _read_options(config, listen)
    local = build_server_federation(config, options)
    _check_plan(config, options, local, components)  # also before a run is resumed: clients may have been revoked
    if not resume:
        require_empty(folder)
        create_run_folder(folder, {"": config})
    listener = open_listener(config, folder, options, local, listen=listen)
    permission = "--allow-plain-updates" if components.secure is None else "--identities FOLDER"
    log(f"listening on {listener.address}; clients join with: {listener.describe_join_command()} {permission}")
    if listener.clients_bring_data:
        log(f"global test set: {len(listener.local.server.global_test_rows):,} rows of {listener.local.corpus.name}")
    connections, certificate = listener.connections, None if options.cert is None else Path(options.cert)
    transport = TimedTransport(connections)
    status = RunStatus(callback, lambda: connection_status(connections, transport, certificate), folder / "status.json")
    with ExitStack() as stops, _report_failure(connections):
        for stop in _start_pages(options, status, folder.name, log):
            stops.callback(stop)
        stops.callback(status.keep_current())
        stops.callback(start_reports(connections, config.wait_policy.reconnect_timeout, certificate, log))
        listener.wait_for_quorum(config.wait_policy.quorum, report_waiting(status, log))
        summary = _run(config, folder, components, listener, transport, resume=resume, callback=status)
        connections.close(RunFinished(_describe_end(summary)))
    return FinishedRun(folder=folder, summary=summary, baselines={})


def _read_options(config: RunConfig, listen: Listen | None) -> NetworkOptions:
    """Return the options of the network. Reject those that cannot work before the run folder is created."""
    options = instantiate(NetworkOptions, config.transport.options, "transport")
    check_remote_data(config, options)
    if listen is None:
        check_network(config.transport.type, options)
    return options


def _check_plan(config: RunConfig, options: NetworkOptions, local: Federation, components: RunComponents) -> None:
    """Reject what cannot work with this number of clients before the first of them joins."""
    plan = build_plan(config, expect_clients(local, options), components, options.clients_bring_data)
    build_accountant(plan, is_remote=True)
    plan.check_oort(is_remote=True)


def _run(
    config: RunConfig,
    folder: Path,
    components: RunComponents,
    listener: ClientListener,
    transport: Transport,
    *,
    resume: bool,
    callback: RunCallback,
) -> dict[str, Any]:
    """Run with the clients that have joined, and write the results. Return the summary."""
    write_groups(folder, config, listener.local)
    write_inspections(folder, config, listener.local, with_samples=False)
    if not listener.clients_bring_data:
        write_partition(folder, listener.local)
    device = resolve_device(config.device)
    executor = create_executor(device, InProcessOptions(workers=0), [listener.local], config.precision)
    with closing(executor), PeakMemory() as memory:
        every_round = replace(config, checkpoint=CheckpointConfig(seconds=0.0))
        plan = build_plan(every_round, listener.federation(), components, listener.clients_bring_data)
        result = execute_plan(
            plan,
            executor,
            folder=folder,
            resume=resume,
            callback=callback,
            connect=lambda runtime: transport,
            is_remote=True,
        )
    changes: dict[str, Any] = {"partition": {"type": "silos"}} if listener.clients_bring_data else {}
    changes["refused"] = dict(listener.connections.rejected + result.rejected_replies)
    return write_results(folder, config, listener.local, plan, result, peak_memory=memory.peak, **changes)


def _describe_end(summary: dict[str, Any]) -> str:
    """Return the message with which the clients are dismissed."""
    metric, clients = summary["primary_metric"], summary["clients_final"]
    value = clients.get("mean") if is_personal(summary) else summary["final"].get(metric)
    owner = "the clients' models, on average" if is_personal(summary) else "the common model"
    score = "" if value is None else f"; {metric} of {owner}: {value:.3f}"
    return f"the run is over after {count_of(summary['rounds'], 'round')}{score}"


@contextmanager
def _report_failure(connections: Connections) -> Iterator[None]:
    """Tell the clients why the run in the block failed. After an interruption, they wait until the run is resumed.

    An error that is a bug may quote anything, so they get its class alone.
    """
    try:
        yield
    except Exception as error:
        is_bug = not isinstance(error, MotetError)
        reason = f"{type(error).__name__}; the server's log has the details." if is_bug else str(error)
        connections.close(RunFinished(reason, has_failed=True))
        raise
    except BaseException:
        connections.close()
        raise


def connection_status(connections: Connections, transport: TimedTransport, certificate: Path | None) -> dict[str, Any]:
    """Return who is connected and who is missing, how long requests have been waiting, and messages by client."""
    expires = None if certificate is None else read_expiry(certificate)
    return {
        **({} if expires is None else {"certificate_expires": expires.timestamp()}),
        "connected": connections.connected_clients(),
        "away": connections.disconnected_clients(),
        "waited_for": {client: round(seconds, 1) for client, seconds in transport.pending_seconds().items()},
        "refused": dict(connections.rejected),
        "traffic": transport.traffic(),
        "failures": transport.failed_requests(),
    }


def _start_pages(options: NetworkOptions, status: RunStatus, name: str, log: Log) -> Iterator[Callable[[], None]]:
    """Start the status page and the metrics, if they are wanted, and yield functions that stop them."""
    if options.status is not None:
        address, stop = start_status_server(options.status, status.snapshot, os.environ.get("MOTET_STATUS_TOKEN", ""))
        log(f"status: {address}")
        yield stop
    if options.metrics is not None:
        from motet.report.prometheus_metrics import start_metrics_server

        token = os.environ.get("MOTET_METRICS_TOKEN", "")
        address, stop = start_metrics_server(options.metrics, lambda: {name: status.snapshot()}, token)
        log(f"metrics: {address}")
        yield stop
