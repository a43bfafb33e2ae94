"""The Triton kernels, run by Triton's interpreter, against torch operations. benchmarks/captured_steps.py uses a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional

from motet.learning.packed import fused_blocks, kernel_modules, packed_layers
from motet.learning.packed.grad_targets import GradTarget
from motet.learning.packed.packed_layers import ClientAxis, PackedLayerNorm, PackedLinear

SHAPES = [(1, 1, 8), (3, 37, 48), (2, 130, 384), (4, 64, 100)]  # clients, rows, width


@pytest.fixture(autouse=True, scope="module")
def gpu_if_available() -> Iterator[None]:
    before = torch.get_default_device()
    torch.set_default_device("cuda" if torch.cuda.is_available() else "cpu")
    yield
    torch.set_default_device(before)


@pytest.fixture(params=[512, 2], ids=["one tile per program", "several tiles per program"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("triton")
    module = import_module("motet.learning.packed.triton_kernels")
    monkeypatch.setattr(module, "_PROGRAMS", request.param)
    return module


def packed_layer(client_axis: ClientAxis, cls: type[nn.Module], *sizes: int) -> Any:
    """Make a packed layer with different random weights for every client."""
    layer: Any = cls(*sizes)
    layer.client_axis = client_axis
    for name, plain in list(layer._parameters.items()):
        stacked = None if plain is None else torch.randn(client_axis.clients, *plain.shape)
        layer._parameters[name] = nn.Parameter(stacked)
    return layer


def layer_norm_case(clients: int, rows: int, width: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return random input, weight and bias, and torch's output."""
    torch.manual_seed(0)
    x = (3 * torch.randn(clients, rows, width) + 1).requires_grad_()
    weight, bias = torch.randn(2, clients, width).requires_grad_().unbind()
    return x, weight, bias, functional.layer_norm(x, (width,)) * weight.unsqueeze(1) + bias.unsqueeze(1)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_fused_layer_norm_equals_torchs_with_weights_per_client(
    kernels: ModuleType, shape: tuple[int, int, int]
) -> None:
    x, weight, bias, expected = layer_norm_case(*shape)
    y, y_bf16 = kernels.FusedLayerNorm.apply(x, weight, bias, 1e-5, False)
    assert y_bf16 is None
    torch.testing.assert_close(y, expected, atol=1e-5, rtol=1e-5)
    grad = torch.randn_like(x)
    grads = torch.autograd.grad(y, (x, weight, bias), grad)
    expected_grads = torch.autograd.grad(expected, (x, weight, bias), grad)
    torch.testing.assert_close(grads, expected_grads, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("use_both", [True, False])
def test_the_gradient_of_the_bf16_output_is_added(
    kernels: ModuleType, shape: tuple[int, int, int], use_both: bool
) -> None:
    x, weight, bias, expected = layer_norm_case(*shape)
    y, y_bf16 = kernels.FusedLayerNorm.apply(x, weight, bias, 1e-5, True)
    torch.testing.assert_close(y_bf16.float(), expected, rtol=2**-7, atol=1e-5)
    grad_bf16 = torch.randn_like(x).bfloat16()
    grad = torch.randn_like(x) if use_both else torch.zeros_like(x)
    outputs, output_grads = ((y, y_bf16), (grad, grad_bf16)) if use_both else ((y_bf16,), (grad_bf16,))
    grads = torch.autograd.grad(outputs, (x, weight, bias), output_grads)
    expected_grads = torch.autograd.grad(expected, (x, weight, bias), grad + grad_bf16.float())
    torch.testing.assert_close(grads, expected_grads, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("shape", [*SHAPES, (2, 5, 1200)])
def test_the_bias_is_copied_to_every_row(kernels: ModuleType, shape: tuple[int, int, int]) -> None:
    clients, rows, width = shape
    bias = torch.randn(clients, width).bfloat16()
    assert torch.equal(kernels.broadcast_bias(bias, rows), bias.unsqueeze(1).expand(shape))


@pytest.mark.parametrize("rows", [5, 1], ids=["separate rows", "one row shared by all"])
def test_layers_with_and_without_kernels_agree(kernels: ModuleType, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """A norm that two linear layers and a sum read, in bfloat16: values and all gradients."""
    torch.manual_seed(1)
    client_axis = ClientAxis(3, 5)
    norm = packed_layer(client_axis, PackedLayerNorm, 48)
    first, second = (packed_layer(client_axis, PackedLinear, 48, 24) for _ in range(2))
    x = torch.randn(15 if rows > 1 else 1, 7, 48, requires_grad=True)
    leaves = (x, *norm.parameters(), *first.parameters(), *second.parameters())

    def output_and_grads(module: ModuleType | None) -> list[Tensor]:
        monkeypatch.setattr(packed_layers, "kernels_for", lambda x: module)
        client_axis.last_cast = None
        with torch.autocast(x.device.type, torch.bfloat16):
            y = norm(x)
            out = first(y).float() * second(y).float() + y[..., :24]
        return [out, *torch.autograd.grad(out.square().sum(), leaves)]

    for with_kernels, without in zip(output_and_grads(kernels), output_and_grads(None), strict=True):
        relative = float((with_kernels - without).norm() / without.norm())
        assert relative < 0.03, "bfloat16, which the interpreter truncates to"


def test_torch_operations_are_used_without_a_compiler(
    kernels: ModuleType, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    def fail(device: torch.device) -> None:
        raise FileNotFoundError("ptxas")

    load = kernel_modules._load_kernels
    assert load(torch.get_default_device(), "triton_kernels") is kernels
    monkeypatch.setattr(kernels, "probe", fail)
    assert load(torch.get_default_device(), "triton_kernels") is None
    assert "ptxas" in caplog.text


def test_an_input_of_several_layers_is_cast_once_and_again_after_it_changed() -> None:
    client_axis, x = ClientAxis(2, 3), torch.randn(6, 8)
    first, second = (packed_layer(client_axis, PackedLinear, 8, 4) for _ in range(2))
    with torch.autocast(x.device.type, torch.bfloat16):
        before = first(x)
        cast = client_axis.last_cast.result if client_axis.last_cast else None
        y = second(x)
        assert client_axis.last_cast is not None
        assert client_axis.last_cast.result is cast
        client_axis.last_cast = None
        assert torch.equal(second(x), y)
        x += 1
        changed = first(x)
        client_axis.last_cast = None
        assert torch.equal(first(x), changed)
        assert not torch.equal(before, changed)


def test_a_cast_without_gradients_is_not_reused_where_gradients_are_needed() -> None:
    client_axis, x = ClientAxis(2, 3), torch.randn(6, 8, requires_grad=True)
    layer = packed_layer(client_axis, PackedLinear, 8, 4)
    with torch.autocast(x.device.type, torch.bfloat16):
        with torch.no_grad():
            layer(x)
        layer(x).sum().backward()
    assert x.grad is not None


def test_inference_tensors_can_be_cast() -> None:
    """They have no version counter."""
    layer = packed_layer(ClientAxis(2, 3), PackedLinear, 8, 4)
    with torch.inference_mode(), torch.autocast(torch.get_default_device().type, torch.bfloat16):
        assert layer(torch.randn(6, 8)).shape == (6, 4)


@pytest.mark.parametrize("has_bias", [False, True])
def test_an_odd_vocabulary_is_padded_in_products(monkeypatch: pytest.MonkeyPatch, has_bias: bool) -> None:
    monkeypatch.setattr(packed_layers, "_VOCABULARY_WIDTH", 16)
    torch.manual_seed(0)
    layer = packed_layer(ClientAxis(2, 5), PackedLinear, 8, 37)
    if not has_bias:
        layer.bias = None
    inputs = [torch.randn(10, 8, requires_grad=True), *layer.parameters()]
    target = layer.client_axis.grad_targets[id(layer.weight)] = GradTarget(torch.zeros_like(layer.weight))
    y = layer(inputs[0])
    assert y.stride(0) == 64
    exact = [x.detach().double().requires_grad_() for x in inputs]
    x, weight, *bias = exact
    expected = torch.einsum("cri,coi->cro", x.view(2, 5, 8), weight) + (bias[0].unsqueeze(1) if bias else 0)
    grad = torch.randn(10, 37)
    expected_grads = torch.autograd.grad(expected.flatten(0, 1), exact, grad.double())
    for a, e in zip([y, *torch.autograd.grad(y, inputs, grad)], [expected.flatten(0, 1), *expected_grads], strict=True):
        torch.testing.assert_close(a, e.float(), atol=1e-5, rtol=1e-5)
    assert not target.is_written, "the gradient of a padded weight is longer"


def test_the_gelu_of_gpt2_is_one_operation_and_bert_keeps_its_own() -> None:
    blocks = {name: transformers.activations.ACT2FN[name] for name in ("gelu_new", "gelu")}
    fused_blocks.install_fused_blocks(nn.ModuleList(blocks.values()))
    assert isinstance(blocks["gelu_new"], fused_blocks.FusedGelu)
    assert not isinstance(blocks["gelu"], fused_blocks.FusedGelu)
    x = torch.linspace(-6, 6, 101)
    torch.testing.assert_close(blocks["gelu_new"](x), transformers.activations.NewGELUActivation()(x))
