"""Packed training gives what each client would learn alone, in every model family, compared with a plain training loop."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from benchmarks.repeats import kernels_disabled
from tests.families import CASES, PAD, VOCABULARY, Case, random_features, split_examples
from tests.job_runs import CPU, assert_trained_alone, relative_difference, run_jobs, run_packed, train_plainly
from torch import Tensor

from motet.core.errors import RunError
from motet.core.layers import Layers
from motet.core.params import Params
from motet.core.rng import Seed
from motet.core.work import JobFailure
from motet.datasets.corpus import Corpus
from motet.experiment.build.federation_builder import federate_corpus
from motet.experiment.recipe.run_config import ComponentConfig
from motet.learning.data.features import Examples, Features, Ragged
from motet.learning.executors import packed_executor
from motet.learning.executors.packed_executor import PackedExecutor
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.jobs import Fit, FitResult, Infer
from motet.learning.objectives.readouts import Logits, Readout
from motet.learning.objectives.supervised import Batch, Forward, Objective
from motet.learning.packed import packed_layers
from motet.learning.packed.device_dataset import DeviceDataset
from motet.learning.packed.packed_model import PackedModel
from motet.learning.solver import Solver
from motet.learning.training.fit import Training
from motet.models.model_config import ModelConfig

SGD = Solver(optimizer="sgd", lr=0.1, batch=4, epochs=2, clip=1.0, warmup=0.1, proximal_mu=0.1)
BERT = CASES["Bert SequenceClassification"]
NEEDS_VMAP = {"XLNet SequenceClassification", "XLNet TokenClassification", "DebertaV2 SequenceClassification"}


@dataclass(frozen=True)
class Constant(Objective):
    """A loss that does not depend on the model."""

    def losses(self, forward: Forward, batch: Batch) -> tuple[Tensor, Tensor]:
        return torch.zeros(len(batch["labels"])), torch.ones(len(batch["labels"]))


def make_jobs(case: Case, solver: Solver = SGD, sizes: tuple[int, ...] = (9, 4, 14, 1)) -> list[Fit]:
    model, features = case.model(), random_features(case, sum(sizes))
    return [
        Fit(model, model.initial_params, examples, case.objective, solver, 5 + i)
        for i, examples in enumerate(split_examples(features, sizes))
    ]


def assert_trained_plainly(results: dict[int, Any], jobs: list[Fit], tolerance: float = 2e-5) -> None:
    for i, job in enumerate(jobs):
        assert relative_difference(results[i].params.flat, train_plainly(job), job.start.flat) < tolerance


@pytest.mark.parametrize("name", CASES)
def test_packed_clients_learn_what_each_learns_alone(name: str) -> None:
    jobs = make_jobs(CASES[name])
    results, executor = run_packed(jobs)
    (choice,) = executor.packing_choices.values()
    assert choice.mode == ("vmap" if name in NEEDS_VMAP else "packed_layers"), choice.rejections
    assert all(isinstance(result, FitResult) for result in results.values())
    assert_trained_plainly(results, jobs)


@pytest.mark.parametrize("name", ["GPT2 LMHeadModel", "Bert MaskedLM"])
def test_a_tied_vocabulary_can_be_padded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_layers, "_VOCABULARY_WIDTH", VOCABULARY)
    jobs = make_jobs(CASES[name])
    module = jobs[0].model.module
    assert module.get_input_embeddings().weight is module.get_output_embeddings().weight  # type: ignore[operator]
    assert_trained_plainly(run_packed(jobs)[0], jobs)


def random_correction(start: Params, seed: int, scale: float = 0.01) -> Params:
    return Params(start.layout, scale * torch.randn(start.layout.size, generator=torch.Generator().manual_seed(seed)))


@pytest.mark.parametrize("name", ["Bert SequenceClassification", *sorted(NEEDS_VMAP)[:1]])
def test_a_correction_is_added_to_the_gradient_of_each_packed_client(name: str) -> None:
    jobs = make_jobs(CASES[name])
    jobs = [replace(job, gradient_correction=random_correction(job.start, i)) for i, job in enumerate(jobs)]
    jobs[1] = replace(jobs[1], gradient_correction=None)  # a client without correction in the same packed model
    assert_trained_plainly(run_packed(jobs)[0], jobs)
    serial = SerialExecutor(CPU)
    assert_trained_plainly({i: serial.run(job) for i, job in enumerate(jobs)}, jobs)


@pytest.mark.parametrize("layers", [Layers.parse("head"), ~Layers.parse("head"), Layers.parse("name:*attention*")])
@pytest.mark.parametrize("name", ["Bert SequenceClassification", *sorted(NEEDS_VMAP)[:1]])
def test_packed_clients_train_only_the_selected_layers(name: str, layers: Layers) -> None:
    jobs = [replace(job, train_only=layers) for job in make_jobs(CASES[name], replace(SGD, weight_decay=0.0))]
    results, _ = run_packed(jobs)
    assert_trained_plainly(results, jobs)
    serial = SerialExecutor(CPU)
    assert_trained_plainly({i: serial.run(job) for i, job in enumerate(jobs)}, jobs)
    trained = jobs[0].start.layout.select_layers(layers)
    for result in results.values():
        assert torch.equal(result.params.exclude(trained).flat, jobs[0].start.exclude(trained).flat)


def test_layers_that_are_not_trained_keep_their_values_and_optimizer_state() -> None:
    solver = Solver(lr=0.01, batch=4, weight_decay=0.1)
    jobs = [replace(job, keep_optimizer_state=True) for job in make_jobs(BERT, solver)]
    before, _ = run_packed(jobs)
    head = Layers.parse("head")
    later = [
        replace(job, start=before[i].params, optimizer_state=before[i].optimizer_state, train_only=head)
        for i, job in enumerate(jobs)
    ]
    after, _ = run_packed(later)
    for i in before:
        for old, new in zip(
            [before[i].params, *before[i].optimizer_state.moments],
            [after[i].params, *after[i].optimizer_state.moments],
            strict=True,
        ):
            assert torch.equal(old.exclude_layers(head).flat, new.exclude_layers(head).flat)
            assert not torch.equal(old.select_layers(head).flat, new.select_layers(head).flat)


def test_training_all_layers_again_after_some_gives_the_same_as_before() -> None:
    jobs = make_jobs(BERT)
    expected, executor = run_packed(jobs)
    for selected in ([replace(job, train_only=Layers.parse("head")) for job in jobs], jobs):
        results = run_jobs(executor, selected)
    for i, result in expected.items():
        assert torch.equal(results[i].params.flat, result.params.flat)


def test_a_loss_that_does_not_depend_on_the_trained_layers_is_an_error() -> None:
    job = replace(make_jobs(BERT)[0], train_only=Layers.parse("head"), objective=Constant())
    with pytest.raises(RunError, match=r"Constant does not depend on the layers of train_only \(head\)"):
        SerialExecutor(CPU).run(job)


def test_a_model_that_cannot_be_packed_runs_one_by_one_with_one_warning(
    corpus: Corpus, caplog: pytest.LogCaptureFixture
) -> None:
    model = ModelConfig("bilstm", 24, config={"dropout": 0.0})
    federation = federate_corpus(model, corpus, ComponentConfig("uniform", {"clients": 3}), Seed(7))
    clients = [federation.participant(client) for client in federation.clients]
    solver = replace(SGD, proximal_mu=0.0)
    jobs = [Fit(c.model, c.model.initial_params, c.split("train"), c.task.objective, solver, 5) for c in clients]
    results, executor = run_packed(jobs)
    assert next(iter(executor.packing_choices.values())).mode == "plain"
    (warning,) = [r.getMessage() for r in caplog.records if "one by one" in r.getMessage()]
    assert "LSTM" in warning
    for i, job in enumerate(jobs):
        assert torch.allclose(results[i].params.flat, SerialExecutor(CPU).run(job).params.flat, atol=1e-6)


@pytest.mark.parametrize(
    "name", ["Bert SequenceClassification", "XLNet TokenClassification"], ids=["packed_layers", "vmap"]
)
def test_packed_clients_compute_batches_in_parts(name: str) -> None:
    """Some parts of a short batch are padding with weight 0, and tokens have their weight in the whole batch."""
    jobs = make_jobs(CASES[name], replace(SGD, batch=5, micro_batch=2))
    assert_trained_plainly(run_packed(jobs)[0], jobs)


def test_adamw_can_be_packed() -> None:
    jobs = make_jobs(BERT, Solver(lr=1e-3, batch=4, clip=1.0))
    results, _ = run_packed(jobs)
    assert_trained_plainly(results, jobs, tolerance=2e-3)  # Adam turns rounding errors into full steps


def test_learning_rates_clips_and_proximal_terms_may_differ_between_packed_clients() -> None:
    jobs = [
        replace(job, solver=replace(SGD, lr=0.05 * (i + 1), clip=1.0 + i, proximal_mu=0.1 * i))
        for i, job in enumerate(make_jobs(BERT))
    ]
    assert_trained_plainly(run_packed(jobs)[0], jobs)


@pytest.mark.parametrize("solver", [Solver(lr=1e-3, batch=4, weight_decay=0.1), replace(SGD, momentum=0.9)])
def test_weight_decay_and_momentum_can_be_packed(solver: Solver) -> None:
    jobs = make_jobs(BERT, solver)
    assert_trained_alone(run_packed(jobs)[0], jobs, tolerance=2e-3)


def test_a_client_without_examples_keeps_its_parameters() -> None:
    jobs = make_jobs(BERT, sizes=(6, 0, 3))
    results, _ = run_packed(jobs)
    assert torch.equal(results[1].params.flat, jobs[1].start.flat)
    assert results[1].steps == 0
    assert relative_difference(results[0].params.flat, train_plainly(jobs[0]), jobs[0].start.flat) < 2e-5


def test_only_the_client_that_diverges_fails() -> None:
    jobs = make_jobs(BERT)
    jobs[2] = replace(jobs[2], solver=replace(SGD, lr=1e30, clip=0.0, proximal_mu=0.0))
    results, _ = run_packed(jobs)
    assert isinstance(results[2], JobFailure)
    assert "lower solver.lr" in str(results[2].error)
    for i in (0, 1, 3):
        assert relative_difference(results[i].params.flat, train_plainly(jobs[i]), jobs[i].start.flat) < 2e-5
        update = results[i].params - jobs[i].start
        assert float(update.flat.abs().max()) <= update.bound < 1e3


def test_frozen_parameters_are_stored_once() -> None:
    model = BERT.model()
    for name, p in model.module.named_parameters():
        p.requires_grad_("layer.1" in name or "classifier" in name)
    jobs = [replace(job, model=model, start=model.initial_params) for job in make_jobs(BERT)]
    results, executor = run_packed(jobs)
    assert_trained_plainly(results, jobs)
    (packed,) = [m for m in executor.models.values() if m.packing_mode == "packed_layers"]
    originals = {id(p) for p in model.module.parameters()}
    frozen = [p for p in packed.module.parameters() if not p.requires_grad]
    assert frozen
    assert all(id(p) in originals for p in frozen)


def test_biases_alone_can_be_trained() -> None:
    model = BERT.model()
    for name, p in model.module.named_parameters():
        p.requires_grad_(name.endswith("bias"))
    jobs = [replace(job, model=model, start=model.initial_params) for job in make_jobs(BERT)]
    results, executor = run_packed(jobs)
    assert next(iter(executor.packing_choices.values())).mode == "packed_layers"
    assert_trained_plainly(results, jobs)


def test_results_are_equal_to_the_bit_in_any_order_of_submission() -> None:
    jobs = make_jobs(BERT)
    once, _ = run_packed(jobs)
    again, _ = run_packed(jobs[::-1])
    assert all(torch.equal(once[i].params.flat, again[len(jobs) - 1 - i].params.flat) for i in range(len(jobs)))


def test_results_come_in_the_order_of_submission() -> None:
    assert [*run_packed(make_jobs(BERT))[0]] == [0, 1, 2, 3]


def test_more_clients_than_fit_are_trained_in_several_groups() -> None:
    jobs = make_jobs(BERT, sizes=(5, 6, 7, 8, 9))
    results, _ = run_packed(jobs, width=2)
    assert_trained_plainly(results, jobs)


@pytest.mark.parametrize("name", [n for n in CASES if n.endswith("SequenceClassification")])
def test_personal_models_are_evaluated_side_by_side(name: str) -> None:
    case = CASES[name]
    model, features = case.model(), random_features(case, 30)
    rng, initial = Seed(3).torch(), model.initial_params.flat
    models = [Params(model.layout, initial + 0.01 * torch.randn(model.layout.size, generator=rng)) for _ in range(3)]
    jobs = [Infer(model, models[i % 3], e, Logits()) for i, e in enumerate(split_examples(features, (9, 4, 12, 5)))]
    results, _ = run_packed(jobs)
    for i, job in enumerate(jobs):
        for column, values in SerialExecutor(CPU).run(job).items():
            assert torch.allclose(results[i][column], values, atol=1e-4), column


@pytest.mark.parametrize(
    "name", ["Bert TokenClassification", "XLNet SequenceClassification", "Bart ConditionalGeneration"]
)
def test_a_device_dataset_makes_the_same_batches_as_the_host(name: str) -> None:
    features = random_features(CASES[name], 20)
    rows = np.array([3, 17, 0, 8])
    dataset = DeviceDataset(features, CPU)
    batch, expected = dataset.batch(torch.from_numpy(rows), dataset.batch_widths(rows)), features.batch(rows)
    assert batch.keys() == expected.keys()
    for column, values in expected.items():
        width, actual = values.shape[1] if values.dim() > 1 else 0, batch[column]
        if width:  # the device rounds widths up
            actual = actual[:, -width:] if features.pad_left else actual[:, :width]
        assert torch.equal(actual, values)


def test_extra_columns_stay_with_their_rows() -> None:
    jobs = [
        replace(job, examples=replace(job.examples, extra_columns={"labels": torch.arange(len(job.examples)) % 3}))
        for job in make_jobs(BERT)
    ]
    assert_trained_plainly(run_packed(jobs)[0], jobs)


@pytest.fixture
def no_garbage_collection() -> Iterator[None]:
    """Turn off the automatic collector, which may not run for a long time in production either."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_garbage_collection")
