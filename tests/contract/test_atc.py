"""Assign, then contrast: what is sent, what is trained, who is compared with whom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.sizes import SMALL

from motet.algorithms import atc
from motet.algorithms.atc.assign import Assign
from motet.algorithms.atc.backbone_state import Own, moments_taken
from motet.algorithms.atc.contrast import Contrast, ContrastState
from motet.algorithms.atc.synthetic_states import Between
from motet.algorithms.fedavg import FedAvg
from motet.algorithms.phases import Phase, Phases
from motet.core.errors import ConfigError, PrivacyError, RunError
from motet.core.layers import Layers
from motet.core.params import Params
from motet.core.program import Round
from motet.core.script import gather, run_script
from motet.experiment.build.component_builders import build_channel, build_secure
from motet.experiment.build.federation import Federation
from motet.experiment.build.federation_builder import build_federation
from motet.experiment.loop.param_offload import ParamOffload
from motet.experiment.loop.run_loop import FederatedRun
from motet.experiment.recipe.run_config import ComponentConfig, RunConfig
from motet.learning.jobs import OptimizerState
from motet.learning.objectives.atc_objectives import ContrastiveTask
from motet.learning.objectives.supervised import CrossEntropy
from motet.learning.packed.packed_model import PackedModel
from motet.learning.solver import Solver

SOLVER = Solver(lr=0.01, batch=8, steps=3)
RunRounds = Callable[..., FederatedRun]


def contrast(**options: Any) -> Contrast:
    return Contrast(SOLVER, **{"neighbours": 2, "between": Between(6, 8), **options})


def size(federation: Federation, *terms: str) -> int:
    return federation.model.layout.select_layers(Layers.parse(*terms)).size


@pytest.mark.parametrize(
    ("lesson", "trained", "untouched"), [("mlm", "encoder head", "decoder"), ("dr", "decoder", "encoder head")]
)
def test_only_what_the_lesson_trains_is_sent_and_moved(
    lesson: Any, trained: str, untouched: str, backbone_federation: Federation, rounds: RunRounds
) -> None:
    running = rounds(backbone_federation, Assign(replace(SOLVER, weight_decay=0.1), (lesson,), 2), 2)
    clients, traffic = len(backbone_federation.clients), running.mailbox.traffic
    want = 2 * clients * 4 * size(backbone_federation, "encoder", trained)
    assert traffic.payload_up == traffic.payload_down == want
    start = backbone_federation.model.initial_params
    for model in running.state.models.values():
        assert torch.equal(
            model.select_layers(Layers.parse(untouched)).flat, start.select_layers(Layers.parse(untouched)).flat
        )
        assert not torch.equal(
            model.select_layers(Layers.parse(trained)).flat, start.select_layers(Layers.parse(trained)).flat
        )


def test_a_part_that_a_lesson_does_not_train_is_not_moved_by_what_the_optimiser_remembers(
    backbone_federation: Federation, rounds: RunRounds
) -> None:
    """Adam moves on with old momentum where the gradient is zero: masked words must leave the decoder be."""
    once = rounds(backbone_federation, Assign(SOLVER, ("dr", "mlm"), 1), 1)
    seed = next(s for s in range(9) if Assign(SOLVER, ("dr", "mlm"))._drawn(_round(1, s)) == "mlm")
    rnd = replace(_round(1, seed), cohort=tuple(backbone_federation.clients))
    once.mailbox.round = 1
    after = run_script(once.plan.algorithm.round(once.state, rnd), once.mailbox.run_exchange, once.executor.run)
    for client, model in after.models.items():
        before = once.state.models[client]
        assert torch.equal(
            model.select_layers(Layers.parse("decoder")).flat, before.select_layers(Layers.parse("decoder")).flat
        )
        assert not torch.equal(
            model.select_layers(Layers.parse("encoder")).flat, before.select_layers(Layers.parse("encoder")).flat
        )


def _round(index: int, seed: int) -> Round:
    from motet.core.rng import Seed

    return Round(index, 4, (), Seed(seed), None)


def test_clients_of_one_cluster_take_the_same_step(backbone_federation: Federation, rounds: RunRounds) -> None:
    running = rounds(backbone_federation, Assign(SOLVER, ("mlm",), 2), 1)
    assert len({model.flat.sum().item() for model in running.state.models.values()}) == 2
    alone = rounds(backbone_federation, Assign(SOLVER, ("mlm",), 1), 1)
    assert len({model.flat.sum().item() for model in alone.state.models.values()}) == 1


def test_only_encoders_and_representations_travel_while_contrasting(
    backbone_federation: Federation, rounds: RunRounds
) -> None:
    short, long = (rounds(backbone_federation, contrast(), n).mailbox.traffic for n in (1, 2))
    clients, encoder = len(backbone_federation.clients), 4 * size(backbone_federation, "encoder")
    said = 4 * 6 * SMALL["hidden_size"]  # float32, six instances
    assert long.payload_up - short.payload_up == clients * (encoder + said)
    assert long.payload_down - short.payload_down == clients * (
        encoder + said + 2 * said
    )  # a mean, and two who are far
    states = 2 * 6 * 8 * SMALL["hidden_size"]  # float16
    first = clients * (encoder + states) + clients * 8  # and a count of one each, for having kept them
    assert short.payload_up == first


def test_neighbours_are_near_others_are_far_and_oneself_is_neither() -> None:
    state = ContrastState(dict.fromkeys("abcd", None), {"a": ("a", "c", "b", "d")}, None)  # type: ignore[arg-type]
    seen = {c: torch.full((2, 3), float(i)) for i, c in enumerate("abcd")}
    peers = contrast(neighbours=3)._peers("a", state, seen, _round(1, 0))
    assert peers.near is not None
    assert peers.far is not None
    assert torch.equal(peers.near, torch.full((2, 3), 1.5))
    assert torch.equal(peers.far, torch.full((2, 1, 3), 3.0))


@pytest.mark.parametrize("neighbours", [1, 4, 18])
def test_without_neighbours_or_without_others_nothing_is_contrasted(neighbours: int) -> None:
    state = ContrastState(dict.fromkeys("abcd", None), {"a": ("a", "c", "b", "d")}, None)  # type: ignore[arg-type]
    seen = {c: torch.zeros(2, 3) for c in "abcd"}
    peers = contrast(neighbours=neighbours)._peers("a", state, seen, _round(1, 0))
    assert peers.near is None
    assert peers.far is None


def test_in_the_first_round_nobody_has_neighbours() -> None:
    state = ContrastState(dict.fromkeys("ab", None), {}, None)  # type: ignore[arg-type]
    assert contrast()._peers("a", state, {}, _round(0, 0)).near is None


def test_weights_applied_by_clients_give_the_same_synthetic_states(
    backbone_federation: Federation, rounds: RunRounds
) -> None:
    kept = []
    for who in ("server", "client"):
        running = rounds(backbone_federation, contrast(between=Between(6, 8, half=False, weighting=who)), 1)
        kept.append(running.memories.get("between", backbone_federation.clients[0]))
    assert torch.allclose(kept[0].states, kept[1].states, atol=1e-5)
    assert kept[0].states.abs().sum() > 0
    assert torch.equal(kept[0].tokens, kept[1].tokens)


def test_a_client_whose_states_do_not_come_leaves_no_gap(backbone_federation: Federation) -> None:
    rnd = replace(_round(0, 0), server=backbone_federation.server_context(0))
    naming = backbone_federation.model.initial_params.select_layers(Layers.parse("encoder head"))
    script = Between(5, 2, half=False).share(naming, ["a", "b", "c"], rnd)
    next(script)
    same = torch.ones(5, 2, SMALL["hidden_size"])
    job: Any = script.send({"a": same, "c": same})
    assert torch.allclose(job.examples.extra_columns["states"], same)


def test_those_who_sat_out_the_first_round_have_the_synthetic_instances_too(
    backbone_federation: Federation, rounds: RunRounds
) -> None:
    running = rounds(backbone_federation, contrast(), 0)
    clients = tuple(backbone_federation.clients)
    rnd = replace(_round(0, 0), cohort=clients[:2], server=backbone_federation.server_context(0))
    running.state = run_script(
        running.plan.algorithm.round(running.state, rnd), running.mailbox.run_exchange, running.executor.run
    )
    assert all(running.memories.get("between", c) is not None for c in clients)
    assert set(running.state.ranking) == set(clients[:2])


def test_a_client_that_weighs_for_itself_does_not_show_its_states(
    backbone_federation: Federation, rounds: RunRounds
) -> None:
    between = Between(6, 8, weighting="client")
    running = rounds(backbone_federation, contrast(between=between), 0)
    client = backbone_federation.clients[0]
    with pytest.raises(RunError, match="only weighted, for a sum"):
        run_script(gather(between.show, {client: None}), running.mailbox.run_exchange, running.executor.run)


def test_the_contrastive_term_trains_decoder_and_contrast_head_and_no_more(backbone_federation: Federation) -> None:
    """The states it starts from are given, so the encoder has no part in it."""
    pack = PackedModel(backbone_federation.model, backbone_federation.model.module, torch.device("cpu"))
    pack.load_clients([backbone_federation.model.initial_params])
    shape = (3, 5, SMALL["hidden_size"])
    batch = {
        **backbone_federation.server_context(0).participant.split("global").batch(np.arange(3)),
        "states": torch.randn(shape), "tokens": torch.full((3, 5), 6), "has_pair": torch.tensor([1.0, 1.0, 0.0]),
        "positives": torch.randn(3, shape[-1]), "negatives": torch.randn(3, 2, shape[-1]),
    }  # fmt: skip
    plain, _ = CrossEntropy().losses(pack, batch)
    both, worth = ContrastiveTask(CrossEntropy()).losses(pack, batch)
    assert ((both - plain) > 0).tolist() == [True, True, False]  # the last has no partner
    assert worth.tolist() == [1, 1, 1]
    pack.begin_step()
    (both - plain).sum().backward()
    pack.collect_grads()
    moved = {
        n.partition(".")[0] + "." + n.split(".")[1] for n, g in pack.tensor_views(pack.grads) if g.abs().sum() > 1e-6
    }
    assert moved == {"backbone.decoder", "contrast.1", "contrast.4"}


def test_pairing_by_number_and_by_lot_both_train(backbone_federation: Federation, rounds: RunRounds) -> None:
    client, ways = backbone_federation.clients[0], (("drawn", 1), ("drawn", 2), ("by_index", 2))
    memories = [rounds(backbone_federation, contrast(pairing=way), n).memories for way, n in ways]
    plain, drawn, paired = (
        m.get("contrast", client).params.select_layers(Layers.parse("name:contrast.*")).flat for m in memories
    )
    assert not torch.equal(plain, drawn)
    assert not torch.equal(plain, paired)
    assert not torch.equal(drawn, paired)


# ---- switches -------------------------------------------------------------------------------------------------------


def names(algorithm: Phases) -> list[str]:
    return [phase.algorithm.name for phase in algorithm.phases]


def test_ablations_are_switches() -> None:
    assert names(atc()) == ["assign", "contrast"]
    assert names(atc(assign=0)) == ["contrast"]
    assert names(atc(second="fedavg")) == ["assign", "fedavg"]
    second = atc(second="fedavg").phases[1].algorithm
    assert isinstance(second, FedAvg)
    assert second.shared == Layers.parse("encoder")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"lessons": ()}, "one or both of mlm, dr"),
        ({"clusters": 0}, "at least 1"),
        ({"neighbours": 0}, "at least 1"),
        ({"instances": 0}, "at least 1"),
        ({"assign": 1.2}, "from 0 to 1"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        atc(**options)


def test_neighbours_without_a_contrast_exchange_nothing_but_encoders(
    backbone_federation: Federation, rounds: RunRounds
) -> None:
    running = rounds(backbone_federation, contrast(contrasting=False), 2)
    encoders = 2 * len(backbone_federation.clients) * 4 * size(backbone_federation, "encoder")
    assert running.mailbox.traffic.payload_up == running.mailbox.traffic.payload_down == encoders
    assert running.state.ranking


def test_a_model_without_a_backbone_is_refused_before_anything_trains(
    federation: Federation, rounds: RunRounds
) -> None:
    with pytest.raises(ConfigError, match="mixed:<encoder>"):
        rounds(federation, atc(), 0)


def test_secure_sums_are_refused_with_a_sentence() -> None:
    config = RunConfig("x", algorithm=ComponentConfig("atc"), secure=ComponentConfig("secagg"))
    with pytest.raises(PrivacyError, match=r"atc reads the replies of single clients \(assign.learn, .*contrast.learn"):
        build_secure(config, atc(), build_channel(config))


# ---- a federation of unlike tasks -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def unlike() -> Federation:
    return build_federation(
        RunConfig.from_settings(
            "unlike",
            {
                "model": {"name": "mixed:tiny", "max_tokens": 32, "config": SMALL},
                "data": {"limit": 24, "test_limit": 8},
                "groups": [
                    {"corpus": "toy-classification", "clients": 2},
                    {"corpus": "toy-qa", "clients": 1, "task": {"max_question_tokens": 8}},
                    {"corpus": "toy-seq2seq", "clients": 1, "task": {"max_target_tokens": 6, "num_beams": 1}},
                ],
            },
        )
    )


def test_clients_with_unlike_tasks_learn_together(unlike: Federation, rounds: RunRounds) -> None:
    algorithm = atc(SOLVER, 0.5, 2, 8, clusters=2, neighbours=2, instances=6, tokens=8)
    running = rounds(unlike, algorithm, 4)
    reports = running.look_at_clients()
    assert set(reports) == set(unlike.clients)
    assert {unlike.group_for(c).task.primary_metric for c in reports} == {"accuracy", "f1", "rougeL"}
    heads = {
        c: running.memories.get("contrast", c).params.select_layers(Layers.parse("name:head.*")).layout.size
        for c in unlike.clients
    }
    assert sorted(heads.values()) == [0, 34, 68, 68]  # each kept its own: none to write, two ends, four topics


def test_fedavg_over_the_encoder_serves_the_same_federation(unlike: Federation, rounds: RunRounds) -> None:
    running = rounds(unlike, FedAvg(SOLVER, shared=Layers.parse("encoder")), 2)
    assert running.state.params.layout == unlike.model.layout.select_layers(Layers.parse("encoder"))
    assert len(running.look_at_clients()) == 4


# ---- personal models on disk ----------------------------------------------------------------------------------------


def test_a_large_model_lies_on_disk_and_is_the_same(backbone_federation: Federation, tmp_path: Any) -> None:
    model = backbone_federation.model.initial_params
    laid = ParamOffload(tmp_path, min_bytes=1).offload(model)
    assert torch.equal(laid.flat, model.flat)
    assert laid.flat.untyped_storage().filename is not None
    assert list(tmp_path.iterdir()) == []  # nothing is left behind, whatever happens
    assert ParamOffload(tmp_path).offload(model) is model, "small parameters stay where they are"
    beside = ParamOffload(tmp_path, host_limit=2**30, min_bytes=1).offload(model)
    assert torch.equal(beside.flat, model.flat)
    assert beside.flat.untyped_storage().filename is None, "where the host has room, nothing is written"


def test_the_share_of_a_phase_is_checked() -> None:
    with pytest.raises(ConfigError, match="share of assign"):
        Phase(Assign(SOLVER), -0.1)


def test_moments_stay_where_they_were_kept_until_they_are_needed() -> None:
    on_device = Params.from_tensors({"a": torch.zeros(2), "b": torch.zeros(3)})
    model = Params(
        on_device.layout, on_device.flat.to("meta")
    )  # stands for a device: all clients of a round wait at once
    kept = Params.from_tensors({"b": torch.tensor([1.0, 2.0, 3.0])})
    taken = moments_taken(Own(None, OptimizerState(7, (kept, kept))), model)
    assert taken is not None
    assert taken.steps == 7
    assert [moment.flat.tolist() for moment in taken.moments] == [[0, 0, 1, 2, 3]] * 2
