"""Packed self-supervised and contrastive training gives what each client would learn alone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from tests.host_sync import reject_host_sync_in_steps
from tests.job_runs import assert_trained_alone, relative_difference, run_jobs, run_packed
from tests.self_supervised import CLIENT_SIZES, JOB_KINDS, client_examples, contrastive, multitask_federation
from tests.sizes import SMALL
from tests.unit.test_packed import RecordKeys, graph_keys

from motet.core.errors import RunError
from motet.experiment.build.federation import Federation
from motet.learning.data.features import IGNORE_INDEX, Examples, Ragged
from motet.learning.executors.packed_executor import PackedExecutor
from motet.learning.executors.process_executor import ProcessExecutor
from motet.learning.executors.serial_executor import PrefixCache, SerialExecutor
from motet.learning.jobs import ExtraExamples, Fit, FitResult
from motet.learning.lr_schedule import LRHorizon
from motet.learning.modules.model import Model
from motet.learning.packed.device_columns import label_positions
from motet.learning.packed.device_dataset import DeviceDataset
from motet.learning.packed.packed_model import PackedModel
from motet.learning.packed.packing_mode import PackingChoice
from motet.learning.solver import Solver
from motet.learning.training.batch_order import batches_for_job
from motet.learning.training.step_schedule import DeviceSchedule
from motet.models.encoder_decoder import init_encoder_decoder
from motet.models.multitask import MultiTaskModel
from motet.wire.format import buffer_bytes, decode_header, encode_header, read_header, tensor_from_bytes

CPU = torch.device("cpu")
SGD = Solver(optimizer="sgd", lr=0.1, momentum=0.9, batch=4, epochs=2, warmup=0.1)


@pytest.fixture(scope="module")
def federation() -> Federation:
    return multitask_federation()


def keep_state(jobs: list[Fit]) -> list[Fit]:
    return [replace(job, keep_optimizer_state=True) for job in jobs]


@pytest.mark.parametrize("kind", JOB_KINDS)
@pytest.mark.parametrize("solver", [SGD, Solver(lr=1e-3, batch=4, weight_decay=0.1)], ids=["sgd", "adamw"])
def test_packed_clients_learn_what_each_learns_alone(kind: str, solver: Solver, federation: Federation) -> None:
    """In two rounds; the second continues with the optimizer state and the schedule of the first."""
    executors: list[Callable[[list[Fit]], list[Any]]] = [
        lambda jobs: [SerialExecutor(CPU).run(job) for job in jobs],
        lambda jobs: [result for _, result in sorted(run_packed(jobs)[0].items())],
    ]
    serial, packed = (_train_two_rounds(run, kind, solver, federation) for run in executors)
    for one, other in zip(serial, packed, strict=True):
        assert torch.allclose(one.losses, other.losses, atol=2e-3)
        tolerance = 5e-5 if solver.optimizer == "sgd" else 5e-3  # Adam turns rounding errors into full steps
        initial = federation.model.initial_params.flat
        assert relative_difference(other.params.flat, one.params.flat, initial) < tolerance
        assert one.optimizer_state is not None
        assert other.optimizer_state is not None
        assert one.optimizer_state.steps == other.optimizer_state.steps
        for first, second in zip(one.optimizer_state.moments, other.optimizer_state.moments, strict=True):
            assert (first - second).norm() <= tolerance * first.norm()


def _train_two_rounds(
    run: Callable[[list[Fit]], list[FitResult]], kind: str, solver: Solver, federation: Federation
) -> list[FitResult]:
    first = run(keep_state(JOB_KINDS[kind](federation, solver, 0)))
    jobs = [
        replace(
            job,
            start=result.params,
            optimizer_state=result.optimizer_state,
            lr_horizon=LRHorizon(result.steps, 2 * result.steps),
        )
        for job, result in zip(keep_state(JOB_KINDS[kind](federation, solver, 1)), first, strict=True)
    ]
    return run(jobs)


@pytest.mark.parametrize("kind", JOB_KINDS)
def test_all_clients_are_packed_together(kind: str, federation: Federation) -> None:
    jobs = keep_state(JOB_KINDS[kind](federation, SGD, 0))
    executor = PackedExecutor(CPU, width=8, use_bf16=False)
    for i, job in enumerate(jobs):
        executor.submit(i, job)
    assert len(executor.wait_completed()) == len(jobs)
    assert next(iter(executor.packing_choices.values())).mode == "packed_layers"


def test_clients_with_different_numbers_of_negatives_are_not_packed_together(federation: Federation) -> None:
    first, second, *_ = contrastive(by_index=False)(federation, SGD, 0)
    assert first.key == second.key
    assert second.extra_examples is not None
    columns: dict[str, Any] = {**second.extra_examples.examples.extra_columns}
    columns["negatives"] = torch.zeros(8, 2, int(SMALL["hidden_size"]))
    fewer = ExtraExamples(Examples.from_columns(**columns))
    assert first.key != replace(second, extra_examples=fewer).key


@pytest.mark.parametrize("kind", JOB_KINDS)
def test_a_repeated_job_uses_the_same_graphs(kind: str, federation: Federation) -> None:
    """Although optimizer state is loaded and saved, and tables are rewritten for each job."""
    executor = PackedExecutor(CPU, width=8, use_bf16=False)
    jobs = keep_state(JOB_KINDS[kind](federation, replace(SGD, epochs=1, batch=14), 0))
    graph_keys(executor, jobs)  # allocates buffers
    assert graph_keys(executor, jobs) == graph_keys(executor, jobs)
    (packed,) = [m for m in executor.models.values() if m.packing_mode == "packed_layers"]
    generation = packed.buffers.generation
    graph_keys(executor, jobs)
    assert packed.buffers.generation == generation


def test_a_finished_client_that_stays_keeps_its_optimizer_state(federation: Federation) -> None:
    """With CUDA graphs, finished clients may stay at learning rate 0. Their moments would decay."""
    jobs = keep_state(JOB_KINDS["masked tokens"](federation, Solver(lr=1e-3, batch=1), 0)) * 5
    executor = PackedExecutor(CPU, width=32, use_bf16=False)
    executor.graphs = RecordKeys()  # type: ignore[assignment]
    results = run_jobs(executor, [replace(job, seed=i) for i, job in enumerate(jobs)])
    assert [results[i].optimizer_state.steps for i in range(len(jobs))] == list(CLIENT_SIZES) * 5


@pytest.mark.parametrize("kind", JOB_KINDS)
def test_no_step_waits_for_the_host(kind: str, federation: Federation) -> None:
    with reject_host_sync_in_steps() as calls:
        results, _ = run_packed(keep_state(JOB_KINDS[kind](federation, SGD, 0)))
    assert all(isinstance(result, FitResult) for result in results.values())
    assert {"_weighted_losses", "batch"} <= set(calls)


@pytest.mark.parametrize("kind", JOB_KINDS)
def test_tables_of_a_smaller_job_have_the_same_addresses_and_lengths(kind: str, federation: Federation) -> None:
    """A graph holds addresses, and the lengths that indices are checked against."""
    model = PackedModel(federation.model, federation.model.module, CPU)
    dataset = DeviceDataset(client_examples(federation)[0].features, CPU)
    tables = []
    for half in (2, 1):
        jobs = [
            replace(job, examples=job.examples.select(np.arange(len(job.examples) // 2 * half)))
            for job in JOB_KINDS[kind](federation, Solver(batch=2, steps=2), 0)[:3]
        ]
        schedule = DeviceSchedule(jobs, [batches_for_job(job) for job in jobs], model, dataset)
        tensors = [columns.indices for columns in schedule.columns.values()]
        for columns in schedule.columns.values():
            tensors += [*columns.values.values(), *columns.offsets.values(), *columns.first_rows.values()]
        tables.append([(t.data_ptr(), tuple(t.shape)) for t in tensors])
    assert tables[0] == tables[1]


def test_label_positions_of_a_client_are_in_one_row() -> None:
    lengths = torch.tensor([[2, 0, 3], [0, 1, 0]])
    assert label_positions(lengths, 4, 6).tolist() == [[0, 1, 8, 9, 10, -1], [4, -1, -1, -1, -1, -1]]


def test_worker_processes_can_run_these_jobs(federation: Federation) -> None:
    model = federation.model
    jobs = [make_jobs(federation, SGD, 0)[0] for make_jobs in JOB_KINDS.values()]
    features = jobs[0].examples.features
    workers = ProcessExecutor(1, {model.key: model}, {features.key: features})
    with closing(workers):
        results = run_jobs(workers, jobs)
    for i, job in enumerate(jobs):
        assert torch.equal(results[i].params.flat, SerialExecutor(CPU).run(job).params.flat)


def test_a_ragged_column_survives_encoding() -> None:
    column = Ragged.from_lists([[4, 5], [], [6]], IGNORE_INDEX)
    header, tensors = encode_header(column)
    data = iter([bytearray(buffer_bytes(t)) for t in tensors])
    decoded = decode_header(
        read_header(memoryview(header))[0], lambda dtype, shape, _: tensor_from_bytes(next(data), dtype, shape)
    )
    assert decoded.pad == IGNORE_INDEX
    assert [decoded[i].tolist() for i in range(3)] == [[4, 5], [], [6]]
    padded, _ = decoded.select(np.array([2, 0])).pad_rows(np.arange(2))
    assert padded.tolist() == [[6, IGNORE_INDEX], [4, 5]]


def with_roberta(federation: Federation, jobs: list[Fit]) -> list[Fit]:
    """Use a RoBERTa. Its positions depend on the tokens, and its position table is as short as the corpus allows."""
    config, tokenizer = federation.model.module.config.encoder, federation.model.tokenizer
    max_length = int(jobs[0].examples.features.lengths.max())
    roberta = hf.RobertaConfig(
        vocab_size=config.vocab_size, pad_token_id=tokenizer.pad_token_id, type_vocab_size=1, num_attention_heads=2,
        max_position_embeddings=max_length + tokenizer.pad_token_id + 1, **{"num_hidden_layers": 2, **SMALL},
    )  # fmt: skip
    module = MultiTaskModel(init_encoder_decoder(roberta, tokenizer), "qa", ())
    model = Model("roberta", module, module.parameter_roles().roles, tokenizer)
    return [replace(job, model=model, start=model.initial_params) for job in jobs]


@pytest.mark.parametrize("kind", ["masked tokens", "denoising"])
def test_another_encoder_can_be_packed(kind: str, federation: Federation) -> None:
    jobs = with_roberta(federation, JOB_KINDS[kind](federation, SGD, 0))
    results, executor = run_packed(jobs)
    assert next(iter(executor.packing_choices.values())).mode == "packed_layers"
    assert_trained_alone(results, jobs, tolerance=5e-5)


def test_models_that_need_vmap_run_one_by_one(federation: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    """vmap supports only whole forward passes, and these objectives call other methods of the model."""
    monkeypatch.setattr(PackedExecutor, "_packing_choice", lambda *_: PackingChoice("vmap", ""))
    jobs = JOB_KINDS["masked tokens"](federation, SGD, 0)
    results, executor = run_packed(jobs)
    assert {model.packing_mode for model in executor.models.values()} == {"plain"}
    assert_trained_alone(results, jobs, tolerance=5e-5)


def test_examples_with_their_own_input_ids_use_the_full_model(frozen_federation: Federation) -> None:
    """Even if hidden states of the frozen prefix are cached: they belong to the corpus's texts."""
    client = frozen_federation.participant(frozen_federation.clients[0])
    corpus_texts = client.split("train")
    input_ids = Ragged.from_lists([[2, 7, 9, 3], [2, 8, 3], [2, 11, 12, 6, 3]])
    columns = {"input_ids": input_ids, "labels": torch.tensor([0, 1, 2])}
    own_texts = replace(corpus_texts.select(np.arange(3)), extra_columns=columns)
    jobs = [
        Fit(client.model, client.model.initial_params, examples, client.task.objective, SGD, seed)
        for seed, examples in enumerate((corpus_texts, own_texts, own_texts))
    ]
    cache = PrefixCache()
    cache.prepare(client.model, corpus_texts.features)
    assert cache.states
    results, executor = run_packed(jobs)
    assert {dataset.prefix is None for dataset in executor.datasets.values()} == {True, False}
    for i, job in enumerate(jobs):
        expected = SerialExecutor(CPU).run(job).params.flat
        cached = SerialExecutor(CPU, cache).run(job).params.flat
        assert relative_difference(results[i].params.flat, expected, job.start.flat) < 1e-4
        assert relative_difference(cached, expected, job.start.flat) < 1e-4
    cache.close()


@pytest.mark.parametrize("kind", JOB_KINDS)
def test_a_client_without_examples_can_be_the_last_of_a_packed_model(kind: str, federation: Federation) -> None:
    """With CUDA graphs it stays for a while and needs some row to read."""
    jobs = JOB_KINDS[kind](federation, SGD, 0)
    jobs[3] = replace(jobs[3], examples=jobs[3].examples.select(np.arange(0)))
    results, _ = run_packed(jobs)
    assert torch.equal(results[3].params.flat, jobs[3].start.flat)
    executor = PackedExecutor(CPU, width=32, use_bf16=False)
    executor.graphs = RecordKeys()  # type: ignore[assignment]
    many = [replace(job, seed=i) for i, job in enumerate(jobs * 5)]  # several leave at a time
    assert all(isinstance(result, FitResult) for result in run_jobs(executor, many).values())


def test_objectives_that_read_whole_batches_refuse_parts(federation: Federation) -> None:
    (job, *_) = JOB_KINDS["masked tokens"](federation, replace(SGD, micro_batch=1))
    with pytest.raises(RunError, match=r"micro_batch is 1, but MaskedLanguageModeling cannot split a batch"):
        SerialExecutor(CPU).run(job)
