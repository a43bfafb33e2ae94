"""A round without training: every client returns the parameters it received, and the server sums them.

Each transport is the one that runs use, with clients in separate processes. `sockets` is the lower bound: plain TCP with the
same bytes and the same sum, without a framework.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from motet.core.messages import message
from motet.core.params import Params
from motet.core.script import Program, Script, run_script, to_all, total, work
from motet.core.weighted import Weighted
from motet.core.work import Executor, Job, Work
from motet.learning.executors.serial_executor import SerialExecutor
from motet.transport.admission import PROTOCOL_VERSION, Admission, JoinAccepted, JoinRequest
from motet.transport.client_connection import ClientConnection, ClientSetup
from motet.transport.client_runtime import ClientRuntime
from motet.transport.connections import Connections
from motet.transport.framing import OutgoingMessage
from motet.transport.in_process import InProcessTransport
from motet.transport.journal import Journal
from motet.transport.mailbox import Mailbox
from motet.transport.requests import Request, Transport

BLOCK_BYTES = 2**22  # that the server of plain sockets adds at a time


@dataclass(frozen=True)
class Echo(Program):
    name: str = "echo"

    def round(self, params: Params, cohort: tuple[str, ...]) -> Script[Weighted]:
        return (yield from total(self.echo, to_all(cohort, params)))

    @work(reveals="sum")
    def echo(self, ctx: Any, params: Params, client_state: None) -> tuple[Weighted, None]:
        return Weighted(params, 1.0), None


@dataclass(frozen=True)
class EchoWithJob(Program):
    """The same for transports that send jobs instead of requests."""

    name: str = "echo"

    def round(self, params: Params, cohort: tuple[str, ...]) -> Script[Weighted]:
        return (yield from total(self.echo, to_all(cohort, params)))

    @work(reveals="sum")
    def echo(self, ctx: Any, params: Params, client_state: None) -> Work[tuple[Weighted, None]]:
        return Weighted((yield EchoJob(params)), 1.0), None


@message
@dataclass(frozen=True, eq=False)
class EchoJob(Job):
    """A job that returns its parameters."""

    params: Params

    @property
    def key(self) -> Hashable:
        return "echo"


class EchoExecutor(Executor):
    """An executor for `EchoJob`s."""

    def __init__(self) -> None:
        self.submitted: list[tuple[Hashable, EchoJob]] = []

    def submit(self, key: Hashable, job: Job) -> None:
        assert isinstance(job, EchoJob)
        self.submitted.append((key, job))

    def wait_completed(self) -> Sequence[tuple[Hashable, Any]]:
        completed = [(key, job.params) for key, job in self.submitted]
        self.submitted.clear()
        return completed

    def run(self, job: Job) -> Any:
        raise NotImplementedError("the server submits no jobs in this benchmark")


def client_runtime(program: Any = Echo(), executor: Executor | None = None) -> ClientRuntime:
    return ClientRuntime(
        [program], lambda *_: None, executor or SerialExecutor(torch.device("cpu")), Journal(), hide_errors=True
    )


def random_params(millions: float, tensors: int) -> Params:
    rng = torch.Generator().manual_seed(0)
    size = int(millions * 1e6) // tensors
    return Params.from_tensors({f"encoder.layer.{i}.weight": torch.randn(size, generator=rng) for i in range(tensors)})


# ---- clients, in separate processes ------------------------------------------------------------------------------------


def serve_clients(network: str, address: str, server_key: str, names: tuple[str, ...]) -> None:
    def connect() -> Any:
        if network == "grpc":
            from motet.transport.grpc import GrpcServerLink

            return GrpcServerLink(address)
        from motet.transport.mqtt import MqttServerLink
        from motet.transport.mqtt_broker import BrokerConfig
        from motet.transport.mqtt_encryption import parse_server_key

        return MqttServerLink(BrokerConfig(address), parse_server_key(server_key), names[0])

    torch.set_num_threads(1)
    ClientConnection(
        connect,
        JoinRequest(PROTOCOL_VERSION, names, "", ""),
        lambda _: ClientSetup(client_runtime(), Journal(), "print"),
    ).run()


def serve_rank(port: Any) -> None:
    """Answer the requests of the server, which is rank 0, until it sends None."""
    runtime = client_runtime()
    while True:
        request = port.receive(None)[1]
        if not isinstance(request, Request):
            port.flush()
            return
        for reply in runtime.answer_requests(iter([request])):
            port.send(0, OutgoingMessage.from_value(reply))


def serve_sockets(address: tuple[str, int], size: int, count: int) -> None:
    def echo() -> None:
        with socket.create_connection(address) as link:
            buffer = bytearray(size)
            while _receive(link, memoryview(buffer)):
                link.sendall(struct.pack("<Q", size))
                link.sendall(buffer)

    threads = [threading.Thread(target=echo) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _receive(link: socket.socket, view: memoryview) -> bool:
    if len(link.recv(8, socket.MSG_WAITALL)) < 8:
        return False
    received = 0
    while received < len(view):
        count = link.recv_into(view[received:])
        if not count:
            return False
        received += count
    return True


@contextmanager
def running_processes(targets: list[tuple[Callable[..., None], tuple[Any, ...]]]) -> Iterator[None]:
    context = multiprocessing.get_context("spawn")
    started = [context.Process(target=target, args=args, daemon=True) for target, args in targets]
    for process in started:
        process.start()
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.join()


# ---- the server -------------------------------------------------------------------------------------------------------


@contextmanager
def open_transport(network: str, names: tuple[str, ...], workers: int) -> Iterator[tuple[Any, Transport]]:
    """Yield the program and the transport to its clients."""
    with ExitStack() as stack:
        match network:
            case "in_process":
                yield Echo(), InProcessTransport(client_runtime())
            case "ray":
                yield (
                    EchoWithJob(),
                    InProcessTransport(client_runtime(EchoWithJob(), stack.enter_context(ray_executor(workers)))),
                )
            case "mpi":
                yield Echo(), stack.enter_context(mpi_transport(names))
            case _:
                yield Echo(), stack.enter_context(connect_clients(network, names, workers))


@contextmanager
def connect_clients(network: str, names: tuple[str, ...], workers: int) -> Iterator[Connections]:
    with ExitStack() as stack:
        links = Connections(Admission(JoinAccepted("0123abcd", "s", "", {}, {}), "print", names))
        if network == "grpc":
            from motet.transport.grpc import serve_grpc

            address, server_key = serve_grpc(links, "127.0.0.1:0"), ""
        else:
            from motet.transport.mqtt import serve_mqtt
            from motet.transport.mqtt_broker import BrokerConfig
            from motet.transport.mqtt_encryption import ServerKey

            address, key = stack.enter_context(mosquitto()), ServerKey.generate()
            serve_mqtt(links, BrokerConfig(address), key)
            server_key = key.text
        shares = [names[k::workers] for k in range(min(workers, len(names)))]
        stack.enter_context(
            running_processes([(serve_clients, (network, address, server_key, share)) for share in shares])
        )
        links.wait_for_clients(len(names), lambda here: None)
        yield links
        links.close(run_finished=True)


@contextmanager
def mpi_transport(names: tuple[str, ...]) -> Iterator[Transport]:
    from motet.transport.mpi import MpiEndpoint, MpiTransport

    port = MpiEndpoint()
    yield MpiTransport(port, {name: 1 + k % (port.size - 1) for k, name in enumerate(names)}.__getitem__)
    for rank in range(1, port.size):
        port.send(rank, OutgoingMessage.from_value(None))
    port.flush()


@contextmanager
def ray_executor(count: int) -> Iterator[Executor]:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    from motet.experiment.deploy.ray_actor import RayActor
    from motet.experiment.deploy.ray_actor_pool import ActorPool
    from motet.experiment.deploy.ray_executor import RayExecutor

    class EchoActor(RayActor):  # moves jobs like the real actor, but builds no federation
        def __init__(self) -> None:
            self.executor, self.shared_values, self.runners = EchoExecutor(), {}, {}

    paths = os.pathsep.join(str(path) for path in (Path(__file__).parents[1], Path(__file__).parents[1] / "src"))
    ray.init(
        num_cpus=count, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": paths}}
    )
    actors = [ray.remote(EchoActor).remote() for _ in range(count)]
    executor = RayExecutor(ActorPool(actors, 1, 0), EchoExecutor())
    try:
        yield executor
    finally:
        executor.close()


@contextmanager
def mosquitto() -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "mosquitto.conf"
        settings.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
        broker = subprocess.Popen(["/usr/sbin/mosquitto", "-c", str(settings)], stderr=subprocess.DEVNULL)
        try:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    time.sleep(0.05)
            yield f"127.0.0.1:{port}"
        finally:
            broker.kill()
            broker.wait()


def measure_transport(network: str, params: Params, names: tuple[str, ...], rounds: int, workers: int) -> list[float]:
    with open_transport(network, names, workers) as (program, transport):
        mailbox = Mailbox(transport)
        times = []
        for index in range(rounds + 1):  # the first round warms up
            mailbox.round = index
            start = time.perf_counter()
            mean = run_script(program.round(params, names), mailbox.run_exchange, lambda job: None)
            times.append(time.perf_counter() - start)
            assert mean.weight == len(names)
            # Compare a sample: comparing everything would double the memory.
            assert torch.allclose(mean.value.flat[::997], params.flat[::997], atol=1e-5)
            del mean
        return times[1:]


def measure_sockets(params: Params, names: tuple[str, ...], rounds: int, workers: int) -> list[float]:
    payload = params.flat.numpy()
    size, lock = payload.nbytes, threading.Lock()
    server = socket.create_server(("127.0.0.1", 0), backlog=len(names))
    shares = [len(names[k::workers]) for k in range(min(workers, len(names)))]
    with running_processes([(serve_sockets, (server.getsockname(), size, share)) for share in shares]):
        links = [server.accept()[0] for _ in names]
        times = []
        for _ in range(rounds + 1):
            start, sum_ = time.perf_counter(), np.zeros_like(payload)

            def exchange(link: socket.socket, sum_: np.ndarray = sum_) -> None:
                link.sendall(struct.pack("<Q", size))
                link.sendall(payload.data)
                link.recv(8, socket.MSG_WAITALL)
                buffer = np.empty(min(BLOCK_BYTES, size) // 4, np.float32)
                for offset in range(0, len(sum_), len(buffer)):
                    block = buffer[: len(sum_) - offset]
                    link.recv_into(block.data.cast("B"), block.nbytes, socket.MSG_WAITALL)
                    with lock:
                        sum_[offset : offset + len(block)] += block

            threads = [threading.Thread(target=exchange, args=(link,)) for link in links]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            sum_ /= len(names)
            times.append(time.perf_counter() - start)
            assert np.allclose(sum_, payload, atol=1e-5)
        for link in links:
            link.close()
    return times[1:]
