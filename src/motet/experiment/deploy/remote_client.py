"""The client's side of a deployment: its data, and the task, model and programs of the server's run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from motet.core.errors import ConfigError, PrivacyError, RunError
from motet.core.rebased import ModelParams
from motet.core.rng import Seed
from motet.core.script import ClientId, all_client_methods
from motet.core.work import Executor
from motet.datasets.inspection.check_corpus import check_corpus
from motet.datasets.inspection.findings import find_problems
from motet.datasets.load_corpus import DataConfig, load_corpus
from motet.experiment.build.client_lists import ClientRange
from motet.experiment.build.component_builders import build_components, resolve_defaults
from motet.experiment.build.executor_builder import create_executor, resolve_device
from motet.experiment.build.feature_cache import load_features
from motet.experiment.build.federation import Federation
from motet.experiment.build.federation_builder import build_federation
from motet.experiment.build.group_builder import build_group
from motet.experiment.build.in_process_options import InProcessOptions
from motet.experiment.build.optimizer_keeping import keep_optimizers
from motet.experiment.build.run_components import RunComponents
from motet.experiment.deploy.acceptance import find_group, load_group_model, model_fingerprint
from motet.experiment.deploy.agreement import Agreement, agree
from motet.experiment.deploy.audit_log import AUDIT_FILE, AuditLog
from motet.experiment.deploy.client_models import ClientModels
from motet.experiment.deploy.client_progress import ClientProgress
from motet.experiment.deploy.join_policy import JoinPolicy
from motet.experiment.deploy.run_limits import limit_requests
from motet.experiment.deploy.work_limit import WorkLimit
from motet.experiment.loop.client_sampling import make_recorder
from motet.experiment.recipe.config_parsing import instantiate
from motet.experiment.recipe.corpus_source import complete_data, parse_sections
from motet.experiment.recipe.run_config import Precision, RunConfig
from motet.learning.context import Context
from motet.learning.evaluation import Evaluator, ModelDelivery
from motet.learning.executors.serial_executor import MAX_CACHE_BYTES
from motet.missing_paths import describe_missing
from motet.models.loading_permissions import forbid_downloads
from motet.partitions.partition import ClientRows, NamedClients, Partition
from motet.transport.admission import JoinAccepted
from motet.transport.client_connection import ClientSetup
from motet.transport.client_runtime import ClientRuntime, ContextFactory
from motet.transport.display_text import clean_text
from motet.transport.encrypted_files import EncryptionKey, StateFiles
from motet.transport.journal import Journal

RUN_NAME = re.compile(r"[0-9a-f]{8,64}")  # it becomes the name of a folder
MAX_LISTED_CLIENTS = 3


@dataclass(frozen=True)
class JoinOptions:
    """How a process joins a run: as one client with its own data, or as clients of a recipe."""

    names: tuple[ClientId, ...]
    data: DataConfig | None
    config: RunConfig | None  # of the recipe that the process simulates clients of
    state_folder: Path
    device: str = "auto"
    precision: Precision = "auto"
    sums_only: bool = False  # reply only inside secure sums
    group: str = ""  # of the recipe's groups, the one that the data is for
    policy: JoinPolicy = JoinPolicy()  # of a client with its own data
    identities: Path | None = None  # folder with the keys of this client and the public keys of the others
    server: str = ""  # address of the server, for the audit log
    state_key: EncryptionKey | None = None  # encrypts the state; nothing that contains texts is then cached on disk


class ClientBuilder:
    """Builds a client from the server's acceptance, once, however often the connection breaks."""

    def __init__(self, options: JoinOptions, log: Callable[[str], None] = lambda text: None) -> None:
        self.options, self.log = options, log
        self._files = StateFiles(options.state_key)
        self._key: tuple[str, str] | None = None
        self._setup: ClientSetup | None = None
        self._agreement: Agreement | None = None
        self.run_folder: Path | None = None  # of the client's state, once the server has accepted it

    def __call__(self, acceptance: JoinAccepted) -> ClientSetup:
        """Return the setup for a run. A refusal is written to the audit log.

        A client takes part in one run. A server that went from run to run would fill its disk with states.
        """
        key = (acceptance.run, acceptance.digest)
        if self._setup is not None and self._key != key:
            raise RunError(
                f"the server has begun another run, or changed the settings of the run {acceptance.run[:80]!r}, and this "
                "client has joined the earlier one. Start motet join again to take part."
            )
        if self._setup is None:
            try:
                self._key, self._setup = key, self._build(acceptance)
            except PrivacyError as error:
                self.close()
                self._log_refusal(acceptance, str(error))
                raise
        return self._setup

    def close(self) -> None:
        if self._setup is not None:
            self._setup.runtime.executor.close()
        if self._agreement is not None:
            self._agreement.audit.close()
        self._setup = self._agreement = None

    def _build(self, acceptance: JoinAccepted) -> ClientSetup:
        options = self.options
        if not RUN_NAME.fullmatch(acceptance.run):
            raise ConfigError(
                f"the server calls the run {acceptance.run[:80]!r}; expected 8 to 64 hexadecimal digits. "
                "Use the same version of Motet on both sides."
            )
        self.run_folder = options.state_folder / acceptance.run
        config, components = _resolve_config(options, acceptance)
        components = components.with_noise_key(self._noise_key_source(self.run_folder))
        if options.data is None:
            federation, programs = build_federation(config), components.client_programs
        else:
            components, programs = self._agree(acceptance, config, components)
            federation = build_client_federation(config, acceptance, options)
        self._log_offer(federation, programs)
        make_context = self._choose_contexts(federation, components)
        journal = Journal(self.run_folder, self._files)
        progress = ClientProgress(config.rounds, federation.task.primary_metric, self.log)
        if options.data is not None:
            limit = WorkLimit(options.policy.tokens_per_round)
            limit.check_algorithm(components.algorithm, federation.participant(options.names[0]).split("train"))
            make_context = limit.observe_jobs(make_context)
            group = federation.server
            models = ClientModels(self.run_folder, group.name, acceptance, group.task.primary_metric, self._files)
            programs = [_observe_evaluation(program, models, progress) for program in programs]
        runtime = ClientRuntime(
            programs,
            keep_optimizers(progress.observe_rounds(make_context), journal, components.algorithm, config.rounds),
            self._create_executor(federation),
            journal,
            components.channel,
            sums_only=options.sums_only or (options.data is not None and not options.policy.allows_plain_updates),
            required_wrappers=components.required_wrappers,
            hide_errors=True,
            guard=self._agreement.guard if self._agreement else None,
            recorder=make_recorder(config.cohort, components.algorithm) if config.cohort.reports_utility else None,
        )
        fingerprint, limits = model_fingerprint(federation.model), limit_requests(config, federation)
        return ClientSetup(runtime=runtime, journal=journal, fingerprint=fingerprint, request_limits=limits)

    def _choose_contexts(self, federation: Federation, components: RunComponents) -> ContextFactory:
        """Return what makes the contexts of methods. Under noise, a training that fails changes nothing, and is logged."""
        if components.privacy is None or self.options.data is None:
            return federation.context

        def report(reason: str) -> None:
            self.log(f"training failed, and an unchanged model is sent, so that the server does not learn it: {reason}")

        return lambda *arguments: federation.context(*arguments).hide_failed_fits(report)

    def _noise_key_source(self, run_folder: Path) -> Path | bytes:
        """Return the folder with the key of this client's noise. A client with a state key derives it instead."""
        key = self.options.state_key
        return run_folder if key is None else key.derive(f"noise {run_folder.name}")

    def _create_executor(self, federation: Federation) -> Executor:
        options = self.options
        device, one_process = resolve_device(options.device), InProcessOptions(workers=0)
        cache_bytes = 0 if options.state_key else MAX_CACHE_BYTES  # hidden states would be on disk without encryption
        return create_executor(device, one_process, [federation], options.precision, cache_bytes)

    def _agree(
        self, acceptance: JoinAccepted, config: RunConfig, components: RunComponents
    ) -> tuple[RunComponents, list[Any]]:
        """Check the run against the client's policy, print what was agreed, and return what the client offers."""
        _, group = find_group(config, acceptance, self.options.group)
        self._agreement = agree(acceptance, config, components, group.model, self.options)
        self.log("agreed with the server, as this client's policy allows:")
        for name, term in self._agreement.terms.items():
            self.log(f"  {name:11} {term}")
        return self._agreement.components, self._agreement.programs

    def _log_refusal(self, acceptance: JoinAccepted, reason: str) -> None:
        options = self.options
        if options.data is None:
            return
        audit = AuditLog(options.state_folder / AUDIT_FILE)
        run, reason = clean_text(acceptance.run), clean_text(reason)
        audit.append("refused", run=run, server=options.server, client=options.names[0], reason=reason)
        audit.close()

    def _log_offer(self, federation: Federation, programs: Sequence[Any]) -> None:
        for name in self.options.names[:MAX_LISTED_CLIENTS]:
            self.log(f"{name} has {federation.participant(name).size} examples")
        if self.options.data is not None:
            self.log(_describe_test_rows(federation, self.options.data))
        for note in federation.notes:
            self.log(note)
        inspection = federation.groups[0].inspection
        if self.options.data is not None and inspection is not None:
            for finding in find_problems(inspection, is_one_client=True):
                self.log(f"data: {finding}")
        methods = [item for program in programs for item in all_client_methods(program).items()]
        self.log(f"offered to the server: {', '.join(f'{address} ({reveals})' for address, reveals in methods)}")


