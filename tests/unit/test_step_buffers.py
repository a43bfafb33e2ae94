"""Buffers of a packed model: which keep their address, and what is invalidated when they move."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import pytest
import torch
from tests.families import CASES, random_features, split_examples
from torch import Tensor

from motet.learning.jobs import Fit
from motet.learning.packed.device_dataset import DeviceDataset
from motet.learning.packed.packed_model import PackedModel
from motet.learning.packed.step_buffers import FlatBuffer, StepBuffers, TableBuffer, VectorBuffer
from motet.learning.solver import Solver
from motet.learning.training.fit import fit
from motet.learning.training.optimizer import prepare_optimizer

CPU = torch.device("cpu")
CASE = CASES["Bert SequenceClassification"]
SGD = Solver(optimizer="sgd", lr=0.1, batch=4)


class Reallocations:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


@pytest.fixture
def moved() -> Reallocations:
    return Reallocations()


def addresses(*tensors: Tensor) -> list[int]:
    return [tensor.data_ptr() for tensor in tensors]


def test_a_vector_buffer_serves_every_shape_that_fits_from_one_address(moved: Reallocations) -> None:
    buffer = VectorBuffer(CPU, moved)
    first = buffer.view(4, 10)
    assert addresses(buffer.view(2, 10), buffer.view(8, 5), buffer.view(4, 10)) == addresses(first) * 3
    assert moved.count == 1
    assert buffer.view(4, 11).shape == (4, 11)
    assert moved.count == 2


def test_a_table_is_rewritten_in_place_while_its_rows_fit(moved: Reallocations) -> None:
    buffer = TableBuffer(CPU, moved)
    first = buffer.write(torch.ones(5, 3))
    second = buffer.write(2 * torch.ones(8, 3))
    assert addresses(first) == addresses(second)
    assert len(first) == 8, "the capacity is a power of two"
    assert second.sum() == 48
    assert moved.count == 1
    assert len(buffer.write(torch.ones(9, 3))) == 16
    assert moved.count == 2


def test_tables_with_rows_of_other_shapes_do_not_displace_each_other(moved: Reallocations) -> None:
    buffer = TableBuffer(CPU, moved)
    wide, narrow, whole_numbers = torch.ones(4, 3), torch.ones(4, 2), torch.ones(4, 3, dtype=torch.int64)
    first = addresses(*map(buffer.write, (wide, narrow, whole_numbers)))
    assert addresses(*map(buffer.write, (wide, narrow, whole_numbers))) == first
    assert moved.count == len(set(first)) == 3


def test_joined_tables_have_a_length_that_does_not_depend_on_their_contents(moved: Reallocations) -> None:
    """A captured graph checks indices against the length that it was captured with."""
    buffer = FlatBuffer(CPU, moved)
    first = buffer.write([torch.arange(6.0).view(3, 2), torch.arange(10.0).view(5, 2)])
    second = buffer.write([torch.arange(4.0).view(2, 2)])
    assert (addresses(first), first.shape) == (addresses(second), second.shape)
    assert second[:2].tolist() == [[0, 1], [2, 3]]
    assert len(buffer.write([torch.zeros(4, 4)])[0]) == 4, "rows of another shape share the allocation"
    assert moved.count == 1


def test_scalars_are_stored_per_number_of_clients() -> None:
    buffers = StepBuffers(CPU)
    two = buffers.write_scalars("clip_norm", [1.0, 2.0])
    three = buffers.write_scalars("clip_norm", [1.0, 2.0, 3.0])
    assert addresses(buffers.write_scalars("clip_norm", [5.0, 6.0])) == addresses(two) != addresses(three)
    assert two.tolist() == [[5.0], [6.0]]
    assert buffers.generation == 0, "another number of clients has other tensors; nothing moves"


def test_buffers_are_freed_without_the_garbage_collector(model: PackedModel) -> None:
    """A reference cycle would keep their memory allocated until the collector runs."""
    train(model, (8, 8), replace(SGD, momentum=0.9))
    buffers = weakref.ref(model.buffers)
    gc.disable()
    try:
        del model.buffers
        assert buffers() is None
    finally:
        gc.enable()


@pytest.fixture
def model() -> PackedModel:
    source = CASE.model()
    return PackedModel(source, source.module, CPU, "packed_layers")


def jobs(model: PackedModel, sizes: tuple[int, ...], solver: Solver = SGD) -> list[Fit]:
    parts = split_examples(random_features(CASE, sum(sizes)), sizes)
    return [
        Fit(model.model, model.model.initial_params, part, CASE.objective, solver, seed)
        for seed, part in enumerate(parts)
    ]


def train(model: PackedModel, sizes: tuple[int, ...], solver: Solver = SGD) -> None:
    fit(jobs(model, sizes, solver), model, DeviceDataset(random_features(CASE, sum(sizes)), CPU))


def test_a_second_job_of_the_same_shape_moves_nothing(model: PackedModel) -> None:
    train(model, (8, 8), replace(SGD, momentum=0.9, proximal_mu=0.1, weight_decay=0.1))
    generation, optimizers = model.buffers.generation, dict(model.buffers.optimizers)
    masks = addresses(*model.buffers.decay_masks.values())
    train(model, (8, 8), replace(SGD, momentum=0.9, proximal_mu=0.1, weight_decay=0.1))
    assert model.buffers.generation == generation
    assert model.buffers.optimizers == optimizers
    assert addresses(*model.buffers.decay_masks.values()) == masks


def test_longer_vectors_drop_all_optimizers(model: PackedModel) -> None:
    train(model, (8, 8))
    (old,) = model.buffers.optimizers.values()
    train(model, (8, 8, 8))
    assert [key.clients for key in model.buffers.optimizers] == [3]
    train(model, (8, 8))
    assert old not in model.buffers.optimizers.values(), "its vectors are no longer those of the model"


def test_a_longer_schedule_invalidates_graphs_but_not_optimizers(model: PackedModel) -> None:
    train(model, (8, 8))
    generation, optimizers = model.buffers.generation, dict(model.buffers.optimizers)
    train(model, (8, 8), replace(SGD, steps=40))
    assert model.buffers.generation > generation
    assert model.buffers.optimizers == optimizers


def test_proximal_anchors_invalidate_graphs_once_and_no_optimizer(model: PackedModel) -> None:
    train(model, (8, 8))
    optimizers = dict(model.buffers.optimizers)
    train(model, (8, 8), replace(SGD, proximal_mu=0.1))
    generation = model.buffers.generation
    train(model, (8, 8), replace(SGD, proximal_mu=0.1))
    assert model.buffers.generation == generation
    assert model.buffers.optimizers == optimizers


def test_optimizers_of_other_kinds_and_numbers_of_clients_live_side_by_side(model: PackedModel) -> None:
    for _ in range(2):  # the first pass allocates
        for sizes, solver in (((8, 8, 8), SGD), ((8, 8), SGD), ((8, 8), Solver(batch=4))):
            train(model, sizes, solver)
    kinds = {(key.kind, key.clients) for key in model.buffers.optimizers}
    assert kinds == {("sgd", 3), ("sgd", 2), ("adamw", 2)}


def test_an_optimizer_updates_the_rows_of_the_model(model: PackedModel) -> None:
    model.load_clients([model.model.initial_params] * 2)
    optimizer = prepare_optimizer(model, jobs(model, (8, 8)))
    model.grads.fill_(1.0)
    before = model.params.clone()
    optimizer.step([0.5, 0.25], clients=2)
    assert torch.allclose(before - model.params, torch.tensor([[0.5], [0.25]]).expand_as(before), atol=1e-6)


def test_a_reused_optimizer_starts_with_empty_state(model: PackedModel) -> None:
    solver = Solver(batch=4, lr=1e-3)
    train(model, (8, 8), solver)
    optimizer = prepare_optimizer(model, jobs(model, (8, 8), solver))
    assert optimizer.steps.tolist() == [0.0, 0.0]
    assert all(not vectors.any() for vectors in optimizer.state.values())
