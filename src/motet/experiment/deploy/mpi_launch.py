"""A simulation over the ranks of an MPI job: mpirun -n 5 motet run RECIPE --transport mpi."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from motet.core.errors import ConfigError, MotetError, RunError
from motet.experiment.build.federation import Federation
from motet.experiment.deploy.acceptance import build_acceptance, model_fingerprint
from motet.experiment.deploy.deployment_record import DeploymentRecord
from motet.experiment.deploy.network_options import MpiOptions
from motet.experiment.deploy.remote_client import ClientBuilder, JoinOptions
from motet.experiment.recipe.config_parsing import instantiate
from motet.experiment.recipe.run_config import RunConfig
from motet.experiment.recipe.yaml_files import read_yaml
from motet.transport.admission import ClientReady, JoinAccepted, Rejection, RunFinished
from motet.transport.client_connection import ClientSetup
from motet.transport.framing import OutgoingMessage
from motet.transport.requests import Request, Transport

if TYPE_CHECKING:
    from motet.transport.mpi import MpiEndpoint


def run_worker_rank(config: RunConfig) -> bool:
    """In a rank other than 0, answer requests until rank 0 exits, and return True. In rank 0, return False at once."""
    from motet.transport.mpi import MpiEndpoint

    endpoint = MpiEndpoint()
    if endpoint.size < 2:
        raise ConfigError("transport.type=mpi needs at least two processes: mpirun -n 5 motet run … --transport mpi")
    if endpoint.rank == 0:
        atexit.register(_dismiss_workers, endpoint)  # however this process ends, the workers must exit too
        return False
    _answer_requests(endpoint, instantiate(MpiOptions, config.transport.options, "transport"))
    return True


@contextmanager
def connect_ranks(config: RunConfig, federation: Federation, folder: Path) -> Iterator[Transport]:
    """Prepare the workers for a run, and yield a transport to their clients."""
    from motet.transport.mpi import MpiEndpoint, MpiTransport

    endpoint = MpiEndpoint()
    record = DeploymentRecord.open(folder)
    record.add_clients()
    acceptance = build_acceptance(config, federation, record.run, session="")
    workers = range(1, endpoint.size)
    for rank in workers:
        state_folder = folder / "checkpoint" / "clients" / f"rank-{rank}"
        endpoint.send(rank, OutgoingMessage.from_value((acceptance, str(state_folder))))
    fingerprint = model_fingerprint(federation.model)
    for _ in workers:
        rank, answer = endpoint.receive(None) or (0, None)
        if isinstance(answer, Rejection):
            raise RunError(f"rank {rank}: {answer.reason}")
        if not isinstance(answer, ClientReady) or answer.fingerprint != fingerprint:
            raise RunError(f"rank {rank} has another model than rank 0; use the same files and versions on all nodes.")
    ranks = {client: 1 + index % len(workers) for index, client in enumerate(federation.clients)}
    yield MpiTransport(endpoint, ranks.__getitem__)


def _dismiss_workers(endpoint: MpiEndpoint) -> None:
    for rank in range(1, endpoint.size):
        endpoint.send(rank, OutgoingMessage.from_value(RunFinished("the run is over")))
    endpoint.flush()


def _answer_requests(endpoint: MpiEndpoint, options: MpiOptions) -> None:
    """Build this rank's clients whenever a run starts, and answer requests until the last run is over."""
    setup: ClientSetup | None = None
    builder: ClientBuilder | None = None
    while True:
        received = endpoint.receive(None)
        requests: list[Request] = []
        while received is not None:  # requests that have arrived are answered together
            match received[1]:
                case RunFinished():
                    endpoint.flush()
                    return
                case (JoinAccepted() as acceptance, str() as state_folder):
                    if builder is not None:
                        builder.close()
                    builder, setup = _build_clients(endpoint, acceptance, Path(state_folder), options)
                case Request() as request:
                    requests.append(request)
            received = endpoint.receive(0.0)
        if setup is not None and requests:
            for request in requests:
                setup.journal.begin_request(request)
            for reply in setup.runtime.answer_requests(iter(requests)):
                endpoint.send(0, OutgoingMessage.from_value(reply))


def _build_clients(
    endpoint: MpiEndpoint, acceptance: JoinAccepted, state_folder: Path, options: MpiOptions
) -> tuple[ClientBuilder | None, ClientSetup | None]:
    """Build this rank's clients and tell rank 0 that they are ready, or why they are not."""
    try:
        config = RunConfig.from_settings("cluster", acceptance.config)
        device = choose_device(endpoint.rank, endpoint.size, options, config.device)
        builder = ClientBuilder(
            JoinOptions(
                names=(),
                data=None,
                config=config,
                state_folder=state_folder,
                device=device,
                precision=config.precision,
            )
        )
        setup = builder(acceptance)
    except MotetError as error:
        endpoint.send(0, OutgoingMessage.from_value(Rejection(str(error))))
        return None, None
    endpoint.send(0, OutgoingMessage.from_value(ClientReady(setup.fingerprint)))
    return builder, setup


def choose_device(rank: int, size: int, options: MpiOptions, default: str) -> str:
    """Return the device of a rank, from a device map in FedNLP's format: for each host, the processes on each GPU."""
    if options.devices is None:
        return default
    try:
        maps = read_yaml(Path(options.devices))
        hosts = maps[options.devices_key] if options.devices_key else next(iter(maps.values()))
        devices = [
            f"cuda:{gpu}" for counts in hosts.values() for gpu, count in enumerate(counts) for _ in range(int(count))
        ]
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError, StopIteration) as error:
        raise ConfigError(
            f"transport.devices: '{options.devices}' is not a device map ({type(error).__name__}: {error}); "
            "expected name: {host: [processes on GPU 0, on GPU 1, …]}."
        ) from None
    if len(devices) != size:
        raise ConfigError(f"transport.devices: the map has {len(devices)} processes; expected {size}, as MPI has.")
    return devices[rank]
