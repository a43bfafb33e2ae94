"""The checkpoint of a run, from which it continues as if it had not been interrupted."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from motet.core.errors import RunError, WireError
from motet.core.messages import message
from motet.core.script import ClientId
from motet.experiment.loop.oort import OortState
from motet.transport.client_state import StateKey
from motet.transport.private_files import create_private_folder, write_pieces_atomically
from motet.transport.traffic import Traffic
from motet.wire import iter_serialized
from motet.wire.value_files import load_value


@message
@dataclass(frozen=True, eq=False)
class RunProgress:
    """A run after its last complete round.

    Random generators are not part of it: each is created from the seed, its purpose, the round and the client.
    """

    rounds: int
    state: Any  # of the algorithm
    traffic: Traffic
    noisy_sums: int  # sums under differential privacy
    sums_by_client: dict[ClientId, int]
    oort: OortState | None = None  # what cohorts by utility and speed are sampled from


@message
@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A run's progress and the files that belong to it."""

    progress: RunProgress
    client_states: dict[StateKey, str]  # file names
    metrics_bytes: int  # of metrics.jsonl; what follows is newer than the checkpoint
    seconds: float
    digest: str
    best: RunProgress | None = None  # after the best round on the development set, if that model is kept
    origin: dict[str, str] = field(default_factory=dict)  # digests of the data, clients, model and seed
    failures: tuple[tuple[int, ClientId, str], ...] = ()  # round, client and reason


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    create_private_folder(folder)
    write_pieces_atomically(folder / "state", iter_serialized(checkpoint))


def load_checkpoint(folder: Path, digest: str) -> Checkpoint | None:
    """Load a checkpoint; None if there is none. `digest` is the digest of the run's configuration."""
    path = folder / "state"
    if not path.exists():
        return None
    try:
        checkpoint = load_value(path)
    except WireError as error:
        raise RunError(f"{error} Remove the run's folder to start again.") from None
    if not isinstance(checkpoint, Checkpoint):
        raise RunError(
            f"{path} holds a {type(checkpoint).__name__}; expected a checkpoint. "
            "Remove the run's folder to start again."
        )
    if checkpoint.digest != digest:
        raise RunError(
            f"{path} belongs to a run with other settings (digest {checkpoint.digest}, expected {digest}); "
            "resume with the settings that the run started with, or choose another --out."
        )
    return checkpoint
