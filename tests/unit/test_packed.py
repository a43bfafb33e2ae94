"""Clients side by side learn what each of them learns alone, in every family, by a loop that knows nothing of packs."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from tests.families import CASES, PAD, Case, V, shares, texts
from torch import nn

from motet.core.errors import RunError
from motet.core.params import Params
from motet.core.rng import Seed
from motet.core.work import JobFailure
from motet.datasets.corpus import Corpus
from motet.experiment.build.federation_builder import federate_corpus
from motet.experiment.recipe.run_config import ComponentConfig
from motet.learning.data.features import Examples, Features, Ragged
from motet.learning.executors.packed_executor import PackedExecutor
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.jobs import Fit, FitResult, Infer
from motet.learning.objectives.readouts import Logits
from motet.learning.packed.device_dataset import DeviceDataset
from motet.learning.packed.packed_model import PackedModel
from motet.learning.solver import Solver
from motet.models.load_model import ModelConfig

CPU = torch.device("cpu")
SGD = Solver(optimizer="sgd", lr=0.1, batch=4, epochs=2, clip=1.0, warmup=0.1, proximal_mu=0.1)
BY_VMAP = {"XLNet SequenceClassification", "XLNet TokenClassification", "DebertaV2 SequenceClassification"}


def alone(job: Fit) -> torch.Tensor:
    """A plain loop: one module, the loss of each batch, torch's clipping and SGD, the proximal term in the loss."""
    module = copy.deepcopy(job.model.module).train()
    own = {n: p for n, p in module.named_parameters() if p.requires_grad}
    for name, value in job.start.tensors().items():
        own[name].data.copy_(value)
    held = {n: p.detach().clone() for n, p in own.items()}
    solver = job.solver
    make: Any = torch.optim.SGD if solver.optimizer == "sgd" else torch.optim.AdamW
    options = {} if solver.optimizer == "sgd" else {"weight_decay": 0.0}
    optimiser = make(list(own.values()), lr=solver.learning_rate, **options)
    order = solver.draw_batches(len(job.examples), Seed(job.seed).derive("order").numpy())

    class Calls:
        def __init__(self) -> None:
            self.module = module

        def __call__(self, batch: Any) -> Any:
            return module(**{n: t for n, t in batch.items() if n not in ("labels", "starts", "ends")})

    for step, places in enumerate(order):
        losses, worth = job.objective.losses(Calls(), job.examples.batch(places))
        loss = (losses * worth).sum() / worth.sum()
        loss = loss + solver.proximal_mu / 2 * sum((p - held[n]).pow(2).sum() for n, p in own.items())
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(own.values(), solver.clip)
        optimiser.param_groups[0]["lr"] = solver.learning_rate_at(step, len(order))
        optimiser.step()
    return Params.from_tensors(own).flat


def jobs_of(case: Case, solver: Solver = SGD, sizes: tuple[int, ...] = (9, 4, 14, 1)) -> list[Fit]:
    model, features = case.model(), texts(case, sum(sizes))
    return [
        Fit(model, model.initial_params, examples, case.objective, solver, 5 + i)
        for i, examples in enumerate(shares(features, sizes))
    ]


def together(jobs: list[Fit], width: int = 8) -> tuple[dict[int, Any], PackedExecutor]:
    executor = PackedExecutor(CPU, width=width, use_bf16=False)
    for i, job in enumerate(jobs):
        executor.submit(i, job)
    found: dict[int, Any] = {}
    while executor.submitted:
        found |= dict(executor.wait_completed())  # type: ignore[arg-type]
    return found, executor


def gap(got: torch.Tensor, want: torch.Tensor, start: torch.Tensor) -> float:
    return float((got - want).norm() / ((want - start).norm() + 1e-12))


@pytest.mark.parametrize("name", CASES)
def test_clients_side_by_side_learn_what_each_learns_alone(name: str) -> None:
    jobs = jobs_of(CASES[name])
    found, executor = together(jobs)
    (used,) = executor.packing_choices.values()
    assert used.mode == ("vmap" if name in BY_VMAP else "packed_layers"), used.rejections
    for i, job in enumerate(jobs):
        assert isinstance(found[i], FitResult)
        assert gap(found[i].params.flat, alone(job), job.start.flat) < 2e-5


