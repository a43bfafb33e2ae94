"""Run an algorithm's rounds: sample a cohort, run the script with noise and masks, count traffic and privacy."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from motet.core.errors import ConfigError, RunError
from motet.core.generator_mistakes import explain_generators
from motet.core.params import Params
from motet.core.program import Round
from motet.core.script import ClientId, Exchange, Note, Script, Transaction, run_script
from motet.core.work import Executor
from motet.experiment.build.federation import Federation
from motet.experiment.build.optimizer_keeping import keep_optimizers
from motet.experiment.build.run_plan import RunPlan, build_accountant
from motet.experiment.loop.checkpoint import RunProgress
from motet.experiment.loop.client_sampling import CohortSampler, make_clock, make_recorder
from motet.experiment.loop.exchange_log import ExchangeLog, run_with_restarts
from motet.experiment.loop.oort import OortState
from motet.report.profiler import span
from motet.transport.async_network import AsyncTransport
from motet.transport.client_runtime import ClientRuntime, Tamper
from motet.transport.client_state import ClientStates
from motet.transport.emulated_network import Network
from motet.transport.emulated_transport import EmulatedTransport
from motet.transport.in_process import InProcessTransport
from motet.transport.mailbox import ClientFailure, Mailbox
from motet.transport.requests import Transport
from motet.transport.traffic import Traffic

T = TypeVar("T")

# It gets the runtime of simulated clients. Remote clients have their own.
ConnectClients = Callable[[ClientRuntime], Transport]


@dataclass(frozen=True)
class EngineHooks:
    """Callbacks of an engine."""

    on_client_done: Callable[[int, int], None] = lambda answered, expected: None
    on_note: Callable[[Note], None] = lambda note: None
    # Moves large parameters of the server to host memory or disk.
    offload: Callable[[Params], Params] = lambda params: params


class RoundEngine:
    """Runs rounds, and holds the run's progress after the last complete one."""

    def __init__(
        self,
        plan: RunPlan,
        executor: Executor,
        client_states: ClientStates,
        *,
        connect: ConnectClients = InProcessTransport,
        is_remote: bool = False,
        exchange_folder: Path | None = None,
        accountant_folder: Path | None = None,
        hooks: EngineHooks = EngineHooks(),
    ) -> None:
        self.plan, self.executor, self.client_states, self.hooks = plan, executor, client_states, hooks
        self.runtime = make_runtime(plan, executor, client_states, is_remote)
        self.accountant = build_accountant(plan, is_remote, accountant_folder)
        self.transport = connect(self.runtime)
        self.network = emulate_network(plan, self.transport, is_remote)
        self.sampler = CohortSampler(plan, self.network)
        self.clock = make_clock(plan, self.network, self.transport, is_remote)
        self.mailbox = Mailbox(
            choose_transport(plan, self.network, self.clock or self.transport),
            plan.wait_policy,
            plan.components.channel,
            on_reply=hooks.on_client_done,
            durations=self.clock.durations if self.clock else {},
        )
        # Evaluation does not count as the algorithm's traffic. Simulated clients have no stragglers in it.
        self.evaluation_mailbox = self.mailbox.create_sibling(waits_for_all=not is_remote)
        self.exchange_log = ExchangeLog(exchange_folder, self.mailbox) if exchange_folder is not None else None
        self.training_seconds, self.trained_examples = 0.0, 0
        oort = OortState.initial(plan.cohort.oort) if plan.cohort.sampler == "oort" else None
        self.progress = replace(self._progress_after(0, plan.initial_state, Traffic()), oort=oort)

    @property
    def examples_per_second(self) -> float:
        return self.trained_examples / self.training_seconds if self.training_seconds else 0.0

    @property
    def is_finished(self) -> bool:
        """True if no round follows."""
        return self.progress.rounds == self.plan.rounds or bool(self.stop_reason)

    @property
    def stop_reason(self) -> str:
        """Why no round follows, although the run has more of them; empty if one does."""
        limit = None if self.network is None else self.network.network.max_seconds
        seconds = self.progress.traffic.network_seconds
        if limit is not None and seconds >= limit:
            return f"the virtual clock is at {seconds:,.0f} s, and network.max_seconds is {limit:g}"
        return "the next would spend more than privacy.budget allows" if self._is_over_budget else ""

    @property
    def _is_over_budget(self) -> bool:
        """True if another round would spend more privacy than the budget allows."""
        budget = None if self.accountant is None else self.accountant.mechanism.budget
        if self.accountant is None or budget is None:
            return False
        return self.accountant.epsilon(self.sample_next_cohort()) > budget

    def sample_next_cohort(self) -> tuple[ClientId, ...]:
        with span("sample the cohort", ""):
            return self.sampler.sample(self.progress, self.mailbox)

    def run_round(self, cohort: Sequence[ClientId] | None = None) -> None:
        """Run the next round with a cohort; without one, sample it."""
        number = self.progress.rounds + 1
        with span(f"round {number}", "training", round=number), explain_generators():
            self._run_round(self.sample_next_cohort() if cohort is None else tuple(cohort))

    def _run_round(self, cohort: tuple[ClientId, ...]) -> None:
        start, examples_before = time.monotonic(), self.executor.examples_processed
        clock_start = self.clock.seconds if self.clock else 0.0
        plan, index = self.plan, self.progress.rounds
        rnd = Round(
            index=index,
            rounds=plan.rounds,
            cohort=cohort,
            seed=plan.federation.seed.derive("round", index),
            server=plan.federation.server_context(index),
            offload=self.hooks.offload,
        )
        self.mailbox.start_round(index)
        script = plan.algorithm.round(self.progress.state, rnd)
        if not isinstance(script, Generator):
            raise ConfigError(
                f"{plan.algorithm.name}: round returned a {type(script).__name__}; expected a generator, which reads "
                "replies with: yield from total(…) or gather(…)"
            )
        record_sum = self.accountant.record_sum if self.accountant else _ignore
        script = plan.components.wrap_round(script, rnd, record_sum)
        state = self._run_script(script, self.mailbox, self.exchange_log)
        if state is None and self.progress.state is not None:
            raise ConfigError(f"{plan.algorithm.name}: round returned no state; end it with: return the next state.")
        self.client_states.commit_round()
        traffic = self.mailbox.finish_round(self.network.seconds if self.network else 0.0)
        seconds = self.clock.seconds - clock_start if self.clock else 0.0
        oort = self.sampler.learn(self.progress, cohort, self.mailbox, seconds)
        self.progress = replace(self._progress_after(index + 1, state, traffic), oort=oort)
        self.training_seconds += time.monotonic() - start
        self.trained_examples += self.executor.examples_processed - examples_before

    def run_evaluation(self, script: Script[T]) -> T:
        """Run a script of the evaluation, outside the rounds and their traffic."""
        mailbox = self.evaluation_mailbox
        mailbox.start_round(self.progress.rounds)
        return self._run_script(self.plan.components.mask_sums(script), mailbox)

    @contextmanager
    def at(self, progress: RunProgress) -> Iterator[None]:
        """Evaluate an earlier round: inside the block, the run is where it was after that round."""
        latest, self.progress = self.progress, progress
        try:
            yield
        finally:
            self.progress = latest

    def restore(self, progress: RunProgress, failures: Iterable[ClientFailure] = ()) -> None:
        """Continue after the progress of a checkpoint. `failures` are those of clients before it."""
        self.progress = progress
        self.mailbox.failures[:] = failures
        self.mailbox.continue_from(progress.traffic)
        self.mailbox.mark_checkpointed(progress.traffic.requests)
        if self.network:
            self.network.set_clock(progress.traffic.network_seconds)
        if self.accountant:
            self.accountant.restore(progress.noisy_sums, progress.sums_by_client)

    def _progress_after(self, rounds: int, state: Any, traffic: Traffic) -> RunProgress:
        return RunProgress(
            rounds=rounds,
            state=state,
            traffic=traffic,
            noisy_sums=self.accountant.sum_count if self.accountant else 0,
            sums_by_client=dict(self.accountant.sums_by_client) if self.accountant else {},
        )

    def _run_script(self, script: Script[T], mailbox: Mailbox, log: ExchangeLog | None = None) -> T:
        def run_exchange(exchange: Exchange) -> Any:
            with span(exchange.address, "", clients=len(exchange.payloads)):
                return mailbox.run_exchange(exchange) if log is None else log.run_exchange(exchange)

        def run_steps(script: Script[Any]) -> Any:
            return run_script(script, mailbox.run_exchange, self.executor.run, self.hooks.on_note)

        def run_transaction(transaction: Transaction) -> Any:
            if log is not None:
                return log.run_transaction(transaction, run_steps)
            return run_with_restarts(transaction, mailbox, run_steps)

        try:
            return run_script(script, run_exchange, self.executor.run, self.hooks.on_note, run_transaction)
        except RunError as error:  # a script that stops because clients failed does not know why they did
            failure = next((f for f in mailbox.failures if f.round == mailbox.round), None)
            reason = "" if failure is None else f" First failure: {failure.client}: {failure.reason}"
            raise error if reason in str(error) else type(error)(f"{error}{reason}") from None


