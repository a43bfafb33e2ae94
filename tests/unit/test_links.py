"""What a client is told of a message that the server could not keep."""

from __future__ import annotations

import errno
import os

import pytest

from motet.transport.connections import describe_storage_error


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.ENOSPC, "it needs room on disk, in TMPDIR"),
        (errno.EDQUOT, "it needs room on disk, in TMPDIR"),
        (errno.EMFILE, "it needs a higher limit of open files (ulimit -n)"),
        (errno.EIO, ""),
    ],
)
def test_what_to_do_is_said_where_it_is_known(number: int, says: str) -> None:
    said = describe_storage_error(OSError(number, os.strerror(number)))
    assert os.strerror(number) in said
    assert says in said
    assert ("TMPDIR" in said) == ("TMPDIR" in says)


def test_an_error_without_a_number_is_said_in_its_own_words() -> None:
    assert describe_storage_error(OSError("it is gone")) == "the server cannot keep your message (it is gone)."
