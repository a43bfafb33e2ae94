"""Who has which examples: pure, seeded functions from labels and sizes to a Partition."""

from __future__ import annotations

from collections.abc import Callable

from motet.partitions.label import label
from motet.partitions.natural import natural
from motet.partitions.partition import Partition
from motet.partitions.quantity import quantity
from motet.partitions.uniform import uniform

PARTITIONS: dict[str, Callable[..., Partition]] = {
    "uniform": uniform,
    "label": label,
    "quantity": quantity,
    "natural": natural,
}

__all__ = ["PARTITIONS", "Partition", "label", "natural", "quantity", "uniform"]
