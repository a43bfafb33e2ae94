"""The loop: pick a cohort, play a round, look at the model, write down what was seen, keep what is needed to go on."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from motet.core.errors import ConfigError, RunError
from motet.core.params import Params
from motet.core.program import Round
from motet.core.rng import Seed
from motet.core.script import ClientId, Exchange, Note, Script, rewrite_sums, run_script
from motet.core.work import Executor
from motet.experiment.build.federation import Federation
from motet.experiment.build.run_plan import RunPlan, build_accountant
from motet.experiment.loop.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from motet.experiment.loop.client_sampling import sample_cohort
from motet.experiment.loop.example_scores import BEST_DEV_SCORES, GLOBAL_MODEL_SCORES, write_example_scores
from motet.experiment.loop.exchange_log import ExchangeLog
from motet.experiment.loop.metrics_log import MetricsLog, mean_metrics, score_spread
from motet.experiment.loop.param_offload import ParamOffload
from motet.experiment.loop.per_client_eval import evaluate_per_client
from motet.experiment.loop.scores import (
    BestDevRound,
    final_and_best,
    find_best_dev_round,
    find_best_round,
    group_means,
    mean_over_groups,
    scores_by_round,
)
from motet.learning.context import EvaluationResult
from motet.learning.evaluation import EvaluationReport, Evaluator
from motet.learning.executors.memory_budget import CLIENT_STATE_FRACTION, free_memory
from motet.report.progress import RunCallback, SilentProgress
from motet.transport.client_runtime import ClientRuntime
from motet.transport.client_state import ClientStates
from motet.transport.emulated_network import EmulatedTransport
from motet.transport.in_process import InProcessTransport
from motet.transport.mailbox import ClientFailure, Mailbox, Traffic
from motet.transport.requests import Transport


@dataclass(frozen=True, eq=False)
class RunResult:
    """How a run ended. `final` and `best` are the global model's metrics on the global test set, after the last round and
    after the best there; `chosen` is the round that was best on the development set, if there is one; `groups` are the
    last of each group's, where every client has its own model."""

    state: Any
    params: Params  # what somebody would deploy who has no memory of his own
    record: MetricsLog
    traffic: Traffic
    memories: ClientStates
    final: dict[str, float]
    best: dict[str, float]
    chosen: BestDevRound | None
    clients: dict[ClientId, dict[str, float]]
    clients_final: dict[str, float]
    groups: dict[str, dict[str, float]]
    items: dict[ClientId, np.ndarray]
    seconds: float
    examples_per_second: float
    lost: list[ClientFailure]
    own: Callable[[ClientId], Params]  # what this client would deploy

    @property
    def local_test(self) -> dict[str, float]:
        """LG-FedAvg's local test: each client's own model on its own test set, the mean over clients, all alike."""
        return mean_metrics(self.clients.values())


ConnectTransport = Callable[
    [ClientRuntime], Transport
]  # how the clients are reached; those who live here are the host's


