"""What personal algorithms become at their limits, and what stays with a client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from motet.algorithms import ditto, fedavg, fedavg_st, fedbn, fedprox, fedsplit, isolated, percfl, spfl_like
from motet.algorithms.fedavg import FedAvg
from motet.algorithms.fedsplit import split
from motet.algorithms.percfl import Clusters, halves
from motet.core.errors import ConfigError, LayoutError
from motet.core.layers import Layers
from motet.core.params import Params
from motet.experiment.build.federation import Federation
from motet.experiment.loop.run_loop import FederatedRun
from motet.learning.solver import Solver
from motet.optim import Adam, Apply, Yogi

SOLVER = Solver(optimizer="adamw", lr=0.01, batch=8)
RunRounds = Callable[..., FederatedRun]


def own(running: FederatedRun, client: str) -> Params:
    return running.model_params(client)


def same(federation: Federation, first: FederatedRun, second: FederatedRun) -> bool:
    """Every client would deploy the same bits."""
    return all(torch.equal(own(first, c).flat, own(second, c).flat) for c in federation.clients)


# ---- FedSplit ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("embeddings", ["frozen", "local"])
def test_fedsplit_of_no_layer_is_isolated(
    embeddings: Any, federation: Federation, frozen_federation: Federation, rounds: RunRounds
) -> None:
    over = frozen_federation if embeddings == "frozen" else federation
    none = rounds(over, fedsplit(SOLVER, c=0, embeddings=embeddings))
    assert same(over, none, rounds(over, isolated(SOLVER)))
    assert none.mailbox.traffic.payload_up == none.mailbox.traffic.payload_down == 0


SERVERS = {"fedavg": Apply(), "fedadam": Adam(), "fedyogi": Yogi()}


@pytest.mark.parametrize("c", ["all", 2])
@pytest.mark.parametrize("server", SERVERS)
def test_fedsplit_of_all_layers_is_the_algorithm_it_splits(
    c: Any, server: str, federation: Federation, rounds: RunRounds
) -> None:
    every = rounds(federation, fedsplit(SOLVER, c=c, embeddings="global", server=SERVERS[server]))
    plain = rounds(federation, FedAvg(SOLVER, SERVERS[server]))
    assert torch.equal(every.state.params.flat, plain.state.params.flat)
    assert same(federation, every, plain)


def test_fedsplit_of_all_layers_with_a_pull_is_fedprox(federation: Federation, rounds: RunRounds) -> None:
    every = rounds(federation, fedsplit(SOLVER, c=2, embeddings="global", mu=0.3))
    assert torch.equal(every.state.params.flat, rounds(federation, fedprox(SOLVER, mu=0.3)).state.params.flat)


def test_fedsplit_over_frozen_embeddings_and_all_layers_is_fedavg(
    frozen_federation: Federation, rounds: RunRounds
) -> None:
    every = rounds(frozen_federation, fedsplit(SOLVER, c=2))
    assert same(frozen_federation, every, rounds(frozen_federation, fedavg(SOLVER)))


def test_what_fedsplit_shares_is_common_and_the_rest_is_ones_own(federation: Federation, rounds: RunRounds) -> None:
    running = rounds(federation, fedsplit(SOLVER, c=1, embeddings="local"))
    layout = federation.model.layout
    shared = {n for n, p in zip(layout.names, layout.roles, strict=True) if p.startswith("layers.0")}
    first, second = (own(running, c).tensors() for c in list(federation.clients)[:2])
    assert {n for n in layout.names if torch.equal(first[n], second[n])} >= shared
    assert not any(torch.equal(first[n], second[n]) for n in layout.names if n.endswith("weight") and n not in shared)
    assert set(running.state.params.layout.names) == shared
    assert set(running.memories.get("fedsplit", federation.clients[0]).layout.names) == set(layout.names) - shared


def test_only_shared_layers_are_counted_as_traffic(federation: Federation, rounds: RunRounds) -> None:
    traffic = rounds(federation, fedsplit(SOLVER, c=1, embeddings="local"), 1).mailbox.traffic
    size = federation.model.layout.select_layers(Layers.parse("layers 0")).size
    assert traffic.payload_up == traffic.payload_down == len(federation.clients) * size * 4


def test_sending_weights_instead_of_updates_makes_no_difference_but_rounding(
    federation: Federation, rounds: RunRounds
) -> None:
    ends = [rounds(federation, fedavg(SOLVER, sends=sends)).state.params for sends in ("updates", "weights")]
    assert (ends[0] - ends[1]).norm() < 1e-5 * ends[0].norm()


def test_fedsplit_says_what_does_not_fit(federation: Federation) -> None:
    with pytest.raises(ConfigError, match="c is -1"):
        fedsplit(SOLVER, c=-1)
    with pytest.raises(ConfigError, match="wants embeddings frozen, but this model trains them"):
        fedsplit(SOLVER, c=1).init(federation.initial_models())
    with pytest.raises(LayoutError, match="asked of a model that has 2 layers"):
        fedsplit(SOLVER, c=7, embeddings="local").init(federation.initial_models())


def test_any_of_the_family_can_be_split(federation: Federation) -> None:
    made = split(fedprox(SOLVER, mu=0.5), 1, "global")
    assert (made.solver.proximal_mu, str(made.shared)) == (0.5, "lower 1, embeddings")
    assert made.personal


# ---- the others -------------------------------------------------------------------------------------------------------


def test_fedbn_keeps_every_norm_at_home(federation: Federation, rounds: RunRounds) -> None:
    running = rounds(federation, fedbn(SOLVER))
    sent = running.state.params.layout
    kept = running.memories.get("fedbn", federation.clients[0]).layout
    assert all("LayerNorm" in n for n in kept.names)
    assert not any("LayerNorm" in n for n in sent.names)
    assert len(kept.names) == 2 * 5  # of the embeddings, and two a layer


def test_ditto_without_a_pull_is_isolated_beside_fedavg(federation: Federation, rounds: RunRounds) -> None:
    both = rounds(federation, ditto(SOLVER, lam=0.0))
    assert same(federation, both, rounds(federation, isolated(SOLVER)))
    assert torch.equal(both.state.params.flat, rounds(federation, fedavg(SOLVER)).state.params.flat)


def test_dittos_pull_brings_own_models_nearer_to_the_common_one(federation: Federation, rounds: RunRounds) -> None:
    sgd = Solver(optimizer="sgd", lr=0.1, batch=8, schedule="constant")
    gaps = []
    for lam in (0.0, 3.0):
        running = rounds(federation, ditto(sgd, lam=lam), 3)
        gaps.append(sum((own(running, c) - running.state.params).norm() for c in federation.clients))
    assert gaps[1] < 0.8 * gaps[0]


def test_one_group_is_fedavg_and_groups_hear_nothing_of_each_other(federation: Federation, rounds: RunRounds) -> None:
    assert same(federation, rounds(federation, fedavg_st(SOLVER)), rounds(federation, fedavg(SOLVER)))
    clients = list(federation.clients)
    alone = rounds(federation, fedavg_st(SOLVER, groups={c: (c,) for c in clients}))
    for client in clients:
        others = tuple(c for c in clients if c != client)
        pair = rounds(federation, fedavg_st(SOLVER, groups={"one": (client,), "rest": others}))
        assert torch.equal(own(alone, client).flat, own(pair, client).flat)


def test_groups_must_have_everybody_and_somebody(federation: Federation) -> None:
    with pytest.raises(ConfigError, match="client 'client-1' is in no group"):
        fedavg_st(SOLVER, groups={"a": ("client-0",)}).init(federation.initial_models())
    with pytest.raises(ConfigError, match="no client is in group 'b'"):
        fedavg_st(SOLVER, groups={"a": ("client",), "b": ("imdb",)}).init(federation.initial_models())


def test_clusters_that_are_never_cut_are_fedavg(federation: Federation, rounds: RunRounds) -> None:
    never = rounds(federation, percfl(SOLVER))
    assert same(federation, never, rounds(federation, fedavg(SOLVER, weighting="uniform")))


def test_a_cluster_is_cut_between_those_who_pull_apart() -> None:
    alike = torch.tensor([[1.0, 0.9, -0.8, -0.7], [0.9, 1, -0.9, -0.8], [-0.8, -0.9, 1, 0.6], [-0.7, -0.8, 0.6, 1]])
    assert halves(alike.numpy()).tolist() == [0, 0, 1, 1]


def test_a_cluster_is_cut_only_when_it_stands_still_and_somebody_moves(federation: Federation) -> None:
    algorithm = percfl(SOLVER, eps1=0.4, eps2=1.6, after=3)
    state: Clusters = algorithm.init(federation.initial_models())
    whole, zero = state.clusters[0], state.clusters[0].params.zeros_like()
    step = Params(zero.layout, torch.zeros_like(zero.flat).index_fill_(0, torch.tensor([0]), 2.0))
    apart = {c: step * sign for c, sign in zip(whole.members, (1.0, -1.0, 1.0, -1.0), strict=True)}
    a, b, c, d = whole.members
    assert algorithm.cut(whole, apart, 3) == [(a, c), (b, d)]
    assert algorithm.cut(whole, apart, 2) == [whole.members]  # too early
    assert algorithm.cut(whole, {k: v * 0.5 for k, v in apart.items()}, 3) == [whole.members]  # nobody moves enough
    assert algorithm.cut(whole, dict.fromkeys(whole.members, step), 3) == [whole.members]  # all move one way
    assert algorithm.cut(whole, {k: apart[k] for k in (a, b, c)}, 3) == [whole.members]  # somebody is missing


def test_spfl_follows_only_those_who_move_alike(federation: Federation, rounds: RunRounds) -> None:
    """With γ so large that nobody is alike but oneself, everybody is alone."""
    alone = rounds(federation, isolated(SOLVER))
    sharp = rounds(federation, spfl_like(SOLVER, gamma=1e9))
    for client in federation.clients:
        gap = own(sharp, client) - own(alone, client)
        assert gap.norm() < 1e-5 * own(alone, client).norm()
    soft = rounds(federation, spfl_like(SOLVER, gamma=1.0))
    assert not same(federation, soft, alone)


@pytest.mark.parametrize("client", ["imdb-0", "imdb_12", "imdb/client-3", "imdb/a-doctor"])
def test_families_are_told_by_their_names(client: str) -> None:
    method = fedavg_st(SOLVER, groups={"classes": ("imdb",), "rest": ("squad",)})
    assert method.group_of(client) == "classes"
    assert fedavg_st(SOLVER).group_of(client) == "imdb"
