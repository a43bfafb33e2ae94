"""The loop of a run: run a round, evaluate, log, save a checkpoint."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from motet.core.rebased import ModelParams
from motet.core.script import ClientId, Note
from motet.core.work import Executor
from motet.experiment.build.run_plan import RunPlan
from motet.experiment.loop.checkpoint import RunProgress
from motet.experiment.loop.deployed_model import assemble_model
from motet.experiment.loop.evaluation_log import EvaluationLog
from motet.experiment.loop.metrics_log import INITIAL_SPLIT
from motet.experiment.loop.round_engine import ConnectClients, EngineHooks, RoundEngine
from motet.experiment.loop.run_evaluator import ClientResults, RunEvaluator
from motet.experiment.loop.run_origin import describe_origin
from motet.experiment.loop.run_result import RunResult
from motet.experiment.loop.run_storage import RunStorage, state_budget
from motet.experiment.loop.scores import (
    describe_scores,
    final_and_best,
    find_best_dev_round,
    score_spread,
    scores_by_round,
)
from motet.experiment.loop.text_samples import Moment, write_samples
from motet.report.profiler import span
from motet.report.run_callback import RunCallback
from motet.transport.in_process import InProcessTransport


class FederatedRun:
    """A run in progress: an engine for its rounds, an evaluator, and storage.

    Remote clients (`is_remote`) keep their own state, and checkpoints have none of it.
    """

    def __init__(
        self,
        plan: RunPlan,
        executor: Executor,
        *,
        folder: Path | None = None,
        callback: RunCallback | None = None,
        connect: ConnectClients = InProcessTransport,
        is_remote: bool = False,
    ) -> None:
        self.plan, self.callback = plan, callback or RunCallback()
        budget = state_budget(plan.checkpoint.memory, executor)
        self.storage = RunStorage(folder, plan.checkpoint, plan.digest, budget, partial(describe_origin, plan))
        checkpoints = self.storage.checkpoint_folder
        self.engine = RoundEngine(
            plan,
            executor,
            self.storage.client_states,
            connect=connect,
            is_remote=is_remote,
            accountant_folder=checkpoints,
            exchange_folder=checkpoints / "exchanges" if checkpoints and is_remote else None,
            hooks=EngineHooks(
                on_client_done=self.callback.on_client_done,
                on_note=self._log_note,
                offload=self.storage.offload_for(len(plan.federation.clients)).offload,
            ),
        )
        self.evaluator = RunEvaluator(plan, self.engine)
        self.evaluations = EvaluationLog(self.evaluator, self.storage)

    @property
    def rounds(self) -> int:
        """The number of complete rounds."""
        return self.engine.progress.rounds

    @property
    def state(self) -> Any:
        """The algorithm's state after the last complete round."""
        return self.engine.progress.state

    def model_for(self, client: ClientId | None = None) -> ModelParams:
        """Return the model that a client would deploy; without one, the model for a client without local state."""
        return assemble_model(self.plan, self.kept_progress, self.storage.client_states, client)

    @property
    def kept_progress(self) -> RunProgress:
        """The run after the round whose model is kept."""
        return self.storage.best or self.engine.progress

    @property
    def is_finished(self) -> bool:
        """True if no round follows."""
        return self.engine.is_finished or self.evaluations.stops_early

    def restore(self) -> bool:
        """Go to the last checkpoint to read it; return False if there is none."""
        checkpoint = self.storage.restore()
        if checkpoint is not None:
            self.engine.restore(checkpoint.progress, self.storage.failures)
        return checkpoint is not None

    def resume(self) -> bool:
        """Go to the last checkpoint to continue the run; return False if there is none."""
        checkpoint = self.storage.resume()
        if checkpoint is None:
            return False
        self.engine.restore(checkpoint.progress, self.storage.failures)
        if self.is_finished and self.storage.metrics.has_scores(self.rounds, "global"):
            with self.engine.at(self.kept_progress):
                self.evaluations.evaluate_split(
                    "global"
                )  # only the summary is missing, and it needs per-example scores
        return True

    def run_rounds(self, until: int | None = None) -> None:
        """Run and evaluate rounds, to the end of the run or until `until` rounds are complete."""
        if not self.rounds:
            self._write_samples("before")
            if scores := self.evaluations.evaluate_initial_model():
                self.callback.on_note(f"before training: {describe_scores(scores)}")
        if self.evaluations.is_due and not self.evaluations.is_done:
            self._evaluate_round()  # the run was interrupted while it evaluated this round
        while self.rounds < (self.plan.rounds if until is None else until):
            if reason := self.engine.stop_reason:
                self.callback.on_note(f"stopping after round {self.rounds}: {reason}")
                break
            if self.evaluations.stops_early:
                self.callback.on_note(
                    f"stopping after round {self.rounds}: {self.plan.best_round_metric} on the development set has not "
                    f"improved in {self.plan.evaluation.patience} evaluations"
                )
                break
            self.callback.on_round_begin(self.rounds + 1, self.plan.cohort_size)
            self.engine.run_round()
            self.storage.mark_complete(self.engine.mailbox.failures)
            self._evaluate_round()
            if self.plan.checkpoint.last if self.is_finished else self.storage.is_save_due:
                self.save()

    def save(self) -> None:
        """Save the last complete round, if the run has a folder."""
        if self.storage.folder is None:
            return
        progress = self.engine.progress
        self.storage.save(progress)
        self.engine.mailbox.mark_checkpointed(progress.traffic.requests)

    def finish(self) -> RunResult:
        """Evaluate each client's own model, and return the result of the run."""
        self._write_samples("after")
        if not self.plan.evaluation.test:
            return self._build_result(ClientResults())
        with self.engine.at(self.kept_progress):
            clients = self.evaluations.evaluate_clients()
        return self._build_result(clients)

    def _evaluate_round(self) -> None:
        """Evaluate the last complete round if it is due, and report the round."""
        with span(f"evaluate round {self.rounds}", "evaluation", after_round=self.rounds):
            scores = self.evaluations.evaluate_round()
            metric, traffic = self.plan.federation.task.primary_metric, self.engine.progress.traffic
            self.callback.on_round_end(self.rounds, scores, metric, traffic)
            self.storage.mark_complete(self.engine.mailbox.failures)

    def _write_samples(self, moment: Moment) -> None:
        evaluates_test = self.plan.evaluation.test  # the samples are answers to test rows
        if self.storage.folder is not None and evaluates_test and not self.plan.has_personal_models:
            count = self.plan.evaluation.samples
            with span(f"write samples {moment} training", "evaluation"):
                write_samples(self.storage.folder, self.engine, self.model_for(), count, moment)

    def _log_note(self, note: Note) -> None:
        """Log a note of the algorithm, which belongs to the round in progress."""
        if note.text:
            self.callback.on_note(note.text)
        self.storage.metrics.add(self.rounds + 1, note.source, note.kind, note.values, self.engine.mailbox.traffic)

    def _build_result(self, clients: ClientResults) -> RunResult:
        engine, metrics = self.engine, self.storage.metrics
        self.storage.client_states.recall()
        federation = self.plan.federation
        primary_metric = federation.task.primary_metric
        own_scores = [s[federation.group_for(c).task.primary_metric] for c, s in clients.scores.items()]
        mean = clients.mean
        final, best = final_and_best(metrics, primary_metric, self.kept_progress.rounds)
        last = self.evaluations.last_result
        examples = {} if last.example_scores is None else {"": last.example_scores}
        return RunResult(
            primary_metric=primary_metric,
            rounds=self.rounds,
            kept_round=self.kept_progress.rounds,
            state=self.state,
            params=self.model_for(),
            model_for=partial(assemble_model, self.plan, self.kept_progress, self.storage.client_states),
            has_personal_models=self.plan.has_personal_models,
            client_states=self.storage.client_states,
            metrics=metrics,
            final=final,
            best=best,
            initial=scores_by_round(metrics.rows, INITIAL_SPLIT).get(0, {}),
            best_dev_round=find_best_dev_round(metrics, self.plan.best_round_metric),
            group_scores=last.groups,
            client_scores=clients.scores,
            client_spread={"mean": mean[primary_metric]} if primary_metric in mean else score_spread(own_scores),
            evaluated_clients=len(self.evaluator.clients),
            example_scores=examples | clients.example_scores,
            confusions=self.evaluations.collect_confusions(clients),
            epsilon=engine.accountant.epsilon() if engine.accountant else None,
            traffic=engine.progress.traffic,
            failures=engine.mailbox.failures,
            rejected_replies=engine.mailbox.rejected,
            seconds=metrics.seconds,
            examples_per_second=engine.examples_per_second,
        )


