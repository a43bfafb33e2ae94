"""AdaFD's equations on numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from motet.algorithms.distillation_weights import Account, ByClass, Exponential, Own, Reciprocal, shares
from motet.algorithms.logit_pooling import Pool, entropy, pooled
from motet.learning.objectives.distillation_losses import KLDivergence, LogitSquaredError, TeacherCrossEntropy

LOSSES = (0.40, 0.35, 0.15, 0.38, 0.45)
ACCOUNTS = {f"client-{i}": Account(loss, 10) for i, loss in enumerate(LOSSES)}
FIRST, SECOND = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0.5, 1.5, 0.2]])


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Reciprocal(), (0.148125, 0.169286, 0.395000, 0.155922, 0.131667)),
        (Exponential(1), (0.188440, 0.198102, 0.241962, 0.192247, 0.179250)),
        (Exponential(5), (0.130577, 0.167664, 0.455757, 0.144309, 0.101693)),
        (Exponential(20), (0.006494, 0.017652, 0.963777, 0.009688, 0.002389)),
        (Exponential(0), (0.2,) * 5),
    ],
)
def test_weights_of_five_losses(rule: Any, expected: tuple[float, ...]) -> None:
    weights, _ = Own(rule).weights(ACCOUNTS)
    assert shares(weights).tolist() == pytest.approx(expected, abs=5e-7)


def test_a_pool_of_two_opinions() -> None:
    assert pooled(Pool(), [FIRST, SECOND], torch.tensor([0.25, 0.75]))[0].tolist() == pytest.approx(
        [0.875, 1.375, 0.15]
    )


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("probabilities", (0.531664, 0.445930, 0.022406)), ("logits", (0.499997, 0.499997, 0.000005))],
)
def test_entropy_reduction_sharpens_the_mean(kind: Any, expected: tuple[float, ...]) -> None:
    found = pooled(Pool(kind, 0.1), [FIRST, SECOND], torch.tensor([0.5, 0.5])).softmax(-1)
    assert found[0].tolist() == pytest.approx(expected, abs=5e-6)


def test_votes_are_shared_out_by_weight() -> None:
    found = pooled(Pool("votes"), [FIRST, SECOND, SECOND], torch.tensor([0.5, 0.2, 0.3])).softmax(-1)
    assert found[0].tolist() == pytest.approx([0.5, 0.5, 0.0], abs=1e-6)


def test_each_class_by_who_has_it() -> None:
    accounts = {"a": Account(1.0, 4, counts=(3, 1, 0)), "b": Account(1.0, 4, counts=(1, 3, 0))}
    weights, _ = ByClass().weights(accounts)
    found = pooled(Pool(), [FIRST, SECOND], shares(weights))
    assert found[0].tolist() == pytest.approx([0.75 * 2 + 0.25 * 0.5, 0.25 * 1 + 0.75 * 1.5, 0.5 * 0 + 0.5 * 0.2])


class Fixed:
    """A model that always says the same."""

    module = None

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits

    def __call__(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {"logits": self.logits}


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        (LogitSquaredError(summed=True), 0.878750),
        (LogitSquaredError(), 0.292917),
        (KLDivergence(), 0.107650),
    ],
)
def test_the_distance_of_an_even_opinion_from_the_pool(objective: Any, expected: float) -> None:
    batch = {"teacher_logits": torch.tensor([[0.875, 1.375, 0.15]])}
    loss, worth = objective.losses(Fixed(torch.ones(1, 3)), batch)
    assert loss.item() == pytest.approx(expected, abs=5e-7)
    assert worth.tolist() == [1.0]


def test_cross_entropy_with_a_teacher_is_divergence_plus_the_teachers_entropy() -> None:
    teacher, said = (
        torch.tensor([[0.875, 1.375, 0.15], [0.0, 2.0, 1.0]]),
        torch.tensor([[1.0, 0.0, 0.5], [0.1, 0.2, 0.3]]),
    )
    soft, _ = TeacherCrossEntropy().losses(Fixed(said), {"teacher_logits": teacher})
    apart, _ = KLDivergence().losses(Fixed(said), {"teacher_logits": teacher})
    assert (soft - apart).mean().item() == pytest.approx(entropy(teacher), abs=1e-6)
    hard, _ = TeacherCrossEntropy(hard=True).losses(Fixed(said), {"teacher_logits": teacher})
    assert hard.tolist() == pytest.approx((-said.log_softmax(-1)[[0, 1], [1, 1]]).tolist())


def test_a_higher_temperature_keeps_the_gradients_size() -> None:
    teacher = torch.tensor([[0.03, -0.02, 0.01]])
    grads = []
    for temperature in (1.0, 4.0):
        said = torch.zeros(1, 3, requires_grad=True)
        KLDivergence(temperature).losses(Fixed(said), {"teacher_logits": teacher})[0].sum().backward()  # type: ignore[no-untyped-call]
        grads.append(said.grad)
    assert torch.allclose(grads[0], grads[1], rtol=0.05)