def test_a_model_without_twins_runs_one_by_one_and_says_so_once(
    corpus: Corpus, caplog: pytest.LogCaptureFixture
) -> None:
    federation = federate_corpus(
        ModelConfig("bilstm", 24, config={"dropout": 0.0}), corpus, ComponentConfig("uniform", {"clients": 3}), Seed(7)
    )
    sites = [federation.participant(client) for client in federation.clients]
    jobs = [
        Fit(s.model, s.model.initial_params, s.split("train"), s.task.objective, replace(SGD, proximal_mu=0.0), 5)
        for s in sites
    ]
    found, executor = together(jobs)
    assert next(iter(executor.packing_choices.values())).mode == "plain"
    (said,) = [r.getMessage() for r in caplog.records if "one by one" in r.getMessage()]
    assert "LSTM" in said
    for i, job in enumerate(jobs):
        assert torch.allclose(found[i].params.flat, SerialExecutor(CPU).run(job).params.flat, atol=1e-6)


def test_adamw_packs_too() -> None:
    jobs = jobs_of(CASES["Bert SequenceClassification"], Solver(lr=1e-3, batch=4, clip=1.0))
    found, _ = together(jobs)
    for i, job in enumerate(jobs):
        assert gap(found[i].params.flat, alone(job), job.start.flat) < 2e-3  # Adam makes full steps of rounding errors


def test_rates_clips_and_pulls_may_differ_within_a_pack() -> None:
    jobs = jobs_of(CASES["Bert SequenceClassification"])
    jobs = [
        replace(j, solver=replace(SGD, lr=0.05 * (i + 1), clip=1.0 + i, proximal_mu=0.1 * i))
        for i, j in enumerate(jobs)
    ]
    found, _ = together(jobs)
    for i, job in enumerate(jobs):
        assert gap(found[i].params.flat, alone(job), job.start.flat) < 2e-5


def test_weight_decay_and_momentum_pack_as_they_do_alone() -> None:
    solver = Solver(lr=1e-3, batch=4, weight_decay=0.1)
    for changed in (solver, replace(SGD, momentum=0.9)):
        jobs = jobs_of(CASES["Bert SequenceClassification"], changed)
        found, _ = together(jobs)
        for i, job in enumerate(jobs):
            want = SerialExecutor(CPU).run(job).params.flat
            assert gap(found[i].params.flat, want, job.start.flat) < 2e-3


def test_a_client_without_examples_stays_where_it_was() -> None:
    jobs = jobs_of(CASES["Bert SequenceClassification"], sizes=(6, 0, 3))
    found, _ = together(jobs)
    assert torch.equal(found[1].params.flat, jobs[1].start.flat)
    assert found[1].steps == 0
    assert gap(found[0].params.flat, alone(jobs[0]), jobs[0].start.flat) < 2e-5


def test_a_diverging_client_fails_alone() -> None:
    jobs = jobs_of(CASES["Bert SequenceClassification"])
    jobs[2] = replace(jobs[2], solver=replace(SGD, lr=1e30, clip=0.0, proximal_mu=0.0))
    found, _ = together(jobs)
    assert isinstance(found[2], JobFailure)
    assert "lower solver.lr" in str(found[2].error)
    for i in (0, 1, 3):
        assert gap(found[i].params.flat, alone(jobs[i]), jobs[i].start.flat) < 2e-5


def test_frozen_parameters_are_held_once() -> None:
    case = CASES["Bert SequenceClassification"]
    jobs = jobs_of(case)
    model = case.model()
    for name, p in model.module.named_parameters():
        p.requires_grad_("layer.1" in name or "classifier" in name)
    jobs = [replace(j, model=model, start=model.initial_params) for j in jobs]
    found, executor = together(jobs)
    for i, job in enumerate(jobs):
        assert gap(found[i].params.flat, alone(job), job.start.flat) < 2e-5
    (pack,) = [p for p in executor.models.values() if p.packing_mode == "packed_layers"]
    words = model.module.get_input_embeddings().weight  # type: ignore[operator]
    if pack.is_full_model:
        assert pack.module.get_input_embeddings().weight is words  # type: ignore[operator]


def test_biases_alone_can_be_trained() -> None:
    model = CASES["Bert SequenceClassification"].model()
    for name, p in model.module.named_parameters():
        p.requires_grad_(name.endswith("bias"))
    jobs = [replace(j, model=model, start=model.initial_params) for j in jobs_of(CASES["Bert SequenceClassification"])]
    found, executor = together(jobs)
    assert next(iter(executor.packing_choices.values())).mode == "packed_layers"
    for i, job in enumerate(jobs):
        assert gap(found[i].params.flat, alone(job), job.start.flat) < 2e-5