def _describe_test_rows(federation: Federation, data: DataConfig) -> str:
    """Return what a client holds back from training, and how to change it."""
    corpus = federation.corpus
    rows = len(corpus) - corpus.num_train
    if data.test is not None:
        return f"models are evaluated on the {rows} rows of {data.test}"
    if not rows:
        return "no rows are held back, so models are not evaluated here; to hold back a tenth: data.test_share=0.1"
    return (
        f"{rows} of {len(corpus)} rows are held back to evaluate models, and never trained on; "
        "for another share: data.test_share=0.1, for none: data.test_share=0"
    )


def _observe_evaluation(program: Any, models: ClientModels, progress: ClientProgress) -> Any:
    """Return the program; one that evaluates also stores each model, and prints the scores."""
    if not isinstance(program, Evaluator | ModelDelivery):
        return program

    def on_model(ctx: Context, params: ModelParams, scores: Mapping[str, float]) -> None:
        models.record(ctx, params, scores)
        progress.report_scores(ctx.round, scores)

    return replace(program, on_model=on_model)


def _resolve_config(options: JoinOptions, acceptance: JoinAccepted) -> tuple[RunConfig, RunComponents]:
    """Return the run's configuration and components, and check that they are the server's."""
    if options.config is None and not acceptance.config:
        raise ConfigError(
            "the server runs the simulated clients of its recipe and sends no configuration; join with --recipe, or start "
            "the server with --allow or --clients for clients with their own data."
        )
    config = options.config or RunConfig.from_settings("server", acceptance.config)
    components = build_components(config)
    config = resolve_defaults(config, components.algorithm)
    if config.digest != acceptance.digest:
        raise ConfigError(
            f"the configuration has digest {config.digest}, but the server's is {acceptance.digest}; "
            "use the same version of Motet on both sides."
        )
    return config, components


