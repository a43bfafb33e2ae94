"""The structure of the JSON files in the folder of a run. They are checked against it when they are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict

_RENAMED_KEYS = {"headline": "primary_metric", "headline_split": "primary_metric_split"}  # of summary.json


class TrafficRecord(TypedDict):
    """Bytes of a whole run."""

    payload_up: int
    payload_down: int


class SpreadRecord(TypedDict):
    """The primary metric over clients. Empty if no client was evaluated."""

    mean: NotRequired[float]
    std: NotRequired[float]
    worst_decile: NotRequired[float]


class DevRecord(TypedDict):
    """The best round on the development set, and its metrics there and on the global test set."""

    by: str
    round: int
    dev: dict[str, float]
    test: dict[str, float]


class PartitionRecord(TypedDict):
    digest: NotRequired[str]
    measures: NotRequired[dict[str, float]]


class PrivacyRecord(TypedDict):
    epsilon: NotRequired[float | None]


class GroupRecord(TypedDict):
    primary_metric: str
    metric_details: NotRequired[dict[str, str]]


class SummaryRecord(TypedDict):
    """summary.json: what commands read of it. It has more, for people and their scripts."""

    recipe: str
    algorithm: str
    task: str
    model: str
    dataset: str
    partition: NotRequired[PartitionRecord]
    clients: int
    train_examples: NotRequired[int]
    seed: int
    primary_metric: str
    primary_metric_split: Literal["global", "local"]
    items: NotRequired[str]
    rounds: int
    kept_round: NotRequired[int]
    initial: NotRequired[dict[str, float]]
    final: dict[str, float]
    best: dict[str, float]
    dev_best: NotRequired[DevRecord | None]
    clients_final: SpreadRecord
    groups: list[GroupRecord]
    remarks: NotRequired[list[str]]
    bytes: TrafficRecord
    network_seconds: float | None
    seconds: float
    privacy: NotRequired[PrivacyRecord]
    versions: NotRequired[dict[str, str]]
    machine: NotRequired[dict[str, str]]


def is_personal(summary: Mapping[str, Any]) -> bool:
    """Return True if a run trains personal models, which are compared on the clients' own test sets."""
    return summary.get("primary_metric_split") == "local"


def update_summary_names(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return a summary with the current names of its keys, which older versions called otherwise."""
    updated = {_RENAMED_KEYS.get(key, key): value for key, value in summary.items()}
    if isinstance(groups := updated.get("groups"), list):
        updated["groups"] = [update_summary_names(group) if isinstance(group, dict) else group for group in groups]
    return updated


class FailureRecord(TypedDict):
    """failed.json: why a run ended without results."""

    why: str
    lacked_memory: NotRequired[bool]


class PartitionTable(TypedDict):
    """partition.json: the clients of a run and, if they can be drawn, their labels."""

    clients: list[str]
    train: list[int]
    test: list[int]
    left_out: int
    by: NotRequired[str]
    labels: NotRequired[list[str]]
    counts: NotRequired[list[list[int]]]


class LabelRecord(TypedDict):
    """An entry of labels.json: the scores of each label of a model, and its confusion matrix."""

    labels: list[str]
    scores: dict[str, dict[str, float]]
    counts: list[list[int]]
