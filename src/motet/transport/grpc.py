"""The gRPC transport.

Each client opens one bidirectional stream, so clients need no open port. Messages are chunked.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from motet.atomic_files import Stamp, read_stamp
from motet.core.errors import ConfigError, RunError, WireError
from motet.core.install_hint import install_command
from motet.missing_paths import describe_read_error
from motet.transport.connections import Connections, describe_storage_error
from motet.transport.framing import CHUNK_HEADER_BYTES, MessageAssembler, OutgoingMessage
from motet.transport.message_limits import JOIN_ANSWER
from motet.transport.pending_links import MAX_STRANGERS
from motet.transport.receive_queue import ReceiveQueue
from motet.transport.tls_diagnosis import TlsFiles, build_tls_context, find_tls_error

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # anyone who connects can make it write lines, also into a JSON log
try:
    import grpc
except ImportError:  # pragma: no cover
    raise ConfigError(f"transport.type=grpc needs the package grpcio. Run: {install_command('grpc')}") from None

_log = logging.getLogger(__name__)
CHUNK_BYTES = 2 * 2**20
METHOD, SERVICE = "Talk", "motet.Link"  # unchanged since version 1: an older peer can then report the version mismatch
MAX_LINKS = 1000 + 4 * MAX_STRANGERS  # more than clients and strangers together, because closing a link takes a moment
_OPTIONS = [
    ("grpc.max_receive_message_length", CHUNK_BYTES + CHUNK_HEADER_BYTES),
    ("grpc.max_send_message_length", CHUNK_BYTES + CHUNK_HEADER_BYTES),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # Fixed flow-control window: with probing, gRPC buffers far ahead of the reader on every link.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 2 * CHUNK_BYTES),
]
_SERVER_OPTIONS = [("grpc.http2.min_ping_interval_without_data_ms", 5_000), ("grpc.so_reuseport", 0)]


def _read_pem(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{describe_read_error(path, error)} Expected a PEM file.") from None


# ---- Server
# -----------------------------------------------------------------------------------------------------------


class _GrpcClientLink:
    """The server's end of a stream. Messages wait in a queue; gRPC takes them from it as fast as the network allows."""

    def __init__(self, context: Any) -> None:
        self.context, self.peer = context, str(context.peer())
        names = context.auth_context().get("x509_common_name")
        self.certified_name = names[0].decode() if names else None
        self.outbox: queue.SimpleQueue[OutgoingMessage | None] = queue.SimpleQueue()

    def send(self, message: OutgoingMessage) -> None:
        self.outbox.put(message)

    def close(self) -> None:
        self.outbox.put(None)

    def abort(self) -> None:
        self.context.cancel()

    def outgoing_chunks(self) -> Iterator[bytes]:
        number = 0
        while (message := self.outbox.get()) is not None:
            yield from message.chunks(number, CHUNK_BYTES)
            number += 1
            del message  # free it before waiting for the next one


class _GrpcService:
    """Handles each incoming stream: passes its messages to `connections`, and sends theirs."""

    def __init__(self, connections: Connections) -> None:
        self.connections = connections

    def handle_stream(self, incoming: Iterator[bytes], context: Any) -> Iterator[bytes]:
        link = _GrpcClientLink(context)
        context.add_callback(link.close)
        self.connections.on_connect(link)
        threading.Thread(target=self._listen, args=(link, incoming, context), daemon=True).start()
        try:
            yield from link.outgoing_chunks()
        finally:
            self.connections.on_disconnect(link)

    def _listen(self, link: _GrpcClientLink, incoming: Iterator[bytes], context: Any) -> None:
        assembler = MessageAssembler(buffers=self.connections.buffers)
        try:
            for chunk in incoming:
                assembler.limit = self.connections.limits_for(link).message_bytes
                try:
                    message = assembler.add(chunk)
                except WireError as error:
                    self.connections.reject(link, str(error))
                    continue
                if message is not None:
                    self.connections.on_message(link, message)
                del message, chunk  # an idle link holds no memory
        except grpc.RpcError:
            pass  # the stream broke
        except OSError as error:
            self.connections.reject(link, describe_storage_error(error), close_link=True)
        except Exception:
            _log.exception("the link to %s failed", link.peer)
        finally:
            assembler.reset()
            link.close()
            self.connections.on_disconnect(link)  # also if it was admitted after the stream had ended
            if context.is_active():
                self.connections.end_link(link)


