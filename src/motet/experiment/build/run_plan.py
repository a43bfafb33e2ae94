"""The plan of a run: who takes part, what they run, and how it is evaluated and saved."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from motet.algorithms.fedavg import FedAvg
from motet.core.errors import ConfigError
from motet.core.params import Params
from motet.core.program import Algorithm, ClientList, InitialModels
from motet.core.rng import Seed
from motet.core.script import ClientId, all_client_methods
from motet.core.suggestions import did_you_mean
from motet.experiment.build.data_poisoning import build_attack
from motet.experiment.build.federation import Federation
from motet.experiment.build.root_set import find_root_examples
from motet.experiment.build.run_components import RunComponents
from motet.experiment.recipe.run_config import CheckpointConfig, CohortConfig, EvaluationConfig, RunConfig
from motet.learning.custom_trainer import CustomFederation
from motet.robust.attacks import Attack
from motet.transport.client_runtime import ContextFactory
from motet.transport.emulated_network import Network
from motet.transport.wait_policy import WaitPolicy

if TYPE_CHECKING:
    from motet.privacy.accountant import PrivacyAccountant


class TaskMetrics(Protocol):
    """What is measured: all metrics, and the one by which runs are compared."""

    @property
    def primary_metric(self) -> str: ...
    @property
    def metric_names(self) -> tuple[str, ...]: ...


class AnyGroup(Protocol):
    """Clients with the same metrics, which are reported together."""

    @property
    def name(self) -> str: ...
    @property
    def task(self) -> TaskMetrics: ...


class AnyFederation(Protocol):
    """Simulated clients (`Federation`), remote ones (`RemoteFederation`), or ones with a custom trainer."""

    @property
    def clients(self) -> ClientList: ...
    @property
    def seed(self) -> Seed: ...
    @property
    def task(self) -> TaskMetrics: ...
    @property
    def context(self) -> ContextFactory: ...
    @property
    def notes(self) -> list[str]:
        """What the tasks have to say about their texts, such as how many are truncated."""

    def group_for(self, client: ClientId) -> AnyGroup: ...
    def initial_models(self) -> InitialModels: ...
    def server_context(self, round: int) -> Any: ...


@dataclass(frozen=True, eq=False, kw_only=True)
class RunPlan:
    """Everything a run needs, checked when it is created."""

    federation: AnyFederation
    components: RunComponents
    rounds: int
    cohort: CohortConfig = CohortConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    wait_policy: WaitPolicy = WaitPolicy()
    checkpoint: CheckpointConfig = CheckpointConfig()
    network: Network | None = None
    attack: Attack | None = None
    name: str = ""
    digest: str = ""
    clients_keep_data: bool = False  # True if the clients join with their own data, which no other machine has

    def __post_init__(self) -> None:
        metrics = self.federation.task.metric_names
        if self.best_round_metric not in metrics:
            raise ConfigError(
                f"evaluation.best_round_metric is '{self.best_round_metric}'; this task has {', '.join(metrics)}."
                f"{did_you_mean(self.best_round_metric, metrics)}"
            )
        self._check_dev_set()
        self._check_buffer()
        self._check_sampler()
        robust, secure = self.components.robust, self.components.secure
        if robust is not None:
            robust.count_attackers(self.cohort_size)
            robust.check_groups(self.cohort_size, secure.policy.min_clients if secure else 1)
            if robust.uses_reference:
                find_root_examples(self.federation.server_context(0).participant, self.clients_keep_data)
        if secure is None:
            return
        clients = len(self.federation.clients)
        if clients < secure.policy.min_clients:
            raise ConfigError(
                f"there are {clients} clients, but a secure sum needs at least {secure.policy.min_clients} "
                "(secure.min_clients); add clients."
            )
        secure.check_noise(self.cohort_size)

    def _check_buffer(self) -> None:
        """Reject an asynchronous run that could not end, or whose algorithm needs the replies of a whole cohort."""
        buffer, components = self.wait_policy.buffer, self.components
        if buffer is None:
            return
        if not isinstance(self.algorithm, FedAvg):
            raise ConfigError(
                f"wait_policy.buffer: {self.algorithm.name} is not of FedAvg's family, so its rounds cannot overlap; use "
                "fedbuff, or remove wait_policy.buffer."
            )
        if buffer > self.cohort_size:
            raise ConfigError(
                f"the buffer has {buffer} replies, but {self.cohort_size} clients work at a time; raise cohort.size, or "
                "lower the buffer."
            )
        if components.secure or components.privacy or components.robust:
            raise ConfigError("an asynchronous run adds replies of several rounds; remove secure, privacy and robust.")

    def _check_sampler(self) -> None:
        """Reject fixed cohorts in asynchronous runs, and cohorts by utility and speed where the server cannot know them."""
        if self.cohort.sampler == "even" and self.is_asynchronous:
            raise ConfigError(
                "cohort.sampler=even asks the same clients in every round, but an asynchronous run samples idle ones; remove "
                "cohort.sampler."
            )
        if self.cohort.sampler != "oort":
            return
        if self.components.secure or self.components.privacy:
            raise ConfigError(
                "cohort.sampler=oort reads the training loss of every client, which secure sums and noise hide; set "
                "cohort.sampler=seeded, or remove secure and privacy."
            )
        if isinstance(self.federation, CustomFederation):
            raise ConfigError(
                "cohort.sampler=oort needs the training losses of each client, and custom trainers report none; set "
                "cohort.sampler=seeded."
            )
        is_remote = not isinstance(self.federation, Federation)
        if is_remote or not self.cohort.reports_utility:  # else it is not known here whether the clients are simulated
            self.check_oort(is_remote)

    def check_oort(self, is_remote: bool) -> None:
        """Reject cohorts by utility and speed if the server would not learn what they are sampled by."""
        if self.cohort.sampler != "oort":
            return
        if is_remote and not self.cohort.reports_utility:
            raise ConfigError(
                "cohort.sampler=oort needs a number about the training losses of each client, and clients in other processes "
                "send it only if they are asked; set cohort.oort.report_utility=true, or cohort.sampler=seeded."
            )
        if not is_remote and self.network is None and not self.is_asynchronous:
            raise ConfigError(
                "cohort.sampler=oort chooses clients by their speed, but this simulation has no clock; add a section "
                "network, e.g. network.example_seconds=0.5 network.device_spread=0.7."
            )

    def _check_dev_set(self) -> None:
        """Reject settings that need a development set if there is none, and keeping the best of personal models."""
        evaluation = self.evaluation
        keeps_best = evaluation.keep == "best"
        needs = {
            "keep is best": keeps_best,
            f"patience is {evaluation.patience}": evaluation.patience is not None,
            "test is false": not evaluation.test,
        }
        setting = next((name for name, is_set in needs.items() if is_set), None)
        if setting is not None and not self.has_dev_set:
            raise ConfigError(
                f"evaluation.{setting}, but there is no development set to evaluate on; set data.dev_share=0.1 "
                "(in Python: motet.federation(…, dev_share=0.1)). Clients that keep their data have none."
            )
        if keeps_best and self.has_personal_models:
            raise ConfigError(
                f"evaluation.keep is best, but {self.algorithm.name} trains a model for each client, of which only the last "
                "is kept; set evaluation.keep=last."
            )

    @property
    def has_dev_set(self) -> bool:
        return isinstance(self.federation, Federation) and self.federation.has_dev_set

    @property
    def algorithm(self) -> Algorithm:
        return self.components.algorithm

    @property
    def is_asynchronous(self) -> bool:
        """True if rounds overlap: each ends with a number of replies, and other clients keep working."""
        return self.wait_policy.buffer is not None

    @property
    def cohort_size(self) -> int:
        """The number of clients in a round."""
        clients = len(self.federation.clients)
        return min(self.cohort.size or clients, clients)

    @property
    def best_round_metric(self) -> str:
        """The metric that picks the best round on the development set."""
        return self.evaluation.best_round_metric or self.federation.task.primary_metric

    @cached_property
    def has_personal_models(self) -> bool:
        """True if there is no global model: the algorithm has none, or does not average all layers that are trained."""
        view = self.algorithm.view(self.initial_state, "")
        layout = self.federation.server_context(0).model.initial_params.layout
        complete = (layout, layout.select_layers(self.algorithm.trained))
        return self.algorithm.personal or (isinstance(view, Params) and view.layout not in complete)

    @cached_property
    def exchanges_models(self) -> bool:
        """False if clients send no parameters: all texts are in one place (centralized), or each client is alone."""
        view = self.algorithm.view(self.initial_state, "")
        return bool(all_client_methods(self.algorithm)) and not (isinstance(view, Params) and not view.layout.size)

    @cached_property
    def initial_state(self) -> Any:
        """The algorithm's state before the first round."""
        return self.algorithm.init(self.federation.initial_models())


