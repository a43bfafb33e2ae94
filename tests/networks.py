"""Networks for tests: in-memory links, a mosquitto broker, clients in threads, and rounds over any of them."""

from __future__ import annotations

import getpass
import itertools
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from motet.core.errors import RunError
from motet.core.program import Algorithm
from motet.experiment.build.federation import Federation
from motet.experiment.loop.client_sampling import make_recorder
from motet.experiment.loop.run_loop import FederatedRun
from motet.learning.executors.serial_executor import SerialExecutor
from motet.transport.admission import PROTOCOL_VERSION, Admission, JoinAccepted, JoinRequest
from motet.transport.client_connection import ClientConnection, ClientSetup, ServerLink
from motet.transport.client_runtime import ClientRuntime
from motet.transport.connections import Connections
from motet.transport.flower_grid import serve_flower
from motet.transport.flower_socket import FlowerServerLink, FlowerSocket
from motet.transport.flower_visit import VisitHeader, VisitReply, visit_client
from motet.transport.framing import MessageAssembler, OutgoingMessage
from motet.transport.journal import Journal
from motet.transport.receive_queue import ReceiveQueue
from motet.transport.wait_policy import WaitPolicy
from tests.runs import make_plan, run_rounds

MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
CHUNK_BYTES = 1000
Connect = Callable[[], ServerLink]


class MemoryLink:
    """The client's end of an in-memory link. Messages are split into chunks and joined, as on any network."""

    def __init__(self, connections: Connections, peer: str = "memory") -> None:
        self.connections, self.is_cut = connections, False
        self.received = ReceiveQueue()
        self.server_end = MemoryClientLink(self, peer)
        self.assembler = MessageAssembler(buffers=connections.buffers)
        self.messages_sent = 0

    def send(self, message: OutgoingMessage) -> None:
        if self.is_cut:
            raise ConnectionError("cut")
        self.messages_sent += 1
        for chunk in message.chunks(self.messages_sent, CHUNK_BYTES):
            self.assembler.limit = self.connections.limits_for(self.server_end).message_bytes
            data = self.assembler.add(chunk)
            if data is not None:
                self.connections.on_message(self.server_end, data)

    def receive(self, timeout: float | None) -> memoryview | None:
        return self.received.get(timeout)

    def limit_messages(self, message_bytes: int) -> None:
        self.server_end.assembler.limit = message_bytes

    def close(self) -> None:
        self.cut()

    def cut(self) -> None:
        if not self.is_cut:
            self.is_cut = True
            self.received.put(ConnectionError("cut"))
            self.connections.on_disconnect(self.server_end)


class MemoryClientLink:
    """The server's end of an in-memory link."""

    certified_name = None

    def __init__(self, client_end: MemoryLink, peer: str) -> None:
        self.client_end, self.peer = client_end, peer
        self.assembler, self.messages_sent = MessageAssembler(2**30), 0

    def send(self, message: OutgoingMessage) -> None:
        self.messages_sent += 1
        for chunk in message.chunks(self.messages_sent, CHUNK_BYTES):
            data = self.assembler.add(chunk)
            if data is not None and not self.client_end.is_cut:
                self.client_end.received.put(data)

    def close(self) -> None:
        self.client_end.cut()

    def abort(self) -> None:
        self.close()


