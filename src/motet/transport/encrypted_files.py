"""Files of a client's state, encrypted if the client has a key.

A file is divided into chunks. Each is sealed with AES-GCM, under a key that is derived for this file from the client's
key. The number of the chunk, whether it is the last one, and the name of the file are authenticated: nobody can change,
cut, reorder or exchange files unnoticed. An older version of the same file can be put back.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from motet.core.errors import ConfigError, RunError
from motet.core.install_hint import install_command
from motet.transport.private_files import Piece, write_pieces_atomically
from motet.wire import deserialize, iter_serialized
from motet.wire.value_files import load_value

MAGIC = b"motet-encrypted-1\n"
CHUNK, TAG_BYTES, SALT_BYTES = 1 << 20, 16, 16
CHECK_FILE = "key_check"  # sealed with the key of a state folder, to recognize a wrong key before a run begins
_NONCE = struct.Struct(">IQ")  # whether the chunk is the last one, and its number


class EncryptionKey:
    """The key of a client's state: 32 bytes, which the client keeps elsewhere."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    @staticmethod
    def parse(text: str) -> EncryptionKey:
        """Read a key from 64 hexadecimal digits."""
        if not re.fullmatch(r"[0-9a-fA-F]{64}", text.strip()):
            raise ConfigError(
                f"the state key has {len(text.strip())} characters; expected 64 hexadecimal digits. "
                "Create one with: openssl rand -hex 32 > state.key"
            )
        return EncryptionKey(bytes.fromhex(text.strip()))

    def derive(self, purpose: str, salt: bytes = b"") -> bytes:
        """Return a key for one purpose. It reveals nothing about the others."""
        try:
            from cryptography.hazmat.primitives import hashes
            from cryptography.hazmat.primitives.kdf.hkdf import HKDF
        except ImportError:  # pragma: no cover
            raise ConfigError(f"--state-key needs the package cryptography. Run: {install_command('secure')}") from None
        return HKDF(hashes.SHA256(), 32, salt, f"motet state 1 {purpose}".encode()).derive(self._key)

    def seal(self, pieces: Iterable[Piece], label: str) -> Iterator[bytes]:
        """Yield the content of an encrypted file."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        salt = os.urandom(SALT_BYTES)
        cipher = AESGCM(self.derive("file", salt))
        yield MAGIC + salt
        chunk, number = bytearray(), 0
        for piece in pieces:
            chunk += piece
            while len(chunk) > CHUNK:
                yield cipher.encrypt(_NONCE.pack(0, number), bytes(chunk[:CHUNK]), label.encode())
                del chunk[:CHUNK]
                number += 1
        yield cipher.encrypt(_NONCE.pack(1, number), bytes(chunk), label.encode())

    def open(self, data: memoryview, label: str) -> bytearray:
        """Return the content of an encrypted file. Raise an InvalidTag of cryptography if it was changed."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        start = len(MAGIC) + SALT_BYTES
        cipher = AESGCM(self.derive("file", bytes(data[len(MAGIC) : start])))
        content, number = bytearray(), 0
        while True:
            end = start + CHUNK + TAG_BYTES
            is_last = end >= len(data)
            content += cipher.decrypt(_NONCE.pack(is_last, number), bytes(data[start:end]), label.encode())
            if is_last:
                return content
            start, number = end, number + 1


class StateFiles:
    """Reads and writes values in files: encrypted with a key, or plain without one."""

    def __init__(self, key: EncryptionKey | None = None) -> None:
        self.key = key

    def save(self, path: Path, value: Any, label: str | None = None) -> None:
        """Write a value. The label, or else the name of the file, must be the same for reading."""
        pieces: Iterable[Piece] = iter_serialized(value)
        if self.key is not None:
            pieces = self.key.seal(pieces, label or path.name)
        write_pieces_atomically(path, pieces)

    def load(self, path: Path, label: str | None = None) -> Any:
        with path.open("rb") as file:
            is_encrypted = file.read(len(MAGIC)) == MAGIC
        if self.key is None:
            if is_encrypted:
                raise ConfigError(f"the client state is encrypted ({path.name}); pass its key with --state-key.")
            return load_value(path)
        if not is_encrypted:
            raise RunError(
                f"{path.name} of the client state is not encrypted, although there is a state key. Somebody replaced it, "
                "or it comes from a run without --state-key. Delete it."
            )
        from cryptography.exceptions import InvalidTag

        try:
            return deserialize(self.key.open(memoryview(path.read_bytes()), label or path.name))
        except InvalidTag:
            raise RunError(
                f"{path.name} of the client state cannot be decrypted. It was written with another --state-key, or somebody "
                "changed it. Give the right key; if the file was changed, restore it from a copy."
            ) from None

    def check_folder(self, folder: Path) -> None:
        """Raise an error if a state folder was written with another key, or if only a part of it would be encrypted."""
        check = folder / CHECK_FILE
        if check.exists():
            self.load(check)
        elif self.key is not None:
            if runs := sorted(path.name for path in folder.iterdir() if path.is_dir()):
                raise ConfigError(
                    f"'{folder}' has the state of runs without encryption ({', '.join(runs)}). Finish them without "
                    "--state-key, or delete their folders. Keep the audit log: it counts what this client has spent."
                )
            self.save(check, CHECK_FILE)
