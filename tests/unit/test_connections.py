"""Links: a client is told why the server could not store its message, and idle links stay open."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from grpc._cython import cygrpc

from motet.transport import grpc as grpc_transport
from motet.transport.connections import describe_storage_error


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "the server needs disk space in TMPDIR"),
        (errno.EDQUOT, "the server needs disk space in TMPDIR"),
        (errno.EMFILE, "the server needs a higher limit of open files (ulimit -n)"),
        (errno.EIO, ""),
    ],
)
def test_the_message_names_the_error_and_the_remedy_if_it_is_known(number: int, remedy: str) -> None:
    message = describe_storage_error(OSError(number, os.strerror(number)))
    assert os.strerror(number) in message
    assert remedy in message
    assert ("TMPDIR" in message) == ("TMPDIR" in remedy)


def test_an_error_without_a_number_is_quoted() -> None:
    message = describe_storage_error(OSError("the disk is gone"))
    assert message == "the server cannot store your message (the disk is gone)."


def test_grpc_knows_every_option() -> None:
    """gRPC ignores an option with a wrong name. Without the right one, it ends links that have been idle for minutes."""
    library = Path(cygrpc.__file__).read_bytes()
    for name, _ in [*grpc_transport._OPTIONS, *grpc_transport._SERVER_OPTIONS]:
        assert name.encode() in library, name
