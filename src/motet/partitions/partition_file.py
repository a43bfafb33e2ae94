"""Partition files (HDF5): make a partition once, inspect it, share it, and use it in any number of runs.

train, test     rows and offsets of each client
public, held    public rows and the rows of the global test set, if there are any
names           the names of the clients, if they are not numbered
kinds           the trait (clusters, topics, …), if it is not a column of the corpus
attributes      recipe (JSON), digest, phases, every (rounds per phase), and the corpus: name, rows, train, key, where
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from motet.atomic_files import replace_when_complete
from motet.core.errors import ConfigError, DataError
from motet.datasets.columns import TextColumn
from motet.datasets.corpus import Corpus
from motet.datasets.hdf5_access import open_hdf5
from motet.partitions.fednlp_partition_file import is_fednlp_partition_file, read_fednlp_partition
from motet.partitions.partition import ClientRows, NamedClients, Partition
from motet.partitions.traits import Trait

VERSION = 1
_COMPRESSION: dict[str, Any] = {"compression": "gzip", "compression_opts": 1, "shuffle": True}


def from_file(corpus: Corpus, path: str, name: str | None = None, digest: str | None = None) -> Partition:
    """Read a partition file (path), Motet's or FedNLP's (name: which partition in it), and check its digest."""
    file_path = Path(path)
    if is_fednlp_partition_file(file_path):
        partition = read_fednlp_partition(file_path, name, corpus)
        _check_rows(partition, corpus, file_path)
    else:
        partition, corpus_info = read_partition(file_path)
        check_corpus(corpus_info, corpus, file_path)
    if digest not in (None, partition.digest):
        raise ConfigError(
            f"partition.digest is {digest}, but '{path}' has {partition.digest}. Use the right file, or remove the "
            "digest from the recipe."
        )
    return partition


def check_corpus(corpus_info: Mapping[str, Any], corpus: Corpus, path: Path) -> None:
    """Raise if a partition was made for another corpus: its row numbers would be meaningless."""
    if corpus_info["key"] == corpus.fingerprint:
        return
    num_rows, num_train = corpus_info["rows"], corpus_info["train"]
    expected = f"{corpus_info['name']} with {num_train:,} training and {num_rows - num_train:,} test rows"
    actual = f"{corpus.name} with {corpus.num_train:,} and {len(corpus) - corpus.num_train:,}"
    note = " The sizes agree, but the texts do not." if (num_rows, num_train) == (len(corpus), corpus.num_train) else ""
    raise ConfigError(
        f"partition.path: '{path}' was made for {expected}, but this run reads {actual}.{note} Use the same corpus, "
        "data.limit and seed, or make a new partition with: motet partition make"
    )


def write_partition(partition: Partition, corpus: Corpus, path: Path, where: Mapping[str, Any] | None = None) -> None:
    """Write a partition to one file. The file appears under its name only when it is complete.

    `where` tells how to load the corpus again, to show its texts.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    corpus_info = {
        "name": corpus.name,
        "rows": len(corpus),
        "train": corpus.num_train,
        "key": corpus.fingerprint,
        "where": dict(where or {}),
    }
    with replace_when_complete(path) as partial_path, h5py.File(partial_path, "w") as file:
        file.attrs["motet_partition"] = VERSION
        file.attrs["recipe"] = json.dumps(dict(partition.recipe), ensure_ascii=False)
        file.attrs["digest"] = partition.digest
        file.attrs["phases"], file.attrs["every"] = partition.train.phases, partition.rounds_per_phase
        file.attrs["corpus"] = json.dumps(corpus_info, ensure_ascii=False)
        for split, client_rows in (("train", partition.train), ("test", partition.test)):
            _write_array(file, f"{split}/rows", client_rows.rows)
            _write_array(file, f"{split}/offsets", client_rows.offsets)
        for name, rows in (("public", partition.public), ("held", partition.global_test)):
            if rows is not None:
                _write_array(file, name, rows)
        if partition.client_names is not None:
            _write_texts(file, "names", list(partition.client_names))
        if partition.trait is not None:
            _write_array(file, "kinds/codes", partition.trait.codes)
            _write_texts(file, "kinds/names", [str(name) for name in partition.trait.categories])
            file["kinds"].attrs["told"] = json.dumps(dict(partition.trait.settings), ensure_ascii=False)


def read_partition(path: Path) -> tuple[Partition, dict[str, Any]]:
    """Read a partition and the description of its corpus (name, rows, train, key, where); check the digest."""
    with open_hdf5(path, "Make a partition with: motet partition make") as file:
        if file.attrs.get("motet_partition") != VERSION:
            raise DataError(
                f"'{path}' is not a partition file of version {VERSION}; expected one of Motet's or FedNLP's partition "
                "files. Make one with: motet partition make"
            )
        phases = int(file.attrs["phases"])
        train, test = (
            ClientRows(file[f"{split}/rows"][:], file[f"{split}/offsets"][:], phases) for split in ("train", "test")
        )
        partition = Partition(
            train=train,
            test=test,
            recipe=json.loads(file.attrs["recipe"]),
            client_names=NamedClients(_read_texts(file["names"])) if "names" in file else None,
            public=file["public"][:] if "public" in file else None,
            global_test=file["held"][:] if "held" in file else None,
            rounds_per_phase=int(file.attrs["every"]),
            trait=_read_trait(file["kinds"]) if "kinds" in file else None,
        )
        if partition.digest != file.attrs["digest"]:
            raise DataError(
                f"'{path}' was changed after it was written: its digest is {partition.digest}, expected "
                f"{file.attrs['digest']}. Make it again from its recipe with: motet partition make"
            )
        return partition, json.loads(file.attrs["corpus"])


def _read_trait(group: h5py.Group) -> Trait:
    return Trait(_read_texts(group["names"]), group["codes"][:], json.loads(group.attrs["told"]))


def _check_rows(partition: Partition, corpus: Corpus, path: Path) -> None:
    for client_rows in (partition.train, partition.test):
        last = int(client_rows.rows.max()) if len(client_rows.rows) else -1
        if last >= len(corpus):
            raise ConfigError(
                f"partition.path: '{path}' has row {last:,}, but {corpus.name} has {len(corpus):,} rows. "
                "Use the data file that was published with it."
            )


def _write_texts(file: h5py.File, name: str, values: list[str]) -> None:
    column = TextColumn.from_values(values)
    _write_array(file, f"{name}/bytes", column.bytes)
    _write_array(file, f"{name}/offsets", column.offsets)


def _read_texts(group: h5py.Group) -> np.ndarray:
    return np.array(list(TextColumn(group["bytes"][:], group["offsets"][:])))


def _write_array(file: h5py.File, name: str, values: np.ndarray) -> None:
    file.create_dataset(name, data=values, **(_COMPRESSION if len(values) else {}))
