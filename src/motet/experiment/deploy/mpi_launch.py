"""A simulation over the ranks of an MPI job: mpirun -n 5 motet run RECIPE --transport mpi."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from motet.core.errors import ConfigError, MotetError, RunError
from motet.experiment.build.federation import Federation
from motet.experiment.deploy.remote_client import ClientBuilder, JoinOptions, build_acceptance, model_fingerprint
from motet.experiment.deploy.server import DeploymentRecord
from motet.experiment.recipe.config_parsing import instantiate
from motet.experiment.recipe.run_config import RunConfig
from motet.transport.admission import ClientReady, JoinAccepted, Rejection, RunFinished
from motet.transport.client_connection import ClientSetup
from motet.transport.framing import OutgoingMessage
from motet.transport.requests import Request, Transport

if TYPE_CHECKING:
    from motet.transport.mpi import MpiEndpoint


@dataclass(frozen=True)
class MpiOptions:
    """`devices` is a device map: which process has which GPU."""

    devices: str | None = None
    devices_key: str | None = None  # which entry of the map; None: its first


def run_worker_rank(config: RunConfig) -> bool:
    """In a rank other than 0: do a worker's part of the run, to its end. Elsewhere there is nothing to do."""
    if config.transport.type != "mpi":
        return False
    from motet.transport.mpi import MpiEndpoint

    port = MpiEndpoint()
    if port.size < 2:
        raise ConfigError("transport.type=mpi needs at least two processes: mpirun -n 5 motet run … --transport mpi")
    if port.rank == 0:
        atexit.register(_dismiss, port)  # however this process ends, the others hear of it
        return False
    _work(port, instantiate(MpiOptions, config.transport.options, "transport"))
    return True


@contextmanager
def connect_ranks(config: RunConfig, federation: Federation, place: Path) -> Iterator[Transport]:
    """The cluster's workers, ready for this run."""
    from motet.transport.mpi import MpiEndpoint, MpiTransport

    port = MpiEndpoint()
    book = DeploymentRecord.open(place)
    book.add()
    welcome = build_acceptance(config, federation, book.run, "")
    workers = range(1, port.size)
    for rank in workers:
        port.send(rank, OutgoingMessage.from_value((welcome, str(place / "checkpoint" / "silos" / f"rank-{rank}"))))
    wanted = model_fingerprint(federation.model)
    for _ in workers:
        sender, found = port.receive(None) or (0, None)
        if isinstance(found, Rejection):
            raise RunError(f"rank {sender}: {found.reason}")
        if not isinstance(found, ClientReady) or found.fingerprint != wanted:
            raise RunError(
                f"rank {sender} has another model than rank 0; use the same files and versions on all nodes."
            )
    places = {client: 1 + index % len(workers) for index, client in enumerate(federation.clients)}
    yield MpiTransport(port, places.__getitem__)


def _dismiss(port: MpiEndpoint) -> None:
    for rank in range(1, port.size):
        port.send(rank, OutgoingMessage.from_value(RunFinished("the run is over")))
    port.flush()


def _work(port: MpiEndpoint, options: MpiOptions) -> None:
    """Build this rank's side whenever a run begins, answer until the last is over."""
    side: ClientSetup | None = None
    builder: ClientBuilder | None = None
    while True:
        found = port.receive(None)
        waiting: list[Request] = []
        while found is not None:
            match found[1]:
                case RunFinished():
                    port.flush()
                    return
                case (JoinAccepted() as welcome, str() as memory):
                    if builder is not None:
                        builder.close()
                    builder, side = _built(port, welcome, Path(memory), options)
                case Request() as request:
                    waiting.append(request)
            found = port.receive(0.0)
        if side is not None and waiting:
            for request in waiting:
                side.journal.begin_request(request)
            for reply in side.runtime.answer_requests(iter(waiting)):
                port.send(0, OutgoingMessage.from_value(reply))


def _built(
    port: MpiEndpoint, welcome: JoinAccepted, memory: Path, options: MpiOptions
) -> tuple[ClientBuilder | None, ClientSetup | None]:
    try:
        config = RunConfig.from_settings("cluster", welcome.config)
        device = device_for(port.rank, port.size, options, config.device)
        builder = ClientBuilder(JoinOptions((), None, config, memory, device))
        side = builder(welcome)
    except MotetError as error:
        port.send(0, OutgoingMessage.from_value(Rejection(str(error))))
        return None, None
    port.send(0, OutgoingMessage.from_value(ClientReady(side.fingerprint)))
    return builder, side


def device_for(rank: int, size: int, options: MpiOptions, given: str) -> str:
    """This rank's device by the map, which is FedNLP's: for each host, how many processes each of its GPUs has."""
    if options.devices is None:
        return given
    try:
        maps = yaml.safe_load(Path(options.devices).read_text("utf-8"))
        hosts = maps[options.devices_key] if options.devices_key else next(iter(maps.values()))
        devices = [
            f"cuda:{gpu}" for counts in hosts.values() for gpu, count in enumerate(counts) for _ in range(int(count))
        ]
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError, StopIteration) as error:
        raise ConfigError(
            f"transport.devices: '{options.devices}' is no device map ({type(error).__name__}: {error}); "
            "expected name: {host: [processes on GPU 0, on GPU 1, …]}."
        ) from None
    if len(devices) != size:
        raise ConfigError(f"transport.devices: the map places {len(devices)} processes, and there are {size}.")
    return devices[rank]
