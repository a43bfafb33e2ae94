"""End-to-end encryption between a client and the server over MQTT. The broker carries packets that it cannot read or change.

The client knows the server's public key (`--server-key`). A handshake with a new key pair on both sides gives a key for each
direction of one link (the pattern NK of the Noise framework). Only the owner of the server's secret key can compute them, and
nobody can compute them later. The client proves who it is inside the link, with its token.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from pathlib import Path
from typing import NamedTuple

from motet.core.errors import ConfigError, WireError
from motet.core.install_hint import install_command
from motet.transport.private_files import open_private_file

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ImportError:  # pragma: no cover
    raise ConfigError(f"transport.type=mqtt needs the package cryptography. Run: {install_command('mqtt')}") from None

KEY_BYTES, TAG_BYTES, CLOSING_BYTES = 32, 16, 32
HELLO, ANSWER, SEALED = 1, 2, 3  # the first byte of a packet
_HELLO = struct.Struct("<B32s32s")  # the client's public key, and a hash of the payload that ends the link
_ANSWER = struct.Struct("<B32s16s")  # the server's public key, and a tag that proves its secret key
_SEALED = struct.Struct("<BcQ")  # the kind of the packet, and its number
_LABEL = b"motet mqtt 1"


class ServerKey:
    """The server's X25519 key of a run."""

    def __init__(self, private: X25519PrivateKey) -> None:
        self.private = private
        self.public = private.public_key().public_bytes_raw()

    @staticmethod
    def generate() -> ServerKey:
        return ServerKey(X25519PrivateKey.generate())

    @staticmethod
    def load_or_create(path: Path) -> ServerKey:
        """Read the key of a run, so that clients find the same server after a restart; or create it."""
        if not path.exists():
            with open_private_file(path) as file:
                file.write(X25519PrivateKey.generate().private_bytes_raw())
        try:
            return ServerKey(X25519PrivateKey.from_private_bytes(path.read_bytes()))
        except ValueError:
            raise ConfigError(f"{path} is not a key of {KEY_BYTES} bytes; delete it to create a new one.") from None

    @property
    def text(self) -> str:
        """The public key as clients give it on the command line."""
        return base64.urlsafe_b64encode(self.public).decode().rstrip("=")


def parse_server_key(text: str | None) -> bytes:
    """Return the public key that a client was given as text."""
    try:
        key = base64.b64decode(f"{text or ''}=", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigError(
            f"--server-key is {text!r}; expected the 43 characters that the server prints when it starts. "
            "Without it the broker could read and change everything."
        )
    return key


class LinkNames(NamedTuple):
    """The topics of a link. They are part of the keys, so that nobody can redirect a handshake."""

    channel: str
    client: str
    link: str


class SealedLink:
    """Seals and opens the packets of one link. Packets have increasing numbers, so that none can be replayed."""

    def __init__(self, send_key: bytes, receive_key: bytes) -> None:
        self._send, self._receive = AESGCM(send_key), AESGCM(receive_key)
        self.sent = self.received = 0

    def seal(self, kind: bytes, body: bytes = b"") -> bytes:
        """Return an encrypted packet. Packets must be published in the order in which they were sealed."""
        self.sent += 1
        return _SEALED.pack(SEALED, kind, self.sent) + self._send.encrypt(_nonce(self.sent), body, kind)

    def open(self, packet: bytes) -> tuple[bytes, bytes] | None:
        """Return what a packet is and its content; None if it is forged, damaged or repeated."""
        if len(packet) < _SEALED.size + TAG_BYTES:
            return None
        marker, kind, number = _SEALED.unpack_from(packet)
        if marker != SEALED or number <= self.received:
            return None
        try:
            body = self._receive.decrypt(_nonce(number), memoryview(packet)[_SEALED.size :], kind)
        except InvalidTag:
            return None
        self.received = number
        return kind, body


class ClientHandshake:
    """The client's part of a handshake. `hello` is its first packet."""

    def __init__(self, server_key: bytes, names: LinkNames, closing_payload: bytes) -> None:
        self.server_key, self.names = server_key, names
        self.private = X25519PrivateKey.generate()
        public = self.private.public_key().public_bytes_raw()
        self.hello = _HELLO.pack(HELLO, public, hashlib.sha256(closing_payload).digest())

    def finish(self, answer: bytes) -> SealedLink | None:
        """Return the encrypted link; None if the answer is not from the owner of the server's key."""
        if len(answer) != _ANSWER.size or answer[0] != ANSWER:
            return None
        _, public, tag = _ANSWER.unpack(answer)
        try:
            secrets = _exchange(self.private, self.server_key) + _exchange(self.private, public)
            up, down, proof = _derive_keys(secrets, self.names, self.server_key, self.hello, public)
            AESGCM(proof).decrypt(_nonce(0), tag, _LABEL)
        except (WireError, InvalidTag):
            return None
        return SealedLink(send_key=up, receive_key=down)


class ServerHandshake:
    """The server's part of a handshake. `answer` is its packet for the client."""

    def __init__(self, key: ServerKey, names: LinkNames, hello: bytes) -> None:
        if not is_hello(hello):
            raise WireError(f"a link begins with a packet of {_HELLO.size} bytes; received {len(hello)}.")
        _, client_public, self.closing_hash = _HELLO.unpack(hello)
        private = X25519PrivateKey.generate()
        public = private.public_key().public_bytes_raw()
        secrets = _exchange(key.private, client_public) + _exchange(private, client_public)
        up, down, proof = _derive_keys(secrets, names, key.public, hello, public)
        self.answer = _ANSWER.pack(ANSWER, public, AESGCM(proof).encrypt(_nonce(0), b"", _LABEL))
        self.link = SealedLink(send_key=down, receive_key=up)

    def is_closing(self, payload: bytes) -> bool:
        """Return True for the payload with which the client, or the broker on its behalf, ends the link."""
        return len(payload) == CLOSING_BYTES and hashlib.sha256(payload).digest() == bytes(self.closing_hash)


def is_hello(packet: bytes) -> bool:
    return len(packet) == _HELLO.size and packet[0] == HELLO


def derive_broker_password(server_key: bytes) -> str:
    """Return the password for the built-in broker. Everybody who was given the server's key can derive it."""
    return hashlib.sha256(_LABEL + b" broker" + server_key).hexdigest()


def _exchange(private: X25519PrivateKey, public: bytes) -> bytes:
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise WireError("the public key of the other side is not valid.") from None


def _derive_keys(
    secrets: bytes, names: LinkNames, server_key: bytes, hello: bytes, public: bytes
) -> tuple[bytes, bytes, bytes]:
    """Return the keys from client to server, from server to client, and for the server's proof."""
    texts = [name.encode() for name in names]
    transcript = hashlib.sha256()
    for part in (_LABEL, *texts, server_key, hello, public):
        transcript.update(len(part).to_bytes(4, "big") + part)
    keys = HKDF(hashes.SHA256(), 3 * KEY_BYTES, salt=transcript.digest(), info=_LABEL).derive(secrets)
    return keys[:KEY_BYTES], keys[KEY_BYTES : 2 * KEY_BYTES], keys[2 * KEY_BYTES :]


def _nonce(number: int) -> bytes:
    return number.to_bytes(12, "big")
