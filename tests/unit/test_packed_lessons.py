"""Lessons and contrasts side by side: hidden words, garbled texts and neighbours teach what they teach one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from tests.lessons import KINDS, SIZES, contrasts, readers_of_lessons, shares
from tests.sizes import SMALL
from tests.unit.test_packed import Keys, gap, keys_of, together
from torch.utils._python_dispatch import TorchDispatchMode

from motet.experiment.build.federation import Federation
from motet.learning.data.features import IGNORE_INDEX, Examples, Ragged
from motet.learning.executors.packed_executor import PackedExecutor
from motet.learning.executors.process_executor import ProcessExecutor
from motet.learning.executors.serial_executor import PrefixCache, SerialExecutor
from motet.learning.jobs import ExtraExamples, Fit, FitResult, LRHorizon
from motet.learning.modules.model import Model
from motet.learning.packed.device_columns import label_positions
from motet.learning.packed.device_dataset import DeviceDataset
from motet.learning.packed.packed_model import PackedModel
from motet.learning.packed.packing_mode import PackingChoice
from motet.learning.solver import Solver
from motet.learning.training.batch_order import batches_for_job
from motet.learning.training.fit import Training
from motet.learning.training.step_schedule import DeviceSchedule
from motet.models.encoder_decoder import init_encoder_decoder
from motet.models.multitask import MultiTaskModel
from motet.wire.format import buffer_bytes, decode_header, encode_header, read_header, tensor_from_bytes

CPU = torch.device("cpu")
SGD = Solver(optimizer="sgd", lr=0.1, momentum=0.9, batch=4, epochs=2, warmup=0.1)


@pytest.fixture(scope="module")
def readers() -> Federation:
    return readers_of_lessons()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("solver", [SGD, Solver(lr=1e-3, batch=4, weight_decay=0.1)], ids=["sgd", "adamw"])
def test_side_by_side_they_teach_what_they_teach_alone(kind: str, solver: Solver, readers: Federation) -> None:
    """Over two trainings, of which the second goes on with what the first's optimiser remembers."""
    executors: list[Callable[[list[Fit]], list[Any]]] = [
        lambda jobs: [SerialExecutor(CPU).run(job) for job in jobs],
        lambda jobs: [found for _, found in sorted(together(jobs)[0].items())],
    ]
    ends = []
    for run in executors:
        done: list[FitResult] = []
        for turn in range(2):
            jobs = [replace(job, keep_optimizer_state=True) for job in KINDS[kind](readers, solver, turn)]
            if turn:
                jobs = [
                    replace(
                        job,
                        start=end.params,
                        optimizer_state=end.optimizer_state,
                        lr_horizon=LRHorizon(end.steps, 2 * end.steps),
                    )
                    for job, end in zip(jobs, done, strict=True)
                ]
            done = run(jobs)
        ends.append(done)
    for one, other in zip(*ends, strict=True):
        assert torch.allclose(one.losses, other.losses, atol=2e-3)
        tolerance = 5e-5 if solver.optimizer == "sgd" else 5e-3  # Adam makes full steps of rounding errors
        assert gap(other.params.flat, one.params.flat, readers.model.initial_params.flat) < tolerance
        assert one.optimizer_state is not None
        assert other.optimizer_state is not None
        assert one.optimizer_state.steps == other.optimizer_state.steps
        for mine, theirs in zip(one.optimizer_state.moments, other.optimizer_state.moments, strict=True):
            assert (mine - theirs).norm() <= tolerance * mine.norm()


@pytest.mark.parametrize("kind", KINDS)
def test_all_of_them_stand_in_one_pack(kind: str, readers: Federation) -> None:
    jobs = [replace(job, keep_optimizer_state=True) for job in KINDS[kind](readers, SGD, 0)]
    executor = PackedExecutor(CPU, width=8, use_bf16=False)
    for i, job in enumerate(jobs):
        executor.submit(i, job)
    assert len(executor.wait_completed()) == len(jobs)
    assert next(iter(executor.packing_choices.values())).mode == "packed_layers"


def test_clients_compared_with_more_others_stand_in_another_pack(readers: Federation) -> None:
    first, second, *_ = contrasts(False)(readers, SGD, 0)
    assert first.key == second.key
    assert second.extra_examples is not None
    extra = {**second.extra_examples.examples.extra_columns, "negatives": torch.zeros(8, 2, SMALL["hidden_size"])}
    assert first.key != replace(second, extra_examples=ExtraExamples(Examples.from_columns(**extra))).key  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_steps_are_recorded_once(kind: str, readers: Federation) -> None:
    """With moments that come and go, and tables that are laid anew for each fit."""
    solver, executor = replace(SGD, epochs=1, batch=14), PackedExecutor(CPU, width=8, use_bf16=False)
    jobs = [replace(job, keep_optimizer_state=True) for job in KINDS[kind](readers, solver, 0)]
    keys_of(executor, jobs)  # places are found in the first turn, and stay
    assert keys_of(executor, jobs) == keys_of(executor, jobs)
    (pack,) = [p for p in executor.models.values() if p.packing_mode == "packed_layers"]
    before = pack.buffers.generation
    keys_of(executor, jobs)
    assert pack.buffers.generation == before