def test_a_pack_repeats_to_the_bit_and_whatever_order_its_jobs_come_in() -> None:
    jobs = jobs_of(CASES["Bert SequenceClassification"])
    once, _ = together(jobs)
    again, _ = together(jobs[::-1])
    assert all(torch.equal(once[i].params.flat, again[len(jobs) - 1 - i].params.flat) for i in range(len(jobs)))


def test_answers_come_in_the_order_of_the_questions() -> None:
    executor = PackedExecutor(CPU, width=8, use_bf16=False)
    for i, job in enumerate(jobs_of(CASES["Bert SequenceClassification"])):
        executor.submit(i, job)
    assert [key for key, _ in executor.wait_completed()] == [0, 1, 2, 3]


def test_more_clients_than_fit_go_in_several_packs() -> None:
    jobs = jobs_of(CASES["Bert SequenceClassification"], sizes=(5, 6, 7, 8, 9))
    found, _ = together(jobs, width=2)
    for i, job in enumerate(jobs):
        assert gap(found[i].params.flat, alone(job), job.start.flat) < 2e-5


@pytest.mark.parametrize("name", [n for n in CASES if n.endswith("SequenceClassification")])
def test_personal_models_are_read_side_by_side(name: str) -> None:
    case = CASES[name]
    model, features = case.model(), texts(case, 30)
    rng = Seed(3).torch()
    own = [
        Params(model.layout, model.initial_params.flat + 0.01 * torch.randn(model.layout.size, generator=rng))
        for _ in range(3)
    ]
    jobs = [Infer(model, own[i % 3], e, Logits()) for i, e in enumerate(shares(features, (9, 4, 12, 5)))]
    found, _ = together(jobs)  # type: ignore[arg-type]
    for i, job in enumerate(jobs):
        want = SerialExecutor(CPU).run(job)
        for column, values in want.items():
            assert torch.allclose(found[i][column], values, atol=1e-4), column


def test_texts_on_the_device_make_the_same_batches() -> None:
    for name in ("Bert TokenClassification", "XLNet SequenceClassification", "Bart ConditionalGeneration"):
        features = texts(CASES[name], 20)
        rows = np.array([3, 17, 0, 8])
        resident = DeviceDataset(features, CPU)
        widths = resident.batch_widths(rows)
        got, want = resident.batch(torch.from_numpy(rows), widths), features.batch(rows)
        assert got.keys() == want.keys()
        for column, values in want.items():
            wide = values.shape[1] if values.dim() > 1 else 0
            kept = (got[column][:, -wide:] if features.pad_left else got[column][:, :wide]) if wide else got[column]
            assert torch.equal(kept, values)


def test_a_teachers_columns_travel_with_their_rows() -> None:
    case = CASES["Bert SequenceClassification"]
    jobs = jobs_of(case)
    taught = [
        replace(j, examples=replace(j.examples, extra_columns={"labels": torch.arange(len(j.examples)) % 3}))
        for j in jobs
    ]
    found, _ = together(taught)
    for i, job in enumerate(taught):
        assert gap(found[i].params.flat, alone(job), job.start.flat) < 2e-5


