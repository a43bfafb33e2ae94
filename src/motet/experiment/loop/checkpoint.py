"""What a run must remember to go on as if nothing had happened."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motet.core.errors import RunError, WireError
from motet.core.messages import message
from motet.core.script import ClientId
from motet.transport.client_state import ClientStates, StateKey
from motet.transport.mailbox import Traffic
from motet.transport.spill_store import write_pieces_atomically
from motet.wire import iter_serialized
from motet.wire.value_files import load_value


@message
@dataclass(frozen=True, eq=False)
class Checkpoint:
    """After so many rounds. Generators need no state: every one is made from seed, purpose, round and client."""

    rounds: int
    state: Any
    memories: dict[StateKey, str]
    traffic: Traffic
    rows: int  # bytes of metrics.jsonl that belong to it
    seconds: float
    processed: int
    digest: str
    sums: int  # made under noise, and by each client
    spent: dict[ClientId, int]


def save_checkpoint(folder: Path, checkpoint: Checkpoint, memories: ClientStates) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_pieces_atomically(folder / "state", iter_serialized(checkpoint))
    memories.delete_unused_files()  # only now: until the new state stands, the old one needs its files


def load_checkpoint(folder: Path, digest: str) -> Checkpoint | None:
    path = folder / "state"
    if not path.exists():
        return None
    try:
        found = load_value(path)
    except WireError as error:
        raise RunError(f"{path} cannot be read: {error} Remove the folder to begin the run again.") from None
    if not isinstance(found, Checkpoint):
        raise RunError(
            f"{path} holds a {type(found).__name__}, not a checkpoint; remove the folder to begin the run again."
        )
    if found.digest != digest:
        raise RunError(
            f"{path} belongs to a run with other settings (digest {found.digest}, this is {digest}); "
            "resume with the settings it began with, or choose another --out."
        )
    return found