def test_moments_are_kept_as_they_were_when_a_client_had_finished(readers: Federation) -> None:
    """A recorded step may keep clients that are through, at rate 0: their moments would fade."""
    solver = Solver(lr=1e-3, batch=1)
    jobs = [replace(job, keep_optimizer_state=True) for job in KINDS["masked words"](readers, solver, 0)] * 5
    jobs = [replace(job, seed=i) for i, job in enumerate(jobs)]
    executor = PackedExecutor(CPU, width=32, use_bf16=False)
    executor.graphs = Keys()  # type: ignore[assignment]
    for i, job in enumerate(jobs):
        executor.submit(i, job)
    found: dict[Any, Any] = dict(executor.wait_completed())
    assert [found[i].optimizer_state.steps for i in range(len(jobs))] == list(SIZES) * 5


class Waits(TorchDispatchMode):
    """Refuses what makes a device wait for the host, or asks the host for memory: such a step could not be recorded."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func)
        refused = ("_local_scalar_dense", "nonzero", "masked_select", "lift_fresh", "is_nonzero", "equal.default")
        assert not any(word in name for word in refused), name
        if "index.Tensor" in name or "index_put" in name:
            assert not any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1]), name
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", KINDS)
def test_no_step_looks_at_what_it_computes(kind: str, readers: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, batch, seen = Training._losses, DeviceSchedule.batch, []

    def watched(method: Any) -> Any:
        def called(*given: Any) -> Any:
            with Waits():
                seen.append(method.__name__)
                found = method(*given)
                if method is whole:
                    found.sum().backward(retain_graph=True)
                return found

        return called

    monkeypatch.setattr(Training, "_losses", watched(whole))
    monkeypatch.setattr(DeviceSchedule, "batch", watched(batch))
    found, _ = together([replace(job, keep_optimizer_state=True) for job in KINDS[kind](readers, SGD, 0)])
    assert all(isinstance(end, FitResult) for end in found.values())
    assert {"_losses", "batch"} <= set(seen)


@pytest.mark.parametrize("kind", KINDS)
def test_a_recorded_step_finds_its_tables_where_and_as_long_as_they_were(kind: str, readers: Federation) -> None:
    """Whatever is in them this time: a recording holds addresses, and the lengths that indices are checked against."""
    pack = PackedModel(readers.model, readers.model.module, CPU)
    resident = DeviceDataset(shares(readers)[0].features, CPU)
    seen = []
    for share in (2, 1):
        jobs = [replace(job, examples=job.examples.select(np.arange(len(job.examples) // 2 * share))) for job in
                KINDS[kind](readers, Solver(batch=2, steps=2), 0)[:3]]  # fmt: skip
        slate = DeviceSchedule(jobs, [batches_for_job(job) for job in jobs], pack, resident)
        tensors = [
            t for c in slate.columns.values() for held in (c.values, c.offsets, c.first_rows) for t in held.values()
        ]
        seen.append([(t.data_ptr(), tuple(t.shape)) for t in (*tensors, *(c.indices for c in slate.columns.values()))])
    assert seen[0] == seen[1]


def test_labels_of_a_client_stand_in_one_row() -> None:
    lengths = torch.tensor([[2, 0, 3], [0, 1, 0]])
    assert label_positions(lengths, 4, 6).tolist() == [[0, 1, 8, 9, 10, -1], [4, -1, -1, -1, -1, -1]]


def test_a_lesson_passes_to_worker_processes(readers: Federation) -> None:
    scratch, model = PrefixCache(), readers.model
    jobs = [make(readers, SGD, 0)[0] for make in KINDS.values()]
    features = jobs[0].examples.features
    workers = ProcessExecutor(1, {model.key: model}, {features.key: features}, scratch)
    try:
        for i, job in enumerate(jobs):
            workers.submit(i, job)
        found: dict[Any, Any] = {}
        while len(found) < len(jobs):
            found |= dict(workers.wait_completed())
    finally:
        workers.close()
        scratch.close()
    for i, job in enumerate(jobs):
        assert torch.equal(found[i].params.flat, SerialExecutor(CPU).run(job).params.flat)


def test_a_ragged_column_is_the_same_behind_a_wire() -> None:
    column = Ragged.from_lists([[4, 5], [], [6]], IGNORE_INDEX)
    head, tensors = encode_header(column)
    pieces = iter([bytearray(buffer_bytes(t)) for t in tensors])
    again = decode_header(
        read_header(memoryview(head))[0], lambda dtype, shape, _: tensor_from_bytes(next(pieces), dtype, shape)
    )
    assert again.pad == IGNORE_INDEX
    assert [again[i].tolist() for i in range(3)] == [[4, 5], [], [6]]
    assert again.select(np.array([2, 0])).pad_rows(np.arange(2))[0].tolist() == [[6, IGNORE_INDEX], [4, 5]]


def of_another_kind(readers: Federation, jobs: list[Fit]) -> list[Fit]:
    """The same jobs on a RoBERTa, whose places are counted from its tokens and end where the corpus' longest text does."""
    known, tokenizer = readers.model.module.config.encoder, readers.model.tokenizer
    longest = int(jobs[0].examples.features.lengths.max())
    config = hf.RobertaConfig(
        vocab_size=known.vocab_size, pad_token_id=tokenizer.pad_token_id, type_vocab_size=1, num_attention_heads=2,
        max_position_embeddings=longest + tokenizer.pad_token_id + 1, **{"num_hidden_layers": 2, **SMALL},
    )  # fmt: skip
    module = MultiTaskModel(init_encoder_decoder(config, tokenizer), "qa", ())
    model = Model("another", module, module.parameter_roles().roles, tokenizer)
    return [replace(job, model=model, start=model.initial_params) for job in jobs]