class FederatedRun:
    """A run under way. With `apart` the clients keep their own memories, and the checkpoint holds none."""

    def __init__(
        self,
        plan: RunPlan,
        executor: Executor,
        folder: Path | None,
        callback: RunCallback,
        connect: ConnectTransport = InProcessTransport,
        apart: bool = False,
    ) -> None:
        self.plan, self.executor, self.callback = plan, executor, callback
        self.place, self.folder = folder, folder / "checkpoint" if folder else None
        self.judge = Evaluator(plan.algorithm)
        at_hand, room = _at_hand(plan.checkpoint.memory, executor)
        self.shelf = ParamOffload(
            self.folder, room // (2 * max(1, len(plan.federation.clients)))
        )  # a round has old ones and new
        self.memories = ClientStates(self.folder / "memories" if self.folder else None, at_hand, room)
        self.host = ClientRuntime(
            plan.components.client_programs,
            plan.federation.context,
            executor,
            self.memories,
            plan.components.channel,
            required_wrappers=plan.components.required_wrappers,
        )
        self.ledger = build_accountant(plan, apart)
        self.transport = connect(self.host)
        self.emulated = (
            EmulatedTransport(self.transport, plan.network, plan.federation.clients) if plan.network else None
        )
        self.mailbox = Mailbox(self.emulated or self.transport, plan.wait_policy, plan.components.channel)
        self.mailbox.on_reply = callback.on_client_done
        self.survey = self.mailbox.create_sibling()  # evaluation's traffic is not the algorithm's
        interim = ExchangeLog(self.folder / "exchanges", self.mailbox) if self.folder and apart else self.mailbox
        self.ask: Callable[[Exchange], Any] = interim.run_exchange
        self.record = MetricsLog(folder)
        self.state: Any = plan.initial_state
        self.done, self.processed_before = 0, 0
        self.settled = Traffic()  # as it stood after the last finished round
        self.books = self._books()
        self.training = 0.0  # seconds
        self.saved, self.saving = time.monotonic(), 0.0  # when, and how long it took
        self.written = 0  # bytes of what is written down of the rounds that are done, and of looking at them
        self.has_dev_set = isinstance(plan.federation, Federation) and plan.federation.has_dev_set
        self.groups: dict[str, dict[str, float]] = {}  # as last looked at
        self.items: np.ndarray | None = None  # the score of every item of the global test set, after the last round

    @cached_property
    def personal(self) -> bool:
        """Whether there is no common model: the algorithm has none, or what is averaged is not all of the server's."""
        view = self.plan.algorithm.view(self.state, "")
        whole = self.plan.federation.server_context(0).model.initial_params
        return self.plan.algorithm.personal or (isinstance(view, Params) and view.layout != whole.layout)

    def restore(self) -> Checkpoint | None:
        """Stand where the last checkpoint stands; what is written down of the run is left as it is."""
        found = load_checkpoint(self.folder, self.plan.digest) if self.folder else None
        if found is not None:
            self.state, self.done = found.state, found.rounds
            self.memories.restore(found.memories)
            self.mailbox.traffic, self.settled = found.traffic, replace(found.traffic)
            self.mailbox.last_checkpointed = found.traffic.requests
            self.processed_before = found.processed
            if self.emulated:
                self.emulated.set_clock(found.traffic.network_seconds)
            if self.ledger:
                self.ledger.sum_count, self.ledger.sums_by_client = found.sums, Counter(found.spent)
                self.books = self._books()
        return found

    def resume(self) -> bool:
        """Go back to the last checkpoint and forget what came after it; False if there is none."""
        found = self.restore()
        if found is None:
            self.record.resume(0, 0.0)
            return False
        self.record.resume(found.rows, found.seconds)
        self.written = found.rows
        if (
            self.record.has_global_scores(self.done) and self.last()
        ):  # only the summary was missing, and it wants the items
            self.look()
        return True

    def play_rounds(self, until: int | None = None) -> None:
        plan = self.plan
        if self.due() and not self.record.has_global_scores(self.done):  # it broke off while the round was judged
            self.judge_round()
            self.written = self.record.size()
        for index in range(self.done, plan.rounds if until is None else until):
            if self.over_budget(index):
                self.callback.on_note(
                    f"stopping after round {index}: the next would spend more than privacy.budget allows"
                )
                break
            cohort = sample_cohort(plan.cohort, plan.federation.clients, index, plan.federation.seed)
            self.callback.on_round_begin(index + 1, len(cohort))
            began = time.monotonic()
            context = plan.federation.server_context(index)
            seed = plan.federation.seed.derive("round", index)
            rnd = Round(index, plan.rounds, cohort, seed, context, self.shelf.offload)
            self.mailbox.round = index
            self.state = self._play(self._noisy(plan.algorithm.round(self.state, rnd), rnd.seed))
            self.memories.commit_round()
            if self.emulated:
                self.mailbox.traffic.network_seconds = self.emulated.seconds
            self.done, self.settled, self.books = index + 1, replace(self.mailbox.traffic), self._books()
            self.written = self.record.size()
            self.training += time.monotonic() - began
            self.judge_round()
            self.written = self.record.size()
            if plan.checkpoint.last if self.last() else self.worth_saving():
                self.save()

    def worth_saving(self) -> bool:
        """Whether what would be lost is worth the time that keeping it takes."""
        seconds = self.plan.checkpoint.seconds
        return time.monotonic() - self.saved > (max(seconds, 20 * self.saving) if seconds else 0)

    def last(self) -> bool:
        """Whether no round will follow."""
        return self.done == self.plan.rounds or self.over_budget(self.done)

    def due(self) -> bool:
        """Whether the model is to be looked at after the rounds that are done."""
        return self.done > 0 and (self.done % self.plan.evaluation.every == 0 or self.last())

    def judge_round(self) -> None:
        if self.due() and self.has_dev_set:
            self.record.add(self.done, "server", "dev", self.look("dev"), self.settled)
        scores = self.look() if self.due() else {}
        if scores and self.chosen() and self.place and self.items is not None:
            write_example_scores(
                self.place, {"": self.items}, BEST_DEV_SCORES
            )  # at once: the model of this round will be gone
        self.record.add(self.done, "server", "global", scores, self.settled)
        if self.due() and self.plan.evaluation.local and not self.last():  # after the last they are in any case
            self.record.add(self.done, "clients", "test", mean_metrics(self.look_at_clients().values()), self.settled)
        if self.ledger:
            scores = {**scores, "epsilon": self.ledger.epsilon()}
            self.record.add(self.done, "server", "privacy", {"epsilon": scores["epsilon"]}, self.settled)
        self.callback.on_round_end(self.done, scores, self.plan.federation.task.primary_metric, self.mailbox.traffic)

    def chosen(self) -> bool:
        """Whether this round is the best so far on the development set."""
        seen = scores_by_round(self.record.rows, "dev") if self.has_dev_set else {}
        return self.done in seen and find_best_round(seen, self.plan.best_round_metric) == self.done

    def over_budget(self, index: int) -> bool:
        """Whether the round after `index` rounds would spend more of the clients' privacy than is allowed."""
        if self.ledger is None or self.ledger.mechanism.budget is None:
            return False
        cohort = sample_cohort(self.plan.cohort, self.plan.federation.clients, index, self.plan.federation.seed)
        return self.ledger.epsilon(cohort) > self.ledger.mechanism.budget

    def _books(self) -> tuple[int, dict[ClientId, int]]:
        return (self.ledger.sum_count, dict(self.ledger.sums_by_client)) if self.ledger else (0, {})

    def _noisy(self, script: Script[Any], seed: Seed) -> Script[Any]:
        if self.plan.components.privacy is None or self.ledger is None:
            return script
        return rewrite_sums(self.plan.components.privacy.make_summation(seed, self.ledger.record_sum), script)

    def look(self, split: str = "global") -> dict[str, float]:
        """The global model on the global test set, or on the development set. Where every client has its own model: the mean
        over groups of their means."""
        federation, new = self.plan.federation, not self.record.has_global_scores(self.done)
        self.survey.round = self.done
        if self.personal and self.plan.components.secure:
            return self.look_at_mean(split)
        if self.personal:
            reports = self._play(self.judge.evaluate_each(self.state, self.judged(), split), self.survey)
            groups = group_means(federation, reports)
            if split == "global":
                self.groups = groups
            for name, scores in groups.items() if len(groups) > 1 and new else ():
                self.record.add(self.done, name, split, scores, self.mailbox.traffic)
            return mean_over_groups(federation.task, groups)
        server = federation.server_context(self.done)
        items = split == "global" and (self.last() or self.chosen())
        found: EvaluationResult = self._play(server.evaluate(self.model_params(), split, per_example=items))
        self.items = found.example_scores
        if self.plan.evaluation.by_client and isinstance(federation, Federation) and split == "global" and new:
            self.look_at_domains(federation)
        return found.scores

    def look_at_domains(self, federation: Federation) -> None:
        """The common model on each client's own test set."""
        found: dict[str, EvaluationResult] = self._play(
            evaluate_per_client(federation, self.model_params(), self.done, self.last())
        )
        if self.place and self.last():
            kept = {
                client: domain.example_scores for client, domain in found.items() if domain.example_scores is not None
            }
            write_example_scores(self.place, kept, GLOBAL_MODEL_SCORES)
        for client, domain in found.items():
            self.record.add(self.done, client or "server", "common", domain.scores, self.mailbox.traffic)

    def look_at_clients(self) -> dict[ClientId, dict[str, float]]:
        """Each client's own model on its own test set; nobody's, where only sums are revealed."""
        if self.plan.components.secure:
            return {}
        self.survey.round = self.done
        found: dict[ClientId, dict[str, float]] = self._play(
            self.judge.evaluate_each(self.state, self.judged(), "test"), self.survey
        )
        return found

    def look_at_mean(self, split: str) -> dict[str, float]:
        """The mean over clients of their own models' metrics, all that can be read under secure sums."""
        self.survey.round = self.done
        found: dict[str, float] = self._play(self.judge.evaluate_mean(self.state, self.judged(), split), self.survey)
        return found

    def look_at_clients_and_items(self) -> tuple[dict[ClientId, dict[str, float]], dict[ClientId, np.ndarray]]:
        """Also the score of every item: of the global test set under "", of each client's own if that is to be kept."""
        items = {"": self.items} if self.items is not None else {}
        if not self.plan.evaluation.save_example_scores or self.plan.components.secure:
            return self.look_at_clients(), items
        self.survey.round = self.done
        found: dict[ClientId, EvaluationReport] = self._play(
            self.judge.evaluate_examples(self.state, self.judged(), "test"), self.survey
        )
        own = {client: report.example_scores.numpy() for client, report in found.items() if len(report.example_scores)}
        return {client: report.scores for client, report in found.items() if report.scores}, items | own

    def judged(self) -> list[ClientId]:
        clients, most = self.plan.federation.clients, self.plan.evaluation.clients
        return [clients[i] for i in range(len(clients) if most is None else min(most, len(clients)))]

    def model_params(self, client: ClientId | None = None) -> Params:
        """What a client would deploy; without one, what somebody would who has no memory."""
        algorithm, federation = self.plan.algorithm, self.plan.federation
        if client is None:
            found = algorithm.assemble(federation.server_context(self.done), algorithm.view(self.state, ""), None)
        else:
            context = federation.context(
                client, self.done, "", _no_work, lambda program: self.memories.get(program, client)
            )
            found = algorithm.assemble(context, algorithm.view(self.state, client), context.read_state(algorithm.name))
        if found is None:
            raise ConfigError(
                f"{algorithm.name} has one model, of another architecture than {client}'s; ask for no client's."
            )
        return found

    def save(self) -> None:
        """Keep what is needed to go on from the last finished round."""
        if self.folder is None:
            return
        began = time.monotonic()
        self.memories.discard_round()
        files = self.memories.save()
        processed = self.processed_before + self.executor.examples_processed
        found = Checkpoint(
            self.done, self.state, files, self.settled, self.written, self.record.seconds, processed, self.plan.digest,
            *self.books,
        )  # fmt: skip
        save_checkpoint(self.folder, found, self.memories)
        self.mailbox.last_checkpointed = self.settled.requests
        self.saved = time.monotonic()
        self.saving = self.saved - began

    def _play(self, script: Script[Any], mailbox: Mailbox | None = None) -> Any:
        mailbox, ask = (self.mailbox, self.ask) if mailbox is None else (mailbox, mailbox.run_exchange)
        if self.plan.components.secure:
            script = rewrite_sums(self.plan.components.secure, script)
        try:
            return run_script(script, ask, self.executor.run, self._note)
        except RunError as error:  # of those who were lost on the way, a script that gives up does not know why
            why = next((f" First failure: {c}: {why}" for r, c, why in mailbox.failures if r == mailbox.round), "")
            raise error if why in str(error) else RunError(f"{error}{why}") from None

    def _note(self, remark: Note) -> None:
        if remark.text:
            self.callback.on_note(remark.text)
        self.record.add(self.done + 1, remark.source, remark.kind, remark.values, self.mailbox.traffic)


