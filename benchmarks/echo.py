"""Every client sends back what it was sent, and the server sums: what is left of a round when nothing is trained.

Each network here is the one a run uses, with clients in processes of their own. `sockets` is the floor: plain TCP, the same
bytes, the same sum, no framework.
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
from motet.core.script import Script, run_script, to_all, total, work
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

PIECE = 2**22  # bytes that the sockets' server adds at a time


@dataclass(frozen=True)
class Echo:
    name: str = "echo"

    def round(self, params: Params, cohort: tuple[str, ...]) -> Script[Weighted]:
        return (yield from total(self.back, to_all(cohort, params)))

    @work(reveals="sum")
    def back(self, ctx: Any, params: Params, memory: None) -> tuple[Weighted, None]:
        return Weighted(params, 1.0), None


@dataclass(frozen=True)
class EchoByJob:
    """The same where jobs travel, not requests."""

    name: str = "echo"

    def round(self, params: Params, cohort: tuple[str, ...]) -> Script[Weighted]:
        return (yield from total(self.back, to_all(cohort, params)))

    @work(reveals="sum")
    def back(self, ctx: Any, params: Params, memory: None) -> Work[tuple[Weighted, None]]:
        return Weighted((yield Mirrored(params)), 1.0), None


@message
@dataclass(frozen=True, eq=False)
class Mirrored:
    """A job whose answer is what it holds."""

    params: Params

    @property
    def key(self) -> Hashable:
        return "mirrored"


class Mirror:
    """A executor for such jobs."""

    capacity, examples_processed = 1, 0

    def __init__(self) -> None:
        self.waiting: list[tuple[Hashable, Mirrored]] = []

    def submit(self, key: Hashable, job: Job) -> None:
        assert isinstance(job, Mirrored)
        self.waiting.append((key, job))

    def wait_completed(self) -> Sequence[tuple[Hashable, Any]]:
        done = [(key, job.params) for key, job in self.waiting]
        self.waiting.clear()
        return done

    def run(self, job: Job) -> Any:
        raise NotImplementedError("the server has no job of its own here")

    def close(self) -> None: ...


def host(program: Any = Echo(), executor: Executor | None = None) -> ClientRuntime:
    return ClientRuntime(
        [program], lambda *_: None, executor or SerialExecutor(torch.device("cpu")), Journal(), hide_errors=True
    )


def layers(millions: float, tensors: int) -> Params:
    rng = torch.Generator().manual_seed(0)
    size = int(millions * 1e6) // tensors
    return Params.from_tensors({f"encoder.layer.{i}.weight": torch.randn(size, generator=rng) for i in range(tensors)})


# ---- clients, in processes of their own -------------------------------------------------------------------------------


def attend(network: str, address: str, names: tuple[str, ...]) -> None:
    def dial() -> Any:
        if network == "grpc":
            from motet.transport.grpc import GrpcServerLink

            return GrpcServerLink(address)
        from motet.transport.mqtt import BrokerConfig, MqttServerLink

        return MqttServerLink(BrokerConfig(address))

    torch.set_num_threads(1)
    ClientConnection(
        dial, JoinRequest(PROTOCOL_VERSION, names, "", ""), lambda _: ClientSetup(host(), Journal(), "print")
    ).run()


def attend_rank(port: Any) -> None:
    """A rank that is not the server, until it is told None."""
    mine = host()
    while True:
        asked = port.receive(None)[1]
        if not isinstance(asked, Request):
            port.flush()
            return
        for reply in mine.answer_requests(iter([asked])):
            port.send(0, OutgoingMessage.from_value(reply))


def echo_by_socket(address: tuple[str, int], size: int, count: int) -> None:
    def answer() -> None:
        with socket.create_connection(address) as link:
            buffer = bytearray(size)
            while _filled(link, memoryview(buffer)):
                link.sendall(struct.pack("<Q", size))
                link.sendall(buffer)

    threads = [threading.Thread(target=answer) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _filled(link: socket.socket, view: memoryview) -> bool:
    if len(link.recv(8, socket.MSG_WAITALL)) < 8:
        return False
    at = 0
    while at < len(view):
        got = link.recv_into(view[at:])
        if not got:
            return False
        at += got
    return True


@contextmanager
def processes(targets: list[tuple[Callable[..., None], tuple[Any, ...]]]) -> Iterator[None]:
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
def over(network: str, names: tuple[str, ...], workers: int) -> Iterator[tuple[Any, Transport]]:
    """The program that is played, and the transport to its clients."""
    with ExitStack() as stack:
        match network:
            case "in_process":
                yield Echo(), InProcessTransport(host())
            case "ray":
                yield EchoByJob(), InProcessTransport(host(EchoByJob(), stack.enter_context(actors(workers))))
            case "mpi":
                yield Echo(), stack.enter_context(ranks(names))
            case _:
                yield Echo(), stack.enter_context(linked(network, names, workers))


@contextmanager
def linked(network: str, names: tuple[str, ...], workers: int) -> Iterator[Connections]:
    with ExitStack() as stack:
        links = Connections(Admission(JoinAccepted("0123abcd", "s", "", {}, {}), "print", names))
        if network == "grpc":
            from motet.transport.grpc import serve_grpc

            address = serve_grpc(links, "127.0.0.1:0")
        else:
            from motet.transport.mqtt import BrokerConfig, serve_mqtt

            address = stack.enter_context(mosquitto())
            serve_mqtt(links, BrokerConfig(address))
        shares = [names[k::workers] for k in range(min(workers, len(names)))]
        stack.enter_context(processes([(attend, (network, address, share)) for share in shares]))
        links.wait_for_clients(len(names), lambda here: None)
        yield links
        links.close(run_finished=True)


@contextmanager
def ranks(names: tuple[str, ...]) -> Iterator[Transport]:
    from motet.transport.mpi import MpiEndpoint, MpiTransport

    port = MpiEndpoint()
    yield MpiTransport(port, {name: 1 + k % (port.size - 1) for k, name in enumerate(names)}.__getitem__)
    for rank in range(1, port.size):
        port.send(rank, OutgoingMessage.from_value(None))
    port.flush()


@contextmanager
def actors(count: int) -> Iterator[Executor]:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    from motet.experiment.deploy.ray_executor import RayActor, RayExecutor

    class Mirroring(RayActor):  # its own way to move jobs, and nothing to build
        def __init__(self) -> None:
            self.executor, self.known = Mirror(), {}

    paths = os.pathsep.join(str(path) for path in (Path(__file__).parents[1], Path(__file__).parents[1] / "src"))
    ray.init(
        num_cpus=count, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": paths}}
    )
    made = [ray.remote(Mirroring).remote() for _ in range(count)]
    executor = RayExecutor(made, ray.get(made[0].capacity.remote()), Mirror(), 0)
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


def seconds_of(network: str, params: Params, names: tuple[str, ...], rounds: int, workers: int) -> list[float]:
    with over(network, names, workers) as (program, transport):
        mailbox = Mailbox(transport)
        times = []
        for index in range(rounds + 1):  # the first warms up
            mailbox.round = index
            began = time.perf_counter()
            answer = run_script(program.round(params, names), mailbox.run_exchange, lambda job: None)
            times.append(time.perf_counter() - began)
            assert answer.weight == len(names)
            assert torch.allclose(
                answer.value.flat[::997], params.flat[::997], atol=1e-5
            )  # all would double the memory
            del answer
        return times[1:]


def seconds_of_sockets(params: Params, names: tuple[str, ...], rounds: int, workers: int) -> list[float]:
    payload = params.flat.numpy()
    size, lock = payload.nbytes, threading.Lock()
    server = socket.create_server(("127.0.0.1", 0), backlog=len(names))
    shares = [len(names[k::workers]) for k in range(min(workers, len(names)))]
    with processes([(echo_by_socket, (server.getsockname(), size, share)) for share in shares]):
        links = [server.accept()[0] for _ in names]
        times = []
        for _ in range(rounds + 1):
            began, sum_ = time.perf_counter(), np.zeros_like(payload)

            def ask(link: socket.socket, sum_: np.ndarray = sum_) -> None:
                link.sendall(struct.pack("<Q", size))
                link.sendall(payload.data)
                link.recv(8, socket.MSG_WAITALL)
                piece = np.empty(min(PIECE, size) // 4, np.float32)
                for at in range(0, len(sum_), len(piece)):
                    part = piece[: len(sum_) - at]
                    link.recv_into(part.data.cast("B"), part.nbytes, socket.MSG_WAITALL)
                    with lock:
                        sum_[at : at + len(part)] += part

            threads = [threading.Thread(target=ask, args=(link,)) for link in links]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            sum_ /= len(names)
            times.append(time.perf_counter() - began)
            assert np.allclose(sum_, payload, atol=1e-5)
        for link in links:
            link.close()
    return times[1:]
