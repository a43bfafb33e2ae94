"""The methods for LoRA adapters against their equations, computed from the clients' trained adapters."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from tests.entries import make_algorithm
from tests.runs import advance, start_run
from torch import Tensor

from motet.algorithms.lora.adapter_pairs import adapter_pairs, pad_rank
from motet.algorithms.lora.hetlora import product_norm
from motet.core.errors import ConfigError, MotetError
from motet.core.params import Params
from motet.core.program import InitialModels, Round
from motet.core.rebased import ModelParams, split_base
from motet.core.rng import Seed
from motet.core.weighted import Weighted
from motet.experiment.build.federation import Federation
from motet.learning.executors.packed_executor import PackedExecutor
from motet.learning.executors.serial_executor import SerialExecutor

CPU = torch.device("cpu")


def products(model: ModelParams) -> dict[str, Tensor]:
    """Return the change of every adapted weight, without scaling: that of the base plus B A."""
    params, base_update = split_base(model)
    changes = {pair.layer: params[pair.b] @ params[pair.a] for pair in adapter_pairs(params.layout)}
    for layer, update in ({} if base_update is None else base_update.tensors()).items():
        changes[layer] = changes[layer] + update
    return changes


def train_clients(federation: Federation, algorithm: Any, state: Any) -> list[Weighted]:
    """Train every client in round 0, as a run does."""
    replies = []
    for client in federation.clients:
        payload = state if algorithm.name == "rolora" else algorithm.view(state, client)
        work = algorithm.train(federation.context(client, 0, f"{algorithm.name}.train"), payload, None)
        answer = None
        while True:
            try:
                answer = SerialExecutor(CPU).run(work.send(answer))
            except StopIteration as end:
                replies.append(end.value[0])
                break
    return replies


def first_round(federation: Federation, name: str) -> tuple[list[Params], list[float], Params, ModelParams]:
    """Return the clients' trained parameters and weights, the initial parameters, and the server's new model."""
    algorithm: Any = make_algorithm(name)
    initial = federation.initial_models().shared
    state = algorithm.init(federation.initial_models())
    replies = train_clients(federation, algorithm, state)
    total = sum(reply.weight for reply in replies)
    run = start_run(federation, make_algorithm(name), rounds=1)
    advance(run)
    trained = []
    for reply in replies:
        sent = reply.value
        # FedAvg's family and RoLoRA send updates of some layers; the others send all layers at the client's rank.
        is_update = name in ("fedit", "ffa_lora", "rolora", "fedsa_lora")
        changed = initial.restrict(sent.layout) + sent if is_update else pad_rank(sent, initial.layout)
        trained.append(initial.updated(changed))
    return trained, [reply.weight / total for reply in replies], initial, run.model_for()


def mean_products(trained: list[Params], weights: list[float]) -> dict[str, Tensor]:
    by_client = [products(params) for params in trained]
    return {
        layer: sum((p * c[layer] for p, c in zip(weights, by_client, strict=True)), torch.zeros(()))
        for layer in by_client[0]
    }


def relative_error(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    difference = sum(float((actual[layer] - expected[layer]).square().sum()) for layer in expected)
    return (difference / sum(float(value.square().sum()) for value in expected.values())) ** 0.5


@pytest.mark.parametrize("name", ["ffa_lora", "rolora", "fedex_lora", "flora"])
def test_the_new_model_is_exactly_the_mean_of_the_clients_models(name: str, adapter_federation: Federation) -> None:
    trained, weights, _, model = first_round(adapter_federation, name)
    assert relative_error(products(model), mean_products(trained, weights)) < 1e-6


def test_plain_averaging_of_both_matrices_is_not_exact(adapter_federation: Federation) -> None:
    trained, weights, _, model = first_round(adapter_federation, "fedit")
    assert relative_error(products(model), mean_products(trained, weights)) > 0.01


def test_ffa_lora_never_changes_or_sends_a(adapter_federation: Federation) -> None:
    trained, _, initial, model = first_round(adapter_federation, "ffa_lora")
    params = split_base(model)[0]
    for pair in adapter_pairs(initial.layout):
        assert all(torch.equal(client[pair.a], initial[pair.a]) for client in [*trained, params])
        assert not torch.equal(params[pair.b], initial[pair.b])
    run = start_run(adapter_federation, make_algorithm("ffa_lora"))
    assert not run.plan.has_personal_models  # all clients have the same A, so there is a global model
    state = run.state
    assert not any(".lora_A." in name for name in state.params.layout.names)
    assert not make_algorithm("ffa_lora").personal


def test_rolora_trains_b_then_a(adapter_federation: Federation) -> None:
    run = start_run(adapter_federation, make_algorithm("rolora"), rounds=2)
    states = [run.state.params, advance(run).state.params, advance(run).state.params]
    (pair, *_) = adapter_pairs(states[0].layout)
    changed = [
        {name for name in (pair.a, pair.b) if not torch.equal(before[name], after[name])}
        for before, after in pairwise(states)
    ]
    assert changed == [{pair.b}, {pair.a}]


def test_fedsa_lora_shares_a_and_keeps_b_with_the_client(adapter_federation: Federation) -> None:
    run = start_run(adapter_federation, make_algorithm("fedsa_lora"), rounds=1)
    advance(run)
    assert not any(".lora_B." in name for name in run.state.params.layout.names)
    models = [split_base(run.model_for(client))[0] for client in list(adapter_federation.clients)[:2]]
    (pair, *_) = adapter_pairs(models[0].layout)
    assert torch.equal(models[0][pair.a], models[1][pair.a])
    assert not torch.equal(models[0][pair.b], models[1][pair.b])


def test_flexlora_is_the_best_approximation_of_the_mean_product(adapter_federation: Federation) -> None:
    trained, weights, initial, model = first_round(adapter_federation, "flexlora")
    for pair in adapter_pairs(initial.layout):
        mean = mean_products(trained, weights)[pair.layer].double()
        u, s, vt = torch.linalg.svd(mean, full_matrices=False)
        best = u[:, :4] * s[:4] @ vt[:4]
        torch.testing.assert_close(products(model)[pair.layer].double(), best, atol=1e-6, rtol=1e-4)


def test_hetlora_weights_padded_adapters_by_their_norm(adapter_federation: Federation) -> None:
    trained, _, initial, model = first_round(adapter_federation, "hetlora")
    norms = [sum(float(value.square().sum()) for value in products(client).values()) ** 0.5 for client in trained]
    assert [product_norm(client) for client in trained] == pytest.approx(norms, rel=1e-5)
    expected = sum((client.flat * (n / sum(norms)) for client, n in zip(trained, norms, strict=True)), torch.zeros(()))
    torch.testing.assert_close(split_base(model)[0].flat, expected)
    assert initial.layout.size == len(expected)


@pytest.mark.parametrize("name", ["flora", "flexlora", "hetlora"])
def test_a_client_with_a_smaller_rank_trains_and_sends_only_that_rank(
    name: str, adapter_federation: Federation
) -> None:
    algorithm: Any = make_algorithm(name)  # ranks 2 and 4 in turn
    replies = train_clients(adapter_federation, algorithm, algorithm.init(adapter_federation.initial_models()))
    pair = adapter_pairs(replies[0].value.layout)[0]
    assert [reply.value[pair.a].shape[0] for reply in replies] == [2, 4, 2, 4]
    assert replies[0].value[pair.b].abs().sum() > 0


@pytest.mark.parametrize("name", ["flexlora", "hetlora"])
def test_a_cohort_of_small_ranks_leaves_the_other_ranks_trainable(name: str, adapter_federation: Federation) -> None:
    """A rank whose A and B are both zero gets no gradient, so it would be lost for all later rounds."""
    algorithm: Any = make_algorithm(name)  # ranks 2 and 4 in turn
    state = algorithm.init(adapter_federation.initial_models())
    small = train_clients(adapter_federation, algorithm, state)[0]
    client = adapter_federation.clients[0]
    script = algorithm.round(state, Round(0, 1, (client,), Seed(0), server=None))
    next(script)
    with pytest.raises(StopIteration) as end:
        script.send({client: small})
    new = end.value.value.params
    for pair in adapter_pairs(new.layout):
        expected = small.value[pair.b] @ small.value[pair.a]
        torch.testing.assert_close(new[pair.b] @ new[pair.a], expected, atol=1e-6, rtol=1e-4)
        assert new[pair.a].any(1).all()


@pytest.mark.parametrize("name", ["fedex_lora", "flora"])
def test_the_base_is_changed_for_training_evaluation_and_export(name: str, adapter_federation: Federation) -> None:
    def run_two_rounds(executor: Any) -> Any:
        run = start_run(adapter_federation, make_algorithm(name), rounds=2, executor=executor)
        advance(run)
        advance(run)
        return run

    run = run_two_rounds(SerialExecutor(CPU))
    model = adapter_federation.model
    exported = model.with_params(run.model_for())
    plain = model.with_params(split_base(run.model_for())[0])
    batch = adapter_federation.features.batch(torch.arange(4).numpy())
    inputs = {key: batch[key] for key in ("input_ids", "attention_mask")}
    with torch.no_grad():
        difference = (exported(**inputs).logits - plain(**inputs).logits).abs().max()
    assert difference > 1e-4
    packed = run_two_rounds(PackedExecutor(CPU, width=4, use_bf16=False))
    serial_update, packed_update = (split_base(each.model_for())[1] for each in (run, packed))
    assert serial_update is not None
    assert packed_update is not None
    assert (serial_update - packed_update).norm() / serial_update.norm() < 1e-4


@pytest.mark.parametrize("name", ["ffa_lora", "rolora", "fedsa_lora", "fedex_lora", "flora", "flexlora", "hetlora"])
def test_a_model_without_adapters_is_refused(name: str, federation: Federation) -> None:
    with pytest.raises(MotetError, match=r"LoRA adapters|lora_"):
        make_algorithm(name).init(federation.initial_models())


def test_a_rank_above_that_of_the_model_is_refused(adapter_federation: Federation) -> None:
    initial: InitialModels = adapter_federation.initial_models()
    with pytest.raises(ConfigError, match=r"algorithm.ranks has 8, but the model's adapters have rank 4"):
        make_algorithm("flexlora", ranks=[2, 8]).init(initial)
