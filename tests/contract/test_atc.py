"""ATC: what is sent, which layers are trained, and which clients are compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.runs import advance, run_rounds, start_run
from tests.sizes import SMALL
from torch import Tensor

from motet.algorithms import atc
from motet.algorithms.atc.assign import Assign
from motet.algorithms.atc.contrast import Contrast, ContrastRequest, ContrastState
from motet.algorithms.atc.synthetic_states import SyntheticStates
from motet.algorithms.fedavg import FedAvg
from motet.algorithms.phases import Phase, Phases
from motet.core.errors import ConfigError, PrivacyError, RunError
from motet.core.layers import Layers
from motet.core.params import Params
from motet.core.program import Round
from motet.core.rng import Seed
from motet.core.script import gather, run_script
from motet.experiment.build.component_builders import build_channel, build_secure
from motet.experiment.build.federation import Federation
from motet.experiment.build.federation_builder import build_federation
from motet.experiment.loop.param_offload import ParamOffload
from motet.experiment.recipe.run_config import ComponentConfig, RunConfig
from motet.learning.jobs import OptimizerState
from motet.learning.kept_optimizers import fill_optimizer_state
from motet.learning.objectives.atc_objectives import ContrastiveTask
from motet.learning.objectives.supervised import CrossEntropy
from motet.learning.packed.packed_model import PackedModel
from motet.learning.solver import Solver

SOLVER = Solver(lr=0.01, batch=8, steps=3)
INSTANCES, TOKENS, WIDTH = 6, 8, SMALL["hidden_size"]


def make_contrast(**options: Any) -> Contrast:
    return Contrast(SOLVER, **{"neighbors": 2, "synthetic": SyntheticStates(INSTANCES, TOKENS), **options})


def count_parameters(federation: Federation, *terms: str) -> int:
    return federation.model.layout.select_layers(Layers.parse(*terms)).size


def select(params: Params, term: str) -> Tensor:
    return params.select_layers(Layers.parse(term)).flat


def round_without_clients(index: int, seed: int = 0) -> Round:
    return Round(index=index, rounds=4, cohort=(), seed=Seed(seed), server=None)


# ---- Assign ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objective", "trained", "untouched"), [("mlm", "encoder head", "decoder"), ("dr", "decoder", "encoder head")]
)
def test_only_the_layers_that_an_objective_trains_are_sent_and_updated(
    objective: Any, trained: str, untouched: str, backbone_federation: Federation
) -> None:
    running = run_rounds(backbone_federation, Assign(replace(SOLVER, weight_decay=0.1), (objective,), 2), 2)
    clients, traffic = len(backbone_federation.clients), running.engine.mailbox.traffic
    expected = 2 * clients * 4 * count_parameters(backbone_federation, "encoder", trained)
    assert traffic.payload_up == traffic.payload_down == expected
    initial = backbone_federation.model.initial_params
    for model in running.state.models.values():
        assert torch.equal(select(model, untouched), select(initial, untouched))
        assert not torch.equal(select(model, trained), select(initial, trained))


def test_momentum_does_not_change_layers_that_are_not_trained(backbone_federation: Federation) -> None:
    """Adam would move the decoder by its old momentum even if the gradient is zero."""
    algorithm = Assign(SOLVER, ("dr", "mlm"), 1)
    running = run_rounds(backbone_federation, algorithm, 1)
    seed = next(s for s in range(9) if algorithm._draw_objective(round_without_clients(1, s)) == "mlm")
    rnd = replace(round_without_clients(1, seed), cohort=tuple(backbone_federation.clients))
    running.engine.mailbox.round = 1
    after = run_script(
        algorithm.round(running.state, rnd), running.engine.mailbox.run_exchange, running.engine.executor.run
    )
    for client, model in after.models.items():
        before = running.state.models[client]
        assert torch.equal(select(model, "decoder"), select(before, "decoder"))
        assert not torch.equal(select(model, "encoder"), select(before, "encoder"))


def test_a_client_with_fewer_texts_than_a_batch_reads_each_of_them_once_per_step(
    backbone_federation: Federation,
) -> None:
    """Its texts are corrupted once per step, and a batch of all corrupted texts would have each text several times."""
    running = run_rounds(backbone_federation, Assign(replace(SOLVER, batch=1000), ("mlm",), 1), 1)
    rows = sum(len(backbone_federation.participant(c).split("train")) for c in backbone_federation.clients)
    assert SOLVER.steps is not None
    assert running.engine.executor.examples_processed == SOLVER.steps * rows


@pytest.mark.parametrize("clusters", [1, 2])
def test_clients_in_one_cluster_get_the_same_update(clusters: int, backbone_federation: Federation) -> None:
    running = run_rounds(backbone_federation, Assign(SOLVER, ("mlm",), clusters), 1)
    assert len({model.flat.sum().item() for model in running.state.models.values()}) == clusters


def test_optimizer_state_stays_on_its_device_until_it_is_needed() -> None:
    params = Params.from_tensors({"a": torch.zeros(2), "b": torch.zeros(3)})
    model = Params(params.layout, params.flat.to("meta"))  # "meta" stands in for a GPU
    moment = Params.from_tensors({"b": torch.tensor([1.0, 2.0, 3.0])})
    state = fill_optimizer_state(OptimizerState(7, (moment, moment)), model)
    assert state.steps == 7
    assert [moment.flat.tolist() for moment in state.moments] == [[0, 0, 1, 2, 3]] * 2


# ---- Contrast -------------------------------------------------------------------------------------------------------


def test_only_encoders_and_representations_are_sent(backbone_federation: Federation) -> None:
    first, both = (run_rounds(backbone_federation, make_contrast(), rounds).engine.mailbox.traffic for rounds in (1, 2))
    clients, encoder = len(backbone_federation.clients), 4 * count_parameters(backbone_federation, "encoder")
    representations = 4 * INSTANCES * WIDTH
    assert both.payload_up - first.payload_up == clients * (encoder + representations)
    # down: the mean of the positives, and two negatives
    assert both.payload_down - first.payload_down == clients * (encoder + 3 * representations)
    float16_states, receipt = 2 * INSTANCES * TOKENS * WIDTH, 8
    assert first.payload_up == clients * (encoder + float16_states + receipt)


def make_request(contrast: Contrast, ranking: dict[str, tuple[str, ...]], values: list[float]) -> ContrastRequest:
    """Return the request for client "a", where each client's representations are constant."""
    state = ContrastState(models=dict.fromkeys("abcd"), ranking=ranking, mlm_head=None)  # type: ignore[arg-type]
    representations = {client: torch.full((2, 3), value) for client, value in zip("abcd", values, strict=False)}
    return contrast._make_request("a", state, representations)


