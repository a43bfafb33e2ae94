"""Networks for tests: one of queues in memory, gRPC on loopback, MQTT over mosquitto and over our own broker."""

from __future__ import annotations

import getpass
import queue
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from motet.core.program import Algorithm, Round
from motet.experiment.build.federation import Federation
from motet.experiment.loop.run_loop import FederatedRun
from motet.learning.executors.serial_executor import SerialExecutor
from motet.report.progress import SilentProgress
from motet.transport.admission import PROTOCOL_VERSION, Admission, JoinAccepted, JoinRequest
from motet.transport.client_connection import ClientConnection, ClientSetup, ServerLink
from motet.transport.client_runtime import ClientRuntime
from motet.transport.connections import Connections
from motet.transport.framing import MessageAssembler, OutgoingMessage
from motet.transport.journal import Journal
from motet.transport.wait_policy import WaitPolicy
from tests.runs import make_plan

MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
Dial = Callable[[], ServerLink]


class Ends:
    """Both ends of a connection in memory: chunked and put together as on any network. `cut` breaks it."""

    certified = None

    def __init__(self, links: Connections, peer: str = "memory") -> None:
        self.links, self.peer, self.gone = links, peer, False
        self.up, self.down = MessageAssembler(room=links.room), MessageAssembler(2**30)
        self.inbox: queue.SimpleQueue[memoryview | Exception] = queue.SimpleQueue()
        self.sent = self.pushed = 0

    def push(self, parcel: OutgoingMessage) -> None:  # the server's end
        self.pushed += 1
        for chunk in parcel.chunks(self.pushed, 1000):
            whole = self.down.add(chunk)
            if whole is not None and not self.gone:
                self.inbox.put(whole)

    def send(self, parcel: OutgoingMessage) -> None:  # the client's end
        if self.gone:
            raise ConnectionError("cut")
        self.sent += 1
        for chunk in parcel.chunks(self.sent, 1000):
            self.up.limit = self.links.limit_of(self)
            whole = self.up.add(chunk)
            if whole is not None:
                self.links.heard(self, whole)

    def receive(self, timeout: float | None) -> memoryview | None:
        try:
            item = self.inbox.get(timeout=timeout)
        except queue.Empty:
            return None
        if isinstance(item, Exception):
            self.inbox.put(item)
            raise item
        return item

    def close(self) -> None:
        self.cut()

    def cut(self) -> None:
        if not self.gone:
            self.gone = True
            self.inbox.put(ConnectionError("cut"))
            self.links.broke(self)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def mosquitto(folder: Path, *lines: str) -> Iterator[str]:
    """A real broker on loopback; it is up when it answers."""
    port = free_port()
    settings = folder / "mosquitto.conf"
    said = [f"listener {port} 127.0.0.1", f"user {getpass.getuser()}", *(lines or ("allow_anonymous true",))]
    settings.write_text("\n".join(said) + "\n")
    process = subprocess.Popen(
        [str(MOSQUITTO), "-c", str(settings)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert time.monotonic() < until and process.poll() is None, "mosquitto did not start"
                time.sleep(0.02)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def door(*clients: str, session: str = "one", **options: Any) -> Admission:
    return Admission(JoinAccepted("0123abcd", session, "digest", {}, {}), "print", clients, **options)


def hello(*clients: str, **changes: Any) -> JoinRequest:
    given = {"protocol": PROTOCOL_VERSION, "clients": clients, "digest": "digest", "token": ""}
    return JoinRequest(**{**given, **changes})


def side(federation: Federation, algorithm: Algorithm, memory: Path | None = None, **options: Any) -> ClientSetup:
    executor, journal, plan = (
        SerialExecutor(torch.device("cpu")),
        Journal(memory),
        make_plan(federation, algorithm, 1, **options),
    )
    host = ClientRuntime(
        plan.components.client_programs,
        federation.context,
        executor,
        journal,
        behind=plan.components.required_wrappers,
        steady=True,
    )
    return ClientSetup(host, journal, "print")


class Crew:
    """Members in threads, each playing some clients; `stop` ends them as a power cut would."""

    def __init__(self) -> None:
        self.members: list[ClientConnection] = []
        self.threads: list[threading.Thread] = []
        self.ends: list[str | Exception] = []

    def add(self, dial: Dial, names: tuple[str, ...], made: ClientSetup, give_up: float = 60.0) -> ClientConnection:
        member = ClientConnection(dial, hello(*names), lambda welcome: made, give_up)
        thread = threading.Thread(target=self._attend, args=(member,), daemon=True)
        self.members.append(member)
        self.threads.append(thread)
        thread.start()
        return member

    def _attend(self, member: ClientConnection) -> None:
        try:
            self.ends.append(member.attend())
        except Exception as error:
            self.ends.append(error)

    def join(self) -> None:
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive()


def played(
    links: Connections,
    federation: Federation,
    algorithm: Algorithm,
    count: int = 2,
    wait_policy: WaitPolicy = WaitPolicy(),
    **options: Any,
) -> FederatedRun:
    """Some rounds with clients on the other side of the links, as the fixture `rounds` plays them in process."""
    plan = make_plan(federation, algorithm, count, wait_policy=wait_policy, **options)
    running = FederatedRun(
        plan, SerialExecutor(torch.device("cpu")), None, SilentProgress(), lambda host: links, apart=True
    )
    for index in range(count):
        rnd = Round(
            index,
            count,
            tuple(federation.clients),
            federation.seed.derive("round", index),
            federation.server_context(index),
        )
        running.mailbox.round = index
        running.state = running._play(running._noisy(algorithm.round(running.state, rnd), rnd.seed))
        running.done = index + 1
    return running
