"""The states of a client that keeps its own: they survive the process, and can go back to before any request."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from motet.core.script import ClientId
from motet.transport.client_state import StateKey
from motet.transport.encrypted_files import StateFiles
from motet.transport.private_files import create_private_folder
from motet.transport.requests import Request


class Journal:
    """Every version of a client's state, by the ID of the request that wrote it.

    A restarted server repeats its requests since the last checkpoint. Request n sees the state as the requests before n
    left it, so it gets the same answer as the first time. When the server has
    a newer checkpoint, versions from before it are deleted.
    """

    def __init__(self, folder: Path | None = None, files: StateFiles | None = None) -> None:
        self.folder, self.files = folder, files or StateFiles()
        self.versions: dict[StateKey, dict[int, Any]] = {}  # the value, or None if it is in a file
        self.current_ids: dict[ClientId, int] = {}
        if folder is not None:
            create_private_folder(folder)
            for path in folder.iterdir():
                request_id, *key = path.name.split("@")
                if len(key) == 2 and request_id.isdigit():
                    program, client = map(unquote, key)
                    self.versions.setdefault((program, client), {})[int(request_id)] = None

    def begin_request(self, request: Request) -> None:
        """Go back to the state before this request. Requests with a negative ID only read."""
        self.current_ids[request.client] = request.id
        if request.id < 0:
            return
        for key, versions in self.versions.items():
            if key[1] == request.client:
                checkpointed = max((n for n in versions if n <= request.last_checkpointed), default=0)
                for request_id in [n for n in versions if n >= request.id or n < checkpointed]:
                    self._delete(key, request_id)

    def get(self, program: str, client: ClientId) -> Any:
        versions = self.versions.get((program, client))
        if not versions:
            return None
        latest = max(versions)
        if self.folder is None:
            return versions[latest]
        return self.files.load(self._path((program, client), latest))

    def put(self, program: str, client: ClientId, value: Any) -> None:
        request_id, key = self.current_ids.get(client, 0), (program, client)
        if request_id < 0:
            return
        if self.folder is not None:
            self.files.save(self._path(key, request_id), value)
        self.versions.setdefault(key, {})[request_id] = value if self.folder is None else None

    def _delete(self, key: StateKey, request_id: int) -> None:
        del self.versions[key][request_id]
        if self.folder is not None:
            self._path(key, request_id).unlink(missing_ok=True)

    def _path(self, key: StateKey, request_id: int) -> Path:
        if self.folder is None:
            raise RuntimeError("a journal without a folder has no files")
        return self.folder / "@".join((f"{request_id:012d}", *(quote(part, safe="") for part in key)))
