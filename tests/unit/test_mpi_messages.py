"""The MPI transport checks the announced sizes before it allocates memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("mpi4py")

from motet.core.errors import RunError
from motet.transport.mpi import MpiEndpoint, MpiTransport


class FakeComm:
    """A communicator with one message of rank 1 that announces these sizes."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = np.array(sizes, np.int64)

    def Get_rank(self) -> int:  # noqa: N802 - MPI's names
        return 0

    def Get_size(self) -> int:  # noqa: N802
        return 2

    def Iprobe(self, *_: Any) -> bool:  # noqa: N802
        return True

    def Recv(self, buffer: list[Any], *_: Any) -> None:  # noqa: N802
        buffer[0][:] = self.sizes


@pytest.mark.parametrize("sizes", [[-1], [2**31], [2**30] * 2000, [2**62, 2**62]])
def test_a_message_of_impossible_size_is_rejected(sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    from motet.transport import mpi

    class Status:
        def Get_source(self) -> int:  # noqa: N802
            return 1

        def Get_count(self, _: Any) -> int:  # noqa: N802
            return len(sizes)

    monkeypatch.setattr(mpi.MPI, "Status", Status)
    with pytest.raises(RunError, match="a rank sent an invalid message: rank 1 announced a message in"):
        MpiTransport(MpiEndpoint(FakeComm(sizes)), lambda client: 1).receive(1.0)
