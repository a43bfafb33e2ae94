"""What runs share: a corpus is read once, a federation built once, a executor opened once, however many runs stand on them."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Self, TypeVar

from motet.benchmark.cells import BenchmarkRun
from motet.core.rng import Seed
from motet.core.work import Executor
from motet.datasets.corpus import Corpus
from motet.datasets.load_corpus import DataConfig, read_corpus
from motet.experiment.build.federation import Federation
from motet.experiment.build.federation_builder import build_federation
from motet.experiment.deploy.client_launcher import build_executor
from motet.learning.executors.serial_executor import PrefixCache

T = TypeVar("T")

CORPORA, FEDERATIONS = 3, 4  # how many are kept


class SharedResources:
    """The least recently used goes first. The executor is that of the last run's federation."""

    def __init__(self) -> None:
        self.corpora: OrderedDict[str, Corpus] = OrderedDict()
        self.federations: OrderedDict[str, Federation] = OrderedDict()
        self.open: tuple[str, Executor, PrefixCache] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_executor()

    def federation(self, run: BenchmarkRun) -> Federation:
        if run.data_key not in self.federations:
            self.federations[run.data_key] = build_federation(run.config, self._corpus)
        return _recent(self.federations, run.data_key, FEDERATIONS)

    def executor(self, run: BenchmarkRun) -> Executor:
        key = f"{run.data_key} {run.config.device} {run.config.transport}"
        if self.open is None or self.open[0] != key:
            self.close_executor()
            scratch = PrefixCache()
            self.open = (key, build_executor([run.config], [self.federation(run)], scratch), scratch)
        return self.open[1]

    def _corpus(self, choice: DataConfig, seed: Seed, task: str | None) -> Corpus:
        whole = replace(choice, limit=None, test_limit=None)
        key = repr((whole, task))
        if key not in self.corpora:
            self.corpora[key] = read_corpus(whole, task)
        corpus = _recent(self.corpora, key, CORPORA)
        return corpus.sample(choice.limit, choice.test_limit, seed.derive("data").numpy())

    def close_executor(self) -> None:
        if self.open is not None:
            (_, executor, scratch), self.open = self.open, None
            executor.close()
            scratch.close()


def _recent(kept: OrderedDict[str, T], key: str, most: int) -> T:
    kept.move_to_end(key)
    while len(kept) > most:
        kept.popitem(last=False)
    return kept[key]
