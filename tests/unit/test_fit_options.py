"""Options of `ctx.fit`: layers to train, and a correction of the gradient, with every executor and packed."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from motet.core.errors import ConfigError, LayoutError
from motet.core.layers import Layers
from motet.core.params import Params
from motet.core.work import Executor
from motet.experiment.build.federation import Federation
from motet.learning.context import Context
from motet.learning.executors.packed_executor import PackedExecutor
from motet.learning.executors.process_executor import ProcessExecutor
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.jobs import FitResult
from motet.learning.solver import Solver

CPU = torch.device("cpu")
SGD = Solver(optimizer="sgd", lr=0.1, batch=8, schedule="constant", clip=0.0)


def make_context(federation: Federation, client: int = 0) -> Context:
    context: Context = federation.context(federation.clients[client], 0, "mine.train")
    return context


def run_work(work: Generator[Any, Any, Any], executor: Executor) -> FitResult:
    try:
        job = next(work)
        work.send(executor.run(job))
    except StopIteration as end:
        result: FitResult = end.value
        return result
    raise AssertionError("a fit submits one job")


def random_params(start: Params) -> Params:
    return Params(start.layout, torch.randn(start.layout.size, generator=torch.Generator().manual_seed(3)))


@pytest.mark.parametrize("layers", ["head", ["layers 1", "norms"], "name:*query*", ~Layers.parse("embeddings")])
def test_only_the_selected_layers_are_trained(layers: Any, federation: Federation) -> None:
    context = make_context(federation)
    start = context.initial_params
    result = run_work(context.fit(start, SGD, train_only=layers), SerialExecutor(CPU))
    selected = (
        layers if isinstance(layers, Layers) else Layers.parse(*([layers] if isinstance(layers, str) else layers))
    )
    assert torch.equal(result.params.exclude_layers(selected).flat, start.exclude_layers(selected).flat)
    assert not torch.equal(result.params.select_layers(selected).flat, start.select_layers(selected).flat)


def test_the_proximal_term_and_the_correction_do_not_move_layers_that_are_not_trained(federation: Federation) -> None:
    context = make_context(federation)
    start, elsewhere = context.initial_params, random_params(context.initial_params)
    solver = Solver(optimizer="sgd", lr=0.1, batch=8, proximal_mu=1.0)
    work = context.fit(start, solver, train_only="head", proximal_anchor=elsewhere, gradient_correction=elsewhere)
    params = run_work(work, SerialExecutor(CPU)).params
    head = Layers.parse("head")
    assert torch.equal(params.exclude_layers(head).flat, start.exclude_layers(head).flat)


def test_a_correction_may_hold_some_layers_only(federation: Federation) -> None:
    context = make_context(federation)
    start, head, zero = context.initial_params, Layers.parse("head"), context.initial_params.zeros_like()
    correction = random_params(start)
    solver = Solver(optimizer="sgd", lr=0.1, steps=1, batch=8, schedule="constant", clip=0.0)
    plain, some, padded = (
        run_work(context.fit(start, solver, gradient_correction=c), SerialExecutor(CPU)).params
        for c in (None, correction.select_layers(head), zero.updated(correction.select_layers(head)))
    )
    assert torch.equal(some.flat, padded.flat)
    expected = plain - zero.updated(0.1 * correction.select_layers(head))
    assert torch.allclose(some.flat, expected.flat, atol=1e-6)


def test_executors_agree_on_corrections_and_trained_layers(federation: Federation) -> None:
    context = make_context(federation)
    start = context.initial_params
    options: dict[str, Any] = {"gradient_correction": random_params(start), "train_only": ~Layers.parse("embeddings")}
    serial = run_work(context.fit(start, SGD, **options), SerialExecutor(CPU))
    packed = run_work(context.fit(start, SGD, **options), PackedExecutor(CPU, use_bf16=False))
    assert torch.allclose(packed.params.flat, serial.params.flat, atol=1e-5)
    models, features = {federation.model.key: federation.model}, {federation.features.key: federation.features}
    workers = ProcessExecutor(1, models, features)
    try:
        job = next(context.fit(start, SGD, **options))
        workers.submit("client", job)
        ((_, result),) = workers.wait_completed()
    finally:
        workers.close()
    assert torch.equal(result.params.flat, serial.params.flat)


def test_a_selection_that_matches_nothing_is_an_error(federation: Federation) -> None:
    context = make_context(federation)
    with pytest.raises(LayoutError, match="train_only: 'name:nothing' matches nothing in this model"):
        next(context.fit(context.initial_params, SGD, train_only="name:nothing"))
    with pytest.raises(ConfigError, match="train_only: all except all selects no layer"):
        next(context.fit(context.initial_params, SGD, train_only=~Layers.all()))


def test_a_correction_of_another_model_is_an_error(federation: Federation) -> None:
    context = make_context(federation)
    other = Params.from_tensors({"elsewhere": torch.zeros(3)})
    with pytest.raises(LayoutError, match="the model has no elsewhere"):
        next(context.fit(context.initial_params, SGD, gradient_correction=other))


class RecordedSteps(TorchDispatchMode):
    """Stands for `CudaGraphs`: runs every step, and stores its key and the names of its operations."""

    def __init__(self) -> None:
        super().__init__()
        self.num_captures = 0
        self.names: list[str] = []
        self.operations: dict[Any, list[list[str]]] = {}

    def run(self, key: Any, kind: Any, step: Callable[[], None]) -> None:
        self.names = []
        with self:
            step()
        self.operations.setdefault(key, []).append(self.names)

    def drop(self, is_stale: Callable[[Any], bool]) -> None:
        """Old keys stay, so that all can be compared."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


def test_steps_with_other_operations_have_other_keys(federation: Federation) -> None:
    """A captured step is replayed for every step with its key, so it must not depend on anything else."""
    adam = replace(SGD, optimizer="adamw", steps=1)
    options = {"clip": 1.0, "weight_decay": 0.1, "proximal_mu": 0.5, "micro_batch": 3}
    solvers = [replace(SGD, steps=1), replace(SGD, steps=1, momentum=0.9), adam]
    solvers += [replace(adam, **{name: value}) for name, value in options.items()]
    solvers.append(replace(adam, micro_batch=5))
    context, executor, steps = make_context(federation), PackedExecutor(CPU, width=4), RecordedSteps()
    cast("Any", executor).graphs = steps
    for solver in solvers:
        run_work(context.fit(context.initial_params, solver), executor)
        run_work(context.fit(context.initial_params, solver, train_only="head"), executor)
    for names in steps.operations.values():
        assert all(other == names[0] for other in names)
    assert len(steps.operations) == 2 * len(solvers)
