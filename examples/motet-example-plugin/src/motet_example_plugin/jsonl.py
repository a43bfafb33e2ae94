"""A tracker that writes one line of JSON per round."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from motet.report.trackers import Tracker


@dataclass(frozen=True)
class JsonLines:
    file: IO[str]

    def log(self, round: int, values: Mapping[str, float]) -> None:
        print(json.dumps({"round": round, **values}), file=self.file, flush=True)

    def close(self) -> None:
        self.file.close()


def open_tracker(name: str, folder: Path, settings: Mapping[str, Any]) -> Tracker:
    """One line of JSON per round, in tracked.jsonl."""
    folder.mkdir(parents=True, exist_ok=True)
    return JsonLines((folder / "tracked.jsonl").open("a", encoding="utf-8"))
