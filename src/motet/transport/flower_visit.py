"""How a ClientApp and the Motet client on its machine speak. It loads only the standard library, for the ClientApp."""

from __future__ import annotations

import json
from collections.abc import Sequence
from multiprocessing.connection import Client
from typing import NamedTuple

from motet.core.errors import ConfigError, RunError

SOCKET_KEY = "motet-socket"  # in the SuperNode's --node-config
HEADER_BYTES = 4096
MAX_MESSAGES_PER_VISIT = 100_000


class VisitHeader(NamedTuple):
    """What comes before the messages of a visit.

    `link` is chosen by the server. Visit 0 opens a link. `lost` answers a visit to a link that is not open any more.
    """

    link: str
    number: int
    messages: int
    lost: bool = False

    def to_bytes(self) -> bytes:
        return json.dumps(self._asdict()).encode()

    @staticmethod
    def from_bytes(data: bytes) -> VisitHeader:
        """Raise ValueError for anything but a header."""
        fields = json.loads(data)
        header = (
            VisitHeader(**fields) if isinstance(fields, dict) and fields.keys() == set(VisitHeader._fields) else None
        )
        if header is None or [type(field) for field in header] != [str, int, int, bool]:
            raise ValueError("not the header of a visit")
        if not 0 <= header.messages <= MAX_MESSAGES_PER_VISIT:
            raise ValueError(f"a visit with {header.messages} messages")
        return header


class VisitReply(NamedTuple):
    """What came back from a visit, for the server. `is_lost` if the link must be opened again."""

    message_id: str
    error: str = ""
    is_lost: bool = False
    messages: Sequence[bytes] = ()


def visit_client(path: str, header: VisitHeader, messages: Sequence[bytes]) -> tuple[VisitHeader, list[bytes]]:
    """Deliver messages at the socket of a client. Return its answer."""
    if not path:
        raise ConfigError(
            f"this SuperNode does not know its Motet client; start it with --node-config '{SOCKET_KEY}=\"PATH\"'."
        )
    try:
        with Client(path, "AF_UNIX") as connection:
            connection.send_bytes(header.to_bytes())
            for data in messages:
                connection.send_bytes(data)
            answer = VisitHeader.from_bytes(connection.recv_bytes(HEADER_BYTES))
            return answer, [connection.recv_bytes() for _ in range(answer.messages)]
    except (FileNotFoundError, ConnectionRefusedError):
        raise RunError(
            f"no Motet client listens at '{path}'; start: motet join --transport flower --server {path} --name NAME …"
        ) from None
    except (OSError, EOFError, ValueError) as error:
        raise RunError(f"the Motet client at '{path}' ended during a message ({type(error).__name__}).") from None
