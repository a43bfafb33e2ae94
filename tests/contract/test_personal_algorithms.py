"""Personal algorithms: special cases that equal other algorithms, and what stays on the client."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.runs import run_rounds

from motet.algorithms import ditto, fedavg, fedavg_st, fedbn, fedprox, fedsplit, isolated, percfl, spfl_like
from motet.algorithms.fedavg import FedAvg
from motet.algorithms.fedsplit import split_layers
from motet.algorithms.percfl import PerCFLState, bipartition
from motet.core.errors import ConfigError, LayoutError
from motet.core.layers import Layers
from motet.core.params import Params
from motet.experiment.build.component_builders import build_channel
from motet.experiment.build.federation import Federation
from motet.experiment.loop.run_loop import FederatedRun
from motet.experiment.recipe.run_config import RunConfig
from motet.learning.solver import Solver
from motet.optim import SGD, Adam, Yogi

SOLVER = Solver(optimizer="adamw", lr=0.01, batch=8)


def deploy_same_models(federation: Federation, first: FederatedRun, second: FederatedRun) -> bool:
    """True if every client deploys bitwise equal models in both runs."""
    return all(
        torch.equal(first.model_for(client).flat, second.model_for(client).flat) for client in federation.clients
    )


# ---- FedSplit -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("embeddings", ["frozen", "local"])
def test_fedsplit_with_no_shared_layer_is_isolated(
    embeddings: Any, federation: Federation, frozen_federation: Federation
) -> None:
    clients = frozen_federation if embeddings == "frozen" else federation
    running = run_rounds(clients, fedsplit(SOLVER, c=0, embeddings=embeddings))
    assert deploy_same_models(clients, running, run_rounds(clients, isolated(SOLVER)))
    assert running.engine.mailbox.traffic.payload_up == running.engine.mailbox.traffic.payload_down == 0


SERVER_OPTIMIZERS = {"fedavg": SGD(), "fedadam": Adam(), "fedyogi": Yogi()}


@pytest.mark.parametrize("c", ["all", 2])
@pytest.mark.parametrize("server", SERVER_OPTIMIZERS)
def test_fedsplit_with_all_layers_shared_is_the_original_algorithm(c: Any, server: str, federation: Federation) -> None:
    optimizer = SERVER_OPTIMIZERS[server]
    running = run_rounds(federation, fedsplit(SOLVER, c=c, embeddings="global", server=optimizer))
    expected = run_rounds(federation, FedAvg(SOLVER, optimizer))
    assert torch.equal(running.state.params.flat, expected.state.params.flat)
    assert deploy_same_models(federation, running, expected)


def test_fedsplit_with_all_layers_shared_and_a_proximal_term_is_fedprox(federation: Federation) -> None:
    running = run_rounds(federation, fedsplit(SOLVER, c=2, embeddings="global", mu=0.3))
    expected = run_rounds(federation, fedprox(SOLVER, mu=0.3))
    assert torch.equal(running.state.params.flat, expected.state.params.flat)


def test_fedsplit_with_frozen_embeddings_and_all_layers_shared_is_fedavg(frozen_federation: Federation) -> None:
    running = run_rounds(frozen_federation, fedsplit(SOLVER, c=2))
    assert deploy_same_models(frozen_federation, running, run_rounds(frozen_federation, fedavg(SOLVER)))


def test_fedsplit_shares_the_lower_layers_and_keeps_the_others_local(federation: Federation) -> None:
    running = run_rounds(federation, fedsplit(SOLVER, c=1, embeddings="local"))
    layout = federation.model.layout
    shared = {name for name, role in zip(layout.names, layout.roles, strict=True) if role.startswith("layers.0")}
    local_weights = [name for name in layout.names if name.endswith("weight") and name not in shared]
    first, second = (running.model_for(client) for client in list(federation.clients)[:2])
    assert all(torch.equal(first[name], second[name]) for name in shared)
    assert not any(torch.equal(first[name], second[name]) for name in local_weights)
    assert set(running.state.params.layout.names) == shared
    client_state = running.storage.client_states.get("fedsplit", federation.clients[0])
    assert set(client_state.layout.names) == set(layout.names) - shared


def test_only_shared_layers_are_sent(federation: Federation) -> None:
    traffic = run_rounds(federation, fedsplit(SOLVER, c=1, embeddings="local"), 1).engine.mailbox.traffic
    size = federation.model.layout.select_layers(Layers.parse("layers 0")).size
    assert traffic.payload_up == traffic.payload_down == len(federation.clients) * size * 4


def test_sending_weights_or_updates_differs_only_by_rounding(federation: Federation) -> None:
    updates, weights = (
        run_rounds(federation, fedavg(SOLVER, sends=sends)).state.params for sends in ("updates", "weights")
    )
    assert (updates - weights).norm() < 1e-5 * updates.norm()


def test_invalid_splits_are_rejected(federation: Federation) -> None:
    with pytest.raises(ConfigError, match="c is -1; expected a number of layers >= 0"):
        fedsplit(SOLVER, c=-1)
    with pytest.raises(ConfigError, match="needs embeddings frozen, but the model trains them"):
        fedsplit(SOLVER, c=1).init(federation.initial_models())
    with pytest.raises(LayoutError, match="'lower 7' is more than this model's 2 layers"):
        fedsplit(SOLVER, c=7, embeddings="local").init(federation.initial_models())


def test_every_algorithm_of_the_fedavg_family_can_be_split() -> None:
    algorithm = split_layers(fedprox(SOLVER, mu=0.5), 1, "global")
    assert algorithm.solver.proximal_mu == 0.5
    assert str(algorithm.shared) == "lower 1, embeddings"
    assert algorithm.personal


# ---- FedBN and Ditto ------------------------------------------------------------------------------------------------


def test_fedbn_keeps_all_norms_local(federation: Federation) -> None:
    running = run_rounds(federation, fedbn(SOLVER))
    local = running.storage.client_states.get("fedbn", federation.clients[0]).layout.names
    assert all("LayerNorm" in name for name in local)
    assert not any("LayerNorm" in name for name in running.state.params.layout.names)
    assert len(local) == 2 * 5, "weight and bias of one norm in the embeddings and two in each layer"


def test_ditto_with_lambda_zero_is_isolated_training_next_to_fedavg(federation: Federation) -> None:
    running = run_rounds(federation, ditto(SOLVER, lam=0.0))
    assert deploy_same_models(federation, running, run_rounds(federation, isolated(SOLVER)))
    assert torch.equal(running.state.params.flat, run_rounds(federation, fedavg(SOLVER)).state.params.flat)


def test_a_larger_lambda_keeps_personal_models_closer_to_the_global_one(federation: Federation) -> None:
    sgd = Solver(optimizer="sgd", lr=0.1, batch=8, schedule="constant")

    def mean_distance(lam: float) -> float:
        running = run_rounds(federation, ditto(sgd, lam=lam), 3)
        return sum((running.model_for(c) - running.state.params).norm() for c in federation.clients)

    assert mean_distance(3.0) < 0.8 * mean_distance(0.0)


# ---- FedAvg-ST ------------------------------------------------------------------------------------------------------


def test_a_single_group_is_fedavg(federation: Federation) -> None:
    running = run_rounds(federation, fedavg_st(SOLVER))
    assert deploy_same_models(federation, running, run_rounds(federation, fedavg(SOLVER)))


def test_groups_do_not_influence_each_other(federation: Federation) -> None:
    clients = list(federation.clients)
    alone = run_rounds(federation, fedavg_st(SOLVER, groups={client: (client,) for client in clients}))
    for client in clients:
        others = tuple(other for other in clients if other != client)
        running = run_rounds(federation, fedavg_st(SOLVER, groups={"one": (client,), "rest": others}))
        assert torch.equal(alone.model_for(client).flat, running.model_for(client).flat)


def test_every_client_needs_a_group_and_every_group_a_client(federation: Federation) -> None:
    with pytest.raises(ConfigError, match="client 'client-1' is in none of the groups"):
        fedavg_st(SOLVER, groups={"a": ("client-0",)}).init(federation.initial_models())
    with pytest.raises(ConfigError, match="group 'b' has no clients"):
        fedavg_st(SOLVER, groups={"a": ("client",), "b": ("imdb",)}).init(federation.initial_models())


@pytest.mark.parametrize("client", ["imdb-0", "imdb_12", "imdb/client-3", "imdb/a-doctor"])
def test_the_family_of_a_client_is_part_of_its_name(client: str) -> None:
    algorithm = fedavg_st(SOLVER, groups={"classification": ("imdb",), "rest": ("squad",)})
    assert algorithm.find_group(client) == "classification"
    assert fedavg_st(SOLVER).find_group(client) == "imdb"


def test_16_bit_weights_deviate_more_than_16_bit_updates(federation: Federation) -> None:
    """Rounding is relative: an update is much smaller than the weights, so its rounding error is, too."""
    solver = Solver(optimizer="sgd", lr=0.01, batch=8)
    codec = RunConfig.from_settings("t", {"codec": {"up": "float16"}})
    exact = run_rounds(federation, fedsplit(solver, c=1, embeddings="global"), 1).state.params
    errors = {}
    for sends in ("weights", "updates"):
        algorithm = fedsplit(solver, c=1, embeddings="global", sends=sends)
        rounded = run_rounds(federation, algorithm, 1, channel=build_channel(codec)).state.params
        errors[sends] = (rounded - exact).norm()
    assert 0 < errors["updates"] < errors["weights"] / 10


# ---- PerCFL ---------------------------------------------------------------------------------------------------------


def test_percfl_without_a_split_is_fedavg_with_equal_weights(federation: Federation) -> None:
    running = run_rounds(federation, percfl(SOLVER))
    expected = run_rounds(federation, fedavg(SOLVER, weighting="uniform"))
    assert deploy_same_models(federation, running, expected)


def test_a_cluster_is_split_between_dissimilar_clients() -> None:
    similarities = torch.tensor(
        [[1.0, 0.9, -0.8, -0.7], [0.9, 1, -0.9, -0.8], [-0.8, -0.9, 1, 0.6], [-0.7, -0.8, 0.6, 1]]
    )
    assert bipartition(similarities.numpy()).tolist() == [0, 0, 1, 1]


def test_a_cluster_is_split_only_if_its_mean_update_is_small_and_one_update_is_large(federation: Federation) -> None:
    algorithm = percfl(SOLVER, eps1=0.4, eps2=1.6, after=3)
    state: PerCFLState = algorithm.init(federation.initial_models())
    cluster = state.clusters[0]
    zero = cluster.params.zeros_like()
    step = Params(zero.layout, torch.zeros_like(zero.flat).index_fill_(0, torch.tensor([0]), 2.0))
    opposed = {client: step * sign for client, sign in zip(cluster.clients, (1.0, -1.0, 1.0, -1.0), strict=True)}
    a, b, c, d = cluster.clients
    unsplit = [cluster.clients]
    assert algorithm.split_cluster(cluster, opposed, 3) == [(a, c), (b, d)]
    assert algorithm.split_cluster(cluster, opposed, 2) == unsplit, "too early"
    assert algorithm.split_cluster(cluster, {k: v * 0.5 for k, v in opposed.items()}, 3) == unsplit, "small updates"
    assert algorithm.split_cluster(cluster, dict.fromkeys(cluster.clients, step), 3) == unsplit, "equal updates"
    assert algorithm.split_cluster(cluster, {k: opposed[k] for k in (a, b, c)}, 3) == unsplit, "a reply is missing"


def test_relative_thresholds_do_not_depend_on_the_size_of_the_updates(federation: Federation) -> None:
    algorithm = percfl(SOLVER, eps1=0.4, eps2=0.9, after=0, relative=True)
    cluster = algorithm.init(federation.initial_models()).clusters[0]
    zero = cluster.params.zeros_like()
    step = Params(zero.layout, torch.zeros_like(zero.flat).index_fill_(0, torch.tensor([0]), 2.0))
    opposed = {client: step * sign for client, sign in zip(cluster.clients, (1.0, -1.0, 1.0, -1.0), strict=True)}
    for scale in (1e-6, 1.0, 1e6):
        assert len(algorithm.split_cluster(cluster, {k: v * scale for k, v in opposed.items()}, 0)) == 2
        assert len(algorithm.split_cluster(cluster, dict.fromkeys(cluster.clients, step * scale), 0)) == 1


def test_a_run_that_never_splits_says_so(federation: Federation) -> None:
    never, always = percfl(SOLVER), percfl(SOLVER, eps1=10.0, eps2=0.0, after=0, relative=True)
    (remark,) = never.remarks(run_rounds(federation, never, 1).state)
    assert "percfl never split the clients (eps1 0.4, eps2 1.6, absolute)" in remark
    assert always.remarks(run_rounds(federation, always, 1).state) == []


def test_fedbn_shares_the_selected_layers_without_their_norms(federation: Federation) -> None:
    state = fedbn(SOLVER, shared=("layers 0",)).init(federation.initial_models())
    roles = set(state.params.layout.roles)
    assert roles == {"layers.0"}, "not layers.0.norm, nor other layers"


# ---- SPFL-like ------------------------------------------------------------------------------------------------------


def test_spfl_with_a_very_large_gamma_is_isolated_training(federation: Federation) -> None:
    alone = run_rounds(federation, isolated(SOLVER))
    sharp = run_rounds(federation, spfl_like(SOLVER, gamma=1e9))
    for client in federation.clients:
        difference = sharp.model_for(client) - alone.model_for(client)
        assert difference.norm() < 1e-5 * alone.model_for(client).norm()
    assert not deploy_same_models(federation, run_rounds(federation, spfl_like(SOLVER, gamma=1.0)), alone)