def make_runtime(plan: RunPlan, executor: Executor, client_states: ClientStates, is_remote: bool) -> ClientRuntime:
    """Return what answers requests for the simulated clients of a run."""
    components = plan.components
    return ClientRuntime(
        components.client_programs,
        keep_optimizers(plan.federation.context, client_states, plan.algorithm, plan.rounds),
        executor,
        client_states,
        components.channel,
        required_wrappers=components.required_wrappers,
        tamper=make_tamper(plan, is_remote),
        recorder=make_recorder(plan.cohort, plan.algorithm),
    )


def emulate_network(plan: RunPlan, transport: Transport, is_remote: bool) -> EmulatedTransport | None:
    """Return the emulated network of a run; None without one. An asynchronous simulation always has one: its clock."""
    network = plan.network
    if network is None and plan.is_asynchronous and not is_remote:
        network = Network()
    if network is None:
        return None
    federation = plan.federation
    if not isinstance(federation, Federation):
        return EmulatedTransport(transport, network, federation.clients)
    return EmulatedTransport(transport, network, federation.clients, lambda client: federation.participant(client).size)


def choose_transport(plan: RunPlan, network: EmulatedTransport | None, transport: Transport) -> Transport:
    """Return the transport of the rounds: one that delivers replies in the order of the virtual clock if that matters."""
    if network is not None and (plan.is_asynchronous or plan.wait_policy.stop_at_quorum):
        return AsyncTransport(network, plan.cohort_size if plan.is_asynchronous else None)
    return transport


def make_tamper(plan: RunPlan, is_remote: bool) -> Tamper | None:
    """Return what changes the replies of malicious clients; None if all are honest."""
    attack, seed, name = plan.attack, plan.federation.seed, plan.algorithm.name
    if attack is None:
        return None
    if is_remote:
        raise ConfigError(
            f"attack.type={attack.name} is for simulations in one process; use transport.type=in_process."
        )
    attackers = attack.choose_attackers(plan.federation.clients, seed)

    def tamper(client: ClientId, round: int, program: str, reply: Any) -> Any:
        return attack.tamper(reply, seed, client, round) if client in attackers and program == name else reply

    return tamper


def _ignore(clients: Collection[ClientId], key: str) -> None:
    """Count nothing: without noise, a sum spends no privacy."""
