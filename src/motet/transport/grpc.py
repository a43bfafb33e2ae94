"""gRPC, for silos: one two-way stream a client, so that a silo needs no open port; in chunks, so that size is no limit."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motet.core.errors import ConfigError, RunError, WireError
from motet.transport.connections import Connections, describe_storage_error
from motet.transport.framing import CHUNK_HEADER_BYTES, MessageAssembler, OutgoingMessage
from motet.transport.receive_queue import ReceiveQueue

try:
    import grpc
except ImportError:  # pragma: no cover
    raise ConfigError("transport.type=grpc needs grpcio; run: pip install 'motet[grpc]'") from None

CHUNK = 2 * 2**20
METHOD, SERVICE = "Talk", "motet.Link"
MAX_LINKS = 1000
JOIN_TIMEOUT = 30.0  # seconds for a newcomer's first words
_OPTIONS = [
    ("grpc.max_receive_message_length", CHUNK + CHUNK_HEADER_BYTES),
    ("grpc.max_send_message_length", CHUNK + CHUNK_HEADER_BYTES),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    (
        "grpc.http2.bdp_probe",
        0,
    ),  # a window of a fixed size: by itself gRPC reads far ahead of us, and that for every link
    ("grpc.http2.lookahead_bytes", 2 * CHUNK),
]
_SERVER = [("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000), ("grpc.so_reuseport", 0)]


@dataclass(frozen=True)
class TlsFiles:
    """PEM files. A server has a key and a certificate; with `authority` the other side must show a certificate signed by it."""

    key: Path | None = None
    certificate: Path | None = None
    authority: Path | None = None


def _read(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"'{path}' cannot be read ({error.strerror}); give a PEM file.") from None


# ---- the server -------------------------------------------------------------------------------------------------------


class _GrpcClientLink:
    """A link: what is to be sent waits in a queue, from which gRPC takes it at the network's pace."""

    def __init__(self, context: Any) -> None:
        self.context, self.peer = context, str(context.peer())
        names = context.auth_context().get("x509_common_name")
        self.certified = names[0].decode() if names else None
        self.outbox: queue.SimpleQueue[OutgoingMessage | None] = queue.SimpleQueue()

    def push(self, parcel: OutgoingMessage) -> None:
        self.outbox.put(parcel)

    def close(self) -> None:
        self.outbox.put(None)

    def chunks(self) -> Iterator[bytes]:
        number = 0
        while (parcel := self.outbox.get()) is not None:
            yield from parcel.chunks(number, CHUNK)
            number += 1
            del parcel  # nothing of it is held while the next one is waited for


class _GrpcService:
    """What gRPC calls for each stream: it tells `links` what is heard, and sends what they push."""

    def __init__(self, links: Connections) -> None:
        self.links = links

    def talk(self, incoming: Iterator[bytes], context: Any) -> Iterator[bytes]:
        link = _GrpcClientLink(context)
        context.add_callback(link.close)
        threading.Thread(target=self._listen, args=(link, incoming), daemon=True).start()
        silence = threading.Timer(JOIN_TIMEOUT, lambda: None if link in self.links.names else link.close())
        silence.daemon = True
        silence.start()
        try:
            yield from link.chunks()
        finally:
            silence.cancel()
            self.links.broke(link)

    def _listen(self, link: _GrpcClientLink, incoming: Iterator[bytes]) -> None:
        assembly = MessageAssembler(room=self.links.room)
        try:
            for chunk in incoming:
                assembly.limit = self.links.limit_of(link)
                try:
                    message = assembly.add(chunk)
                except WireError as error:
                    self.links.rubbish(link, str(error))
                    continue
                if message is not None:
                    self.links.heard(link, message)
                del message, chunk  # a link that has nothing to say holds nothing
        except grpc.RpcError:
            pass  # the stream broke
        except OSError as error:
            self.links.rubbish(link, describe_storage_error(error), final=True)
        finally:
            assembly.forget()
            link.close()


def serve_grpc(links: Connections, bind: str, security: TlsFiles | None = None) -> str:
    """Listen on `bind` (host:port; port 0 for a free one) and tell `links` what is heard; the address it has become."""
    pool = ThreadPoolExecutor(MAX_LINKS, "motet-link")
    server = grpc.server(pool, options=[*_OPTIONS, *_SERVER], maximum_concurrent_rpcs=MAX_LINKS)
    method = grpc.stream_stream_rpc_method_handler(_GrpcService(links).talk)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: method}),))
    host, _, wanted = bind.rpartition(":")
    try:
        port = (
            server.add_insecure_port(bind) if security is None else server.add_secure_port(bind, _server_side(security))
        )
    except RuntimeError:
        port = 0
    if not port:
        raise RunError(f"nothing can listen on {bind}; is the port taken, or the address not this machine's?")
    server.start()
    links.stop = lambda: server.stop(grace=5).wait()
    return f"{host}:{port if wanted == '0' else wanted}"


def _server_side(security: TlsFiles) -> Any:
    if security.key is None or security.certificate is None:
        raise ConfigError("TLS needs a key and a certificate; give --key and --cert.")
    pair = [(_read(security.key), _read(security.certificate))]
    return grpc.ssl_server_credentials(
        pair, _read(security.authority), require_client_auth=security.authority is not None
    )


# ---- a client ---------------------------------------------------------------------------------------------------------


class GrpcServerLink:
    """A client's end of the stream."""

    def __init__(self, server: str, security: TlsFiles | None = None, limit: int = 2**36) -> None:
        self.channel = grpc.insecure_channel(server, _OPTIONS) if security is None else _secure(server, security)
        self.outbox: queue.Queue[bytes | None] = queue.Queue(4)  # chunks: a client holds its reply once
        self.arrivals = ReceiveQueue()
        self.assembly, self.sent = MessageAssembler(limit), 0
        self.broken = threading.Event()
        self.sending = threading.Lock()
        call = self.channel.stream_stream(f"/{SERVICE}/{METHOD}")
        self.stream = call(iter(self.outbox.get, None))
        threading.Thread(target=self._listen, daemon=True).start()

    def send(self, parcel: OutgoingMessage) -> None:
        with self.sending:
            for chunk in parcel.chunks(self.sent, CHUNK):
                while True:
                    if self.broken.is_set():
                        raise ConnectionError("the link broke while sending")
                    try:
                        self.outbox.put(chunk, timeout=1.0)
                        break
                    except queue.Full:
                        continue
            self.sent += 1

    def receive(self, timeout: float | None) -> memoryview | None:
        return self.arrivals.next(timeout)

    def close(self) -> None:
        self.broken.set()
        with suppress(queue.Full):
            self.outbox.put_nowait(None)  # gRPC's thread that waits for chunks may go
        self.stream.cancel()
        self.channel.close()

    def _listen(self) -> None:
        why = "the server closed it"
        try:
            for chunk in self.stream:
                message = self.assembly.add(chunk)
                if message is not None:
                    self.arrivals.put(message)
                del message, chunk  # nothing is held while nothing comes
        except WireError as error:
            why = str(error)
        except grpc.RpcError as error:
            why = str(error.details() or error.code().name)
        except Exception as error:  # a channel that is closed while it is read raises what it likes
            why = type(error).__name__
        self.broken.set()
        self.arrivals.put(ConnectionError(why[:200]))


def _secure(server: str, security: TlsFiles) -> Any:
    chain = _read(security.certificate)
    credentials = grpc.ssl_channel_credentials(_read(security.authority), _read(security.key), chain)
    return grpc.secure_channel(server, credentials, _OPTIONS)
