"""An algorithm unlike FedAvg: two exchanges per round, individual messages, and models of different shapes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from tests.runs import run_round, start_run
from tests.sizes import SMALL

from motet.core.messages import message
from motet.core.params import Params
from motet.core.program import Algorithm, InitialModels, Round
from motet.core.script import ClientId, Script, gather, to_all, work
from motet.core.work import Work
from motet.experiment.build.federation import Federation
from motet.experiment.build.federation_builder import build_federation
from motet.experiment.recipe.run_config import RunConfig
from motet.learning.context import Context
from motet.learning.data.features import Examples
from motet.learning.solver import Solver


@message
@dataclass(frozen=True, eq=False)
class Prediction:
    logits: torch.Tensor
    loss: float


@message
@dataclass(frozen=True, eq=False)
class PseudoLabels:
    labels: torch.Tensor
    rank: int


@dataclass(frozen=True)
class PseudoLabeling(Algorithm):
    """Clients train, predict the global test set, and train on the labels that all clients predict together.

    The state is each client's rank by loss, as the client reports it.
    """

    solver: Solver
    name: str = "pseudo_labeling"
    personal: bool = True

    def init(self, start: InitialModels) -> dict[ClientId, int]:
        return {}

    def round(self, state: dict[ClientId, int], rnd: Round) -> Script[dict[ClientId, int]]:
        predictions = yield from gather(self.predict, to_all(rnd.cohort, None))
        labels = torch.stack([prediction.logits for prediction in predictions.values()]).mean(0).argmax(-1)
        order = sorted(predictions, key=lambda client: predictions[client].loss)
        payloads = {client: PseudoLabels(labels, order.index(client)) for client in rnd.cohort}
        return (yield from gather(self.learn, payloads))

    @work(reveals="each")
    def predict(self, ctx: Context, _: None, client_state: Params | None) -> Work[tuple[Prediction, Params]]:
        result = yield from ctx.fit(client_state or ctx.initial_params, self.solver)
        predictions = yield from ctx.infer(result.params, ctx.participant.split("global"))
        return Prediction(predictions["logits"], float(result.losses[-1])), result.params

    @work(reveals="each")
    def learn(self, ctx: Context, target: PseudoLabels, client_state: Params) -> Work[tuple[int, Params]]:
        texts = ctx.participant.split("global")
        examples = Examples(texts.features, texts.rows, {"labels": target.labels})
        result = yield from ctx.fit(client_state, self.solver, examples=examples, purpose="learn")
        return target.rank, result.params

    def view(self, state: dict[ClientId, int], client: ClientId) -> None:
        return None

    def assemble(self, ctx: Context, view: None, client_state: Params | None) -> Params:
        return client_state or ctx.initial_params


@pytest.fixture(scope="module")
def two_depths() -> Federation:
    """Two clients with a model of one layer, and two with a model of two layers."""
    groups = [{"clients": 2, "model": {"config": {**SMALL, "num_hidden_layers": depth}}} for depth in (1, 2)]
    settings = {
        "data": {"name": "toy-classification", "limit": 96, "test_limit": 48},
        "model": {"name": "tiny", "max_tokens": 24},
        "seed": 7,
        "groups": groups,
    }
    return build_federation(RunConfig.from_settings("two depths", settings))


def test_models_of_different_shapes_learn_from_individual_messages(two_depths: Federation) -> None:
    running = start_run(two_depths, PseudoLabeling(Solver(lr=0.02, batch=8, epochs=2)))
    ranks = run_round(running)
    assert sorted(ranks.values()) == [0, 1, 2, 3]
    states = [running.storage.client_states.get("pseudo_labeling", client) for client in two_depths.clients]
    assert len({state.layout.size for state in states}) == 2
    texts = two_depths.server_participant.split("global")
    int64_labels = 8 * len(texts)
    assert running.engine.mailbox.traffic.payload_down == len(states) * int64_labels, "no parameters are sent"


def test_the_second_exchange_of_a_round_continues_from_the_first(two_depths: Federation) -> None:
    client = two_depths.clients[0]
    running = start_run(two_depths, PseudoLabeling(Solver(lr=0.02, batch=8)))
    states: list[torch.Tensor] = []

    def copy_state(received: int, expected: int) -> None:
        states.append(running.storage.client_states.get("pseudo_labeling", client).flat.clone())

    running.engine.mailbox.on_reply = copy_state
    run_round(running, cohort=[client])
    after_predict, after_learn = states
    assert not torch.equal(after_predict, after_learn)
