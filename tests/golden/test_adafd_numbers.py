"""AdaFD's equations on numbers computed by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from motet.algorithms.distillation_weights import (
    ClassCountWeights,
    ExponentialWeights,
    LocalWeights,
    ReciprocalWeights,
    TrainingStats,
    normalize_weights,
)
from motet.algorithms.logit_pooling import Pooling, mean_entropy, pool_logits
from motet.learning.objectives.distillation_losses import KLDivergence, LogitSquaredError, TeacherCrossEntropy

LOSSES = (0.40, 0.35, 0.15, 0.38, 0.45)
FIRST, SECOND = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0.5, 1.5, 0.2]])


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (ReciprocalWeights(), (0.148125, 0.169286, 0.395000, 0.155922, 0.131667)),
        (ExponentialWeights(1), (0.188440, 0.198102, 0.241962, 0.192247, 0.179250)),
        (ExponentialWeights(5), (0.130577, 0.167664, 0.455757, 0.144309, 0.101693)),
        (ExponentialWeights(20), (0.006494, 0.017652, 0.963777, 0.009688, 0.002389)),
        (ExponentialWeights(0), (0.2,) * 5),
    ],
)
def test_weights_from_losses(rule: Any, expected: tuple[float, ...]) -> None:
    stats = {f"client-{i}": TrainingStats(loss=loss, num_examples=10) for i, loss in enumerate(LOSSES)}
    weights, _ = LocalWeights(rule).weights(stats)
    assert normalize_weights(weights).tolist() == pytest.approx(expected, abs=5e-7)


def test_pooled_logits_are_the_weighted_mean() -> None:
    pooled = pool_logits(Pooling(), [FIRST, SECOND], torch.tensor([0.25, 0.75]))
    assert pooled[0].tolist() == pytest.approx([0.875, 1.375, 0.15])


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("probabilities", (0.531664, 0.445930, 0.022406)), ("logits", (0.499997, 0.499997, 0.000005))],
)
def test_entropy_reduction_sharpens_the_mean(kind: Any, expected: tuple[float, ...]) -> None:
    probabilities = pool_logits(Pooling(kind, 0.1), [FIRST, SECOND], torch.tensor([0.5, 0.5])).softmax(-1)
    assert probabilities[0].tolist() == pytest.approx(expected, abs=5e-6)


def test_votes_are_weighted() -> None:
    probabilities = pool_logits(Pooling("votes"), [FIRST, SECOND, SECOND], torch.tensor([0.5, 0.2, 0.3])).softmax(-1)
    assert probabilities[0].tolist() == pytest.approx([0.5, 0.5, 0.0], abs=1e-6)


def test_class_counts_weight_each_class_separately() -> None:
    stats = {
        "a": TrainingStats(loss=1.0, num_examples=4, class_counts=(3, 1, 0)),
        "b": TrainingStats(loss=1.0, num_examples=4, class_counts=(1, 3, 0)),
    }
    weights, _ = ClassCountWeights().weights(stats)
    pooled = pool_logits(Pooling(), [FIRST, SECOND], normalize_weights(weights))
    assert pooled[0].tolist() == pytest.approx([0.75 * 2 + 0.25 * 0.5, 0.25 * 1 + 0.75 * 1.5, 0.5 * 0 + 0.5 * 0.2])


class ConstantModel:
    """A model that always returns the same logits."""

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
def test_losses_of_constant_logits(objective: Any, expected: float) -> None:
    batch = {"teacher_logits": torch.tensor([[0.875, 1.375, 0.15]])}
    losses, weights = objective.losses(ConstantModel(torch.ones(1, 3)), batch)
    assert losses.item() == pytest.approx(expected, abs=5e-7)
    assert weights.tolist() == [1.0]


def test_cross_entropy_is_kl_divergence_plus_the_teachers_entropy() -> None:
    teacher = torch.tensor([[0.875, 1.375, 0.15], [0.0, 2.0, 1.0]])
    student = torch.tensor([[1.0, 0.0, 0.5], [0.1, 0.2, 0.3]])
    model, batch = ConstantModel(student), {"teacher_logits": teacher}
    soft, _ = TeacherCrossEntropy().losses(model, batch)
    divergence, _ = KLDivergence().losses(model, batch)
    assert (soft - divergence).mean().item() == pytest.approx(mean_entropy(teacher), abs=1e-6)
    hard, _ = TeacherCrossEntropy(hard=True).losses(model, batch)
    assert hard.tolist() == pytest.approx((-student.log_softmax(-1)[[0, 1], [1, 1]]).tolist())


def test_temperature_does_not_change_the_scale_of_the_gradient() -> None:
    batch = {"teacher_logits": torch.tensor([[0.03, -0.02, 0.01]])}
    gradients = []
    for temperature in (1.0, 4.0):
        student = torch.zeros(1, 3, requires_grad=True)
        losses, _ = KLDivergence(temperature).losses(ConstantModel(student), batch)
        losses.sum().backward()  # type: ignore[no-untyped-call]
        gradients.append(student.grad)
    assert torch.allclose(gradients[0], gradients[1], rtol=0.05)
