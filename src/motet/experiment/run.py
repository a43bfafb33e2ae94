"""The loop: pick a cohort, play a round, look at the model, write down what was seen, keep what is needed to go on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from motet.codecs.channel import Channel
from motet.core.params import Params
from motet.core.program import Algorithm, Roster, Round, Start
from motet.core.rng import Seed
from motet.core.script import ClientId, Exchange, Script, play
from motet.core.work import Bench
from motet.experiment.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from motet.experiment.cohorts import pick
from motet.experiment.config import CohortChoice, Evaluation
from motet.experiment.interim import Interim
from motet.experiment.record import Record, spread
from motet.learning.evaluate import Evaluate
from motet.report.progress import Silent, Watch
from motet.transport.host import ContextOf, Host
from motet.transport.in_process import InProcess
from motet.transport.mailbox import Mailbox, Traffic
from motet.transport.memories import Memories
from motet.transport.messages import Transport
from motet.transport.patience import Patience


class Participants(Protocol):
    """Who takes part, with what: a corpus over clients (`Federation`), or somebody's own trainer (`OwnFederation`)."""

    @property
    def clients(self) -> Roster: ...
    @property
    def seed(self) -> Seed: ...
    @property
    def task(self) -> Judged: ...
    @property
    def context(self) -> ContextOf: ...
    def start(self) -> Start: ...
    def server_context(self, round: int) -> Any: ...


