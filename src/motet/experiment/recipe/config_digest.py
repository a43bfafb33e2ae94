"""A hash of the settings that must agree between server and clients, and between a run and its resumed part."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

# Settings that change neither what is trained nor how. Server and clients may differ in them, and so may a resumed run.
NOT_IN_DIGEST = (
    "recipe",
    "device",
    "precision",
    "transport",
    "network",
    "evaluation",
    "checkpoint",
    "baselines",
    "track",
)
# Keys and values that were renamed after runs had begun: the digest of these runs contains the former names.
FORMER_KEYS = {
    "wait_policy": {"stop_at_quorum": "eager"},
    "network": {"compute_seconds": "work"},
    "secure": {
        "colluders": "privacy",
        "max_weight": "largest_weight",
        "min_clients": "minimum",
        "out_of_range": "outside",
    },
}
FORMER_SERVER_TYPES = {"sgd": "apply"}


def hash_settings(settings: Mapping[str, Any]) -> str:
    """Return the digest of complete nested settings."""
    hashed = {name: value for name, value in settings.items() if name not in NOT_IN_DIGEST}
    for section in ("robust", "attack"):  # runs that began before these sections existed keep their digest
        if hashed[section] == {"type": "none"}:
            del hashed[section]
    if settings["cohort"]["sampler"] == "oort":
        hashed["network"] = settings["network"]  # its clock chooses the cohorts
    else:
        hashed["cohort"] = {key: value for key, value in settings["cohort"].items() if key != "oort"}
    hashed["solver"] = {key: value for key, value in settings["solver"].items() if not _is_ignored(key, value)}
    for section, names in FORMER_KEYS.items():
        if hashed.get(section):
            hashed[section] = {names.get(key, key): value for key, value in hashed[section].items()}
    if "type" in settings["server"]:
        hashed["server"] = {**settings["server"], "type": _former_type(settings["server"]["type"])}
    return hashlib.sha256(json.dumps(hashed, sort_keys=True).encode()).hexdigest()[:16]


def _is_ignored(key: str, value: Any) -> bool:
    """True for an option of the solver that saves memory and changes no result, or that older runs did not have."""
    return key == "micro_batch" or (key == "keep_state" and value is False)


def _former_type(server: Any) -> Any:
    return FORMER_SERVER_TYPES.get(server, server) if isinstance(server, str) else server
