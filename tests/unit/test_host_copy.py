"""Copies to a device come from pinned memory, which the device reads while the host goes on."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.fake_device import DEVICE, FakeDeviceTensor, to_device
from torch import Tensor

from motet.learning.packed.host_copy import write_from_host


@pytest.mark.parametrize("values", [[1, 2], [0.5, torch.inf]])
def test_a_copy_to_a_device_has_its_type_before_it_is_pinned(
    values: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned, copied = list[Tensor](), list[Tensor]()

    def pin(self: Tensor) -> Tensor:
        pinned.append(self)
        return self

    def copy(self: Tensor, source: Tensor, non_blocking: bool) -> Tensor:
        copied.append(source)
        return self

    monkeypatch.setattr(FakeDeviceTensor, "copy_", copy)
    monkeypatch.setattr(Tensor, "pin_memory", pin)
    target: Any = to_device(torch.zeros(2))
    assert target.device == DEVICE
    write_from_host(target, torch.tensor(values))
    assert len(pinned) == 1
    assert copied[0] is pinned[0]
    assert copied[0].dtype == target.dtype
