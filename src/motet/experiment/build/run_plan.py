"""Everything a run needs, put together and checked: who takes part, what is played, and how often it is looked at."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from motet.codecs.chain import Channel
from motet.core.errors import ConfigError, did_you_mean
from motet.core.program import Algorithm, ClientList, InitialModels
from motet.core.rng import Seed
from motet.core.script import ClientId, iter_programs
from motet.experiment.build.builders import build_algorithm, build_channel, build_privacy, build_secure
from motet.experiment.recipe.run_config import CheckpointConfig, CohortConfig, EvaluationConfig, RunConfig
from motet.learning.evaluation import Evaluator
from motet.transport.client_runtime import ContextFactory
from motet.transport.emulated_network import Network
from motet.transport.wait_policy import WaitPolicy

if TYPE_CHECKING:
    from motet.privacy.accountant import PrivacyAccountant
    from motet.privacy.dp_sum import PrivateSum
    from motet.secure.protocol import SecureSum


class Participants(Protocol):
    """Who takes part, with what: a corpus over clients (`Federation`), or somebody's own trainer (`OwnFederation`)."""

    @property
    def clients(self) -> ClientList: ...
    @property
    def seed(self) -> Seed: ...
    @property
    def task(self) -> Judged: ...
    @property
    def context(self) -> ContextFactory: ...
    def group_of(self, client: ClientId) -> Alike: ...
    def start(self) -> InitialModels: ...
    def server_context(self, round: int) -> Any: ...


class Alike(Protocol):
    """Clients that are judged alike, and may be spoken of together."""

    @property
    def name(self) -> str: ...
    @property
    def task(self) -> Judged: ...


class Judged(Protocol):
    @property
    def primary_metric(self) -> str: ...
    @property
    def metric_names(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, eq=False)
class RunPlan:
    """Everything a run needs, put together; `check` says whether it fits."""

    federation: Participants
    algorithm: Algorithm
    rounds: int
    cohort: CohortConfig = CohortConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    wait_policy: WaitPolicy = WaitPolicy()
    channel: Channel = Channel()
    checkpoint: CheckpointConfig = CheckpointConfig()
    name: str = ""
    digest: str = ""
    network: Network | None = None
    secure: SecureSum | None = None  # what stands in for sums
    private: PrivateSum | None = None

    def __post_init__(self) -> None:
        """The noise goes inside the secure sum's integers here, so that no plan can count ε and forget the noise; how much each
        client adds, it finds when it hears who is asked."""
        if self.private:
            self.private.check_under(self.secure is not None)
        if self.private and self.secure:
            object.__setattr__(self, "secure", replace(self.secure, noise=self.private.inside))

    def check(self) -> None:
        """Whether this can be run, for those who know everybody who takes part; a silo knows itself alone."""
        there = len(self.federation.clients)
        fewest = self.secure.demands.minimum if self.secure else 1
        if there < fewest:
            raise ConfigError(
                f"there are {there} clients, and a secure sum is over at least {fewest} (secure.minimum)."
            )
        if self.chooses not in self.federation.task.metric_names:
            raise ConfigError(
                f"evaluation.best_round_metric is '{self.chooses}'; this task has {', '.join(self.federation.task.metric_names)}."
                f"{did_you_mean(self.chooses, self.federation.task.metric_names)}"
            )
        if self.secure:
            asked = min(self.cohort.size or there, there)
            for noise in self.secure.noise.values():  # what cannot be calibrated is said now
                noise.grain(asked, self.secure.masking.fewest(asked), self.secure.masking.modulus)

    @property
    def chooses(self) -> str:
        """The metric by which a development set chooses the best round."""
        return self.evaluation.best_round_metric or self.federation.task.primary_metric

    @property
    def behind(self) -> dict[str, frozenset[str]]:
        """Through which programs alone a client may be asked for the work of another."""
        secure = frozenset({self.secure.name} if self.secure else ())
        private = frozenset({self.private.name} if self.private else ())
        return {
            **{p.name: secure | private for p in iter_programs(self.algorithm)},
            "evaluate": secure,
            "private": secure,
        }

    @property
    def programs(self) -> list[Any]:
        """All that a client offers in this run."""
        veils = [veil for veil in (self.secure, self.private) if veil is not None]
        return [self.algorithm, Evaluator(self.algorithm), *veils]


def plan_of(config: RunConfig, federation: Participants) -> RunPlan:
    """For those who run it: checked against everybody who takes part."""
    plan = part_of(config, federation)
    plan.check()
    return plan


def part_of(config: RunConfig, federation: Participants) -> RunPlan:
    """For those who take part in what others run, and may know of nobody else."""
    algorithm = build_algorithm(config)
    secure, private = build_secure(config, algorithm), build_privacy(config, algorithm)
    return RunPlan(
        federation, algorithm, config.rounds, config.cohort, config.evaluation, config.wait_policy,
        build_channel(config), config.checkpoint, config.recipe, config.digest, config.network, secure, private,
    )  # fmt: skip


def ledger_of(plan: RunPlan, apart: bool = False) -> PrivacyAccountant | None:
    """What counts the privacy spent, if there is noise to spend it under. Clients who are `apart` are told the run's seed, so
    that cohorts drawn from it are no secret."""
    if plan.private is None:
        return None
    from motet.privacy.accountant import PrivacyAccountant

    clients = len(plan.federation.clients)
    secret = plan.cohort.sampler == "seeded" and not apart
    ledger = PrivacyAccountant(plan.private, clients, min(plan.cohort.size or clients, clients), secret)
    cost, budget = ledger.epsilon(("anybody",)), plan.private.budget
    if budget is not None and cost > budget:
        raise ConfigError(
            f"the first round alone would spend ε = {cost:.3f} and privacy.budget is {budget:g}; raise one of them, or "
            "privacy.noise."
        )
    return ledger
