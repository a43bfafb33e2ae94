"""Client states between rounds: on the device while they fit, then serialized in host memory or on disk."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

from motet.core.script import ClientId
from motet.transport.spill_store import SpillStore
from motet.wire import measure_payload

StateKey = tuple[str, ClientId]  # program name, client


class ClientStates:
    """The states of all simulated clients.

    Changes take effect when the round is committed, so that a checkpoint never contains half a round.
    Up to `device_budget` bytes stay as tensors on the device where they were created. The rest is serialized: up to
    `host_budget` bytes in host memory, then in files. Without a folder everything stays as it is.

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
        self.stored: dict[StateKey, str] = {}  # committed states in the store, by entry name
        self.changed: dict[StateKey, Any] = {}  # changes of the current round
        self.changed_stored: dict[StateKey, str] = {}  # changes of the current round that are already in the store

    @property
    def is_empty(self) -> bool:
        """True if no client has a state."""
        return not (self.values or self.stored or self.changed or self.changed_stored)

    def get(self, program: str, client: ClientId) -> Any:
        key = (program, client)
        if key in self.changed:
            return self.changed[key]
        if key in self.changed_stored:
            return self._require_store().get(self.changed_stored[key])
        if key in self.values:
            self.values.move_to_end(key)
            return self.values[key]
        if key not in self.stored:
            return None
        value = self._require_store().get(self.stored[key])
        size = measure_payload(value)
        if self.bytes_on_device + size <= self.device_budget:
            self._keep(key, value, size)
        return value

    def put(self, program: str, client: ClientId, value: Any) -> None:
        key = (program, client)
        self.changed.pop(key, None)
        self.changed_stored.pop(key, None)
        self.changed_bytes -= self.changed_sizes.pop(key, 0)
        size = measure_payload(value)
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
        if self.stored:
            self._require_store().persist(self.stored.values())
        return dict(self.stored)

    def restore(self, files: dict[StateKey, str]) -> None:
        """Return to the states that `save` wrote to these files."""
        self.values.clear()
        self.value_sizes.clear()
        self.bytes_on_device = 0
        self.discard_round()
        self.stored = dict(files)
        if self.store is not None:
            self.store.continue_after(files.values())

    def delete_unused_files(self) -> None:
        if self.store is not None:
            self.store.delete_except({*self.stored.values(), *self.changed_stored.values()})

    def _keep(self, key: StateKey, value: Any, size: int) -> None:
        """Keep a committed state on the device, and move the least recently used ones to the store if it is full."""
        self._drop(key)
        self.values[key], self.value_sizes[key] = value, size
        self.bytes_on_device += size
        while self.store is not None and len(self.values) > 1 and self.bytes_on_device > self.device_budget:
            oldest_key, state = next(iter(self.values.items()))
            if oldest_key not in self.stored:
                self.stored[oldest_key] = self.store.put("-".join(oldest_key), state)
            self._drop(oldest_key)

    def _drop(self, key: StateKey) -> None:
        """Remove a state from the device."""
        self.values.pop(key, None)
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
