"""Log lines as JSON: one object per line, for programs that collect logs. Only listed fields are written."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from motet.report.number_text import count_of
from motet.report.run_callback import RunCallback
from motet.transport.display_text import clean_text

if TYPE_CHECKING:
    from motet.transport.traffic import Traffic

FIELDS = ("run", "round", "rounds", "client", "clients", "scores", "bytes_up", "bytes_down", "seconds", "folder")
_log = logging.getLogger("motet.run")


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object: time, level, logger, message, and the fields in `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": clean_text(record.getMessage()),
        }
        line |= {name: record.__dict__[name] for name in FIELDS if name in record.__dict__}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def write_json_log(is_wanted: bool) -> None:
    """Write all log records to the output as JSON, or stop it: messages of Motet, warnings of everything else."""
    root = logging.getLogger()
    root.handlers = [handler for handler in root.handlers if not isinstance(handler.formatter, JsonFormatter)]
    logging.getLogger("motet").setLevel(logging.INFO if is_wanted else logging.NOTSET)
    logging.captureWarnings(is_wanted)
    if is_wanted:
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(JsonFormatter())
        root.addHandler(handler)


def is_json_log() -> bool:
    """Return True if log lines are JSON."""
    return any(isinstance(handler.formatter, JsonFormatter) for handler in logging.getLogger().handlers)


class JsonProgress(RunCallback):
    """Logs the rounds of a run, with scores and bytes as fields."""

    def on_run_begin(self, name: str, rounds: int, completed: int) -> None:
        self.run: dict[str, Any] = {"run": name, "rounds": rounds}
        text = f"resuming after round {completed} of {rounds}" if completed else count_of(rounds, "round")
        _log.info("%s: %s", name, text, extra={**self.run, "round": completed})

    def on_round_begin(self, round: int, cohort_size: int) -> None:
        _log.info("round %d begins", round, extra={**self.run, "round": round, "clients": cohort_size})

    def on_round_end(self, round: int, scores: Mapping[str, float], primary_metric: str, traffic: Traffic) -> None:
        traffic_fields = {"bytes_up": traffic.wire_up, "bytes_down": traffic.wire_down}
        extra = {**self.run, "round": round, "scores": dict(scores), **traffic_fields}
        _log.info("round %d of %d is complete", round, self.run["rounds"], extra=extra)

    def on_note(self, text: str) -> None:
        _log.info("%s", text, extra=self.run)