@pytest.fixture
def unswept() -> Iterator[None]:
    """Python may not look for garbage for long; here it never does by itself."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("unswept")
def test_running_out_of_memory_halves_the_pack_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    import motet.learning.executors.packed_executor as bench_file

    whole, tried = bench_file.fit, []
    packs: list[weakref.ref[PackedModel]] = []

    def tight(jobs: Any, pack: PackedModel, *rest: Any) -> Any:
        tried.append(len(jobs))
        assert not any(early() for early in packs)  # those that were too wide have left the device
        ends = whole(jobs, pack, *rest)
        if len(jobs) > 1:
            packs.append(weakref.ref(pack))
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate much.")
        return ends

    monkeypatch.setattr(bench_file, "fit", tight)
    jobs = jobs_of(CASES["Bert SequenceClassification"])
    found, _ = together(jobs, width=4)
    assert tried == [4, 2, 1, 1, 1, 1]
    for i, job in enumerate(jobs):
        assert gap(found[i].params.flat, alone(job), job.start.flat) < 2e-5


@dataclass(frozen=True)
class Writes:
    """A readout that runs the module itself, as generation does, on a device that holds so many texts."""

    room: int
    must_run_alone: ClassVar[bool] = True
    device_batch_size: ClassVar[int] = 512
    tried: list[int] = field(default_factory=list, hash=False)

    def read(self, forward: Any, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        self.tried.append(len(batch["input_ids"]))
        if self.tried[-1] > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate much.")
        return {"first": batch["input_ids"][:, 1]}


def test_a_model_that_writes_is_given_as_many_texts_as_there_is_room_for() -> None:
    case = CASES["Bert SequenceClassification"]
    model, features, writes = case.model(), texts(case, 9), Writes(room=3)
    found = PackedExecutor(CPU, use_bf16=False).run(
        Infer(model, model.initial_params, Examples(features, np.arange(9)), writes)
    )
    assert writes.tried == [9, 4, 2, 2, 2, 2, 1]
    assert torch.equal(found["first"], Examples(features, np.arange(9)).batch(np.arange(9))["input_ids"][:, 1])
    with pytest.raises(RunError, match=r"does not hold one text.*task\.beams"):
        PackedExecutor(CPU, use_bf16=False).run(
            Infer(model, model.initial_params, Examples(features, np.arange(9)), Writes(room=0))
        )


@pytest.mark.usefixtures("unswept")
def test_a_bench_that_is_closed_leaves_the_device_at_once() -> None:
    _, executor = together(jobs_of(CASES["Bert SequenceClassification"]))
    (pack,) = map(weakref.ref, executor.models.values())
    executor.close()
    assert pack() is None


def test_a_device_that_does_not_hold_one_client_is_an_error_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    import motet.learning.executors.packed_executor as bench_file

    def never(jobs: Any, *rest: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate much.")

    monkeypatch.setattr(bench_file, "fit", never)
    with pytest.raises(RunError, match=r"does not hold one client.*lower solver\.batch"):
        together(jobs_of(CASES["Bert SequenceClassification"]), width=4)


class Keys:
    """Stands where steps are recorded: what each would be recorded under."""

    def __init__(self) -> None:
        self.found: list[Any] = []

    def run(self, key: Any, kind: Any, step: Any) -> None:
        self.found.append(key)
        step()

    def drop(self, stale: Any) -> None:
        self.found = [key for key in self.found if not stale(key)]


def keys_of(executor: PackedExecutor, jobs: list[Fit]) -> set[Any]:
    executor.graphs = keys = Keys()  # type: ignore[assignment]
    for i, job in enumerate(jobs):
        executor.submit(i, job)
    while executor.submitted:
        executor.wait_completed()
    return set(keys.found)


def test_a_client_that_has_finished_reads_a_text_that_fits() -> None:
    """In recorded steps it stays for a while, beside clients whose texts are shorter than the answer to its own is late."""
    case = CASES["Bert QuestionAnswering"]
    rng, long = np.random.default_rng(0), 16
    lengths = [6] * 12 + [19] * long
    columns: dict[str, Any] = {"input_ids": Ragged.from_lists([rng.integers(3, V, n).tolist() for n in lengths], PAD)}
    columns |= {"starts": np.array([1] * 12 + [15] * long), "ends": np.array([3] * 12 + [17] * long)}
    model, features = case.model(), Features("late answers", columns)
    parts = [Examples(features, np.arange(12)), *(Examples(features, np.array([12 + i])) for i in range(long))]
    jobs = [
        Fit(model, model.initial_params, part, case.objective, Solver(optimizer="sgd", lr=0.1, batch=1), i)
        for i, part in enumerate(parts)
    ]
    executor = PackedExecutor(CPU, width=32, use_bf16=False)
    executor.graphs = Keys()  # type: ignore[assignment]
    for i, job in enumerate(jobs):
        executor.submit(i, job)
    found: dict[Any, Any] = dict(executor.wait_completed())
    for i in (0, 1, long):
        want = SerialExecutor(CPU).run(jobs[i]).params.flat
        assert gap(found[i].params.flat, want, model.initial_params.flat) < 1e-4


def test_what_has_moved_is_let_go() -> None:
    """Wider packs need longer vectors: neither recordings nor optimisers of the old ones are kept."""
    case = CASES["Bert SequenceClassification"]
    model, features = case.model(), texts(case, 24)
    executor = PackedExecutor(CPU, width=32, use_bf16=False)
    executor.graphs = keys = Keys()  # type: ignore[assignment]
    for sizes in ((8, 8), (8, 8, 8)):
        for i, part in enumerate(shares(features, sizes)):
            executor.submit(i, Fit(model, model.initial_params, part, case.objective, Solver(batch=4), i))
        while executor.submitted:
            executor.wait_completed()
    (pack,) = (pack for (_, _, packed), pack in executor.models.items() if packed)
    assert {key[1] for key in keys.found} == {pack.buffers.generation}
    assert [key.clients for key in pack.buffers.optimizers] == [3]


def test_steps_on_other_texts_or_in_smaller_batches_are_other_recordings() -> None:
    """One model and one shape of a batch: two corpora of one task, or clients who cannot fill a batch."""
    case = CASES["Bert SequenceClassification"]
    model, first, second = case.model(), texts(case, 16), replace(texts(case, 16), key="others")
    many, few = (8, 8), (3, 3)
    executor = PackedExecutor(CPU, width=8, use_bf16=False)

    def recorded(features: Any, sizes: tuple[int, ...]) -> set[Any]:
        parts = enumerate(shares(features, sizes))
        return keys_of(
            executor, [Fit(model, model.initial_params, part, case.objective, SGD, 5 + i) for i, part in parts]
        )

    for _ in range(2):  # buffers are made in the first turn, and stay
        by = [recorded(first, many), recorded(second, many), recorded(first, few)]
    assert by[0] and by[1] and by[2]
    assert not by[0] & by[1]
    assert not by[0] & by[2]
    assert recorded(first, many) == by[0]


def test_the_same_steps_are_recorded_once_and_another_optimiser_s_apart() -> None:
    """With a proximal term too, whose anchors need a place of their own: what moves them must not outlive the first fit."""
    case = CASES["Bert SequenceClassification"]
    model, features = case.model(), texts(case, 16)
    executor = PackedExecutor(CPU, width=8, use_bf16=False)

    def recorded(solver: Solver) -> set[Any]:
        parts = enumerate(shares(features, (8, 8)))
        return keys_of(
            executor, [Fit(model, model.initial_params, part, case.objective, solver, 5 + i) for i, part in parts]
        )

    plain = recorded(replace(SGD, proximal_mu=0.0))
    pulled = [recorded(SGD) for _ in range(3)]
    assert pulled[0] == pulled[1] == pulled[2]
    assert not pulled[2] & plain
    assert not recorded(replace(SGD, momentum=0.9)) & pulled[2]


def test_attention_under_a_mask_is_not_left_to_cudnn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its gradient is NaN at some widths; whoever uses it elsewhere in the process may go on."""
    seen = []
    case = CASES["Bert SequenceClassification"]
    model, features = case.model(), texts(case, 8)
    monkeypatch.setattr(
        type(model.module), "forward", lambda self, **_: seen.append(torch.backends.cuda.cudnn_sdp_enabled()) or {}
    )
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(True)
    try:
        pack = PackedModel(model, model.module, torch.device("cpu"), "packed_layers")
        pack(features.batch(np.arange(8)))
        assert torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)
    assert seen == [False]