RANKING = {"a": ("a", "c", "b", "d")}


def test_neighbors_are_positives_and_other_clients_are_negatives() -> None:
    request = make_request(make_contrast(neighbors=3), RANKING, [0.0, 1.0, 2.0, 3.0])
    assert request.positives is not None
    assert request.negatives is not None
    assert torch.equal(request.positives, torch.full((2, 3), 1.5))
    assert torch.equal(request.negatives, torch.full((2, 1, 3), 3.0))


@pytest.mark.parametrize("neighbors", [1, 4, 18])
def test_without_positives_or_negatives_there_is_no_contrast(neighbors: int) -> None:
    request = make_request(make_contrast(neighbors=neighbors), RANKING, [0.0] * 4)
    assert request.positives is None
    assert request.negatives is None


def test_there_is_no_contrast_in_the_first_round() -> None:
    assert make_request(make_contrast(), ranking={}, values=[]).positives is None


def test_the_contrastive_loss_trains_only_the_decoder_and_the_contrast_head(backbone_federation: Federation) -> None:
    """The encoder's output is given, so the encoder gets no gradient."""
    pack = PackedModel(backbone_federation.model, backbone_federation.model.module, torch.device("cpu"))
    pack.load_clients([backbone_federation.model.initial_params])
    batch = {
        **backbone_federation.server_context(0).participant.split("global").batch(np.arange(3)),
        "states": torch.randn(3, 5, WIDTH),
        "tokens": torch.full((3, 5), 6),
        "has_pair": torch.tensor([1.0, 1.0, 0.0]),
        "positives": torch.randn(3, WIDTH),
        "negatives": torch.randn(3, 2, WIDTH),
    }
    task_losses, _ = CrossEntropy().losses(pack, batch)
    losses, weights = ContrastiveTask(CrossEntropy()).losses(pack, batch)
    assert ((losses - task_losses) > 0).tolist() == [True, True, False]
    assert weights.tolist() == [1, 1, 1]
    pack.begin_step()
    (losses - task_losses).sum().backward()
    pack.collect_grads()
    names = [name for name, gradient in pack.tensor_views(pack.grads) if gradient.abs().sum() > 1e-6]
    assert {".".join(name.split(".")[:2]) for name in names} == {
        "backbone.decoder",
        "contrastive_head.1",
        "contrastive_head.4",
    }


