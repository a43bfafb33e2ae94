"""Build a partition from a recipe's `partition` section."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.experiment.recipe.config_parsing import (
    check_owner,
    convert_options,
    convert_value,
    instantiate,
    list_parameters,
)
from motet.experiment.recipe.run_config import ComponentConfig
from motet.partitions import PARTITION_REGISTRY, Partition
from motet.partitions.local_test import hold_out_local_tests, merge_splits

_FIXED = ("corpus", "seed")  # arguments of a strategy that are not options


class PartitionStrategy(NamedTuple):
    """A checked `partition` section."""

    factory: Callable[..., Partition]
    options: dict[str, Any]
    local_test_share: float | None
    merges_splits: bool


def parse_partition(config: ComponentConfig) -> PartitionStrategy:
    """Check a `partition` section without its corpus."""
    factory = PARTITION_REGISTRY.get(config.type, "partition.type")
    options = dict(config.options)
    share = convert_value(options.pop("local_test", None), float | None, "partition.local_test")
    merges_splits = convert_value(options.pop("merge", False), bool, "partition.merge")
    if merges_splits and share is None:
        raise ConfigError(
            "partition.merge leaves no test rows; set the share that each client tests on: partition.local_test=0.2"
        )
    if share is not None and config.type == "file":
        raise ConfigError(
            "partition.local_test: a partition file already holds each client's test rows; "
            "pass the option to: motet partition make"
        )
    # `clients` may come from the recipe's groups, and not every strategy takes it
    options = {k: v for k, v in options.items() if k != "clients" or "clients" in list_parameters(factory)}
    check_owner(PARTITION_REGISTRY.builtin, config.type, options, "partition")
    convert_options(factory, options, f"partition {config.type}", _FIXED)
    return PartitionStrategy(factory, options, share, merges_splits)


def build_partition(config: ComponentConfig, corpus: Corpus, seed: Seed) -> Partition:
    """Divide a corpus over clients.

    Two options work with every strategy: `local_test` is the share of its rows that each client tests on, and `merge`
    divides the training and test rows of the corpus together.
    """
    strategy = parse_partition(config)
    rows = merge_splits(corpus) if strategy.merges_splits else corpus
    fixed = {"corpus": rows, "seed": seed.derive("partition")}
    partition = instantiate(strategy.factory, strategy.options, f"partition {config.type}", fixed)
    if strategy.local_test_share is None:
        return partition
    return hold_out_local_tests(partition, strategy.local_test_share, seed.derive("partition"), strategy.merges_splits)