def parse_client_data(path: Path, overrides: Iterable[str]) -> DataConfig:
    """Return the data of a client. Its overrides may set only `data`; all other settings are the server's."""
    if not path.exists():  # known before the server is reached
        raise ConfigError(f"--data: {describe_missing(path)} Expected the texts of this client.")
    settings = parse_sections(overrides, ("data",), "is set by the server")
    return instantiate(DataConfig, complete_data(settings, {"path": str(path)}), "data")


def build_client_federation(config: RunConfig, acceptance: JoinAccepted, options: JoinOptions) -> Federation:
    """Build a federation of one client with its own texts, and with the labels, tokenizer and model of its group."""
    if options.data is None:
        raise ConfigError("join: pass --data with your own texts.")
    name, group_config = find_group(config, acceptance, options.group)
    with forbid_downloads():
        task, model = load_group_model(config, acceptance, name)
    seed, max_tokens = Seed(config.seed), group_config.model.max_tokens
    corpus = load_corpus(options.data, seed, task.name)
    inspection = check_corpus(corpus, options.data, is_one_client=True)
    train, test = np.arange(corpus.num_train), np.arange(corpus.num_train, len(corpus))
    partition = Partition(
        ClientRows.from_sizes(train, np.array([len(train)])),
        ClientRows.from_sizes(test, np.array([len(test)])),
        {"type": "silo"},
        NamedClients(np.array([options.names[0]])),
    )
    group = build_group(
        name=name,
        task=task,
        model=model,
        corpus=corpus,
        features=load_features(task, corpus, model, max_tokens, use_cache=options.state_key is None),
        partition=partition,
        max_tokens=max_tokens,
        clients=ClientRange(names=partition.clients, start=0, stop=1),
        inspection=inspection,
    )
    return Federation(groups=(group,), server=group, seed=seed)
