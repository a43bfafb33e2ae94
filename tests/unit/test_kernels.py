"""Our own kernels, run by Triton's interpreter, against torch's operations. benchmarks/recorded.py has them on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from motet.learning.packed import packed_layers as twins
from motet.learning.packed.packed_layers import ClientAxis, PackedLayerNorm, PackedLinear

SHAPES = [(1, 1, 8), (3, 37, 48), (2, 130, 384), (4, 64, 100)]


@pytest.fixture(autouse=True, scope="module")
def on_the_gpu_if_there_is_one() -> Iterator[None]:
    before = torch.get_default_device()
    torch.set_default_device("cuda" if torch.cuda.is_available() else "cpu")
    yield
    torch.set_default_device(before)


@pytest.fixture(params=[512, 2], ids=["a tile each", "several tiles each"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("triton")
    found = import_module("motet.learning.packed.triton_kernels")
    monkeypatch.setattr(found, "_PROGRAMS", request.param)
    return found


def packed(crowd: ClientAxis, kind: type[nn.Module], *sizes: int) -> Any:
    """A layer of `crowd.clients` clients with weights of their own."""
    made = kind(*sizes)
    made.client_axis = crowd  # type: ignore[assignment]
    for name, plain in list(made._parameters.items()):
        made._parameters[name] = nn.Parameter(torch.randn(crowd.clients, *plain.shape) if plain is not None else None)
    return made


def layer(clients: int, rows: int, width: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    x = (3 * torch.randn(clients, rows, width) + 1).requires_grad_()
    weight, bias = torch.randn(2, clients, width).requires_grad_().unbind()
    return x, weight, bias, functional.layer_norm(x, (width,)) * weight.unsqueeze(1) + bias.unsqueeze(1)


@pytest.mark.parametrize("shape", SHAPES)
def test_norms_are_torchs_with_each_clients_own_scale(kernels: ModuleType, shape: tuple[int, int, int]) -> None:
    x, weight, bias, expected = layer(*shape)
    found, rounded = kernels.FusedLayerNorm.apply(x, weight, bias, 1e-5, False)
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
    found, rounded = kernels.FusedLayerNorm.apply(x, weight, bias, 1e-5, True)
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
    assert torch.equal(kernels.broadcast_bias(bias, rows), bias.unsqueeze(1).expand(shape))


@pytest.mark.parametrize("rows", [5, 1], ids=["rows of their own", "one row for all"])
def test_a_layer_with_kernels_is_the_layer_without(
    kernels: ModuleType, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """A norm whose rows two products and a sum read, in half precision: values and all gradients."""
    torch.manual_seed(1)
    crowd = ClientAxis(3, 5)
    norm, one, two = (
        packed(crowd, PackedLayerNorm, 48),
        packed(crowd, PackedLinear, 48, 24),
        packed(crowd, PackedLinear, 48, 24),
    )
    x = torch.randn(15 if rows > 1 else 1, 7, 48, requires_grad=True)
    leaves = (x, *norm.parameters(), *one.parameters(), *two.parameters())

    def passed(found: ModuleType | None) -> list[Tensor]:
        monkeypatch.setattr(twins, "kernels_for", lambda x: found)
        crowd.last_cast = None
        with torch.autocast(x.device.type, torch.bfloat16):
            y = norm(x)
            out = one(y).float() * two(y).float() + y[..., :24]
        return [out, *torch.autograd.grad(out.square().sum(), leaves)]

    for ours, theirs in zip(passed(kernels), passed(None), strict=True):
        assert float((ours - theirs).norm() / theirs.norm()) < 0.03, "half precision, which the interpreter cuts off to"


def test_without_a_compiler_torchs_operations_do(
    kernels: ModuleType, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    def broken(device: torch.device) -> None:
        raise FileNotFoundError("ptxas")

    twins._load_kernels.cache_clear()
    assert twins._load_kernels(torch.get_default_device()) is kernels
    monkeypatch.setattr(kernels, "probe", broken)
    twins._load_kernels.cache_clear()
    assert twins._load_kernels(torch.get_default_device()) is None
    assert "ptxas" in caplog.text
    twins._load_kernels.cache_clear()


def test_what_several_products_read_is_rounded_once_and_anew_when_it_has_changed() -> None:
    crowd, x = ClientAxis(2, 3), torch.randn(6, 8)
    first, second = packed(crowd, PackedLinear, 8, 4), packed(crowd, PackedLinear, 8, 4)
    with torch.autocast(x.device.type, torch.bfloat16):
        before = first(x)
        rounded = crowd.last_cast.result if crowd.last_cast else None
        y = second(x)
        assert crowd.last_cast is not None
        assert crowd.last_cast.result is rounded
        crowd.last_cast = None
        assert torch.equal(second(x), y)
        x += 1
        changed = first(x)
        crowd.last_cast = None
        assert torch.equal(first(x), changed)
        assert not torch.equal(before, changed)


def test_what_was_rounded_without_gradients_is_not_read_where_they_are_wanted() -> None:
    crowd, x = ClientAxis(2, 3), torch.randn(6, 8, requires_grad=True)
    layer = packed(crowd, PackedLinear, 8, 4)
    with torch.autocast(x.device.type, torch.bfloat16):
        with torch.no_grad():
            layer(x)
        layer(x).sum().backward()
    assert x.grad is not None
    with torch.inference_mode(), torch.autocast(x.device.type, torch.bfloat16):
        layer(torch.randn(6, 8))
