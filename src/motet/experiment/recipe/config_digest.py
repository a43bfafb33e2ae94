"""A hash of the settings that must agree between server and clients, and between a run and its resumed part."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from motet.experiment.recipe.renamed_keys import RENAMED_IN_STORED_RUNS, RENAMED_VALUES

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
OLD_KEYS = {new: old.rpartition(".")[2] for old, new in RENAMED_IN_STORED_RUNS.items()}
OLD_SERVER_TYPES = {new: old for old, new in RENAMED_VALUES["server.type"].items()}


def hash_settings(settings: Mapping[str, Any]) -> str:
    """Return the digest of complete nested settings."""
    hashed = {name: value for name, value in settings.items() if name not in NOT_IN_DIGEST}
    for section in ("robust", "attack"):  # runs that began before these sections existed keep their digest
        if hashed[section] == {"type": "none"}:
            del hashed[section]
    if settings["cohort"]["sampler"] == "oort":
        hashed["network"] = settings["network"]  # its clock chooses the cohorts
        options = dict(settings["cohort"]["oort"])
        if not options["report_utility"]:  # runs that began before this key existed keep their digest
            del options["report_utility"]
        hashed["cohort"] = {**settings["cohort"], "oort": options}
    else:
        hashed["cohort"] = {key: value for key, value in settings["cohort"].items() if key != "oort"}
    hashed["solver"] = {key: value for key, value in settings["solver"].items() if not _is_ignored(key, value)}
    for section, options in hashed.items():  # runs that began before keys were renamed keep their digest
        if isinstance(options, Mapping):
            hashed[section] = {OLD_KEYS.get(f"{section}.{key}", key): value for key, value in options.items()}
    if "type" in settings["server"]:
        hashed["server"] = {**settings["server"], "type": _old_type(settings["server"]["type"])}
    return hashlib.sha256(json.dumps(hashed, sort_keys=True).encode()).hexdigest()[:16]


def _is_ignored(key: str, value: Any) -> bool:
    """True for an option of the solver that saves memory and changes no result, or that older runs did not have."""
    return key == "micro_batch" or (key, value) in (("keep_state", False), ("schedule_span", "round"))


def _old_type(server: Any) -> Any:
    return OLD_SERVER_TYPES.get(server, server) if isinstance(server, str) else server