def build_plan(
    config: RunConfig, federation: AnyFederation, components: RunComponents, clients_keep_data: bool = False
) -> RunPlan:
    """Build the plan of a run from its configuration, and the components built from the same configuration."""
    return RunPlan(
        federation=federation,
        components=components,
        rounds=config.rounds,
        cohort=config.cohort,
        evaluation=config.evaluation,
        wait_policy=_choose_wait_policy(config, components.algorithm),
        checkpoint=config.checkpoint,
        network=config.network,
        attack=build_attack(config),
        name=config.recipe,
        digest=config.digest,
        clients_keep_data=clients_keep_data,
    )


def _choose_wait_policy(config: RunConfig, algorithm: Algorithm) -> WaitPolicy:
    """Return the wait policy of the recipe, with the buffer of an asynchronous algorithm."""
    policy = config.wait_policy
    if not isinstance(algorithm, FedAvg) or algorithm.buffer is None:
        return policy
    return replace(policy, buffer=algorithm.buffer)


def build_accountant(plan: RunPlan, is_remote: bool = False, folder: Path | None = None) -> PrivacyAccountant | None:
    """Build the privacy accountant; None without noise, or if nothing is sent that could have it.

    It writes what it counts to `folder`, and reads it from there.

    Remote clients are sent the run's seed, so cohorts that are sampled from it are not secret from them.
    """
    privacy = plan.components.privacy
    if privacy is None or not plan.exchanges_models:
        return None
    from motet.privacy.accountant import PrivacyAccountant
    from motet.privacy.accountant_log import FILE_NAME, AccountantLog

    accountant = PrivacyAccountant(
        mechanism=privacy,
        client_count=len(plan.federation.clients),
        cohort_size=plan.cohort_size,
        has_secret_cohorts=plan.cohort.sampler == "seeded" and not is_remote,
        log=AccountantLog(folder / FILE_NAME if folder else None),
    )
    cost = accountant.epsilon(("any client",))
    if privacy.budget is not None and cost > privacy.budget and not accountant.sum_count:
        raise ConfigError(
            f"the first round alone would spend ε = {cost:.3f}, and privacy.budget is {privacy.budget:g}; "
            "raise privacy.budget or privacy.noise."
        )
    return accountant