def test_both_pairings_train_the_contrast_head(backbone_federation: Federation) -> None:
    def contrast_head(pairing: Any, rounds: int) -> Tensor:
        running = run_rounds(backbone_federation, make_contrast(pairing=pairing), rounds)
        return select(
            running.storage.client_states.get("contrast", backbone_federation.clients[0]),
            "name:contrastive_head.*",
        )

    untrained, random, by_index = contrast_head("random", 1), contrast_head("random", 2), contrast_head("by_index", 2)
    assert not torch.equal(untrained, random)
    assert not torch.equal(untrained, by_index)
    assert not torch.equal(random, by_index)


def test_without_contrast_only_encoders_are_sent(backbone_federation: Federation) -> None:
    running = run_rounds(backbone_federation, make_contrast(use_contrast=False), 2)
    encoders = 2 * len(backbone_federation.clients) * 4 * count_parameters(backbone_federation, "encoder")
    assert running.engine.mailbox.traffic.payload_up == running.engine.mailbox.traffic.payload_down == encoders
    assert running.state.ranking


# ---- synthetic instances --------------------------------------------------------------------------------------------


def test_clients_can_apply_the_weights_themselves(backbone_federation: Federation) -> None:
    def make_instances(weighting: Any) -> Any:
        synthetic = SyntheticStates(INSTANCES, TOKENS, half=False, weighting=weighting)
        running = run_rounds(backbone_federation, make_contrast(synthetic=synthetic), 1)
        return running.storage.client_states.get("between", backbone_federation.clients[0])

    by_server, by_client = make_instances("server"), make_instances("client")
    assert torch.allclose(by_server.states, by_client.states, atol=1e-5)
    assert by_server.states.abs().sum() > 0
    assert torch.equal(by_server.tokens, by_client.tokens)


def test_weights_are_normalized_over_the_clients_that_reply(backbone_federation: Federation) -> None:
    rnd = replace(round_without_clients(0), server=backbone_federation.server_context(0))
    mlm_head = backbone_federation.model.initial_params.select_layers(Layers.parse("encoder head"))
    script = SyntheticStates(5, 2, half=False).create(mlm_head, ["a", "b", "c"], rnd)
    next(script)
    states = torch.ones(5, 2, WIDTH)
    job: Any = script.send({"a": states, "c": states})
    assert torch.allclose(job.examples.extra_columns["states"], states)


def test_clients_outside_the_first_cohort_receive_the_synthetic_instances(backbone_federation: Federation) -> None:
    running = start_run(backbone_federation, make_contrast())
    clients = tuple(backbone_federation.clients)
    advance(running, cohort=clients[:2])
    assert all(running.storage.client_states.get("between", client) is not None for client in clients)
    assert set(running.state.ranking) == set(clients[:2])


def test_a_client_that_weights_its_states_does_not_send_them_unweighted(backbone_federation: Federation) -> None:
    synthetic = SyntheticStates(INSTANCES, TOKENS, weighting="client")
    running = start_run(backbone_federation, make_contrast(synthetic=synthetic))
    script = gather(synthetic.send_states, {backbone_federation.clients[0]: None})
    with pytest.raises(RunError, match="only weighted, in a sum"):
        run_script(script, running.engine.mailbox.run_exchange, running.engine.executor.run)


# ---- options --------------------------------------------------------------------------------------------------------


def phase_names(algorithm: Phases) -> list[str]:
    return [phase.algorithm.name for phase in algorithm.phases]