class FakeFlower:
    """A SuperLink in memory. Each connection of a client is a SuperNode, whose ClientApp visits its socket in a thread."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="fl")  # the path of a socket must be short
        self.sockets: dict[int, FlowerSocket] = {}
        self.replies: dict[str, VisitReply] = {}
        self.numbers, self.visits = itertools.count(1), 0
        self.log: list[str] = []

    def __enter__(self) -> FakeFlower:
        return self

    def __exit__(self, *_: object) -> None:
        for flower_socket in self.sockets.values():
            flower_socket.close()
        self.folder.cleanup()

    def listen(self, connections: Connections) -> Callable[[], FlowerServerLink]:
        serve_flower(connections, self, self.log.append, tick=0.005)
        return self.add_node

    def add_node(self) -> FlowerServerLink:
        node = next(self.numbers)
        self.sockets[node] = FlowerSocket(Path(self.folder.name) / str(node), visit_seconds=0.2)
        return self.sockets[node].connect()

    def find_nodes(self) -> set[int]:
        return set(self.sockets)

    def send(self, node: int, link: str, number: int, messages: Sequence[bytes]) -> str:
        self.visits += 1
        message_id = str(self.visits)
        threading.Thread(target=self._visit, args=(message_id, node, link, number, messages), daemon=True).start()
        return message_id

    def receive(self, message_ids: Sequence[str]) -> list[VisitReply]:
        return [self.replies.pop(message_id) for message_id in message_ids if message_id in self.replies]

    def _visit(self, message_id: str, node: int, link: str, number: int, messages: Sequence[bytes]) -> None:
        try:
            path = str(self.sockets[node].path)
            header, answers = visit_client(path, VisitHeader(link, number, len(messages)), messages)
            self.replies[message_id] = VisitReply(message_id, "", header.lost, answers)
        except RunError as error:
            self.replies[message_id] = VisitReply(message_id, str(error), is_lost=True)


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def run_mosquitto(folder: Path, *settings: str, port: int | None = None) -> Iterator[str]:
    """Run a mosquitto broker on loopback, and yield its address once it accepts connections. It ends by SIGKILL."""
    port = port or find_free_port()
    config = folder / "mosquitto.conf"
    lines = [f"listener {port} 127.0.0.1", f"user {getpass.getuser()}", *(settings or ("allow_anonymous true",))]
    config.write_text("\n".join(lines) + "\n")
    process = subprocess.Popen(
        [str(MOSQUITTO), "-c", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert time.monotonic() < deadline and process.poll() is None, "mosquitto did not start"
                time.sleep(0.02)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def make_admission(
    *clients: str, session: str = "one", token_hashes: dict[str, str] | None = None, **options: Any
) -> Admission:
    """Build an admission of these clients. `token_hashes` may be changed later."""
    if token_hashes is not None:
        options["load_tokens"] = lambda: token_hashes
    acceptance = JoinAccepted(run="0123abcd", session=session, digest="digest", config={}, groups={})
    return Admission(acceptance, "fingerprint", clients, **options)


def make_join_request(*clients: str, **changes: Any) -> JoinRequest:
    fields = {"protocol": PROTOCOL_VERSION, "clients": clients, "digest": "digest", "token": ""}
    return JoinRequest(**{**fields, **changes})


def make_setup(
    federation: Federation, algorithm: Algorithm, journal_folder: Path | None = None, **options: Any
) -> ClientSetup:
    """Build what a client builds after it was accepted; `options` are those of the run."""
    plan = make_plan(federation, algorithm, 1, **options)
    components = plan.components
    journal = Journal(journal_folder)
    runtime = ClientRuntime(
        components.client_programs,
        federation.context,
        SerialExecutor(torch.device("cpu")),
        journal,
        required_wrappers=components.required_wrappers,
        hide_errors=True,
        recorder=make_recorder(plan.cohort, algorithm) if plan.cohort.reports_utility else None,
    )
    return ClientSetup(runtime, journal, "fingerprint")


class ClientThreads:
    """Runs client connections in threads, each for one or more clients, and records how each one ends."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []
        self.results: list[str | Exception] = []

    def start(
        self, connect: Connect, clients: tuple[str, ...], setup: ClientSetup, give_up_after: float = 60.0
    ) -> ClientConnection:
        return self.start_connection(
            ClientConnection(connect, make_join_request(*clients), lambda acceptance: setup, give_up_after)
        )

    def start_connection(self, connection: ClientConnection) -> ClientConnection:
        thread = threading.Thread(target=self._run, args=(connection,), daemon=True)
        self.threads.append(thread)
        thread.start()
        return connection

    def _run(self, connection: ClientConnection) -> None:
        try:
            self.results.append(connection.run())
        except Exception as error:
            self.results.append(error)

    def join(self) -> None:
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive()


def wait_for_clients(connections: Connections, count: int) -> None:
    connections.wait_for_clients(count, lambda ready: None)


def run_remote_rounds(
    connections: Connections,
    federation: Federation,
    algorithm: Algorithm,
    rounds: int = 2,
    wait_policy: WaitPolicy = WaitPolicy(),
    **options: Any,
) -> FederatedRun:
    """Run rounds with remote clients, as `run_rounds` runs them in process."""
    return run_rounds(
        federation,
        algorithm,
        rounds,
        connect=lambda runtime: connections,
        is_remote=True,
        wait_policy=wait_policy,
        **options,
    )
