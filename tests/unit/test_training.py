"""The training loop against a plain one, and the executors against each other."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
import torch
import transformers as hf
from tests.job_runs import CPU, model_loss, relative_difference, run_jobs, train_plainly
from tests.runs import run_rounds
from torch import Tensor, nn

import motet
from motet.algorithms import per_fedavg
from motet.core.errors import ConfigError, RunError
from motet.core.rng import seeded_torch
from motet.core.work import JobFailure
from motet.experiment.build.executor_builder import uses_bfloat16
from motet.experiment.build.federation import Federation
from motet.learning.data import features
from motet.learning.data.features import Examples, Features, Ragged
from motet.learning.executors.process_executor import ProcessExecutor
from motet.learning.executors.serial_executor import PrefixCache, SerialExecutor
from motet.learning.jobs import Fit, Infer
from motet.learning.lr_schedule import LRHorizon
from motet.learning.modules.first_token import reads_first_token_only
from motet.learning.modules.frozen_prefix import cut_frozen_prefix
from motet.learning.modules.model import Model
from motet.learning.objectives.supervised import Batch, CrossEntropy, Forward
from motet.learning.packed.packed_model import PackedModel
from motet.learning.solver import Solver
from motet.models.parameter_roles import infer_parameter_roles


def make_job(federation: Federation, solver: Solver, client: int = 0) -> Fit:
    participant = federation.participant(federation.clients[client])
    model, task = participant.model, participant.task
    return Fit(model, model.initial_params, participant.split("train"), task.objective, solver, 5)


SGD = Solver(optimizer="sgd", lr=0.2, batch=8, epochs=2)
SOLVERS = {
    "sgd": SGD,
    "sgd without clipping": replace(SGD, clip=0.0, lr=0.05),
    "sgd with a constant rate and short batches": replace(SGD, schedule="constant", batch=7),
    "proximal": replace(SGD, proximal_mu=0.5),
    "adamw": Solver(lr=1e-3, batch=8),
    "adamw with decay": Solver(lr=1e-3, batch=8, weight_decay=0.1),
}


def tolerance(solver: str) -> float:
    return 2e-3 if "adamw" in solver else 1e-5  # Adam turns rounding errors into full steps


@pytest.mark.parametrize("name", SOLVERS)
def test_training_equals_a_plain_loop(name: str, federation: Federation) -> None:
    job = make_job(federation, SOLVERS[name])
    params, expected = SerialExecutor(CPU).run(job).params.flat, train_plainly(job, model_loss)
    assert relative_difference(params, expected, job.start.flat) < tolerance(name)


@contextmanager
def count_rows_per_pass() -> Iterator[list[int]]:
    """Yield the number of texts in each forward pass of a training inside the block."""
    original, rows = CrossEntropy.losses, list[int]()

    def counted(objective: CrossEntropy, forward: Forward, batch: Batch) -> tuple[Tensor, Tensor]:
        rows.append(len(batch["labels"]))
        return original(objective, forward, batch)

    with patch.object(CrossEntropy, "losses", counted):
        yield rows


@pytest.mark.parametrize("name", ["sgd with a constant rate and short batches", "adamw with decay"])
def test_a_batch_can_be_computed_in_parts(name: str, federation: Federation) -> None:
    job = make_job(federation, SOLVERS[name])
    whole = SerialExecutor(CPU).run(job)
    with count_rows_per_pass() as rows:
        parts = SerialExecutor(CPU).run(replace(job, solver=replace(job.solver, micro_batch=3)))
    assert max(rows) == 3
    assert torch.allclose(parts.losses, whole.losses, rtol=1e-4)
    assert relative_difference(parts.params.flat, whole.params.flat, job.start.flat) < tolerance(name)


def test_per_fedavg_adapts_to_all_texts_of_a_client_in_parts(federation: Federation) -> None:
    """A client may have more texts than fit in memory at a time."""
    with count_rows_per_pass() as rows:
        run_rounds(federation, per_fedavg(replace(SGD, batch=4)), 1)
    assert max(rows) == 4


def test_matrix_products_run_in_bfloat16_on_request(federation: Federation) -> None:
    job = make_job(federation, SGD)
    exact, rounded = (SerialExecutor(CPU, use_bf16=use).run(job) for use in (False, True))
    assert 1e-5 < relative_difference(rounded.params.flat, exact.params.flat, job.start.flat) < 0.3
    assert uses_bfloat16("bfloat16", CPU)
    assert not uses_bfloat16("auto", CPU)


def test_frozen_layers_do_not_change_and_are_not_part_of_the_parameters(frozen_federation: Federation) -> None:
    job = make_job(frozen_federation, SGD)
    assert all(role.startswith(("layers.1", "pooler", "head")) for role in job.start.layout.roles)
    before = {n: p.clone() for n, p in job.model.module.named_parameters()}
    SerialExecutor(CPU).run(job)
    assert all(torch.equal(p, before[n]) for n, p in job.model.module.named_parameters())


def test_a_training_can_be_split_into_two_jobs(federation: Federation) -> None:
    whole = make_job(federation, replace(Solver(lr=1e-3, batch=8, shuffle=False), epochs=2))
    half = replace(whole, solver=replace(whole.solver, epochs=1), keep_optimizer_state=True)
    steps = whole.solver.num_steps(len(whole.examples))
    executor = SerialExecutor(CPU)
    first = executor.run(replace(half, lr_horizon=LRHorizon(0, steps)))
    horizon = LRHorizon(first.steps, steps)
    second = executor.run(replace(half, start=first.params, lr_horizon=horizon, optimizer_state=first.optimizer_state))
    assert torch.allclose(second.params.flat, executor.run(whole).params.flat, atol=1e-7)


def test_dropout_does_not_touch_the_global_generator(federation: Federation) -> None:
    job = make_job(federation, SGD)
    module = copy.deepcopy(job.model.module)
    for submodule in module.modules():
        if isinstance(submodule, nn.Dropout):
            submodule.p = 0.3
    job = replace(job, model=Model("with dropout", module, job.model.roles))
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    first = SerialExecutor(CPU).run(job).params.flat
    assert torch.equal(torch.rand(4), expected)
    assert torch.equal(SerialExecutor(CPU).run(job).params.flat, first)
    assert not torch.equal(SerialExecutor(CPU).run(replace(job, seed=6)).params.flat, first)


def test_a_client_without_examples_keeps_its_parameters(federation: Federation) -> None:
    job = make_job(federation, SGD)
    empty = replace(job, examples=Examples(job.examples.features, np.zeros(0, np.int64)))
    result = SerialExecutor(CPU).run(empty)
    assert torch.equal(result.params.flat, job.start.flat)
    assert (result.steps, result.examples_processed) == (0, 0)


def test_a_diverged_training_reports_the_step_and_the_learning_rate(federation: Federation) -> None:
    job = make_job(federation, replace(SGD, lr=1e30, clip=0.0))
    with pytest.raises(RunError, match=r"training gave .* at step \d+ of \d+ \(sgd, lr 1e\+30, no clipping\)"):
        SerialExecutor(CPU).run(job)
    with pytest.raises(RunError, match=r"clip 1\), where finite numbers were expected; lower solver.lr\.$"):
        SerialExecutor(CPU).run(replace(job, solver=replace(SGD, lr=1e38, clip=1.0)))


def test_predictions_of_a_row_do_not_depend_on_its_batch(federation: Federation) -> None:
    server = federation.server_participant
    model, test, readout = server.model, server.split("global"), server.task.readout
    executor = SerialExecutor(CPU)
    together = executor.run(Infer(model, model.initial_params, test, readout, batch_size=7))
    for row in (0, 5, len(test) - 1):
        alone = executor.run(Infer(model, model.initial_params, test.select(np.array([row])), readout))
        assert torch.allclose(alone["logits"][0], together["logits"][row], atol=1e-5)
    assert len(together["loss"]) == len(test)


# ---- sparse word embeddings ------------------------------------------------------------------------------------------


def large_vocabulary_job(family: str) -> Fit:
    """Make a job with a vocabulary that is much larger than what one client uses."""
    config = hf.AutoConfig.for_model(
        family, vocab_size=3000, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, pad_token_id=1, num_labels=3,
    )  # fmt: skip
    with seeded_torch(0, CPU):
        module = hf.AutoModelForSequenceClassification.from_config(config)
    rng = np.random.default_rng(0)
    ids = Ragged.from_lists([rng.integers(2, 3000, n).tolist() for n in rng.integers(4, 12, 20)], pad=1)
    features = Features("large vocabulary", {"input_ids": ids, "labels": rng.integers(0, 3, 20)})
    model = Model(family, module, infer_parameter_roles(module).roles)
    return Fit(model, model.initial_params, Examples(features, np.arange(20)), CrossEntropy(), SGD, 5)


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_training_only_the_used_embedding_rows_changes_nothing(family: str, name: str) -> None:
    job = replace(large_vocabulary_job(family), solver=replace(SOLVERS[name], batch=8))
    executor = SerialExecutor(CPU)
    params, expected = executor.run(job).params, train_plainly(job, model_loss)
    (model,) = executor.models.values()
    assert model.size < job.start.layout.size / 3 or job.solver.weight_decay
    assert relative_difference(params.flat, expected, job.start.flat) < tolerance(name)
    table = next(n for n in job.start.layout.names if "word_embeddings" in n)
    unused = np.setdiff1d(np.arange(3000), job.examples.unique_token_ids())
    if not job.solver.weight_decay:
        assert torch.equal(params[table][unused], job.start[table][unused])


def test_token_ids_of_clients_are_kept_for_their_next_training(monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = Features("texts", {"input_ids": Ragged.from_lists([[5, 9, 5], [7], [9, 3]], pad=0)})
    clients = [Examples(corpus, np.array(rows)) for rows in ([0, 1], [2], [0])]
    expected = [[0, 5, 7, 9], [0, 3, 9], [0, 5, 9]]
    monkeypatch.setattr(features, "_MAX_KNOWN_CLIENTS", 2)
    for _ in range(2):
        assert [client.unique_token_ids().tolist() for client in clients] == expected
        assert len(corpus.known_token_ids) <= 2
    same_rows = Examples(corpus, np.array([0]))
    assert same_rows.unique_token_ids() is clients[2].unique_token_ids()


def test_embeddings_tied_to_the_output_layer_are_trained_as_a_whole() -> None:
    job = large_vocabulary_job("bert")
    with seeded_torch(0, CPU):
        module = hf.AutoModelForMaskedLM.from_config(job.model.module.config)
    model = Model("mlm", module, infer_parameter_roles(module).roles)
    assert PackedModel(model, module, CPU).embedding is None


def test_a_token_without_a_loaded_row_is_an_error() -> None:
    job = large_vocabulary_job("bert")
    model = PackedModel(job.model, job.model.module, CPU)
    model.load_clients([job.start], [np.array([1, 5, 7])])
    with pytest.raises(IndexError):
        model({"input_ids": torch.tensor([[5, 6]]), "attention_mask": torch.ones(1, 2)})


# ---- the frozen prefix -----------------------------------------------------------------------------------------------


@pytest.fixture
def prefix_cache(frozen_federation: Federation) -> Iterator[PrefixCache]:
    cache = PrefixCache()
    cache.prepare(frozen_federation.model, frozen_federation.features)
    assert cache.states
    yield cache
    cache.close()


def test_training_on_cached_states_equals_training_on_texts(
    frozen_federation: Federation, prefix_cache: PrefixCache
) -> None:
    job = make_job(frozen_federation, SGD)
    plain, cached = SerialExecutor(CPU).run(job), SerialExecutor(CPU, prefix_cache).run(job)
    assert (plain.params - cached.params).norm() / (plain.params - job.start).norm() < 1e-5


def test_a_second_copy_of_a_model_uses_the_cache_of_the_first(
    frozen_federation: Federation, prefix_cache: PrefixCache
) -> None:
    job = make_job(frozen_federation, SGD)
    second_copy = replace(job.model, module=copy.deepcopy(job.model.module))
    first, second = (
        SerialExecutor(CPU, prefix_cache).run(each).params for each in (job, replace(job, model=second_copy))
    )
    assert torch.equal(first.flat, second.flat)
    assert not torch.equal(first.flat, job.start.flat)


def test_inference_on_cached_states_equals_inference_on_texts(
    frozen_federation: Federation, prefix_cache: PrefixCache
) -> None:
    server = frozen_federation.server_participant
    job = Infer(server.model, server.model.initial_params, server.split("global"), server.task.readout)
    plain, cached = SerialExecutor(CPU).run(job), SerialExecutor(CPU, prefix_cache).run(job)
    assert torch.allclose(plain["logits"], cached["logits"], atol=1e-5)


# ---- a last layer for the first token ----------------------------------------------------------------------------------


@pytest.mark.parametrize("cuts_prefix", [False, True], ids=["whole", "above the prefix"])
def test_a_last_layer_for_the_first_token_trains_and_predicts_as_the_whole_one(
    frozen_federation: Federation, prefix_cache: PrefixCache, cuts_prefix: bool
) -> None:
    job, server = make_job(frozen_federation, SGD), frozen_federation.server_participant
    short = replace(job.model, first_token_only=True)
    prediction = Infer(short, short.initial_params, server.split("global"), server.task.readout)
    executor = SerialExecutor(CPU, prefix_cache if cuts_prefix else None)
    expected, result = executor.run(job), executor.run(replace(job, model=short))
    assert [type(model.module.bert.encoder.layer[-1]).__name__ for model in executor.models.values()] == [
        "BertLayer",
        "FirstTokenLayer",
    ]
    assert (expected.params - result.params).norm() / (expected.params - job.start).norm() < 1e-5
    logits = [executor.run(replace(prediction, model=model))["logits"] for model in (job.model, short)]
    assert torch.allclose(*logits, atol=1e-5)


def test_on_other_devices_than_a_cpu_the_last_layer_stays_whole(frozen_federation: Federation) -> None:
    job = make_job(frozen_federation, SGD)
    executor = SerialExecutor(torch.device("meta"))  # the only other device that every machine has
    model, _ = executor._prepare_model(replace(job, model=replace(job.model, first_token_only=True)))
    assert type(model.module.bert.encoder.layer[-1]).__name__ == "BertLayer"


@pytest.mark.parametrize(
    ("family", "task", "is_read"),
    [
        ("Bert", "SequenceClassification", True),
        ("Roberta", "SequenceClassification", True),
        ("Electra", "SequenceClassification", True),
        ("Bert", "TokenClassification", False),
        ("DistilBert", "SequenceClassification", False),  # its layers have other names
    ],
)
def test_a_model_is_checked_for_reading_the_first_token_only(family: str, task: str, is_read: bool) -> None:
    sizes = {
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 8,
        "dim": 8,
        "n_heads": 2,
    }
    config = getattr(hf, f"{family}Config")(**sizes, vocab_size=20, n_layers=2, hidden_dim=8)
    torch.manual_seed(0)
    module = getattr(hf, f"{family}For{task}")(config)
    probe = {"input_ids": torch.arange(10).view(2, 5) + 3, "attention_mask": torch.tensor([[1] * 5, [1, 1, 1, 0, 0]])}
    assert reads_first_token_only(module, infer_parameter_roles(module).layers_path, probe) == is_read


def test_a_task_that_needs_all_tokens_rejects_a_last_layer_for_the_first_one() -> None:
    with pytest.raises(ConfigError, match="the predictions of tiny need other tokens"):
        motet.federation(motet.load("toy-tagging", limit=20), model={"name": "tiny", "first_token_only": True})


def test_a_module_without_the_models_parameters_is_rejected(federation: Federation) -> None:
    other = copy.deepcopy(federation.model.module)
    with pytest.raises(RuntimeError, match="so it would not be trained"):
        PackedModel(federation.model, other, CPU)


def test_a_model_without_frozen_layers_has_no_prefix(federation: Federation) -> None:
    assert federation.model.num_frozen_layers == 0
    assert cut_frozen_prefix(federation.model, federation.features.batch(np.arange(2))) is None


# ---- worker processes ------------------------------------------------------------------------------------------------


def process_executor(count: int, federation: Federation) -> ProcessExecutor:
    model, features = federation.model, federation.features
    return ProcessExecutor(count, {model.key: model}, {features.key: features})


@pytest.fixture
def worker(federation: Federation) -> Iterator[ProcessExecutor]:
    executor = process_executor(1, federation)
    yield executor
    executor.close()


@pytest.mark.parametrize("count", [1, 3])
def test_any_number_of_workers_gives_the_same_bits_as_one_process(count: int, federation: Federation) -> None:
    jobs = [make_job(federation, SGD, i) for i in range(len(federation.clients))]
    workers, serial = process_executor(count, federation), SerialExecutor(CPU)
    try:
        results = run_jobs(workers, jobs)
        for i, job in enumerate(jobs):
            expected = serial.run(job)
            assert torch.equal(results[i].params.flat, expected.params.flat)
            assert torch.equal(results[i].losses, expected.losses)
        server = federation.server_participant
        inference = Infer(server.model, server.model.initial_params, server.split("union"), server.task.readout)
        assert torch.equal(workers.run(inference)["logits"], serial.run(inference)["logits"])
    finally:
        workers.close()


def test_results_free_their_shared_memory(federation: Federation) -> None:
    workers = process_executor(2, federation)
    job = make_job(federation, SGD)
    try:
        for key in range(8):
            workers.submit(key, job)
            results = dict(workers.wait_completed())
            assert key in results
            del results
        assert not workers.pool.allocated
    finally:
        workers.close()


def test_an_error_in_a_worker_is_reported_with_its_message(federation: Federation, worker: ProcessExecutor) -> None:
    worker.submit("job", make_job(federation, replace(SGD, lr=1e30, clip=0.0)))
    [(_, result)] = worker.wait_completed()
    assert isinstance(result, JobFailure)
    assert "lower solver.lr" in str(result.error)


def test_the_death_of_a_worker_is_reported(federation: Federation, worker: ProcessExecutor) -> None:
    worker.submit("job", make_job(federation, replace(SGD, epochs=400)))
    worker.processes[0].kill()
    with pytest.raises(RunError, match=r"killed by signal 9 \(SIGKILL\)"):
        worker.wait_completed()


def test_inference_without_examples_gives_no_predictions(federation: Federation, worker: ProcessExecutor) -> None:
    server = federation.server_participant
    no_examples = Examples(federation.features, np.zeros(0, np.int64))
    worker.submit("job", Infer(server.model, server.model.initial_params, no_examples, server.task.readout))
    assert dict(worker.wait_completed()) == {"job": {}}
