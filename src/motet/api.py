"""The Python API: load a corpus, build a federation, run an algorithm, export a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from motet.codecs.chain import Channel
from motet.core.errors import ConfigError
from motet.core.program import Algorithm
from motet.core.rng import Seed
from motet.core.work import Executor
from motet.datasets.corpus import Corpus
from motet.datasets.inspection.check_corpus import check_corpus
from motet.datasets.load_corpus import DataConfig, load_corpus
from motet.experiment.build.executor_builder import InProcessOptions, create_executor, resolve_device
from motet.experiment.build.federation import Federation
from motet.experiment.build.federation_builder import federate_corpus
from motet.experiment.build.run_components import RunComponents
from motet.experiment.build.run_plan import AnyFederation, RunPlan
from motet.experiment.commands.model_export import save_model
from motet.experiment.loop.run_loop import execute_plan
from motet.experiment.loop.run_result import RunResult
from motet.experiment.recipe.run_config import CohortConfig, ComponentConfig, EvaluationConfig
from motet.learning.executors.serial_executor import PrefixCache, SerialExecutor
from motet.models.load_model import ModelConfig
from motet.report.progress import RunCallback
from motet.transport.emulated_network import Network


def load(name: str | None = None, *, path: str | Path | None = None, seed: int = 42, **options: Any) -> Corpus:
    """Load a corpus by name or from a file. Options: see the recipe's `data` section (text, label, limit, …).

    What is almost certainly a mistake in your own data raises an error, unless `accept` names it: accept=("leak",).
    """
    config = DataConfig(name=name, path=None if path is None else str(path), **options)
    corpus = load_corpus(config, Seed(seed))
    check_corpus(corpus, config)
    return corpus


def federation(
    corpus: Corpus,
    *,
    model: str = "minilm",
    max_tokens: int = 128,
    freeze: Sequence[str] = (),
    partition: str = "uniform",
    seed: int = 42,
    public_share: float = 0.0,
    dev_share: float = 0.0,
    **options: Any,
) -> Federation:
    """Divide a corpus among clients. It also takes the options of the partition (clients, alpha, beta, column).

    `public_share` of the training rows become public texts, which distillation needs. `dev_share` of them are held out
    to select the best round (`RunResult.best_dev_round`).
    """
    return federate_corpus(
        ModelConfig(model, max_tokens, tuple(freeze)),
        corpus,
        ComponentConfig(partition, options),
        Seed(seed),
        public_share=public_share,
        dev_share=dev_share,
    )


def run(
    federation: AnyFederation,
    algorithm: Algorithm,
    *,
    rounds: int,
    cohort: int | None = None,
    evaluate_every: int = 1,
    device: str = "auto",
    workers: int | None = None,
    callback: RunCallback | None = None,
    channel: Channel = Channel(),
    network: Network | None = None,
) -> RunResult:
    """Run an algorithm over a federation, in this process and its workers.

    `cohort` is the number of clients per round (None: all). `channel` sets codecs, and `network` emulates bandwidth and
    latency.
    """
    plan = RunPlan(
        federation=federation,
        components=RunComponents(algorithm=algorithm, channel=channel),
        rounds=rounds,
        cohort=CohortConfig(size=cohort),
        evaluation=EvaluationConfig(every=evaluate_every),
        network=network,
    )
    scratch = PrefixCache()
    executor: Executor = SerialExecutor(resolve_device("cpu"))  # unused by a custom trainer, which trains by itself
    if isinstance(federation, Federation):
        executor = create_executor(resolve_device(device), InProcessOptions(workers), [federation], scratch)
    try:
        return execute_plan(plan, executor, callback=callback)
    finally:
        executor.close()
        scratch.close()


def export(federation: Federation, result: RunResult, path: str | Path, *, client: str | None = None) -> None:
    """Save the global model, or one client's model, as a directory that transformers can load."""
    if not isinstance(federation, Federation):
        raise ConfigError(
            "export: this federation has a custom trainer, and Motet does not know how to save its model. Pass the "
            "parameters to your trainer, and save the model yourself: "
            "trainer.set_parameters(result.params.tensors())"
        )
    group = federation.server if client is None else federation.group_for(client)
    save_model(group, result.params if client is None else result.model_for(client), Path(path))