def serve_grpc(connections: Connections, bind: str, tls: TlsFiles | None = None) -> str:
    """Listen on `bind` (host:port; port 0 for a free one) for `connections`. Return the actual address."""
    pool = ThreadPoolExecutor(MAX_LINKS, "motet-link")
    server = grpc.server(pool, options=[*_OPTIONS, *_SERVER_OPTIONS], maximum_concurrent_rpcs=MAX_LINKS)
    handler = grpc.stream_stream_rpc_method_handler(_GrpcService(connections).handle_stream)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
    host, _, requested_port = bind.rpartition(":")
    try:
        credentials = ServerCertificate(tls).credentials() if tls else None
        port = server.add_secure_port(bind, credentials) if credentials else server.add_insecure_port(bind)
    except RuntimeError:
        port = 0
    if not port:
        raise RunError(f"cannot listen on {bind}; is the port in use, or is the address not one of this machine?")
    server.start()
    connections.stop_listening = lambda: server.stop(grace=5).wait()
    return f"{host}:{port if requested_port == '0' else requested_port}"


class ServerCertificate:
    """The certificate and key of a server. They are read again when their files have changed, so that they can be renewed."""

    def __init__(self, tls: TlsFiles) -> None:
        if tls.key is None or tls.certificate is None:
            raise ConfigError("TLS needs a key and a certificate; pass --key and --cert.")
        self.tls = tls
        self.stamps = self._read_stamps()

    def credentials(self) -> Any:
        needs_certificate = self.tls.authority is not None
        return grpc.dynamic_ssl_server_credentials(self._load(), self.load_if_changed, needs_certificate)

    def load_if_changed(self) -> Any:
        """Return new credentials, or None if the current ones stay. gRPC calls this for each new connection."""
        stamps = self._read_stamps()
        if stamps == self.stamps:
            return None
        self.stamps = stamps
        try:
            credentials = self._load()
        except ConfigError as error:  # perhaps only one of the files has been replaced so far
            _log.warning("the server keeps its certificate, because the new one cannot be used: %s", error)
            return None
        _log.warning("the server has a new certificate: %s", self.tls.certificate)
        return credentials

    def _load(self) -> Any:
        key, certificate, authority = map(_read_pem, (self.tls.key, self.tls.certificate, self.tls.authority))
        build_tls_context(self.tls)  # explains what gRPC only rejects
        return grpc.ssl_server_certificate_configuration([(key, certificate)], authority)

    def _read_stamps(self) -> list[Stamp | None]:
        return [read_stamp(file) for file in (self.tls.key, self.tls.certificate, self.tls.authority) if file]


# ---- Client
# -----------------------------------------------------------------------------------------------------------


class GrpcServerLink:
    """The client's end of a stream."""

    def __init__(self, server: str, tls: TlsFiles | None = None) -> None:
        self.channel = grpc.insecure_channel(server, _OPTIONS) if tls is None else _secure_channel(server, tls)
        self.outbox: queue.Queue[bytes | None] = queue.Queue(4)  # few chunks, so that a reply is in memory once
        self.received = ReceiveQueue()
        self.assembler, self.messages_sent = MessageAssembler(JOIN_ANSWER.message_bytes), 0
        self.broken, self.break_error = threading.Event(), ConnectionError("the link was closed")
        self.server, self.tls = server, tls
        self.send_lock = threading.Lock()
        call = self.channel.stream_stream(f"/{SERVICE}/{METHOD}")
        self.stream = call(iter(self.outbox.get, None))
        threading.Thread(target=self._listen, daemon=True).start()

    def send(self, message: OutgoingMessage) -> None:
        with self.send_lock:
            for chunk in message.chunks(self.messages_sent, CHUNK_BYTES):
                while True:
                    if self.broken.is_set():
                        raise self.break_error
                    try:
                        self.outbox.put(chunk, timeout=1.0)
                        break
                    except queue.Full:
                        continue
            self.messages_sent += 1

    def receive(self, timeout: float | None) -> memoryview | None:
        return self.received.get(timeout)

    def limit_messages(self, message_bytes: int) -> None:
        self.assembler.limit = message_bytes

    def close(self) -> None:
        self.broken.set()
        with suppress(queue.Full):
            self.outbox.put_nowait(None)  # ends gRPC's thread that waits for chunks
        self.stream.cancel()
        self.channel.close()

    def _listen(self) -> None:
        reason, tls_error, is_connected = "the server closed it", None, False
        try:
            for chunk in self.stream:
                is_connected = True
                message = self.assembler.add(chunk)
                if message is not None:
                    self.received.put(message)
                del message, chunk  # an idle link holds no memory
        except WireError as error:
            reason = str(error)
        except grpc.RpcError as error:
            reason = str(error.details() or error.code().name)
            if not is_connected and error.code() == grpc.StatusCode.UNAVAILABLE:
                tls_error = find_tls_error(self.server, self.tls)
        except Exception as error:  # gRPC raises various errors if the channel is closed during a read
            reason = type(error).__name__
        self.break_error = tls_error or ConnectionError(reason[:200])
        self.broken.set()
        self.received.put(self.break_error)


def _secure_channel(server: str, tls: TlsFiles) -> Any:
    certificate_chain = _read_pem(tls.certificate)
    credentials = grpc.ssl_channel_credentials(_read_pem(tls.authority), _read_pem(tls.key), certificate_chain)
    return grpc.secure_channel(server, credentials, _OPTIONS)
