"""The log of operations finds where two trainings begin to differ."""

from __future__ import annotations

import torch
from benchmarks.operation_log import OperationLog, first_difference, results_with_a_value


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


def test_differences_that_cancel_in_a_sum_are_found() -> None:
    logs = OperationLog(), OperationLog()
    for log, values in zip(logs, ([1, 2, 3], [2, 1, 3]), strict=True):
        log.add("product", [torch.tensor(values)])
    assert "product" in first_difference(*logs)


def test_the_seed_of_attention_without_dropout_is_ignored() -> None:
    output, seed = torch.ones(2, 3), torch.tensor(7)
    assert results_with_a_value("aten._scaled_dot_product_efficient_attention.default", (output, seed)) == [output]
    assert len(results_with_a_value("aten.sum.default", (seed,))) == 1