def execute_plan(
    plan: RunPlan,
    executor: Executor,
    *,
    folder: Path | None = None,
    resume: bool = False,
    callback: RunCallback | None = None,
    connect: ConnectClients = InProcessTransport,
    is_remote: bool = False,
) -> RunResult:
    """Run a plan to its end. With a folder, a run that is interrupted leaves a checkpoint to resume from."""
    plan.check_oort(is_remote)
    if folder is not None:
        plan = replace(plan, components=plan.components.with_noise_key(folder / "checkpoint"))
    run = FederatedRun(plan, executor, folder=folder, callback=callback, connect=connect, is_remote=is_remote)
    if resume:
        run.resume()
    run.callback.on_run_begin(plan.name or plan.algorithm.name, plan.rounds, run.rounds)
    for note in _startup_notes(plan):
        run.callback.on_note(note)
    try:
        run.run_rounds()
        return run.finish()
    except BaseException:
        run.engine.transport.close()
        run.save()
        raise
    finally:
        run.callback.on_run_end()


def _startup_notes(plan: RunPlan) -> list[str]:
    notes = []
    clients = len(plan.federation.clients)
    if (plan.cohort.size or 0) > clients:
        notes.append(
            f"cohort.size is {plan.cohort.size}, but there are {clients} clients; all take part in every round"
        )
    for name, wrapper in (("masks come", plan.components.secure), ("noise comes", plan.components.privacy)):
        if wrapper is not None and wrapper.seeded:
            notes.append(f"{name} from the run's seed, so the run is reproducible, but not private")
    if plan.components.privacy is not None and not plan.exchanges_models:
        notes.append(f"{plan.algorithm.name} sends no updates that noise could be added to: it has no ε")
    if plan.evaluation.keep == "best" and plan.algorithm.view(plan.initial_state, plan.federation.clients[0]) is None:
        notes.append("evaluation.keep=best keeps the server's model; the clients' own models are of the last round")
    return [*notes, *plan.federation.notes]
