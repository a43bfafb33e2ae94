"""FedNLP's partition files, read and written: a group for each partition of a dataset, in it the rows of each client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py

from motet.core.errors import ConfigError, did_you_mean
from motet.datasets.corpus import Corpus
from motet.partitions.partition import ClientRows, Partition


def is_fednlp_partition_file(path: Path) -> bool:
    """Whether this is a partition file of FedNLP's."""
    if not path.exists() or not h5py.is_hdf5(path):
        return False
    with h5py.File(path, "r") as file:
        return any(isinstance(group, h5py.Group) and "partition_data" in group for group in file.values())


def partition_names(path: Path) -> list[str]:
    with h5py.File(path, "r") as file:
        return [str(name) for name in file]


def read_fednlp_partition(path: Path, name: str | None, corpus: Corpus | None = None) -> Partition:
    """One of the partitions that the file holds. FedNLP's row numbers are the corpus's: training rows first."""
    with h5py.File(path, "r") as file:
        known = [str(key) for key in file]
        found = known[0] if name is None and len(known) == 1 else _same(name, known)
        if found is None:
            said = "partition.name is missing" if name is None else f"partition.name: there is no '{name}'"
            raise ConfigError(f"{said} in {path.name}; it holds {', '.join(known)}.{did_you_mean(name or '', known)}")
        group = file[found]
        clients = sorted(group["partition_data"], key=int)  # HDF5 lists keys as text, so that 10 would come before 2
        train, test = (
            ClientRows.from_lists([group[f"partition_data/{c}/{side}"][()] for c in clients])
            for side in ("train", "test")
        )
        told = {key: _plain(group[key][()]) for key in ("n_clients", "alpha", "beta") if key in group}
    _check_train(path, found, train, corpus)
    return Partition(train, test, {"type": "file", "fednlp": found, "path": path.name, **told})


def write_fednlp_partition(partition: Partition, path: Path, name: str | None = None) -> str:
    """Add a partition to a file, under FedNLP's name for it."""
    if partition.train.phases > 1 or partition.public is not None or partition.global_test is not None:
        raise ConfigError(
            "FedNLP's partition files have no place for phases, public rows or a global test set; use Motet's own."
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
            group["client_assignment"] = partition.trait.codes  # the cluster of each row
        for k in range(len(partition)):
            group[f"partition_data/{k}/train"] = partition.train[k]
            group[f"partition_data/{k}/test"] = partition.test[k]
    return name


def fednlp_name(partition: Partition) -> str:
    """What FedNLP would call it: niid_label_clients=100_alpha=1.0."""
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
        case kind:
            return f"{kind}_clients={clients}"


def _same(name: str | None, known: list[str]) -> str | None:
    """Published files write alpha=1.0, later ones alpha=1; both mean the same, and kmeans_30 is an older kmeans_clusters=30."""
    return next((key for key in known if _canonical(key) == _canonical(name or "")), None)


def _canonical(name: str) -> list[Any]:
    parts: list[Any] = []
    for part in name.replace("kmeans_clusters=", "kmeans_").split("_"):
        key, equals, value = part.partition("=")
        try:
            parts.append((key, float(value)) if equals else part)
        except ValueError:
            parts.append(part)
    return parts


def _check_train(path: Path, name: str, train: ClientRows, corpus: Corpus | None) -> None:
    if corpus is not None and len(train.rows) and int(train.rows.max()) >= corpus.num_train:
        raise ConfigError(
            f"partition.path: '{name}' of {path.name} trains on row {int(train.rows.max()):,}, which is a test row of "
            f"{corpus.name} ({corpus.num_train:,} training rows, {len(corpus):,} in all); use the data file published with it."
        )


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