class Judged(Protocol):
    @property
    def headline(self) -> str: ...
    @property
    def measures(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything a run needs, put together and checked."""

    federation: Participants
    algorithm: Algorithm
    rounds: int
    cohort: CohortChoice = CohortChoice()
    evaluation: Evaluation = Evaluation()
    patience: Patience = Patience()
    channel: Channel = Channel()
    checkpoint_seconds: float = 20.0
    name: str = ""
    digest: str = ""


@dataclass(frozen=True, eq=False)
class Result:
    """How a run ended. `final` and `best` are the global model's metrics on the global test set."""

    state: Any
    params: Params  # what somebody would deploy who has no memory of his own
    record: Record
    traffic: Traffic
    memories: Memories
    final: dict[str, float]
    best: dict[str, float]
    clients: dict[ClientId, dict[str, float]]
    clients_final: dict[str, float]
    seconds: float
    examples_per_second: float
    lost: list[tuple[int, ClientId, str]]


def programs_of(algorithm: Algorithm) -> list[Any]:
    """All that a client offers in a run of this algorithm."""
    return [algorithm, Evaluate(algorithm)]


Connect = Callable[[Host], Transport]  # how the clients are reached; those who live here are the host's


class Running:
    """A run under way. With `apart` the clients keep their own memories, and the checkpoint holds none."""

    def __init__(
        self, plan: Plan, bench: Bench, folder: Path | None, watch: Watch, connect: Connect = InProcess, apart: bool = False
    ) -> None:
        self.plan, self.bench, self.watch = plan, bench, watch
        self.folder = folder / "checkpoint" if folder else None
        self.judge = Evaluate(plan.algorithm)
        self.memories = Memories(self.folder / "memories" if self.folder else None)
        self.host = Host(programs_of(plan.algorithm), plan.federation.context, bench, self.memories, plan.channel)
        self.transport = connect(self.host)
        self.mailbox = Mailbox(self.transport, plan.patience, plan.channel)
        self.mailbox.watch = lambda address, client, seen, asked: watch.client(seen, asked)
        self.survey = self.mailbox.beside()  # evaluation's traffic is not the algorithm's
        interim = Interim(self.folder / "exchanges", self.mailbox) if self.folder and apart else self.mailbox
        self.ask: Callable[[Exchange], Any] = interim.ask
        self.record = Record(folder)
        self.state: Any = plan.algorithm.init(plan.federation.start())
        self.done, self.processed_before = 0, 0
        self.settled = Traffic()  # as it stood after the last finished round
        self.training = 0.0  # seconds
        self.saved = time.monotonic()

    def resume(self) -> bool:
        """Go back to the last checkpoint; False if there is none."""
        found = load_checkpoint(self.folder, self.plan.digest) if self.folder else None
        if found is None:
            self.record.resume(0, 0.0)
            return False
        self.state, self.done = found.state, found.rounds
        self.memories.restore(found.memories)
        self.mailbox.traffic, self.settled = found.traffic, replace(found.traffic)
        self.mailbox.settled = found.traffic.requests
        self.processed_before = found.processed
        self.record.resume(found.rows, found.seconds)
        return True

    def play_rounds(self) -> None:
        plan = self.plan
        for index in range(self.done, plan.rounds):
            cohort = pick(plan.cohort, plan.federation.clients, index, plan.federation.seed)
            self.watch.cohort(index + 1, len(cohort))
            began = time.monotonic()
            context = plan.federation.server_context(index)
            rnd = Round(index, plan.rounds, cohort, plan.federation.seed.of("round", index), context)
            self.mailbox.round = index
            self.state = self._play(plan.algorithm.round(self.state, rnd), self.ask)
            self.memories.settle()
            self.done, self.settled = index + 1, replace(self.mailbox.traffic)
            self.training += time.monotonic() - began
            last = self.done == plan.rounds
            scores = self.look() if last or self.done % plan.evaluation.every == 0 else {}
            self.record.add(self.done, "server", "global", scores, self.mailbox.traffic)
            self.watch.round(self.done, scores, plan.federation.task.headline, self.mailbox.traffic)
            if last or time.monotonic() - self.saved > plan.checkpoint_seconds:
                self.save()

    def look(self) -> dict[str, float]:
        """The global model on the global test set. Where every client has its own model: the mean over clients."""
        algorithm, federation = self.plan.algorithm, self.plan.federation
        self.survey.round = self.done
        if algorithm.personal:
            reports = self._play(self.judge.each(self.state, self.judged(), "global"), self.survey.ask)
            names = federation.task.measures
            return {n: sum(r[n] for r in reports.values()) / len(reports) for n in names if reports}
        server = federation.server_context(self.done)
        scores: dict[str, float] = self._play(server.evaluate(self.model_params(), "global"), self.ask)
        return scores

    def look_at_clients(self) -> dict[ClientId, dict[str, float]]:
        """Each client's own model on its own test set."""
        self.survey.round = self.done
        found: dict[ClientId, dict[str, float]] = self._play(
            self.judge.each(self.state, self.judged(), "test"), self.survey.ask
        )
        return found

    def judged(self) -> list[ClientId]:
        clients, most = self.plan.federation.clients, self.plan.evaluation.clients
        return [clients[i] for i in range(len(clients) if most is None else min(most, len(clients)))]

    def model_params(self, client: ClientId | None = None) -> Params:
        """What a client would deploy; without one, what somebody would who has no memory."""
        algorithm, federation = self.plan.algorithm, self.plan.federation
        if client is None:
            return algorithm.assemble(federation.server_context(self.done), algorithm.view(self.state, ""), None)
        context = federation.context(client, self.done, "", _no_work, lambda program: None)
        memory = self.memories.get(algorithm.name, client)
        return algorithm.assemble(context, algorithm.view(self.state, client), memory)

    def save(self) -> None:
        """Keep what is needed to go on from the last finished round."""
        if self.folder is None:
            return
        self.memories.forget_round()
        files = self.memories.save()
        processed = self.processed_before + self.bench.processed
        found = Checkpoint(
            self.done, self.state, files, self.settled, self.record.size(), self.record.seconds, processed, self.plan.digest
        )
        save_checkpoint(self.folder, found, self.memories)
        self.mailbox.settled = self.settled.requests
        self.saved = time.monotonic()

    def _play(self, script: Script[Any], ask: Callable[[Exchange], Any]) -> Any:
        return play(script, ask, self.bench.run)


def run(
    plan: Plan,
    bench: Bench,
    *,
    folder: Path | None = None,
    resume: bool = False,
    watch: Watch | None = None,
    connect: Connect = InProcess,
    apart: bool = False,
) -> tuple[Result, Running]:
    """Run a plan to its end. With a folder, whatever ends it early leaves a checkpoint from which it goes on."""
    running = Running(plan, bench, folder, watch or Silent(), connect, apart)
    if resume:
        running.resume()
    before = bench.processed
    running.watch.begin(plan.name or plan.algorithm.name, plan.rounds, running.done)
    try:
        running.play_rounds()
        clients = running.look_at_clients()
    except BaseException:
        running.transport.close()
        running.save()
        raise
    finally:
        running.watch.end()
    headline = plan.federation.task.headline
    own = {client: scores[headline] for client, scores in clients.items()}
    for client, value in own.items():
        running.record.add(plan.rounds, client, "test", {headline: value}, running.mailbox.traffic)
    final, best = _final_and_best(running.record, headline)
    pace = (bench.processed - before) / running.training if running.training else 0.0
    result = Result(
        running.state, running.model_params(), running.record, running.mailbox.traffic, running.memories, final, best, clients,
        spread(list(own.values())), running.record.seconds, pace, running.mailbox.lost,
    )  # fmt: skip
    return result, running


def _no_work(address: str, _: Any) -> Any:
    raise RuntimeError(f"{address} was asked for outside a run")


def _final_and_best(record: Record, headline: str) -> tuple[dict[str, float], dict[str, float]]:
    by_round: dict[int, dict[str, float]] = {}
    for row in record.rows:
        if row["who"] == "server" and row["split"] == "global":
            by_round.setdefault(row["round"], {})[row["name"]] = row["value"]
    if not by_round:
        return {}, {}
    best = max(by_round, key=lambda r: (by_round[r].get(headline, float("-inf")), -r))
    return by_round[max(by_round)], by_round[best]
