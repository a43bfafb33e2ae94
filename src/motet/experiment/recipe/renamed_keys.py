"""Old names of recipe keys and values. They work for one more release, with a note that shows the new name.

To rename a key, add its full path to `RENAMED_IN_STORED_RUNS`. A key stays in its section or moves to a subsection; a
section may be renamed too:

    "model.lora": "model.adapter.rank",
    "patience": "wait_policy",
    "patience.worth": "wait_policy.staleness_exponent",

To move a key out of its section, add it to `MOVED_KEYS`. To rename a value, add it to `RENAMED_VALUES` under the new
path of its key:

    "algorithm.type": {"centralised": "centralized"},
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from motet.core.errors import ConfigError

Announce = Callable[[str], None]  # gets a sentence such as "'old' is now 'new'"

# The digest of a configuration has the old names of these, so that runs can be resumed that began with them.
RENAMED_IN_STORED_RUNS: dict[str, str] = {
    "wait_policy.eager": "wait_policy.stop_at_quorum",
    "network.work": "network.compute_seconds",
    "secure.minimum": "secure.min_clients",
    "secure.privacy": "secure.colluders",
    "secure.largest_weight": "secure.max_weight",
    "secure.outside": "secure.out_of_range",
    "partition.held_out": "partition.held_out_clients",
}
RENAMED_KEYS: dict[str, str] = {
    **RENAMED_IN_STORED_RUNS,
    "patience": "wait_policy",
    "patience.worth": "wait_policy.staleness_exponent",
    "patience.absence": "wait_policy.reconnect_timeout",
    "secure.neighbours": "secure.neighbors",
    "solver.pull": "solver.proximal_mu",
    "evaluation.choose": "evaluation.best_round_metric",
    "evaluation.reach": "evaluation.target_scores",
    "evaluation.items": "evaluation.save_example_scores",
    "algorithm.distil_epochs": "algorithm.distill_epochs",
    "algorithm.distil_lr": "algorithm.distill_lr",
    "algorithm.lessons": "algorithm.objectives",
    "algorithm.neighbours": "algorithm.neighbors",
    "algorithm.second": "algorithm.second_stage",
    "model.lora": "model.adapter.rank",
    "model.lora_alpha": "model.adapter.alpha",
    "model.config.width": "model.config.embedding_dim",
    "model.config.hidden": "model.config.hidden_size",
    "partition.at_least": "partition.min_examples",
    "partition.course": "partition.schedule",
    "partition.every": "partition.rounds_per_phase",
    "partition.most": "partition.max_examples",
    "task.positive": "task.positive_label",
    "task.group": "task.group_texts",
    "task.question_tokens": "task.max_question_tokens",
    "task.answer_tokens": "task.max_answer_tokens",
    "task.target_tokens": "task.max_target_tokens",
    "task.smoothing": "task.label_smoothing",
    "task.beams": "task.num_beams",
    "task.shortest": "task.min_target_tokens",
    "task.no_repeat": "task.no_repeat_ngram_size",
    "transport.record": "transport.cuda_graphs",
    "transport.anyone": "transport.allow_anyone",
}
MOVED_KEYS = {("transport", "precision"): "precision"}  # out of a section, to the top level
RENAMED_VALUES: dict[str, dict[str, str]] = {
    "algorithm.type": {"centralised": "centralized"},
    "algorithm.second_stage": {"neighbours": "neighbors"},
    "algorithm.pairing": {"drawn": "random"},
    "server.type": {"apply": "sgd"},
}
NAME_KEYS = ("type", "name")  # `algorithm: fedavg` means algorithm.type, `model: tiny` in a group means model.name


def update_names(settings: Mapping[str, Any], announce: Announce | None = None) -> dict[str, Any]:
    """Return nested recipe settings with old keys and values replaced by the new ones, also in groups and baselines.

    `announce` is told each change, by default to print it once.
    """
    announce = announce or print_rename_once
    updated = _update_section(settings, "", announce)
    for (section, key), name in MOVED_KEYS.items():
        if isinstance(options := updated.get(section), Mapping) and key in options:
            announce(f"recipe key '{section}.{key}' is now '{name}'")
            updated[section] = {k: v for k, v in options.items() if k != key}
            updated.setdefault(name, options[key])
    groups, baselines = updated.get("groups"), updated.get("baselines")
    if isinstance(groups, list | tuple):
        updated["groups"] = [update_names(group, announce) if isinstance(group, Mapping) else group for group in groups]
    if isinstance(baselines, Mapping):
        updated["baselines"] = {
            name: update_names(change, announce) if isinstance(change, Mapping) else change
            for name, change in baselines.items()
        }
    return updated


def _update_section(section: Mapping[str, Any], path: str, announce: Announce) -> dict[str, Any]:
    """`path` is the section's new path, "" for the top level."""
    updated: dict[str, Any] = {}
    new_names = _new_names(path)
    for key, value in section.items():
        name = new_names.get(key, key)
        if not path and not isinstance(value, Mapping | None):
            name = key  # an old section has options; patience=1 means evaluation.patience, which the error suggests
        if name != key:
            if name in section:
                raise ConfigError(
                    f"recipe keys '{_join(path, key)}' and '{_join(path, name)}' are two names for the same setting; "
                    f"expected one. Remove '{_join(path, key)}', the old name."
                )
            if "." in name and not value:
                continue  # configurations of older runs state that there is none: lora: 0
            announce(f"recipe key '{_join(path, key)}' is now '{_join(path, name)}'")
        new_value = _update_value(value, _join(path, str(name)), announce)
        if name != key or not path:
            _set_nested(updated, str(name), new_value)
        else:
            updated[str(name)] = new_value  # a dot belongs to the name: class_weights: {comp.graphics: 2}
    return updated


def _set_nested(section: dict[str, Any], name: str, value: Any) -> None:
    """Set `section[name]`, or `section[a][b]` for the name "a.b"."""
    key, _, rest = name.partition(".")
    if not rest:
        section[key] = value
        return
    subsection = section.get(key) or {}
    if not isinstance(subsection, Mapping):
        subsection = {"type": subsection}
    section[key] = dict(subsection)
    _set_nested(section[key], rest, value)


def _update_value(value: Any, path: str, announce: Announce) -> Any:
    if isinstance(value, Mapping):
        return _update_section(value, path, announce)
    if isinstance(value, list | tuple):
        return [_update_value(item, path, announce) if isinstance(item, str) else item for item in value]
    if not isinstance(value, str):
        return value
    for key in (path, *(f"{path}.{name}" for name in NAME_KEYS)):
        if value in RENAMED_VALUES.get(key, {}):
            new_value = RENAMED_VALUES[key][value]
            announce(f"recipe value '{key}={value}' is now '{key}={new_value}'")
            return new_value
    return value


@cache
def _new_names(section: str) -> Mapping[Any, str]:
    """Old key -> new key, for the keys of one section, given by its new path. A new key may be in a subsection."""
    names = {}
    for old, new in RENAMED_KEYS.items():
        parent, _, key = old.rpartition(".")
        if RENAMED_KEYS.get(parent, parent) == section:
            names[key] = new.removeprefix(f"{section}.") if section else new
    return names


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


@cache
def print_rename_once(change: str) -> None:
    """Tell the user about a renamed word, once per process. `change` reads "'old' is now 'new'"."""
    print(f"motet: {change}; the old name will stop working in the next release.", file=sys.stderr)
