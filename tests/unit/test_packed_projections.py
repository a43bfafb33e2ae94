"""Queries, keys and values as one product: the same outputs and gradients as three, without copies."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
import torch
from tests.families import CASES, random_features, split_examples
from torch import Tensor, nn

from motet.learning.executors.packed_executor import PackedExecutor
from motet.learning.jobs import Fit
from motet.learning.packed import (
    client_embedding,
    packed_blocks,
    packed_layers,
    packed_model,
    packed_projections,
    short_attention,
)
from motet.learning.packed.adjacent_tensors import join_adjacent
from motet.learning.packed.grad_targets import GradTarget
from motet.learning.packed.packed_layers import ClientAxis, PackedLinear
from motet.learning.packed.packed_projections import PackedSelfAttention, install_joint_projections
from motet.learning.solver import Solver


def test_tensors_are_joined_only_if_they_lie_side_by_side() -> None:
    table = torch.arange(24.0).view(2, 12)
    assert join_adjacent(table.chunk(3, 1), 1) is not None
    assert torch.equal(join_adjacent(table.chunk(3, 1), 1), table)  # type: ignore[arg-type]
    assert join_adjacent((table[:, 4:8], table[:, :4]), 1) is None
    assert join_adjacent((table[:, :4], table[:, 4:8].clone()), 1) is None
    assert join_adjacent((table[:, :4], table[:, 4:10]), 1) is None


class _Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.query(x) * self.key(x).tanh() + self.value(x)
        return y


def test_one_product_gives_the_outputs_and_gradients_of_three() -> None:
    torch.manual_seed(0)
    clients, rows, width = 2, 3, 5
    axis, module = ClientAxis(clients, rows), _Block(width).double()
    install_joint_projections(module)
    assert isinstance(module, PackedSelfAttention)
    sizes = [width * width] * 3 + [width] * 3
    vectors, grads = (
        torch.randn(clients, sum(sizes) + 7).double(),
        torch.full((clients, sum(sizes) + 7), torch.nan).double(),
    )
    places = [(layer, "weight", (width, width)) for layer in module.projections]
    places += [(layer, "bias", (width,)) for layer in module.projections]  # type: ignore[list-item]
    leaves, start = list[nn.Parameter](), 7
    for layer, name, shape in places:
        part = slice(start, start := start + sizes[len(leaves)])
        leaves.append(nn.Parameter(vectors[:, part].view(clients, *shape)))
        layer._parameters[name] = leaves[-1]
        axis.grad_targets[id(leaves[-1])] = GradTarget(grads[:, part].view(clients, *shape).double())
    for layer in module.projections:
        block: Any = layer
        block.__class__, block.client_axis = PackedLinear, axis
    x, grad = (torch.randn(clients * rows, 4, width).double() for _ in range(2))
    x.requires_grad_()
    joined, products = module(x), list[Any](axis.grad_targets.values())
    assert axis.projections is not None
    (grad_x,) = torch.autograd.grad(joined, x, grad)
    torch.autograd.backward(module(x), grad, inputs=[x])  # a second use adds
    assert all(leaf.grad is None for leaf in leaves)
    axis.grad_targets.clear()
    separate = module(x)
    assert axis.projections is None
    expected = torch.autograd.grad(separate, [x, *leaves], grad)
    torch.testing.assert_close((joined, grad_x), (separate, expected[0]))
    torch.testing.assert_close([target.view for target in products], [2 * e for e in expected[1:]])
    assert grads[:, :7].isnan().all()


def test_training_with_joint_products_equals_training_without(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    case, joint = CASES["Bert SequenceClassification"], list[bool]()
    model, features, project = case.model(), random_features(case, 6), packed_projections._project
    for module in (client_embedding, packed_layers, packed_model, packed_blocks, short_attention):
        monkeypatch.setattr(module, "kernels_for", _load)

    def train(is_enabled: bool) -> list[Tensor]:
        def project_or_not(*args: Any) -> Any:
            joint.append(project(*args) is not None)
            return project(*args) if is_enabled else None

        monkeypatch.setattr(packed_projections, "_project", project_or_not)
        executor = PackedExecutor(torch.device("cpu"), width=2)
        for i, examples in enumerate(split_examples(features, (4, 2))):
            solver = Solver(optimizer="sgd", lr=0.1, batch=4)
            executor.submit(i, Fit(model, model.initial_params, examples, case.objective, solver, seed=i))
        return [result.params.flat - model.initial_params.flat for _, result in executor.wait_completed()]

    for actual, expected in zip(train(True), train(False), strict=True):
        assert float((actual - expected).norm() / expected.norm()) < 1e-3, "in bfloat16"
    assert any(joint)


def _load(x: Tensor, name: str = "triton_kernels") -> ModuleType | None:
    return None if x.dtype == torch.float64 else import_module(f"motet.learning.packed.{name}")
