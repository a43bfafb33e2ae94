"""What clients remember between rounds: where it is used while it fits there, else packed, and never lost by a failure."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

from motet.core.script import ClientId
from motet.transport.spill_store import SpillStore
from motet.wire import measure_size

StateKey = tuple[str, ClientId]


class ClientStates:
    """Changes made in a round count only once the round is settled, so that a checkpoint never holds half a round.

    So many bytes as `budget` says stay as they are, on the device where they were made; the rest is packed, in the host's
    memory as far as there is `room`, and then on disk. Without a folder all stays as it is.
    """

    def __init__(self, folder: Path | None = None, budget: int = 2**30, room: int = 0) -> None:
        self.pages, self.budget = None if folder is None else SpillStore(folder, room), budget
        self.values: OrderedDict[StateKey, Any] = OrderedDict()  # in memory, the least recently used first
        self.sizes: dict[StateKey, int] = {}
        self.paged: dict[StateKey, str] = {}  # in a page, and not changed since
        self.changed: dict[StateKey, Any] = {}  # in this round
        self.spilled: dict[StateKey, str] = {}  # changed in this round, and already in a page

    def get(self, program: str, client: ClientId) -> Any:
        key = (program, client)
        if key in self.changed:
            return self.changed[key]
        if key in self.spilled:
            return self._pages.get(self.spilled[key])
        if key in self.values:
            self.values.move_to_end(key)
            return self.values[key]
        if key not in self.paged:
            return None
        self._hold(key, self._pages.get(self.paged[key]))
        return self.values[key]

    def put(self, program: str, client: ClientId, value: Any) -> None:
        key = (program, client)
        self.changed[key] = value
        self.spilled.pop(key, None)
        self.sizes[key] = measure_size(value).payload
        if self.pages is not None and sum(self.sizes[k] for k in self.changed) > self.budget:
            for old, memory in list(self.changed.items()):
                self.spilled[old] = self.pages.put("-".join(old), memory)
            self.changed.clear()

    def settle(self) -> None:
        """The round is over: its changes count."""
        for key, value in self.changed.items():
            self.paged.pop(key, None)
            self._hold(key, value)
        for key, name in self.spilled.items():
            self.values.pop(key, None)
            self.paged[key] = name
        self.forget_round()
        if self.pages is not None:
            self.pages.release({*self.paged.values()})

    def forget_round(self) -> None:
        self.changed.clear()
        self.spilled.clear()

    def save(self) -> dict[StateKey, str]:
        """Write all that is settled to disk; which file holds what."""
        for key, value in self.values.items():
            if key not in self.paged:
                self.paged[key] = self._pages.put("-".join(key), value, lasting=True)
        if self.paged:
            self._pages.last(self.paged.values())
        return dict(self.paged)

    def restore(self, files: dict[StateKey, str]) -> None:
        self.values.clear()
        self.forget_round()
        self.paged = dict(files)
        if self.pages is not None:
            self.pages.go_on_after(files.values())
        self.sweep()

    def sweep(self) -> None:
        """Delete files that no checkpoint needs."""
        if self.pages is not None:
            self.pages.sweep({*self.paged.values(), *self.spilled.values()})

    def _hold(self, key: StateKey, value: Any) -> None:
        self.values[key] = value
        self.values.move_to_end(key)
        self.sizes.setdefault(key, measure_size(value).payload)
        while self.pages is not None and len(self.values) > 1 and self._held() > self.budget:
            old, memory = self.values.popitem(last=False)
            if old not in self.paged:
                self.paged[old] = self.pages.put("-".join(old), memory)

    def _held(self) -> int:
        return sum(self.sizes[k] for k in self.values)

    @property
    def _pages(self) -> SpillStore:
        if self.pages is None:
            raise RuntimeError("memories without a folder cannot be packed")
        return self.pages


class EphemeralStates:
    """What clients remember for the length of one sum; it must never reach a disk."""

    def __init__(self) -> None:
        self.values: dict[StateKey, Any] = {}

    def get(self, program: str, client: ClientId) -> Any:
        return self.values.get((program, client))

    def put(self, program: str, client: ClientId, value: Any) -> None:
        self.values[program, client] = value
