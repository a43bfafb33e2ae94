"""Read and write FedNLP's partition files (HDF5): one group per partition, with the rows of each client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py

from motet.core.errors import ConfigError
from motet.core.suggestions import did_you_mean
from motet.datasets.corpus import Corpus
from motet.datasets.hdf5_access import open_hdf5
from motet.partitions.partition import ClientRows, Partition

HINT = "Use the partition file that FedNLP published, or make one with: motet partition make"


def is_fednlp_partition_file(path: Path) -> bool:
    if not path.exists() or not h5py.is_hdf5(path):
        return False
    with open_hdf5(path, HINT) as file:
        return any(isinstance(group, h5py.Group) and "partition_data" in group for group in file.values())


def read_fednlp_partition(path: Path, name: str | None, corpus: Corpus | None = None) -> Partition:
    """Read one partition of a file. Row numbers are those of the corpus: training rows first.

    `name` may be None if the file has one partition only.
    """
    with open_hdf5(path, HINT) as file:
        names = [str(key) for key in file]
        match = names[0] if name is None and len(names) == 1 else _find_name(name, names)
        if match is None:
            problem = "partition.name is missing" if name is None else f"partition.name: there is no '{name}'"
            raise ConfigError(f"{problem} in {path.name}; it has {', '.join(names)}.{did_you_mean(name or '', names)}")
        group = file[match]
        clients = sorted(group["partition_data"], key=int)  # HDF5 sorts keys as strings
        train, test = (
            ClientRows.from_lists([group[f"partition_data/{c}/{split}"][()] for c in clients])
            for split in ("train", "test")
        )
        settings = {key: _to_python(group[key][()]) for key in ("n_clients", "alpha", "beta") if key in group}
    _check_train_rows(path, match, train, corpus)
    return Partition(train, test, {"type": "file", "fednlp": match, "path": path.name, **settings})


def write_fednlp_partition(partition: Partition, path: Path, name: str | None = None) -> str:
    """Add a partition to a file, by default under FedNLP's name for it; return the name."""
    if partition.train.phases > 1 or partition.public is not None or partition.global_test is not None:
        raise ConfigError(
            "FedNLP's partition files do not support phases, public rows or a global test set. Use Motet's own format."
        )
    name = name or fednlp_name(partition)
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "a") as file:
        if name in file:
            del file[name]
        group = file.create_group(name)
        group["n_clients"] = len(partition)
        for key in ("alpha", "beta"):
            if key in partition.recipe:
                group[key] = partition.recipe[key]
        if partition.trait is not None:
            group["client_assignment"] = partition.trait.codes  # FedNLP's name for the cluster of each row
        for k in range(len(partition)):
            group[f"partition_data/{k}/train"] = partition.train[k]
            group[f"partition_data/{k}/test"] = partition.test[k]
    return name


def fednlp_name(partition: Partition) -> str:
    """Return FedNLP's name for a partition, such as niid_label_clients=100_alpha=1.0."""
    recipe, clients = partition.recipe, len(partition)
    match recipe.get("type"):
        case "uniform":
            return f"uniform_clients={clients}"
        case "label":
            return f"niid_label_clients={clients}_alpha={float(recipe['alpha'])}"
        case "feature":
            return f"niid_cluster_clients={clients}_alpha={float(recipe['alpha'])}"
        case "quantity":
            return f"niid_quantity_clients={clients}_beta={float(recipe['beta'])}"
        case "clusters":
            return f"kmeans_clusters={clients}"
        case strategy:
            return f"{strategy}_clients={clients}"


def _find_name(name: str | None, names: list[str]) -> str | None:
    """Find a name in any of FedNLP's spellings: alpha=1.0 or alpha=1, kmeans_clusters=30 or kmeans_30."""
    return next((key for key in names if _parse_name(key) == _parse_name(name or "")), None)


def _parse_name(name: str) -> list[Any]:
    parts: list[Any] = []
    for part in name.replace("kmeans_clusters=", "kmeans_").split("_"):
        key, equals, value = part.partition("=")
        try:
            parts.append((key, float(value)) if equals else part)
        except ValueError:
            parts.append(part)
    return parts


def _check_train_rows(path: Path, name: str, train: ClientRows, corpus: Corpus | None) -> None:
    if corpus is not None and len(train.rows) and int(train.rows.max()) >= corpus.num_train:
        raise ConfigError(
            f"partition.path: '{name}' of {path.name} trains on row {int(train.rows.max()):,}, which is a test row of "
            f"{corpus.name} ({corpus.num_train:,} training rows, {len(corpus):,} in total). Use the data file that was "
            "published with it."
        )


def _to_python(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
