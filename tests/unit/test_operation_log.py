"""The log of operations finds where two trainings begin to differ."""

from __future__ import annotations

import torch
from benchmarks.operation_log import OperationLog, first_difference


def _log(noise: float) -> OperationLog:
    with OperationLog() as log:
        x = torch.ones(3, 4, requires_grad=True)
        y = (x.T.exp() + noise) * 2
        y.sum().backward()
    return log


def test_the_first_operation_with_other_bits_is_found() -> None:
    assert first_difference(_log(0.5), _log(0.5)) == ""
    difference = first_difference(_log(0.5), _log(0.50001))
    assert "aten.add" in difference and "(4, 3)" in difference, difference
