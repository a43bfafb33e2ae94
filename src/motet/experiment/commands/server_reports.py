"""What a server logs besides its rounds: ignored settings, missing clients, a certificate that expires soon."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from motet.experiment.build.component_builders import resolve_defaults
from motet.experiment.deploy.certificates import describe_expiry
from motet.experiment.recipe.flat_settings import diff_settings, flatten_settings
from motet.experiment.recipe.run_config import RunConfig
from motet.report.log_lines import limit_repeats
from motet.report.run_status import RunStatus
from motet.transport.connections import Connections

Log = Callable[[str], None]
REPORT_SECONDS = 10.0  # between two looks for missing clients
DAY = 86_400.0


def describe_ignored_settings(recipe: RunConfig, started: RunConfig) -> str | None:
    """Say which settings of a recipe do not count, because the run was started with others; None if there are none."""
    now, before = (flatten_settings(config.to_dict()) for config in (resolve_defaults(recipe), started))
    changes = [
        f"{key}={new} (the run has {old})"
        for key, new, old in diff_settings(now, before)
        if key.partition(".")[0] not in ("transport", "baselines")
    ]
    return f"the run keeps the settings that it was started with; ignored: {', '.join(changes)}" if changes else None


def report_waiting(status: RunStatus, log: Log) -> Log:
    """Return a function that logs who is missing before the first round, and shows it in the status."""
    log_change = limit_repeats(log)

    def report(text: str) -> None:
        status.on_waiting(text)
        log_change(text)

    return report


def start_reports(
    connections: Connections,
    reconnect_timeout: float,
    certificate: Path | None,
    log: Log,
    interval: float = REPORT_SECONDS,
) -> Callable[[], None]:
    """Log which clients are missing while the run waits for them, and a certificate that expires soon, once a day.

    Return a function that stops it.
    """
    stopped, log_change, log_daily = threading.Event(), limit_repeats(log), limit_repeats(log, DAY)

    def report() -> None:
        missing: list[str] = []
        while True:
            if certificate is not None and (warning := describe_expiry(certificate)):
                log_daily(warning)
            if stopped.wait(interval):
                return
            absent = connections.disconnected_clients()
            if absent:
                log_change(f"waiting for {', '.join(absent)}: disconnected, up to {reconnect_timeout:g} s")
            for client in missing:
                if client not in absent:
                    log(f"{client} is back" if client in connections.connected_clients() else f"{client} is given up")
            missing = absent

    threading.Thread(target=report, daemon=True).start()
    return stopped.set