def test_the_ablations_of_the_paper_are_options() -> None:
    assert phase_names(atc()) == ["assign", "contrast"]
    assert phase_names(atc(assign=0)) == ["contrast"]
    assert phase_names(atc(second_stage="fedavg")) == ["assign", "fedavg"]
    second = atc(second_stage="fedavg").phases[1].algorithm
    assert isinstance(second, FedAvg)
    assert second.shared == Layers.parse("encoder")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objectives": ()}, "one or both of mlm, dr"),
        ({"clusters": 0}, "expected at least 1"),
        ({"neighbors": 0}, "expected at least 1"),
        ({"instances": 0}, "expected at least 1"),
        ({"assign": 1.2}, "expected 0 to 1"),
    ],
)
def test_invalid_options_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        atc(**options)


def test_the_share_of_a_phase_must_be_valid() -> None:
    with pytest.raises(ConfigError, match=r"assign: its share of the rounds is -0\.1"):
        Phase(Assign(SOLVER), -0.1)


def test_a_model_without_a_backbone_is_rejected_before_training(federation: Federation) -> None:
    with pytest.raises(ConfigError, match="mixed:<encoder>"):
        start_run(federation, atc())


def test_secure_sums_are_rejected() -> None:
    config = RunConfig("x", algorithm=ComponentConfig("atc"), secure=ComponentConfig("secagg"))
    with pytest.raises(
        PrivacyError, match=r"atc reads the replies of individual clients \(assign.learn, .*contrast.learn"
    ):
        build_secure(config, atc(), build_channel(config))


# ---- clients with different tasks -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mixed_tasks() -> Federation:
    settings = {
        "model": {"name": "mixed:tiny", "max_tokens": 32, "config": SMALL},
        "data": {"limit": 24, "test_limit": 8},
        "groups": [
            {"corpus": "toy-classification", "clients": 2},
            {"corpus": "toy-qa", "clients": 1, "task": {"max_question_tokens": 8}},
            {"corpus": "toy-seq2seq", "clients": 1, "task": {"max_target_tokens": 6, "num_beams": 1}},
        ],
    }
    return build_federation(RunConfig.from_settings("mixed tasks", settings))


def test_clients_with_different_tasks_learn_together(mixed_tasks: Federation) -> None:
    algorithm = atc(SOLVER, assign=0.5, assign_steps=2, assign_batch=8, clusters=2, neighbors=2, instances=6, tokens=8)
    running = run_rounds(mixed_tasks, algorithm, 4)
    reports = running.evaluator.evaluate_clients().scores
    assert set(reports) == set(mixed_tasks.clients)
    assert {mixed_tasks.group_for(c).task.primary_metric for c in reports} == {"accuracy", "f1", "rougeL"}
    states = [running.storage.client_states.get("contrast", client) for client in mixed_tasks.clients]
    head_sizes = sorted(len(select(state, "name:head.*")) for state in states)
    # seq2seq has no head, question answering has two outputs, and classification has four classes
    assert head_sizes == [0, 2 * (WIDTH + 1), 4 * (WIDTH + 1), 4 * (WIDTH + 1)]


def test_fedavg_over_the_encoder_runs_with_different_tasks(mixed_tasks: Federation) -> None:
    running = run_rounds(mixed_tasks, FedAvg(SOLVER, shared=Layers.parse("encoder")), 2)
    assert running.state.params.layout == mixed_tasks.model.layout.select_layers(Layers.parse("encoder"))
    assert len(running.evaluator.evaluate_clients().scores) == 4


# ---- offloading of personal models ----------------------------------------------------------------------------------


def test_large_models_are_offloaded_to_disk_unchanged(backbone_federation: Federation, tmp_path: Path) -> None:
    model = backbone_federation.model.initial_params
    on_disk = ParamOffload(tmp_path, min_bytes=1).offload(model)
    assert torch.equal(on_disk.flat, model.flat)
    assert on_disk.flat.untyped_storage().filename is not None
    assert list(tmp_path.iterdir()) == [], "the file is unlinked, so that nothing is left behind"
    assert ParamOffload(tmp_path).offload(model) is model, "small models are not offloaded"
    on_host = ParamOffload(tmp_path, host_limit=2**30, min_bytes=1).offload(model)
    assert torch.equal(on_host.flat, model.flat)
    assert on_host.flat.untyped_storage().filename is None, "models stay in host memory while there is space"
