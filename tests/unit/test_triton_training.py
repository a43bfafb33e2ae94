"""The Triton kernels of attention and of the optimizer step, run by Triton's interpreter, against double precision."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType

import numpy as np
import pytest
import torch
from tests.families import CASES, random_features, split_examples
from torch import Tensor
from torch.nn import functional

from motet.learning.executors.packed_executor import PackedExecutor
from motet.learning.jobs import Fit
from motet.learning.modules.model import select_model_inputs
from motet.learning.packed import packed_layers, packed_model, short_attention
from motet.learning.solver import Solver

SHAPES = [(2, 3, 37, 24), (3, 2, 16, 16), (1, 2, 100, 32)]  # texts, heads, tokens, width


@pytest.fixture(scope="module")
def attention() -> ModuleType:
    pytest.importorskip("triton")
    return import_module("motet.learning.packed.triton_attention")


@pytest.fixture(scope="module")
def optimizers() -> ModuleType:
    pytest.importorskip("triton")
    return import_module("motet.learning.packed.triton_optimizer")


def relative_difference(actual: Tensor, expected: Tensor) -> float:
    return float((actual.detach().double() - expected.detach()).norm() / expected.detach().norm())


def padding_mask(texts: int, tokens: int) -> Tensor:
    """Return [texts, 1, 1, tokens]; the last text has no tokens at all."""
    lengths = torch.linspace(tokens, 0, texts).long()
    return (torch.arange(tokens) < lengths.unsqueeze(1)).view(texts, 1, 1, tokens)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["plain", "masked", "causal"])
def test_short_attention_is_within_rounding_of_double_precision(
    attention: ModuleType, shape: tuple[int, ...], kind: str
) -> None:
    torch.manual_seed(0)
    texts, heads, tokens, width = shape
    inputs = [torch.randn(texts, tokens, heads, width).transpose(1, 2).requires_grad_() for _ in range(3)]
    exact = [x.detach().double().requires_grad_() for x in inputs]
    mask = padding_mask(texts, tokens) if kind == "masked" and texts > 1 else None
    out = attention.ShortAttention.apply(*inputs, mask, 0.3, kind == "causal")
    expected = functional.scaled_dot_product_attention(*exact, attn_mask=mask, scale=0.3, is_causal=kind == "causal")
    grad = torch.randn_like(out)
    grads = torch.autograd.grad(out, inputs, grad)
    expected_grads = torch.autograd.grad(expected, exact, grad.double().transpose(1, 2))
    assert relative_difference(out.transpose(1, 2), expected) < 1e-6
    assert max(map(relative_difference, grads, expected_grads)) < 1e-6


def test_unsupported_inputs_of_short_attention_are_refused(attention: ModuleType) -> None:
    def make(tokens: int, width: int = 16, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        return torch.zeros(2, 1, tokens, width, dtype=dtype)

    assert attention.supports(make(128), make(128), make(128), torch.ones(2, 1, 1, 128, dtype=torch.bool))
    assert not attention.supports(make(129), make(129), make(129), None)
    assert not attention.supports(make(8), make(9), make(9), None)
    assert not attention.supports(*[make(128, dtype=torch.float32)] * 3, None)
    assert not attention.supports(make(8), make(8), make(8), torch.zeros(2, 1, 8, 8))


@pytest.mark.parametrize("kind", ["adamw", "sgd"])
@pytest.mark.parametrize("mixed", [True, False], ids=["some gradients in bfloat16", "all in float32"])
def test_the_fused_optimizer_step_equals_torchs_in_double_precision(
    optimizers: ModuleType, kind: str, mixed: bool
) -> None:
    torch.manual_seed(0)
    clients, size, rates = 3, 7000, torch.tensor([0.1, 0.01, 0.0])
    params = torch.randn(clients, size)
    exact = [row.double().requires_grad_() for row in params]
    # Of an earlier job; the first step does not read them.
    moments = (torch.full_like(params, torch.nan), torch.full_like(params, torch.nan)) if kind == "adamw" else None
    # Two tensors have exchanged their places in bfloat16, and one starts at an odd place there.
    places = torch.cat([torch.arange(4096, 6144), torch.arange(2048, 4096), torch.arange(1, 201)]).int()
    positions = torch.full((size,), -1, dtype=torch.int32).index_copy_(0, torch.arange(2048, 6344), places)
    kinds = optimizers.block_kinds(positions) if mixed else None
    rounded = {"bf16_params": torch.zeros_like(params, dtype=torch.bfloat16)} if mixed else {}
    groups = [{"params": [row], "lr": float(rate)} for row, rate in zip(exact, rates, strict=True)]
    adam = torch.optim.AdamW(groups, weight_decay=0.0)
    reference = adam if kind == "adamw" else torch.optim.SGD(groups)
    last_steps = torch.tensor([3.0, torch.inf, 1.0])  # the third client waits for the others, with a rate of 0
    for step in range(1, 4):
        grads, bf16_grads = torch.randn(clients, size), torch.randn(clients, size).bfloat16() if mixed else None
        joined = grads.clone()
        if bf16_grads is not None:
            joined[:, positions >= 0] = bf16_grads[:, places].float()
        norms = optimizers.grad_norms(grads, bf16_grads, positions, kinds)
        torch.testing.assert_close(norms, joined.norm(dim=1, keepdim=True))
        scales = (20 / norms).clamp(max=1)
        optimizers.optimizer_step(
            params, grads, rates, moments=moments, steps=torch.full((clients,), float(step)), last_steps=last_steps,
            scales=scales,
            bf16_grads=bf16_grads, positions=positions, kinds=kinds, **rounded,
        )  # fmt: skip
        for row, grad in zip(exact, joined.double() * scales.double(), strict=True):
            row.grad = grad
        reference.step()
    assert relative_difference(params, torch.stack(exact).detach()) < 1e-6
    if moments is not None:
        states = [adam.state[row]["exp_avg"] for row in exact]
        assert relative_difference(moments[0][1], states[1]) < 1e-6
        assert relative_difference(moments[0][0], states[0]) > 1e-2, "the state of the last step is not written"
        assert moments[0][2].isnan().all()
    if mixed:
        assert kinds is not None
        assert kinds[:, 0].tolist() == [0, 1, 1, 2]
        expected = params[:, positions >= 0]
        torch.testing.assert_close(rounded["bf16_params"][:, places].float(), expected, rtol=2**-7, atol=1e-6)


@pytest.mark.parametrize("name", ["Bert SequenceClassification", "Llama CausalLM", "T5 ConditionalGeneration"])
def test_models_use_short_attention_and_give_the_same_output(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Two texts with padding; Llama's heads share keys, and T5's position bias needs torch's attention."""
    used: list[ModuleType | None] = []

    def kernels_for(x: Tensor, module: str) -> ModuleType | None:
        used.append(import_module(f"motet.learning.packed.{module}"))
        return used[-1]

    pytest.importorskip("triton")
    case = CASES[name]
    batch = select_model_inputs(random_features(case, 3).batch(np.arange(3)))
    module = case.model().module.eval()
    with torch.no_grad():
        expected = module(**batch)["logits"]
        monkeypatch.setattr(short_attention, "kernels_for", kernels_for)
        with short_attention.short_attention():
            logits = module(**batch)["logits"]
    assert used
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "solver"),
    [
        ("Albert SequenceClassification", Solver(optimizer="adamw", lr=1e-3, batch=4, weight_decay=0.1)),
        ("GPT2 LMHeadModel", Solver(optimizer="sgd")),
    ],
)
def test_training_with_the_fused_optimizer_equals_training_without(
    monkeypatch: pytest.MonkeyPatch, name: str, solver: Solver
) -> None:
    """Albert's layers share their parameters, and GPT-2's output layer is tied to its embeddings: gradients add up."""
    pytest.importorskip("triton")
    case = CASES[name]
    model, features = case.model(), random_features(case, 8)

    def train(kernels_for: Callable[..., ModuleType | None]) -> list[Tensor]:
        for module in (packed_layers, packed_model):
            monkeypatch.setattr(module, "kernels_for", kernels_for)
        executor = PackedExecutor(torch.device("cpu"), width=2, use_bf16=False)
        for i, examples in enumerate(split_examples(features, (5, 3))):
            executor.submit(i, Fit(model, model.initial_params, examples, case.objective, solver, seed=i))
        return [result.params.flat - model.initial_params.flat for _, result in executor.wait_completed()]

    with_kernels = train(lambda x, name="triton_kernels": import_module(f"motet.learning.packed.{name}"))
    for actual, expected in zip(with_kernels, train(lambda x, name="": None), strict=True):
        assert relative_difference(actual, expected.double()) < 1e-3
