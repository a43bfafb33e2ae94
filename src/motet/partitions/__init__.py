"""Partition strategies: seeded functions that divide a corpus over clients."""

from __future__ import annotations

from collections.abc import Callable

from motet.core.plugins import Registry
from motet.partitions.auto import auto
from motet.partitions.drift import drift
from motet.partitions.feature import clusters, feature
from motet.partitions.label import label
from motet.partitions.label_quantity import label_quantity
from motet.partitions.language import language
from motet.partitions.length import length
from motet.partitions.multi_domain import multi_domain
from motet.partitions.natural import natural
from motet.partitions.ordered import ordered
from motet.partitions.partition import Partition
from motet.partitions.partition_file import from_file, read_partition, write_partition
from motet.partitions.proportions import proportions
from motet.partitions.quantity import quantity
from motet.partitions.uniform import uniform
from motet.partitions.vocabulary import vocabulary

PARTITIONS: dict[str, Callable[..., Partition]] = {
    "auto": auto,
    "uniform": uniform,
    "label": label,
    "quantity": quantity,
    "label_quantity": label_quantity,
    "feature": feature,
    "clusters": clusters,
    "natural": natural,
    "multi_domain": multi_domain,
    "proportions": proportions,
    "sorted": ordered,
    "length": length,
    "vocabulary": vocabulary,
    "language": language,
    "drift": drift,
    "file": from_file,
}
PARTITION_REGISTRY = Registry("motet.partitions", PARTITIONS)

__all__ = [
    "PARTITIONS",
    "PARTITION_REGISTRY",
    "Partition",
    "auto",
    "clusters",
    "drift",
    "feature",
    "from_file",
    "label",
    "label_quantity",
    "language",
    "length",
    "multi_domain",
    "natural",
    "ordered",
    "proportions",
    "quantity",
    "read_partition",
    "uniform",
    "vocabulary",
    "write_partition",
]
