"""Partitions that take long to compute, kept on disk: those that encode every text."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from motet.core.errors import ConfigError, MotetError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.experiment.build.cache_folder import key_for, lock_entry, open_cache
from motet.experiment.build.partition_builder import build_partition, parse_partition
from motet.experiment.recipe.config_parsing import list_parameters
from motet.experiment.recipe.run_config import ComponentConfig
from motet.models.model_hash import hash_model
from motet.partitions import PARTITIONS, Partition, read_partition, write_partition
from motet.partitions.partition_file import check_corpus
from motet.partitions.text_encoders import resolve_encoder
from motet.transport.private_files import PRIVATE_FILE

FORMAT = 1  # raise it when a strategy changes


def load_partition(config: ComponentConfig, corpus: Corpus, seed: Seed) -> Partition:
    """Divide a corpus over clients, or return the same partition from the cache if it encodes texts."""
    path = _find_entry(config, corpus, seed)
    if path is None:
        return build_partition(config, corpus, seed)
    with lock_entry(path):
        if path.exists():
            with suppress(MotetError, OSError, KeyError, ValueError):  # a damaged entry is computed again
                partition, corpus_info = read_partition(path)
                check_corpus(corpus_info, corpus, path)
                return partition
        partition = build_partition(config, corpus, seed)
        with suppress(OSError):  # a full disk does not stop a run
            write_partition(partition, corpus, path)
            path.chmod(PRIVATE_FILE)
        return partition


def _find_entry(config: ComponentConfig, corpus: Corpus, seed: Seed) -> Path | None:
    """Return the file of the entry; None if this partition is not kept."""
    factory = PARTITIONS.get(config.type)
    if factory is None or "encoder" not in list_parameters(factory):
        return None
    folder = open_cache("partitions")
    if folder is None:
        return None
    strategy = parse_partition(config)
    encoder = resolve_encoder(str(strategy.options.get("encoder", "auto")))
    try:
        weights = encoder if encoder == "tfidf" else hash_model(encoder)
    except ConfigError:  # the model is not on this machine yet
        return None
    options = sorted(config.options.items())
    return folder / f"{key_for(FORMAT, corpus.fingerprint, config.type, options, weights, seed)}.h5"
