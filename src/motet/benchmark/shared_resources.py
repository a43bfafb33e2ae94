"""Resources that runs share: each corpus is read once, each federation built once, and one executor serves many runs."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import NamedTuple, Self, TypeVar

from motet.benchmark.cells import BenchmarkRun
from motet.core.rng import Seed
from motet.core.work import Executor
from motet.datasets.corpus import Corpus
from motet.datasets.load_corpus import DataConfig, read_corpus
from motet.experiment.build.federation import Federation
from motet.experiment.build.federation_builder import build_federation
from motet.experiment.deploy.client_launcher import build_executor

T = TypeVar("T")

MAX_CORPORA, MAX_FEDERATIONS = 3, 4


class OpenExecutor(NamedTuple):
    """The executor in use, with the key of the runs that can use it."""

    key: str
    executor: Executor


class SharedResources:
    """A cache of corpora and federations (least recently used out first), and the executor of the current federation."""

    def __init__(self) -> None:
        self.corpora: OrderedDict[str, Corpus] = OrderedDict()
        self.federations: OrderedDict[str, Federation] = OrderedDict()
        self.open_executor: OpenExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_executor()

    def federation(self, run: BenchmarkRun) -> Federation:
        if run.data_key not in self.federations:
            self.federations[run.data_key] = build_federation(run.config, self._load_corpus)
        return _use(self.federations, run.data_key, MAX_FEDERATIONS)

    def executor(self, run: BenchmarkRun) -> Executor:
        key = f"{run.data_key} {run.config.device} {run.config.transport}"
        if self.open_executor is None or self.open_executor.key != key:
            self.close_executor()
            self.open_executor = OpenExecutor(key, build_executor([run.config], [self.federation(run)]))
        return self.open_executor.executor

    def close_executor(self) -> None:
        if self.open_executor is not None:
            current, self.open_executor = self.open_executor, None
            current.executor.close()

    def _load_corpus(self, config: DataConfig, seed: Seed, task: str | None) -> Corpus:
        """Sample from the full corpus, which different limits share."""
        full = replace(config, limit=None, test_limit=None)
        key = repr((full, task))
        if key not in self.corpora:
            self.corpora[key] = read_corpus(full, task)
        corpus = _use(self.corpora, key, MAX_CORPORA)
        return corpus.sample(config.limit, config.test_limit, seed.derive("data").numpy())


def _use(cache: OrderedDict[str, T], key: str, limit: int) -> T:
    """Return an entry of the cache and drop the least recently used ones over the limit."""
    cache.move_to_end(key)
    while len(cache) > limit:
        cache.popitem(last=False)
    return cache[key]
