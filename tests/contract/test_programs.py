"""The interface serves more than FedAvg: two exchanges a round, a message for each client, models of different shapes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from tests.sizes import SMALL

from motet.core.messages import message
from motet.core.params import Params
from motet.core.program import InitialModels, Round
from motet.core.rng import Seed
from motet.core.script import ClientId, Script, gather, run_script, work
from motet.core.work import Work
from motet.experiment.build.federation import Federation
from motet.experiment.build.federation_builder import build_federation
from motet.experiment.recipe.run_config import RunConfig
from motet.learning.context import Context
from motet.learning.data.features import Examples
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.solver import Solver
from motet.transport.client_runtime import ClientRuntime
from motet.transport.client_state import ClientStates
from motet.transport.in_process import InProcessTransport
from motet.transport.mailbox import Mailbox


@message
@dataclass(frozen=True, eq=False)
class Spoken:
    logits: torch.Tensor
    loss: float


@message
@dataclass(frozen=True, eq=False)
class Advice:
    logits: torch.Tensor
    rank: int


@dataclass(frozen=True)
class Parley:
    """Clients of any depth train, say what they think of common texts, and hear, each by name, what the others think."""

    solver: Solver
    name: str = "parley"
    personal: bool = True

    def init(self, start: InitialModels) -> None:
        return None

    def round(self, state: None, rnd: Round) -> Script[dict[ClientId, float]]:
        heard = yield from gather(self.speak, dict.fromkeys(rnd.cohort))
        mean = torch.stack([o.logits for o in heard.values()]).mean(0)
        order = sorted(heard, key=lambda c: heard[c].loss)
        said = yield from gather(self.listen, {c: Advice(mean, order.index(c)) for c in rnd.cohort})
        return said

    @work(reveals="each")
    def speak(self, ctx: Context, _: None, own: Params | None) -> Work[tuple[Spoken, Params]]:
        fitted = yield from ctx.fit(own or ctx.model.initial_params, self.solver)
        readings = yield from ctx.infer(fitted.params, ctx.participant.split("global"))
        return Spoken(readings["logits"], float(fitted.losses[-1])), fitted.params

    @work(reveals="each")
    def listen(self, ctx: Context, advice: Advice, own: Params) -> Work[tuple[float, Params]]:
        common = ctx.participant.split("global")
        lessons = Examples(common.features, common.rows, {"labels": advice.logits.argmax(-1)})
        fitted = yield from ctx.fit(own, self.solver, examples=lessons, purpose="listen")
        return float(advice.rank), fitted.params

    def view(self, state: None, client: ClientId) -> None:
        return None

    def assemble(self, ctx: Context, view: None, own: Params | None) -> Params:
        return own or ctx.model.initial_params


@pytest.fixture(scope="module")
def mixed() -> Federation:
    """Two clients with one layer, two with two."""
    depths = [{"clients": 2, "model": {"config": {**SMALL, "num_hidden_layers": depth}}} for depth in (1, 2)]
    top = {
        "data": {"name": "toy-classification", "limit": 96, "test_limit": 48},
        "model": {"name": "tiny", "max_tokens": 24},
    }
    return build_federation(RunConfig.from_settings("parley", {**top, "seed": 7, "groups": depths}))


def test_clients_with_models_of_different_shapes_teach_each_other(mixed: Federation) -> None:
    algorithm = Parley(Solver(lr=0.02, batch=8, epochs=2))
    memories = ClientStates()
    host = ClientRuntime([algorithm], mixed.context, SerialExecutor(torch.device("cpu")), memories)
    mailbox = Mailbox(InProcessTransport(host))
    cohort = tuple(mixed.clients)
    ranks = run_script(
        algorithm.round(None, Round(0, 1, cohort, Seed(0), None)), mailbox.run_exchange, lambda job: None
    )
    assert sorted(ranks.values()) == [0, 1, 2, 3]  # every client got the message meant for it
    sizes = {c: memories.get("parley", c).layout.size for c in cohort}
    assert len(set(sizes.values())) == 2  # and each kept a model of its own shape
    logits = mixed.server_participant.split("global")
    assert (
        mailbox.traffic.payload_down == len(cohort) * len(logits) * 4 * 4
    )  # rows × classes × bytes: no model travelled


def test_two_exchanges_of_a_round_see_what_the_first_one_left(mixed: Federation) -> None:
    algorithm = Parley(Solver(lr=0.02, batch=8))
    memories = ClientStates()
    client = mixed.clients[0]
    host = ClientRuntime([algorithm], mixed.context, SerialExecutor(torch.device("cpu")), memories)
    mailbox = Mailbox(InProcessTransport(host))
    script = algorithm.round(None, Round(0, 1, (client,), Seed(0), None))
    first = mailbox.run_exchange(next(script))  # type: ignore[arg-type]
    after_first = memories.get("parley", client).flat.clone()
    mailbox.run_exchange(script.send(first))  # type: ignore[arg-type]
    assert not torch.equal(memories.get("parley", client).flat, after_first)