def execute_plan(
    plan: RunPlan,
    executor: Executor,
    *,
    folder: Path | None = None,
    resume: bool = False,
    callback: RunCallback | None = None,
    connect: ConnectTransport = InProcessTransport,
    apart: bool = False,
) -> tuple[RunResult, FederatedRun]:
    """Run a plan to its end. With a folder, whatever ends it early leaves a checkpoint from which it goes on."""
    running = FederatedRun(plan, executor, folder, callback or SilentProgress(), connect, apart)
    if resume:
        running.resume()
    before = executor.examples_processed
    running.callback.on_run_begin(plan.name or plan.algorithm.name, plan.rounds, running.done)
    if (plan.cohort.size or 0) > (there := len(plan.federation.clients)):
        running.callback.on_note(
            f"cohort.size is {plan.cohort.size}, and there are {there} clients; all of them take part in every round"
        )
    for what, veil in (("masks", plan.components.secure), ("noise", plan.components.privacy)):
        if veil is not None and veil.seeded:
            running.callback.on_note(f"{what} come from the run's seed: a simulation that repeats, and protects nobody")
    try:
        running.play_rounds()
        seen = running.look_at_mean("test") if plan.components.secure else {}, *running.look_at_clients_and_items()
    except BaseException:
        running.transport.close()
        running.save()
        raise
    finally:
        running.callback.on_run_end()
    return _result(running, executor.examples_processed - before, *seen), running


