"""Poison the training data of malicious clients, for benchmarks of robust rules."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from motet.core.errors import ConfigError
from motet.experiment.build.federation import ClientGroup, Federation
from motet.experiment.recipe.config_parsing import instantiate, look_up_type
from motet.experiment.recipe.run_config import RunConfig
from motet.learning.data.features import Column, Features, Ragged
from motet.robust.attacks import ATTACKS, Attack

TRIGGER_POSITION = 1  # after the first special token


def build_attack(config: RunConfig) -> Attack | None:
    """Build the attack of malicious clients; None if the recipe has none."""
    factory = look_up_type(ATTACKS, config.attack.type, config.attack.options, "attack")
    attack: Attack | None = instantiate(factory, config.attack.options, "attack")
    return attack


def poison_federation(federation: Federation, attack: Attack | None) -> Federation:
    """Return the federation with poisoned training rows. For a backdoor, add a test set of texts with the trigger."""
    if attack is None or attack.data_change is None:
        return federation
    group = federation.groups[0]
    if len(federation.groups) > 1 or federation.server.features is not group.features:
        raise ConfigError(
            f"attack.type={attack.name} works for clients with one corpus and one tokenizer; remove groups."
        )
    labels = group.features.columns.get("labels")
    if not isinstance(labels, np.ndarray) or labels.dtype.kind != "i":
        raise ConfigError(
            f"attack.type={attack.name} changes class labels, and {group.task.name} has none; use task=classification."
        )
    attackers = attack.choose_attackers(federation.clients, federation.seed)
    indices = [k for k in range(len(federation.clients)) if federation.clients[k] in attackers]
    rows = np.concatenate([np.zeros(0, np.int64), *(group.train[k] for k in indices)])
    poisoned = _flip_labels(group, rows) if attack.data_change == "labels" else _add_triggers(group, rows, attack)
    server = replace(federation.server, features=poisoned.features, backdoor_rows=poisoned.backdoor_rows)
    return replace(federation, groups=(poisoned,), server=server)


def _flip_labels(group: ClientGroup, rows: np.ndarray) -> ClientGroup:
    labels = np.array(group.features.columns["labels"])
    labels[rows] = labels.max(initial=0) - labels[rows]
    return replace(group, features=_with_columns(group.features, {"labels": labels}))


def _add_triggers(group: ClientGroup, rows: np.ndarray, attack: Attack) -> ClientGroup:
    """Put a trigger token into some training rows and give them the target label.

    Copies of the test rows of other classes, with the trigger and the target label, follow all rows. The accuracy on
    them is how often the backdoor works.
    """
    ids = group.features.columns["input_ids"]
    if not isinstance(ids, Ragged):
        raise ConfigError("attack.type=backdoor needs texts as token IDs; set model.cut to none.")
    trigger = ids.max_value
    test_rows = group.global_test_rows
    others = test_rows[np.asarray(group.features.columns["labels"])[test_rows] != attack.target]
    first_copy = len(group.features)
    columns = {name: _append_rows(column, others) for name, column in group.features.columns.items()}
    extended, labels = columns["input_ids"], np.array(columns["labels"])
    copies = np.arange(first_copy, first_copy + len(others))
    poisoned = np.concatenate([rows[: round(attack.poisoned_rows * len(rows))], copies])
    labels[poisoned] = attack.target
    if isinstance(extended, Ragged):
        values = extended.values.copy()
        long_enough = poisoned[extended.lengths[poisoned] > TRIGGER_POSITION]
        values[extended.offsets[long_enough] + TRIGGER_POSITION] = trigger
        columns["input_ids"] = Ragged(values, extended.offsets, extended.pad)
    features = _with_columns(group.features, {**columns, "labels": labels})
    return replace(group, features=features, backdoor_rows=copies)


def _append_rows(column: Column, rows: np.ndarray) -> Column:
    """Return a column with copies of some of its rows at the end."""
    if not isinstance(column, Ragged):
        return np.concatenate([column, column[rows]])
    copies = column.select(rows)
    offsets = np.concatenate([column.offsets, column.offsets[-1] + copies.offsets[1:]])
    return Ragged(np.concatenate([column.values, copies.values]), offsets, column.pad)


def _with_columns(features: Features, columns: Mapping[str, Column]) -> Features:
    digest = hashlib.blake2b(digest_size=8)  # caches must not mix two attacks up
    for _, column in sorted(columns.items()):
        digest.update(np.ascontiguousarray(column.values if isinstance(column, Ragged) else column).data)
    return replace(features, key=f"{features.key}-{digest.hexdigest()}", columns={**features.columns, **columns})
