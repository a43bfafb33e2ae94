"""The loop against a training as anyone would write it, and the executors against each other."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from torch import nn

from motet.core.errors import RunError
from motet.core.params import Params
from motet.core.rng import Seed, seeded_torch
from motet.core.work import JobFailure
from motet.experiment.build.federation import Federation
from motet.learning.data.features import Examples, Features, Ragged
from motet.learning.executors.process_executor import ProcessExecutor
from motet.learning.executors.serial_executor import PrefixCache, SerialExecutor
from motet.learning.jobs import Fit, Infer, LRHorizon
from motet.learning.modules.frozen_prefix import cut_frozen_prefix
from motet.learning.modules.model import Model
from motet.learning.objectives.supervised import CrossEntropy
from motet.learning.packed.packed_model import PackedModel
from motet.learning.solver import Solver
from motet.models.parameter_roles import infer_parameter_roles

CPU = torch.device("cpu")


def job_of(federation: Federation, solver: Solver, client: int = 0, **more: Any) -> Fit:
    site = federation.participant(federation.clients[client])
    return Fit(site.model, site.model.initial_params, site.split("train"), site.task.objective, solver, 5, **more)


def reference(job: Fit) -> torch.Tensor:
    """One module, torch's optimisers, torch's clipping, decay by groups, the penalty in the loss."""
    module = copy.deepcopy(job.model.module).train()
    own = {n: p for n, p in module.named_parameters() if p.requires_grad}
    for name, value in job.start.tensors().items():
        own[name].data.copy_(value)
    held = {n: p.detach().clone() for n, p in own.items()}
    flat, square = [p for p in own.values() if p.dim() < 2], [p for p in own.values() if p.dim() > 1]
    s = job.solver
    groups = [{"params": square, "weight_decay": s.weight_decay}, {"params": flat, "weight_decay": 0.0}]
    make: Any = torch.optim.AdamW if s.optimizer == "adamw" else torch.optim.SGD
    optimiser = make(groups, lr=s.learning_rate)
    order = s.draw_batches(len(job.examples), Seed(job.seed).derive("order").numpy())
    for step, places in enumerate(order):
        batch = job.examples.batch(places)
        loss = module(**batch).loss
        if s.proximal_mu:
            loss = loss + s.proximal_mu / 2 * sum((p - held[n]).pow(2).sum() for n, p in own.items())
        optimiser.zero_grad()
        loss.backward()
        if s.clip:
            nn.utils.clip_grad_norm_(own.values(), s.clip)
        for group in optimiser.param_groups:
            group["lr"] = s.learning_rate_at(step, len(order))
        optimiser.step()
    return Params.from_tensors(own).flat


SGD = Solver(optimizer="sgd", lr=0.2, batch=8, epochs=2)
SOLVERS = {
    "sgd": SGD,
    "sgd, no clipping": replace(SGD, clip=0.0, lr=0.05),
    "sgd, constant rate, short batches": replace(SGD, schedule="constant", batch=7),
    "proximal": replace(SGD, proximal_mu=0.5),
    "adamw": Solver(lr=1e-3, batch=8),
    "adamw with decay": Solver(lr=1e-3, batch=8, weight_decay=0.1),
}


@pytest.mark.parametrize("name", SOLVERS)
def test_the_loop_trains_as_a_plain_loop_does(name: str, federation: Federation) -> None:
    job = job_of(federation, SOLVERS[name])
    got, start = SerialExecutor(CPU).run(job).params.flat, job.start.flat
    want = reference(job)
    assert (got - want).norm() / (want - start).norm() < (2e-3 if "adamw" in name else 1e-5)


def test_frozen_layers_do_not_move_and_are_not_in_the_parameters(frozen_federation: Federation) -> None:
    job = job_of(frozen_federation, SGD)
    assert all(p.startswith(("layers.1", "pooler", "head")) for p in job.start.layout.roles)
    before = {n: p.clone() for n, p in job.model.module.named_parameters()}
    SerialExecutor(CPU).run(job)
    assert all(torch.equal(p, before[n]) for n, p in job.model.module.named_parameters())


def test_a_training_in_two_sittings_is_the_one_training(federation: Federation) -> None:
    whole = job_of(federation, replace(Solver(lr=1e-3, batch=8, shuffle=False), epochs=2))
    half = replace(whole, solver=replace(whole.solver, epochs=1), keep_optimizer_state=True)
    steps = whole.solver.num_steps(len(whole.examples))
    executor = SerialExecutor(CPU)
    first = executor.run(replace(half, lr_horizon=LRHorizon(0, steps)))
    second = executor.run(
        replace(
            half, start=first.params, lr_horizon=LRHorizon(first.steps, steps), optimizer_state=first.optimizer_state
        )
    )
    assert torch.allclose(second.params.flat, executor.run(whole).params.flat, atol=1e-7)


def test_training_with_dropout_leaves_the_global_generator_alone(federation: Federation) -> None:
    job = job_of(federation, SGD)
    module = copy.deepcopy(job.model.module)
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.3
    wet = replace(job, model=Model("wet", module, job.model.roles))
    torch.manual_seed(3)
    want = torch.rand(4)
    torch.manual_seed(3)
    first = SerialExecutor(CPU).run(wet).params.flat
    assert torch.equal(torch.rand(4), want)
    assert torch.equal(SerialExecutor(CPU).run(wet).params.flat, first)
    assert not torch.equal(SerialExecutor(CPU).run(replace(wet, seed=6)).params.flat, first)


def test_a_client_without_examples_comes_back_unchanged(federation: Federation) -> None:
    job = job_of(federation, SGD)
    empty = replace(job, examples=Examples(job.examples.features, np.zeros(0, np.int64)))
    fitted = SerialExecutor(CPU).run(empty)
    assert torch.equal(fitted.params.flat, job.start.flat)
    assert (fitted.steps, fitted.examples_processed) == (0, 0)


def test_a_loss_that_is_not_finite_is_said_with_the_step_and_the_rate(federation: Federation) -> None:
    job = job_of(federation, replace(SGD, lr=1e30, clip=0.0))
    with pytest.raises(RunError, match=r"training gave .* at step \d+ of \d+ \(sgd, lr 1e\+30, no clipping\)"):
        SerialExecutor(CPU).run(job)


def test_inference_gives_each_row_what_it_gets_alone(federation: Federation) -> None:
    site = federation.server_participant
    test = site.split("global")
    executor = SerialExecutor(CPU)
    whole = executor.run(Infer(site.model, site.model.initial_params, test, site.task.readout, batch_size=7))
    for row in (0, 5, len(test) - 1):
        one = executor.run(
            Infer(site.model, site.model.initial_params, test.select(np.array([row])), site.task.readout)
        )
        assert torch.allclose(one["logits"][0], whole["logits"][row], atol=1e-5)
    assert len(whole["loss"]) == len(test)


# ---- only the words that occur --------------------------------------------------------------------------------------


def with_many_words(family: str, **more: Any) -> Fit:
    """A model whose vocabulary is much larger than what one client uses."""
    sizes = {
        "vocab_size": 3000,
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 24,
    }
    calm = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "pad_token_id": 1, "num_labels": 3}
    config = hf.AutoConfig.for_model(family, **sizes, **calm, **more)
    with seeded_torch(0, CPU):
        module = hf.AutoModelForSequenceClassification.from_config(config)
    rng = np.random.default_rng(0)
    ids = Ragged.from_lists([rng.integers(2, 3000, n).tolist() for n in rng.integers(4, 12, 20)], pad=1)
    features = Features("many", {"input_ids": ids, "labels": rng.integers(0, 3, 20)})
    model = Model(family, module, infer_parameter_roles(module).roles)
    return Fit(model, model.initial_params, Examples(features, np.arange(20)), CrossEntropy(), SGD, 5)


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_training_only_the_rows_of_words_that_occur_changes_nothing(family: str, name: str) -> None:
    job = replace(with_many_words(family), solver=replace(SOLVERS[name], batch=8))
    executor = SerialExecutor(CPU)
    got, want = executor.run(job).params, reference(job)
    pack = next(iter(executor.models.values()))
    assert pack.size < job.start.layout.size / 3 or job.solver.weight_decay
    assert (got.flat - want).norm() / (want - job.start.flat).norm() < (2e-3 if "adamw" in name else 1e-5)
    table = next(n for n in job.start.layout.names if "word_embeddings" in n)
    still = np.setdiff1d(np.arange(3000), job.examples.unique_token_ids())
    if not job.solver.weight_decay:
        assert torch.equal(got[table][still], job.start[table][still])


def test_a_table_that_the_output_is_tied_to_is_trained_whole() -> None:
    job = with_many_words("bert")
    with seeded_torch(0, CPU):
        module = hf.AutoModelForMaskedLM.from_config(job.model.module.config)
    assert PackedModel(Model("mlm", module, infer_parameter_roles(module).roles), module, CPU).embedding is None


def test_a_word_that_was_not_announced_is_an_error_and_no_wrong_row() -> None:
    job = with_many_words("bert")
    pack = PackedModel(job.model, job.model.module, CPU)
    pack.load_clients([job.start], [np.array([1, 5, 7])])
    with pytest.raises(IndexError):
        pack({"input_ids": torch.tensor([[5, 6]]), "attention_mask": torch.ones(1, 2)})


# ---- the frozen prefix ----------------------------------------------------------------------------------------------


def prepared(federation: Federation) -> PrefixCache:
    scratch = PrefixCache()
    scratch.prepare(federation.model, federation.features)
    return scratch


def test_training_on_cached_states_equals_training_on_texts(frozen_federation: Federation) -> None:
    job = job_of(frozen_federation, SGD)
    scratch = prepared(frozen_federation)
    assert scratch.states
    plain, cached = SerialExecutor(CPU).run(job), SerialExecutor(CPU, scratch).run(job)
    assert (plain.params - cached.params).norm() / (plain.params - job.start).norm() < 1e-5
    scratch.close()


def test_a_model_loaded_twice_trains_on_the_states_of_the_first(frozen_federation: Federation) -> None:
    job = job_of(frozen_federation, SGD)
    twin = Model(
        job.model.key,
        copy.deepcopy(job.model.module),
        job.model.roles,
        None,
        job.model.embeddings_path,
        job.model.layers_path,
    )
    scratch = prepared(frozen_federation)
    first, second = (SerialExecutor(CPU, scratch).run(j).params for j in (job, replace(job, model=twin)))
    assert torch.equal(first.flat, second.flat)
    assert not torch.equal(first.flat, job.start.flat)
    scratch.close()


def test_a_module_that_does_not_hold_the_model_is_refused(federation: Federation) -> None:
    stranger = copy.deepcopy(federation.model.module)
    with pytest.raises(RuntimeError, match="so it would not be trained"):
        PackedModel(federation.model, stranger, CPU)


def test_inference_on_cached_states_equals_inference_on_texts(frozen_federation: Federation) -> None:
    site = frozen_federation.server_participant
    scratch = prepared(frozen_federation)
    job = Infer(site.model, site.model.initial_params, site.split("global"), site.task.readout)
    plain, cached = SerialExecutor(CPU).run(job), SerialExecutor(CPU, scratch).run(job)
    assert torch.allclose(plain["logits"], cached["logits"], atol=1e-5)
    scratch.close()


def test_a_model_with_nothing_frozen_has_no_prefix(federation: Federation) -> None:
    assert federation.model.num_frozen_layers == 0
    assert cut_frozen_prefix(federation.model, federation.features.batch(np.arange(2))) is None


# ---- worker processes -----------------------------------------------------------------------------------------------


def pool(count: int, *federations: Federation) -> ProcessExecutor:
    models = {f.model.key: f.model for f in federations}
    return ProcessExecutor(count, models, {f.features.key: f.features for f in federations}, PrefixCache())


@pytest.mark.parametrize("count", [1, 3])
def test_any_number_of_workers_gives_the_bits_of_one_process(count: int, federation: Federation) -> None:
    jobs = {c: job_of(federation, SGD, i) for i, c in enumerate(federation.clients)}
    workers, alone = pool(count, federation), SerialExecutor(CPU)
    try:
        for client, job in jobs.items():
            workers.submit(client, job)
        got: dict[Any, Any] = {}
        while len(got) < len(jobs):
            got.update(workers.wait_completed())
        for client, job in jobs.items():
            want = alone.run(job)
            assert torch.equal(got[client].params.flat, want.params.flat)
            assert torch.equal(got[client].losses, want.losses)
        site = federation.server_participant
        test = Infer(site.model, site.model.initial_params, site.split("union"), site.task.readout)
        assert torch.equal(workers.run(test)["logits"], alone.run(test)["logits"])
    finally:
        workers.close()


def test_answers_of_workers_give_their_memory_back(federation: Federation) -> None:
    workers = pool(2, federation)
    job = job_of(federation, SGD)
    try:
        for turn in range(8):
            workers.submit(turn, job)
            answers = dict(workers.wait_completed())
            assert turn in answers
            del answers
        assert not workers.pool.allocated
    finally:
        workers.close()


def test_a_mistake_in_a_worker_comes_back_as_its_sentence(federation: Federation) -> None:
    workers = pool(1, federation)
    try:
        workers.submit("x", job_of(federation, replace(SGD, lr=1e30, clip=0.0)))
        [(_, answer)] = workers.wait_completed()
        assert isinstance(answer, JobFailure)
        assert "lower solver.lr" in str(answer.error)
    finally:
        workers.close()


def test_a_worker_that_dies_is_noticed(federation: Federation) -> None:
    workers = pool(1, federation)
    try:
        workers.submit("x", job_of(federation, replace(SGD, epochs=400)))
        workers.processes[0].kill()
        with pytest.raises(RunError, match=r"killed by signal 9 \(SIGKILL\)"):
            workers.wait_completed()
    finally:
        workers.close()


def test_a_client_without_a_test_set_is_inferred_as_nothing(federation: Federation) -> None:
    workers = pool(1, federation)
    site = federation.server_participant
    none = Examples(federation.features, np.zeros(0, np.int64))
    try:
        workers.submit("x", Infer(site.model, site.model.initial_params, none, site.task.readout))
        assert dict(workers.wait_completed()) == {"x": {}}
    finally:
        workers.close()
