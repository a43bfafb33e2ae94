"""What a round costs beyond training: every client sends back what it was sent, and the server sums.

    python -m benchmarks.transport --params 1 22 --clients 2 8 --over sockets in_process grpc mqtt

Bytes go both ways through real processes on this machine. `sockets` is the floor: plain TCP, the same bytes, the same sum, no
framework. Ratios are within one run; MB/s counts both directions. Peak memory is the server's process alone.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from motet.core.params import Params
from motet.core.script import Script, play, to_all, total, work
from motet.core.weighted import Weighted
from motet.learning.bench import Alone
from motet.transport.door import PROTOCOL, Door, Hello, Welcome
from motet.transport.host import Host
from motet.transport.in_process import InProcess
from motet.transport.journal import Journal
from motet.transport.links import Links
from motet.transport.mailbox import Mailbox
from motet.transport.member import Member, Side
from motet.transport.messages import Transport


@dataclass(frozen=True)
class Echo:
    """Nothing is trained: what is left is the transport."""

    name: str = "echo"

    def round(self, params: Params, cohort: tuple[str, ...]) -> Script[Weighted]:
        return (yield from total(self.back, to_all(cohort, params)))

    @work(reveals="sum")
    def back(self, ctx: Any, params: Params, memory: None) -> tuple[Weighted, None]:
        return Weighted(params, 1.0), None


def host() -> Host:
    return Host([Echo()], lambda *_: None, Alone(torch.device("cpu")), Journal(), steady=True)


def layers(millions: float) -> Params:
    """As many tensors as a BERT has, so that the head of a message has a true size."""
    size = int(millions * 1e6) // 200
    rng = torch.Generator().manual_seed(0)
    return Params.of({f"encoder.layer.{i}.weight": torch.randn(size, generator=rng) for i in range(200)})


# ---- clients, in processes of their own -------------------------------------------------------------------------------


def attend(network: str, address: str, names: tuple[str, ...]) -> None:
    def dial() -> Any:
        if network == "grpc":
            from motet.transport.grpc import GrpcLine

            return GrpcLine(address)
        from motet.transport.mqtt import Broker, MqttLine

        return MqttLine(Broker(address))

    Member(dial, Hello(PROTOCOL, names, "", ""), lambda _: Side(host(), Journal(), "print")).attend()


def echo_by_socket(address: tuple[str, int], size: int) -> None:
    with socket.create_connection(address) as link:
        buffer = bytearray(size)
        while _filled(link, buffer):
            link.sendall(struct.pack("<Q", size))
            link.sendall(buffer)


def _filled(link: socket.socket, buffer: bytearray) -> bool:
    lead = link.recv(8, socket.MSG_WAITALL)
    if len(lead) < 8:
        return False
    view, at = memoryview(buffer), 0
    while at < len(buffer):
        at += link.recv_into(view[at:])
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


# ---- what is measured -------------------------------------------------------------------------------------------------


@contextmanager
def over(network: str, names: tuple[str, ...], workers: int) -> Iterator[Transport]:
    if network == "in_process":
        yield InProcess(host())
        return
    with ExitStack() as stack:
        links = Links(Door(Welcome("0123abcd", "s", "", {}, {}, ""), "print", names))
        if network == "grpc":
            from motet.transport.grpc import serve_grpc

            address = serve_grpc(links, "127.0.0.1:0")
        else:
            from motet.transport.mqtt import Broker, serve_mqtt

            address = stack.enter_context(mosquitto())
            serve_mqtt(links, Broker(address))
        shares = [names[k::workers] for k in range(min(workers, len(names)))]
        stack.enter_context(processes([(attend, (network, address, share)) for share in shares]))
        links.wait_for(len(names), lambda here: None)
        yield links
        links.close(over=True)


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
    with over(network, names, workers) as transport:
        mailbox = Mailbox(transport)
        times = []
        for index in range(rounds + 1):  # the first warms up
            mailbox.round = index
            began = time.perf_counter()
            answer = play(Echo().round(params, names), mailbox.ask, lambda job: None)
            times.append(time.perf_counter() - began)
            assert answer.weight == len(names)
        return times[1:]


def seconds_of_sockets(params: Params, names: tuple[str, ...], rounds: int) -> list[float]:
    payload = params.flat.numpy()
    size, lock = payload.nbytes, threading.Lock()
    server = socket.create_server(("127.0.0.1", 0))
    address = server.getsockname()
    with processes([(echo_by_socket, (address, size)) for _ in names]):
        links = [server.accept()[0] for _ in names]
        times = []
        for _ in range(rounds + 1):
            began, sum_ = time.perf_counter(), np.zeros_like(payload)

            def ask(link: socket.socket, sum_: np.ndarray = sum_) -> None:
                link.sendall(struct.pack("<Q", size))
                link.sendall(payload.data)
                buffer = bytearray(size)
                _filled(link, buffer)
                with lock:
                    np.add(sum_, np.frombuffer(buffer, np.float32), out=sum_)

            threads = [threading.Thread(target=ask, args=(link,)) for link in links]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            times.append(time.perf_counter() - began)
        for link in links:
            link.close()
    return times[1:]


def measured(network: str, millions: float, clients: int, rounds: int, workers: int) -> tuple[float, float]:
    """Seconds a round (the best, on a machine that others use too), and the server's peak memory in MB."""
    torch.set_num_threads(1)  # threads that wait for one another measure who else uses the machine
    params, names = layers(millions), tuple(f"c{k:03d}" for k in range(clients))
    if network == "sockets":
        times = seconds_of_sockets(params, names, rounds)
    else:
        times = seconds_of(network, params, names, rounds, workers)
    return min(times), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--params", type=float, nargs="+", default=[1, 22], help="millions")
    parser.add_argument("--clients", type=int, nargs="+", default=[2, 8])
    parser.add_argument("--over", nargs="+", default=["sockets", "in_process", "grpc", "mqtt"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2, help="processes that play the clients")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:  # in a process of its own, so that memory is this measurement's alone
        print(*measured(given.over[0], given.params[0], given.clients[0], given.rounds, given.workers))
        return
    print(f"{'M params':>8} {'clients':>7}  {'over':10} {'s a round':>9} {'MB/s':>7} {'of sockets':>10} {'server MB':>9}")
    for millions in given.params:
        for clients in given.clients:
            floor = None
            for network in given.over:
                asked = ["--one", "--over", network, "--params", str(millions), "--clients", str(clients)]
                more = ["--rounds", str(given.rounds), "--workers", str(given.workers)]
                command = [sys.executable, "-m", "benchmarks.transport", *asked, *more]
                seconds, memory = map(float, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
                floor = seconds if network == "sockets" else floor
                pace, ratio = 8 * millions * clients / seconds, f"{seconds / floor:.2f}" if floor else "-"
                print(
                    f"{millions:8g} {clients:7d}  {network:10} {seconds:9.3f} {pace:7.0f} {ratio:>10} {memory:9.0f}", flush=True
                )


if __name__ == "__main__":
    main()