def _result(
    running: FederatedRun, processed: int, mean: dict[str, float], clients: dict[ClientId, dict[str, float]], items: Any
) -> RunResult:
    """`mean`: over all clients, where nothing else of them may be read."""
    federation, primary_metric = running.plan.federation, running.plan.federation.task.primary_metric
    own = [scores[federation.group_for(client).task.primary_metric] for client, scores in clients.items()]
    running.record.add(running.done, "clients", "test", mean or mean_metrics(clients.values()), running.mailbox.traffic)
    for client, scores in clients.items():
        running.record.add(running.done, client, "test", scores, running.mailbox.traffic)
    across = {"mean": mean[primary_metric]} if primary_metric in mean else score_spread(own)
    final, best = final_and_best(running.record, primary_metric)
    pace = processed / running.training if running.training else 0.0
    return RunResult(
        running.state, running.model_params(), running.record, running.mailbox.traffic, running.memories, final, best,
        find_best_dev_round(running.record, running.plan.best_round_metric), clients, across, running.groups, items, running.record.seconds,
        pace, running.mailbox.failures, running.model_params,
    )  # fmt: skip


def _at_hand(memory: float | None, executor: Executor) -> tuple[int, int]:
    """Bytes of clients' memories that stay where their models are, and as much again of what a round under way has changed. Of
    the rest an eighth of the host's memory is filled, by them and by personal models of the server each; what is over lies on
    disk."""
    if memory is not None:
        return int(memory * 2**30), 0
    host = torch.device("cpu")
    device: torch.device = getattr(executor, "device", host)
    there = (
        int(CLIENT_STATE_FRACTION * free_memory(device))
        if device.type == "cuda"
        else max(2**30, free_memory(host) // 16)
    )
    return there, free_memory(host) // 8


def _no_work(address: str, _: Any) -> Any:
    raise RuntimeError(f"{address} was asked for outside a run")
