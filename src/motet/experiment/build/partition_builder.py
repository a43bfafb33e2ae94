"""From a recipe's `partition` section to a Partition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.experiment.recipe.config_parsing import convert_options, convert_value, instantiate, list_parameters, look_up
from motet.experiment.recipe.run_config import ComponentConfig
from motet.partitions import PARTITIONS, Partition
from motet.partitions.local_test import hold_out_local_tests, merge_splits

_FIXED = ("corpus", "seed")  # what a strategy is given, beside its options


class Strategy(NamedTuple):
    """A `partition` section, looked at before there is a corpus."""

    maker: Callable[..., Partition]
    options: dict[str, Any]
    share: float | None
    whole: bool


def strategy_of(choice: ComponentConfig) -> Strategy:
    """What cannot be meant is refused."""
    maker = look_up(PARTITIONS, choice.type, "partition.type")
    given = dict(choice.options)
    share = convert_value(given.pop("local_test", None), float | None, "partition.local_test")
    whole = convert_value(given.pop("merge", False), bool, "partition.merge")
    if whole and share is None:
        raise ConfigError(
            "partition.merge leaves no test rows; say what share of its rows a client keeps: partition.local_test=0.2"
        )
    if share is not None and choice.type == "file":
        raise ConfigError(
            "partition.local_test: a file says itself who is tested on what; give it to: motet partition make"
        )
    wanted = {k: v for k, v in given.items() if k != "clients" or "clients" in list_parameters(maker)}
    convert_options(maker, wanted, f"partition {choice.type}", _FIXED)
    return Strategy(maker, wanted, share, whole)


def divided(choice: ComponentConfig, corpus: Corpus, seed: Seed) -> Partition:
    """As the strategy says.

    Two options go with every strategy: `local_test`, a share of each client's rows for tests of its own, and `merge`, which
    divides the corpus's training and test rows together first.
    """
    maker, wanted, share, whole = strategy_of(choice)
    fixed = dict(zip(_FIXED, (merge_splits(corpus) if whole else corpus, seed.derive("partition")), strict=True))
    made = instantiate(maker, wanted, f"partition {choice.type}", fixed)
    return made if share is None else hold_out_local_tests(made, share, seed.derive("partition"), whole)
