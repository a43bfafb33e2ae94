"""Our own kernels, run by Triton's interpreter, against torch's operations. benchmarks/recorded.py has them on a GPU."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from motet.learning.twins import Crowd, PackedLinear

SHAPES = [(1, 1, 8), (3, 37, 48), (2, 130, 384), (4, 64, 100)]


@pytest.fixture
def kernels() -> ModuleType:
    pytest.importorskip("triton")
    return import_module("motet.learning.kernels")


def layer(clients: int, rows: int, width: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    x = (3 * torch.randn(clients, rows, width) + 1).requires_grad_()
    weight, bias = torch.randn(2, clients, width).requires_grad_().unbind()
    return x, weight, bias, functional.layer_norm(x, (width,)) * weight.unsqueeze(1) + bias.unsqueeze(1)


@pytest.mark.parametrize("shape", SHAPES)
def test_norms_are_torchs_with_each_clients_own_scale(kernels: ModuleType, shape: tuple[int, int, int]) -> None:
    x, weight, bias, expected = layer(*shape)
    found, rounded = kernels.Norms.apply(x, weight, bias, 1e-5, False)
    assert rounded is None
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    gradient = torch.randn_like(x)
    ours = torch.autograd.grad(found, (x, weight, bias), gradient)
    theirs = torch.autograd.grad(expected, (x, weight, bias), gradient)
    torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("both", [True, False])
def test_gradients_of_the_rounded_rows_count_too(kernels: ModuleType, shape: tuple[int, int, int], both: bool) -> None:
    x, weight, bias, expected = layer(*shape)
    found, rounded = kernels.Norms.apply(x, weight, bias, 1e-5, True)
    torch.testing.assert_close(rounded.float(), expected, rtol=2**-7, atol=1e-5)
    half = torch.randn_like(x).bfloat16()
    gradient = torch.randn_like(x) if both else torch.zeros_like(x)
    told = ((found, rounded), (gradient, half)) if both else ((rounded,), (half,))
    ours = torch.autograd.grad(told[0], (x, weight, bias), told[1])
    theirs = torch.autograd.grad(expected, (x, weight, bias), gradient + half.float())
    torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("shape", [*SHAPES, (2, 5, 1200)])
def test_every_row_of_a_client_is_its_bias(kernels: ModuleType, shape: tuple[int, int, int]) -> None:
    clients, rows, width = shape
    bias = torch.randn(clients, width).bfloat16()
    assert torch.equal(kernels.filled(bias, rows), bias.unsqueeze(1).expand(shape))


def test_what_several_products_read_is_rounded_once_and_anew_when_it_has_changed() -> None:
    crowd, x = Crowd(2, 3), torch.randn(6, 8)
    layers = [PackedLinear(8, 4) for _ in range(2)]
    for part in layers:
        part.crowd = crowd
        part._parameters["weight"], part._parameters["bias"] = (torch.nn.Parameter(torch.randn(s)) for s in ((2, 4, 8), (2, 4)))
    with torch.autocast("cpu", torch.bfloat16):
        first = layers[0](x)
        rounded = crowd.known[2] if crowd.known else None
        second = layers[1](x)
        assert crowd.known is not None
        assert crowd.known[2] is rounded
        crowd.known = None
        assert torch.equal(layers[1](x), second)
        x += 1
        changed = layers[0](x)
        crowd.known = None
        assert torch.equal(layers[0](x), changed)
        assert not torch.equal(first, changed)