@pytest.mark.parametrize("way", ["plain", "packed_layers"])
def test_where_words_are_stays_or_is_another_recording(way: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two trainings the pack may hold the whole table, as for an evaluation, or more clients' words."""
    monkeypatch.setattr("motet.learning.packed.sparse_embedding.MIN_VOCABULARY", 10)
    monkeypatch.setattr("motet.learning.packed.packed_model._EMBEDDING_ROWS_STEP", 8)
    case = CASES["Bert SequenceClassification"]
    model, some = case.model(), np.arange(3, 30)
    pack = PackedModel(model, model.module, CPU, way)
    assert pack.embedding is not None
    pack.load_clients([model.initial_params], [some])
    places, generation = pack.embedding.row_index, pack.buffers.generation
    assert places is not None
    pack.load_clients([model.initial_params])
    pack.load_clients([model.initial_params], [some + 1])
    assert pack.embedding.row_index is not None
    assert (pack.embedding.row_index.data_ptr(), pack.buffers.generation) == (places.data_ptr(), generation)
    if way == "packed_layers":
        pack.load_clients([model.initial_params] * 3, [some] * 3)
        assert pack.embedding.row_index.data_ptr() != places.data_ptr()
    else:
        pack.load_clients(
            [model.initial_params], [np.arange(3)]
        )  # now padding has a row of its own, which gets no gradient
    assert pack.buffers.generation > generation