def test_running_out_of_memory_halves_the_width_and_loses_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    real_fit, widths = packed_executor.fit, []  # type: ignore[attr-defined]
    models: list[weakref.ref[PackedModel]] = []

    def fit_one_client(jobs: Any, model: PackedModel, *rest: Any) -> Any:
        widths.append(len(jobs))
        assert not any(earlier() for earlier in models), "models that were too wide have left the device"
        results = real_fit(jobs, model, *rest)
        if len(jobs) > 1:
            models.append(weakref.ref(model))
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate much.")
        return results

    monkeypatch.setattr(packed_executor, "fit", fit_one_client)
    jobs = make_jobs(BERT)
    results, _ = run_packed(jobs, width=4)
    assert widths == [4, 2, 1, 1, 1, 1]
    assert_trained_plainly(results, jobs)


@dataclass(frozen=True)
class LimitedReadout(Readout):
    """A readout that runs alone, on a device with memory for `capacity` texts."""

    capacity: int
    must_run_alone: ClassVar[bool] = True
    device_batch_size: ClassVar[int] = 512
    batch_sizes: list[int] = field(default_factory=list, hash=False)

    def read(self, forward: Any, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        self.batch_sizes.append(len(batch["input_ids"]))
        if self.batch_sizes[-1] > self.capacity:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate much.")
        return {"first": batch["input_ids"][:, 1]}


def test_generation_gets_as_many_texts_per_batch_as_fit() -> None:
    model, examples = BERT.model(), Examples(random_features(BERT, 9), np.arange(9))
    readout = LimitedReadout(capacity=3)
    result = PackedExecutor(CPU, use_bf16=False).run(Infer(model, model.initial_params, examples, readout))
    assert readout.batch_sizes == [9, 4, 2, 2, 2, 2, 1]
    assert torch.equal(result["first"], examples.batch(np.arange(9))["input_ids"][:, 1])


def test_a_device_too_small_for_one_text_is_an_error_that_names_the_options() -> None:
    model, examples = BERT.model(), Examples(random_features(BERT, 9), np.arange(9))
    job = Infer(model, model.initial_params, examples, LimitedReadout(capacity=0))
    with pytest.raises(RunError, match=r"does not hold one text.*task\.num_beams"):
        PackedExecutor(CPU, use_bf16=False).run(job)


def test_a_device_too_small_for_one_client_is_an_error_that_names_the_options(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(jobs: Any, *rest: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate much.")

    monkeypatch.setattr(packed_executor, "fit", fail)
    with pytest.raises(RunError, match=r"does not hold one client.*lower solver\.batch"):
        run_packed(make_jobs(BERT), width=4)


@pytest.mark.usefixtures("no_garbage_collection")
def test_a_closed_executor_frees_its_models_at_once() -> None:
    _, executor = run_packed(make_jobs(BERT))
    (model,) = executor.models.values()
    objects = [weakref.ref(model), weakref.ref(model.buffers.params.storage), weakref.ref(model.buffers.grads.storage)]
    del model
    executor.close()
    assert not any(reference() is not None for reference in objects)


def grad_accumulators(model: PackedModel) -> Iterator[Any]:
    """Yield the autograd node that adds to each leaf's gradient. If no graph holds one, it is a new node."""
    with torch.enable_grad():
        views: list[Any] = [leaf.view_as(leaf) for leaf in model.leaves.values()]
    for view in views:
        yield view.grad_fn.next_functions[0][0]


@pytest.mark.usefixtures("no_garbage_collection")
def test_no_autograd_graph_outlives_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node remembers its stream, and a step that is captured on another stream would fail."""
    forward, run_step, steps = PackedModel.__call__, Training.run_step, []

    def mark_nodes(model: PackedModel, batch: Batch) -> Any:
        output = forward(model, batch)
        for node in grad_accumulators(model):
            node.metadata["is_marked"] = True
        return output

    def check_nodes(training: Training, *args: Any) -> None:
        run_step(training, *args)
        steps.append(sum("is_marked" in node.metadata for node in grad_accumulators(training.model)))

    monkeypatch.setattr(PackedModel, "__call__", mark_nodes)
    monkeypatch.setattr(Training, "run_step", check_nodes)
    with kernels_disabled():
        run_packed(make_jobs(BERT, Solver(lr=1e-3, batch=4, weight_decay=0.1)))
    assert steps == [0] * 4


# ---- CUDA graphs -----------------------------------------------------------------------------------------------------


class RecordKeys:
    """Replaces `CudaGraphs`: runs every step eagerly and records the key it would be captured under."""

    def __init__(self) -> None:
        self.keys: list[Any] = []
        self.num_captures = 0

    def run(self, key: Any, kind: Any, step: Any) -> None:
        self.keys.append(key)
        self.num_captures += 1
        step()

    def drop(self, is_stale: Any) -> None:
        self.keys = [key for key in self.keys if not is_stale(key)]

    def clear(self) -> None:
        self.keys.clear()


def graph_keys(executor: PackedExecutor, jobs: list[Fit]) -> set[Any]:
    executor.graphs = graphs = RecordKeys()  # type: ignore[assignment]
    run_jobs(executor, jobs)
    return set(graphs.keys)


def jobs_on(features: Features, model: Any, sizes: tuple[int, ...], solver: Solver = SGD) -> list[Fit]:
    return [
        Fit(model, model.initial_params, examples, BERT.objective, solver, 5 + i)
        for i, examples in enumerate(split_examples(features, sizes))
    ]


def test_a_finished_client_that_stays_reads_a_text_that_fits_the_batch() -> None:
    """With CUDA graphs, finished clients stay for a while.

    Here the others' texts end before a finished client's answer.
    """
    case = CASES["Bert QuestionAnswering"]
    rng, long_clients = np.random.default_rng(0), 16
    lengths = [6] * 12 + [19] * long_clients
    ids = [rng.integers(3, VOCABULARY, n).tolist() for n in lengths]
    columns: dict[str, Any] = {
        "input_ids": Ragged.from_lists(ids, PAD),
        "starts": np.array([1] * 12 + [15] * long_clients),
        "ends": np.array([3] * 12 + [17] * long_clients),
    }
    model, features = case.model(), Features("late answers", columns)
    examples = [Examples(features, np.arange(12))]
    examples += [Examples(features, np.array([12 + i])) for i in range(long_clients)]
    solver = Solver(optimizer="sgd", lr=0.1, batch=1)
    jobs = [Fit(model, model.initial_params, e, case.objective, solver, i) for i, e in enumerate(examples)]
    executor = PackedExecutor(CPU, width=32, use_bf16=False)
    executor.graphs = RecordKeys()  # type: ignore[assignment]
    results = run_jobs(executor, jobs)
    for i in (0, 1, long_clients):
        expected = SerialExecutor(CPU).run(jobs[i]).params.flat
        assert relative_difference(results[i].params.flat, expected, model.initial_params.flat) < 1e-4


@pytest.mark.parametrize("layerdrop", [0.0, 0.5])
def test_steps_that_drop_layers_are_not_captured(layerdrop: float) -> None:
    case = CASES["Bart SequenceClassification"]
    jobs = make_jobs(case, sizes=(8, 8))
    jobs[0].model.module.get_submodule("model.decoder").layerdrop = layerdrop  # type: ignore[assignment]
    executor = PackedExecutor(CPU, width=8, use_bf16=False)
    assert bool(graph_keys(executor, jobs)) == (layerdrop == 0)


def test_graphs_of_moved_buffers_are_dropped() -> None:
    """More clients need longer vectors, so that the old ones are replaced."""
    model, features = BERT.model(), random_features(BERT, 24)
    executor = PackedExecutor(CPU, width=32, use_bf16=False)
    executor.graphs = graphs = RecordKeys()  # type: ignore[assignment]
    for sizes in ((8, 8), (8, 8, 8)):
        run_jobs(executor, jobs_on(features, model, sizes, Solver(batch=4)))
    (packed,) = (m for (_, _, is_packed), m in executor.models.items() if is_packed)
    assert {key[1] for key in graphs.keys} == {packed.buffers.generation}


@pytest.mark.parametrize("is_short", [True, False])
def test_captured_steps_leave_memory_for_what_clients_compute_with_their_results(
    is_short: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Per-FedAvg adds vectors between two trainings. The steps of the first one had taken nearly all memory of the GPU."""
    monkeypatch.setattr(packed_executor, "is_memory_short", lambda _: is_short)
    jobs, executor = make_jobs(BERT), PackedExecutor(CPU, width=8, use_bf16=False)
    executor.graphs = graphs = RecordKeys()  # type: ignore[assignment]
    results = run_jobs(executor, jobs)
    assert bool(graphs.keys) == bool(executor.models) == (not is_short)
    assert_trained_plainly(results, jobs)


def test_captured_steps_that_are_replayed_are_not_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """They need no new memory. Else each training of a run on a full GPU would capture its steps again."""
    monkeypatch.setattr(packed_executor, "is_memory_short", lambda _: True)
    monkeypatch.setattr(RecordKeys, "run", lambda self, key, kind, step: step())
    executor = PackedExecutor(CPU, width=8, use_bf16=False)
    graph_keys(executor, make_jobs(BERT))
    assert executor.models


def test_other_corpora_and_smaller_batches_have_other_graphs() -> None:
    model, first = BERT.model(), random_features(BERT, 16)
    second = replace(random_features(BERT, 16), key="other corpus")
    full_batches, small_batches = (8, 8), (3, 3)
    executor = PackedExecutor(CPU, width=8, use_bf16=False)

    def keys(features: Features, sizes: tuple[int, ...]) -> set[Any]:
        return graph_keys(executor, jobs_on(features, model, sizes))

    for _ in range(2):  # the first pass allocates buffers
        one, other, small = keys(first, full_batches), keys(second, full_batches), keys(first, small_batches)
    assert one
    assert other
    assert small
    assert not one & other
    assert not one & small
    assert keys(first, full_batches) == one


def test_a_repeated_job_uses_the_same_graphs_and_another_optimizer_others() -> None:
    """The proximal anchors need a buffer, which must not invalidate the graphs again in later jobs."""
    model, features = BERT.model(), random_features(BERT, 16)
    executor = PackedExecutor(CPU, width=8, use_bf16=False)

    def keys(solver: Solver) -> set[Any]:
        return graph_keys(executor, jobs_on(features, model, (8, 8), solver))

    plain = keys(replace(SGD, proximal_mu=0.0))
    proximal = [keys(SGD) for _ in range(3)]
    assert proximal[0] == proximal[1] == proximal[2]
    assert not proximal[2] & plain
    assert not keys(replace(SGD, momentum=0.9)) & proximal[2]


@pytest.mark.parametrize("mode", ["plain", "packed_layers"])
def test_the_embedding_index_keeps_its_address_or_invalidates_graphs(
    mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two trainings the model may hold the whole table, as for an evaluation, or the rows of more clients."""
    monkeypatch.setattr("motet.learning.packed.sparse_embedding.MIN_VOCABULARY", 10)
    monkeypatch.setattr("motet.learning.packed.packed_model._EMBEDDING_ROWS_STEP", 8)
    model, token_ids = BERT.model(), np.arange(3, 30)
    packed, params = PackedModel(model, model.module, CPU, mode), model.initial_params
    assert packed.embedding is not None
    packed.load_clients([params], [token_ids])
    index, generation = packed.embedding.row_index, packed.buffers.generation
    assert index is not None
    packed.load_clients([params])
    packed.load_clients([params], [token_ids + 1])
    assert packed.embedding.row_index is not None
    assert (packed.embedding.row_index.data_ptr(), packed.buffers.generation) == (index.data_ptr(), generation)
    if mode == "packed_layers":
        packed.load_clients([params] * 3, [token_ids] * 3)
        assert packed.embedding.row_index.data_ptr() != index.data_ptr()
    else:
        packed.load_clients([params], [np.arange(3)])  # now includes padding, which gets no gradient
    assert packed.buffers.generation > generation


def test_masked_attention_does_not_use_cudnn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its gradient is NaN at some widths. Other code in the process may still use it."""
    was_enabled = []
    model, features = BERT.model(), random_features(BERT, 8)
    monkeypatch.setattr(
        type(model.module),
        "forward",
        lambda self, **_: was_enabled.append(torch.backends.cuda.cudnn_sdp_enabled()) or {},
    )
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(True)
    try:
        packed = PackedModel(model, model.module, CPU, "packed_layers")
        packed(features.batch(np.arange(8)))
        assert torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)
    assert was_enabled == [False]


def test_a_model_is_in_training_mode_again_after_an_evaluation_but_its_frozen_layers_are_not() -> None:
    model = BERT.model()
    model.freeze(Layers.parse("embeddings", "layers 0"))
    packed = PackedModel(model, model.module, CPU)
    for _ in range(2):
        packed.train()
        packed.train()
        modes = {name: module.training for name, module in packed.module.named_modules()}
        assert {name.split(".")[1] for name, training in modes.items() if not training} == {"embeddings", "encoder"}
        assert modes["classifier"]
        packed.module.eval()