@pytest.mark.parametrize("kind", ["masked words", "garbled texts"])
def test_another_kind_of_encoder_learns_side_by_side_too(kind: str, readers: Federation) -> None:
    jobs = of_another_kind(readers, KINDS[kind](readers, SGD, 0))
    found, executor = together(jobs)
    assert next(iter(executor.packing_choices.values())).mode == "packed_layers"
    for i, job in enumerate(jobs):
        assert gap(found[i].params.flat, SerialExecutor(CPU).run(job).params.flat, job.start.flat) < 5e-5


def test_where_only_a_forward_pass_is_vectorised_they_go_one_by_one(
    readers: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PackedExecutor, "_packing_choice", lambda *_: PackingChoice("vmap", ""))
    jobs = KINDS["masked words"](readers, SGD, 0)
    found, executor = together(jobs)
    assert {pack.packing_mode for pack in executor.models.values()} == {"plain"}
    for i, job in enumerate(jobs):
        assert gap(found[i].params.flat, SerialExecutor(CPU).run(job).params.flat, job.start.flat) < 5e-5


def test_texts_of_their_own_go_through_the_whole_model_though_its_prefix_is_known(
    frozen_federation: Federation,
) -> None:
    site = frozen_federation.participant(frozen_federation.clients[0])
    texts, words = site.split("train"), Ragged.from_lists([[2, 7, 9, 3], [2, 8, 3], [2, 11, 12, 6, 3]])
    own = replace(texts.select(np.arange(3)), extra_columns={"input_ids": words, "labels": torch.tensor([0, 1, 2])})
    given = [
        Fit(site.model, site.model.initial_params, part, site.task.objective, SGD, 5) for part in (texts, own, own)
    ]
    jobs = [replace(job, seed=i) for i, job in enumerate(given)]
    scratch = PrefixCache()
    scratch.prepare(site.model, texts.features)
    assert scratch.states
    found, executor = together(jobs)
    assert {r.prefix is None for r in executor.datasets.values()} == {True, False}
    for i, job in enumerate(jobs):
        want = SerialExecutor(CPU).run(job).params.flat
        assert gap(found[i].params.flat, want, job.start.flat) < 1e-4
        assert gap(SerialExecutor(CPU, scratch).run(job).params.flat, want, job.start.flat) < 1e-4
    scratch.close()


def test_a_client_without_examples_may_be_the_last_in_a_pack(readers: Federation) -> None:
    """It is kept in recorded steps for a while, where it must find some row to read."""
    for kind in KINDS.values():
        jobs = kind(readers, SGD, 0)
        jobs[3] = replace(jobs[3], examples=jobs[3].examples.select(np.arange(0)))
        found, _ = together(jobs)
        executor = PackedExecutor(CPU, width=32, use_bf16=False)
        executor.graphs = Keys()  # type: ignore[assignment]
        for i, job in enumerate(jobs * 5):  # so many that several leave at a time
            executor.submit(i, replace(job, seed=i))
        assert all(isinstance(end, FitResult) for _, end in executor.wait_completed())
        assert torch.equal(found[3].params.flat, jobs[3].start.flat)
