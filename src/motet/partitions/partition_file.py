"""A partition as a file: made once, looked at, shared, used by any number of runs.

train, test     rows, offsets: who has which
public, held    rows, if there are any
names           the clients' own names, if they have any
kinds           what was shifted (clusters, topics, …), where no column of the corpus says it
attributes      recipe (JSON), digest, phases, every, and of which corpus: name, rows, train, key, where
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from motet.core.errors import ConfigError, DataError, first_line
from motet.datasets.columns import TextColumn
from motet.datasets.corpus import Corpus
from motet.partitions.fednlp_partition_file import is_fednlp_partition_file, read_fednlp_partition
from motet.partitions.partition import ClientRows, NamedClients, Partition
from motet.partitions.traits import Trait

VERSION = 1
_SQUEEZE: dict[str, Any] = {"compression": "gzip", "compression_opts": 1, "shuffle": True}


def from_file(corpus: Corpus, path: str, name: str | None = None, digest: str | None = None) -> Partition:
    """A partition made before (path): of FedNLP's files, which one (name); only if it is the one with this digest."""
    place = Path(path)
    if is_fednlp_partition_file(place):
        made = read_fednlp_partition(place, name, corpus)
        _check_rows(made, corpus, place)
    else:
        made, of = read_partition(place)
        check_corpus(of, corpus, place)
    if digest not in (None, made.digest):
        raise ConfigError(
            f"partition.digest is {digest}, and '{path}' has {made.digest}: it is another partition than was meant."
        )
    return made


def check_corpus(of: Mapping[str, Any], corpus: Corpus, path: Path) -> None:
    """Rows are numbers: they mean something in the corpus they were made for, and in no other."""
    if of["key"] != corpus.fingerprint:
        now = f"{corpus.name} with {corpus.num_train:,} training and {len(corpus) - corpus.num_train:,} test rows"
        then = f"{of['name']} with {of['train']:,} and {of['rows'] - of['train']:,}"
        same = (
            " The numbers agree, the texts do not."
            if (of["rows"], of["train"]) == (len(corpus), corpus.num_train)
            else ""
        )
        raise ConfigError(
            f"partition.path: '{path}' divides {then}, and this run reads {now}.{same} Use the corpus it was made for "
            "(data.limit and the seed that samples it count too), or make one anew with: motet partition make"
        )


def write_partition(partition: Partition, corpus: Corpus, path: Path, where: Mapping[str, Any] | None = None) -> None:
    """All of it into one HDF5 file, which stands under its name only when it is complete.

    `where` says how to find the corpus again, for those who want to look at its texts.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.part")
    with h5py.File(beside, "w") as file:
        file.attrs["motet_partition"] = VERSION
        file.attrs["recipe"] = json.dumps(dict(partition.recipe), ensure_ascii=False)
        file.attrs["digest"] = partition.digest
        file.attrs["phases"], file.attrs["every"] = partition.train.phases, partition.rounds_per_phase
        of = {
            "name": corpus.name,
            "rows": len(corpus),
            "train": corpus.num_train,
            "key": corpus.fingerprint,
            "where": dict(where or {}),
        }
        file.attrs["corpus"] = json.dumps(of, ensure_ascii=False)
        for side, shares in (("train", partition.train), ("test", partition.test)):
            _put(file, f"{side}/rows", shares.rows)
            _put(file, f"{side}/offsets", shares.offsets)
        for which, rows in (("public", partition.public), ("held", partition.global_test)):
            if rows is not None:
                _put(file, which, rows)
        if partition.client_names is not None:
            _put_texts(file, "names", list(partition.client_names))
        if partition.trait is not None:
            _put(file, "kinds/codes", partition.trait.codes)
            _put_texts(file, "kinds/names", [str(name) for name in partition.trait.names])
            file["kinds"].attrs["told"] = json.dumps(dict(partition.trait.settings), ensure_ascii=False)
    beside.replace(path)


def read_partition(path: Path) -> tuple[Partition, dict[str, Any]]:
    """The partition, checked against its own digest, and which corpus it divides (name, rows, train, key, where)."""
    with opened(path) as file:
        if file.attrs.get("motet_partition") != VERSION:
            raise DataError(
                f"'{path}' is no partition of version {VERSION}; it was expected to be made by: motet partition make, "
                "or to be one of FedNLP's partition files."
            )
        phases, every = int(file.attrs["phases"]), int(file.attrs["every"])
        train, test = (
            ClientRows(file[f"{side}/rows"][:], file[f"{side}/offsets"][:], phases) for side in ("train", "test")
        )
        public, held = (file[which][:] if which in file else None for which in ("public", "held"))
        named = NamedClients(_texts(file["names"])) if "names" in file else None
        kinds = None
        if "kinds" in file:
            group = file["kinds"]
            kinds = Trait(_texts(group["names"]), group["codes"][:], json.loads(group.attrs["told"]))
        found = Partition(train, test, json.loads(file.attrs["recipe"]), named, public, held, every, kinds)
        if found.digest != file.attrs["digest"]:
            raise DataError(
                f"'{path}' was changed after it was made: its digest is {found.digest}, and {file.attrs['digest']} is written "
                "in it. Make it anew from its recipe with: motet partition make"
            )
        return found, json.loads(file.attrs["corpus"])


def opened(path: Path) -> h5py.File:
    try:
        return h5py.File(path, "r")
    except OSError as error:
        why = "there is no such file" if not path.exists() else first_line(error)
        raise DataError(f"partition: '{path}' cannot be read ({why}); make one with: motet partition make") from None


def _check_rows(found: Partition, corpus: Corpus, path: Path) -> None:
    for shares in (found.train, found.test):
        if len(shares.rows) and int(shares.rows.max()) >= len(corpus):
            raise ConfigError(
                f"partition.path: '{path}' speaks of row {int(shares.rows.max()):,}, and {corpus.name} has {len(corpus):,}; "
                "use the data file that was published with it."
            )


def _put_texts(file: h5py.File, name: str, values: list[str]) -> None:
    texts = TextColumn.from_values(values)
    _put(file, f"{name}/bytes", texts.bytes)
    _put(file, f"{name}/offsets", texts.offsets)


def _texts(group: h5py.Group) -> np.ndarray:
    return np.array(list(TextColumn(group["bytes"][:], group["offsets"][:])))


def _put(file: h5py.File, name: str, values: np.ndarray) -> None:
    file.create_dataset(name, data=values, **(_SQUEEZE if len(values) else {}))
