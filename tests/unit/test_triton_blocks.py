"""The Triton kernels that follow a product in an encoder layer, run by Triton's interpreter, against double precision."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

import pytest
import torch
from tests.families import CASES, random_features, split_examples
from torch import Tensor
from torch.nn import functional

from motet.learning.executors.packed_executor import PackedExecutor
from motet.learning.jobs import Fit
from motet.learning.packed import packed_blocks, packed_layers, packed_model
from motet.learning.packed.grad_targets import GradTarget
from motet.learning.solver import Solver

SHAPES = [(2, 37, 48), (3, 5, 600)]  # clients, rows, width


@pytest.fixture(params=[1024, 2], ids=["one tile per program", "several tiles per program"])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("triton")
    kernels, module = (import_module(f"motet.learning.packed.{name}") for name in ("triton_kernels", "triton_blocks"))
    monkeypatch.setattr(kernels, "_PROGRAMS", request.param)
    return module


def assert_equal(actual: list[Tensor], expected: list[Tensor]) -> None:
    for a, e in zip(actual, expected, strict=True):
        assert float((a.detach().double() - e).norm() / e.norm()) < 1e-6


@pytest.mark.parametrize("shape", SHAPES)
def test_bias_residual_and_norm_equal_double_precision(blocks: ModuleType, shape: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    clients, _, width = shape
    inputs = [torch.randn(shape), torch.randn(clients, width), torch.randn(shape), *torch.randn(2, clients, width)]
    inputs = [x.requires_grad_() for x in inputs]
    product, bias, residual, weight, shift = exact = [x.detach().double().requires_grad_() for x in inputs]
    total = product + bias.unsqueeze(1) + residual
    expected = functional.layer_norm(total, (width,)) * weight.unsqueeze(1) + shift.unsqueeze(1)
    y, y_bf16 = blocks.AddNorm.apply(*inputs, 1e-5)
    assert y_bf16 is None
    grad = torch.randn(shape)
    expected_grads = list(torch.autograd.grad(expected, exact, grad.double()))
    assert_equal([y, *torch.autograd.grad(y, inputs, grad)], [expected.detach(), *expected_grads])
    # In vectors of the clients, where the first use of a parameter writes and the second adds.
    vectors = torch.zeros(3, clients, 2 * width)
    targets = [GradTarget(vector[:, width:]) for vector in vectors]
    for _ in range(2):
        torch.autograd.backward(blocks.AddNorm.apply(*inputs, 1e-5, targets)[0], grad)
    assert_equal([target.view for target in targets], [2 * expected_grads[i] for i in (1, 3, 4)])
    assert not vectors[:, :, :width].any()


@pytest.mark.parametrize("shape", SHAPES)
def test_bias_and_gelu_equal_double_precision(blocks: ModuleType, shape: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    product, bias = torch.randn(shape).requires_grad_(), torch.randn(shape[0], shape[2]).requires_grad_()
    exact = [x.detach().double().requires_grad_() for x in (product, bias)]
    expected = functional.gelu(exact[0] + exact[1].unsqueeze(1))
    y, grad = blocks.BiasGelu.apply(product, bias), torch.randn(shape)
    grads = torch.autograd.grad(y, (product, bias), grad)
    assert_equal([y, *grads], [expected.detach(), *torch.autograd.grad(expected, exact, grad.double())])


def test_training_with_fused_blocks_equals_training_without(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    case, used = CASES["Bert SequenceClassification"], set[str]()
    model, features = case.model(), random_features(case, 6)

    def train(is_enabled: bool) -> list[Tensor]:
        def kernels_for(x: Tensor, module: str = "triton_kernels") -> ModuleType | None:
            used.add(module)
            return import_module(f"motet.learning.packed.{module}") if is_enabled else None

        for module in (packed_layers, packed_model, packed_blocks):
            monkeypatch.setattr(module, "kernels_for", kernels_for)
        executor = PackedExecutor(torch.device("cpu"), width=2, use_bf16=False)
        for i, examples in enumerate(split_examples(features, (4, 2))):
            solver = Solver(optimizer="sgd", lr=0.1, batch=4)
            executor.submit(i, Fit(model, model.initial_params, examples, case.objective, solver, seed=i))
        return [result.params.flat - model.initial_params.flat for _, result in executor.wait_completed()]

    expected = train(is_enabled=False)
    used.clear()
    for actual, exact in zip(train(is_enabled=True), expected, strict=True):
        assert float((actual - exact).norm() / exact.norm()) < 1e-4
    assert "triton_blocks" in used
