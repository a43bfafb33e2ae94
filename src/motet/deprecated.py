"""Old names of the Python API. They work for one more release, and `motet` warns when they are used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from motet.algorithms import centralized
from motet.core.script import ClientId
from motet.learning.custom_trainer import CustomFederation, Trainer, custom_federation

centralised = centralized


def own_federation(
    trainer: Trainer, data: Mapping[ClientId, tuple[Any, Any]], held_out: Any, *, headline: str, seed: int = 42
) -> CustomFederation:
    """Call `custom_federation`, where `headline` is now `primary_metric`."""
    return custom_federation(trainer, data, held_out, primary_metric=headline, seed=seed)
