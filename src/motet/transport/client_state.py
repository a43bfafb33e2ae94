"""Client states between rounds: on the device while they fit, then serialized in host memory or on disk."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from motet.core.script import ClientId
from motet.transport.spill_store import SpillStore
from motet.wire import measure_payload

StateKey = tuple[str, ClientId]  # program name, client


@dataclass(frozen=True, eq=False)
class StateSource:
    """Where a client state is, and how this process reads it.

    `remote` is what a transport knows about a state that other processes of the run keep; None if it is in this one.
    """

    load: Callable[[], Any]
    remote: Any = None


class ClientStates:
    """The states of all simulated clients.

    Changes take effect when the round is committed, so that a checkpoint never contains half a round.
    Up to `device_budget` bytes stay as tensors on the device where they were created. The rest is serialized: up to
    `host_budget` bytes in host memory, then in files. Without a folder everything stays as it is.

    Other processes of the run may keep states too. Then this one has only their sources, and reads a state to save it.

    A state that does not fit makes room for itself only when a round is committed. If every client takes part in every
    round, evicting states whenever one is read or written would serialize all of them instead of the surplus.
    """

    def __init__(self, folder: Path | None = None, device_budget: int = 2**30, host_budget: int = 0) -> None:
        self.store = None if folder is None else SpillStore(folder, host_budget)
        self.device_budget = device_budget
        self.values: OrderedDict[StateKey, Any] = OrderedDict()  # on the device, least recently used first
        self.value_sizes: dict[StateKey, int] = {}  # bytes of each of them; sums are kept, as there may be millions
        self.changed_sizes: dict[StateKey, int] = {}
        self.bytes_on_device = self.changed_bytes = 0
        self.remote: dict[StateKey, StateSource] = {}  # committed states that other processes keep
        self.stored: dict[StateKey, str] = {}  # committed states in the store, by entry name
        self.changed: dict[StateKey, Any] = {}  # changes of the current round
        self.changed_stored: dict[StateKey, str] = {}  # changes of the current round that are already in the store
        self.programs: dict[str, None] = {}  # those that any client has a state of

    def get(self, program: str, client: ClientId) -> Any:
        key = (program, client)
        if key in self.stored and not any(key in held for held in (self.changed, self.changed_stored, self.values)):
            return self._reload(key)
        source = self._find(key)
        return None if source is None else source.load()

    def sources(self, client: ClientId) -> dict[str, StateSource]:
        """Return where the states of a client are, by program. Until the round ends, later changes do not affect them."""
        sources = ((program, self._find((program, client))) for program in self.programs)
        return {program: source for program, source in sources if source is not None}

    def _find(self, key: StateKey) -> StateSource | None:
        if key in self.changed:
            value = self.changed[key]
            return value if isinstance(value, StateSource) else StateSource(lambda: value)
        if key in self.changed_stored:
            return StateSource(partial(self._require_store().get, self.changed_stored[key]))
        if key in self.values:
            self.values.move_to_end(key)
            value = self.values[key]
            return StateSource(lambda: value)
        if key in self.remote:
            return self.remote[key]
        if key in self.stored:
            return StateSource(partial(self._require_store().get, self.stored[key]))
        return None

    def _reload(self, key: StateKey) -> Any:
        """Read a committed state from the store, and keep it on the device if it fits."""
        value = self._require_store().get(self.stored[key])
        size = measure_payload(value)
        if key not in self.remote and self.bytes_on_device + size <= self.device_budget:
            self._keep(key, value, size)
        return value

    def put(self, program: str, client: ClientId, value: Any) -> None:
        """Change a state. The value may be the source of a state that another process keeps."""
        key = (program, client)
        self.programs[program] = None
        self.changed.pop(key, None)
        self.changed_stored.pop(key, None)
        self.changed_bytes -= self.changed_sizes.pop(key, 0)
        size = 0 if isinstance(value, StateSource) else measure_payload(value)
        if self.store is not None and self.changed_bytes + size > self.device_budget:
            self.changed_stored[key] = self.store.put("-".join(key), value)
            return
        self.changed[key], self.changed_sizes[key] = value, size
        self.changed_bytes += size

    def commit_round(self) -> None:
        """Make the changes of the round permanent."""
        for key, value in self.changed.items():
            self.stored.pop(key, None)
            self._keep(key, value, self.changed_sizes[key])
        for key, name in self.changed_stored.items():
            self._drop(key)
            self.stored[key] = name
        self.discard_round()
        if self.store is not None:
            self.store.release_except({*self.stored.values()})

    def discard_round(self) -> None:
        """Forget the changes since the last commit."""
        self._clear_changed()
        self.changed_stored.clear()

    def _clear_changed(self) -> None:
        self.changed.clear()
        self.changed_sizes.clear()
        self.changed_bytes = 0

    def save(self) -> dict[StateKey, str]:
        """Write all committed states to files and return the file names."""
        for key, value in self.values.items():
            if key not in self.stored:
                self.stored[key] = self._require_store().put("-".join(key), value, durable=True)
        for key, source in self.remote.items():  # one at a time: they may not fit into memory together
            if key not in self.stored:
                self.stored[key] = self._require_store().put("-".join(key), source.load(), durable=True)
        if self.stored:
            self._require_store().persist(self.stored.values())
        return dict(self.stored)

    def restore(self, files: dict[StateKey, str]) -> None:
        """Return to the states that `save` wrote to these files."""
        self.values.clear()
        self.value_sizes.clear()
        self.remote.clear()
        self.bytes_on_device = 0
        self.discard_round()
        self.stored = dict(files)
        self.programs = dict.fromkeys(program for program, _ in files)
        if self.store is not None:
            self.store.continue_after(files.values())

    def recall(self) -> None:
        """Read the states that other processes keep, and that are in no file, before these processes end."""
        for key, source in [*self.remote.items()]:
            if key in self.stored:
                self._drop(key)
            else:
                value = source.load()
                self._keep(key, value, measure_payload(value))

    def delete_unused_files(self) -> None:
        if self.store is not None:
            self.store.delete_except({*self.stored.values(), *self.changed_stored.values()})

    def _keep(self, key: StateKey, value: Any, size: int) -> None:
        """Keep a committed state on the device, and move the least recently used ones to the store if it is full."""
        self._drop(key)
        if isinstance(value, StateSource):
            self.remote[key] = value
            return
        self.values[key], self.value_sizes[key] = value, size
        self.bytes_on_device += size
        while self.store is not None and len(self.values) > 1 and self.bytes_on_device > self.device_budget:
            oldest_key, state = next(iter(self.values.items()))
            if oldest_key not in self.stored:
                self.stored[oldest_key] = self.store.put("-".join(oldest_key), state)
            self._drop(oldest_key)

    def _drop(self, key: StateKey) -> None:
        """Remove a state from the device, and forget the one of another process."""
        self.values.pop(key, None)
        self.remote.pop(key, None)
        self.bytes_on_device -= self.value_sizes.pop(key, 0)

    def _require_store(self) -> SpillStore:
        if self.store is None:
            raise RuntimeError("client states without a folder cannot be serialized")
        return self.store


class EphemeralStates:
    """The states of programs with `ephemeral = True`, such as the secrets of a secure sum.

    They are never written to disk.
    """

    def __init__(self) -> None:
        self.values: dict[StateKey, Any] = {}

    def get(self, program: str, client: ClientId) -> Any:
        return self.values.get((program, client))

    def put(self, program: str, client: ClientId, value: Any) -> None:
        self.values[program, client] = value
