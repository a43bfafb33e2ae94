"""Metrics of served runs for Prometheus. They are made from the status of a run, and tell nothing that it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from motet.core.errors import ConfigError
from motet.core.install_hint import install_command
from motet.report.page_server import Page, PageSource, start_pages

try:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
    from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
except ImportError:  # pragma: no cover
    raise ConfigError(f"metrics need the package prometheus-client. Run: {install_command('metrics')}") from None

SOURCE = PageSource("metrics", "transport.metrics", "MOTET_METRICS_TOKEN")
PATH = "/metrics"
Status = Mapping[str, Any]  # as `RunStatus.snapshot` returns it
ReadStatuses = Callable[[], Mapping[str, Status]]  # by run


class StatusMetrics:
    """A collector of Prometheus: the statuses of some runs as metrics."""

    def __init__(self, read_statuses: ReadStatuses) -> None:
        self.read_statuses = read_statuses

    def collect(self) -> Iterator[Metric]:
        statuses = self.read_statuses()
        yield _gauge("run_running", "1 if the run is training, else 0.", statuses, _is_running)
        yield _gauge("rounds", "Rounds of the recipe.", statuses, lambda s: s.get("rounds"))
        yield _gauge(
            "rounds_completed", "Complete rounds, also those of earlier servers.", statuses, lambda s: s.get("done")
        )
        yield _gauge("round", "The round in progress.", statuses, lambda s: s.get("round"))
        yield _gauge("clients_connected", "Clients that are connected.", statuses, lambda s: _count(s, "connected"))
        yield _gauge("clients_away", "Clients that left during a request.", statuses, lambda s: _count(s, "away"))
        yield _gauge(
            "clients_pending", "Clients that still have to reply.", statuses, lambda s: _count(s, "waited_for")
        )
        yield _gauge("epsilon", "Privacy loss so far.", statuses, lambda s: s.get("scores", {}).get("epsilon"))
        yield _gauge(
            "certificate_expiry_timestamp_seconds",
            "When the server's certificate expires.",
            statuses,
            lambda s: s.get("certificate_expires"),
        )
        yield _round_seconds(statuses)
        yield _by_key("score", "Score of the common model, or the mean over clients.", statuses, "metric", _scores)
        yield _by_key(
            "client_pending_seconds", "Time since a request.", statuses, "client", lambda s: s.get("waited_for", {})
        )
        yield from _counters(statuses)


def _counters(statuses: Mapping[str, Status]) -> Iterator[Metric]:
    traffic = CounterMetricFamily("motet_bytes", "Bytes of all messages of rounds.", labels=["run", "direction"])
    by_client = CounterMetricFamily(
        "motet_client_bytes",
        "Bytes since the server started, evaluations included.",
        labels=["run", "client", "direction"],
    )
    failures = CounterMetricFamily(
        "motet_client_failures", "Requests that failed, since the server started.", labels=["run", "client"]
    )
    rejected = CounterMetricFamily("motet_rejected_messages", "Invalid messages, of anybody.", labels=["run"])
    for run, status in statuses.items():
        for direction in ("up", "down"):
            if f"bytes_{direction}" in status:
                traffic.add_metric([run, direction], status[f"bytes_{direction}"])
            for client, counts in status.get("traffic", {}).items():
                by_client.add_metric([run, client, direction], counts[direction])
        for client, count in status.get("failures", {}).items():
            failures.add_metric([run, client], count)
        rejected.add_metric([run], sum(status.get("refused", {}).values()))
    yield from (traffic, by_client, failures, rejected)


def _gauge(
    name: str, text: str, statuses: Mapping[str, Status], read: Callable[[Status], float | None]
) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(f"motet_{name}", text, labels=["run"])
    for run, status in statuses.items():
        value = read(status)
        if value is not None:
            gauge.add_metric([run], value)
    return gauge


def _by_key(
    name: str, text: str, statuses: Mapping[str, Status], label: str, read: Callable[[Status], Mapping[str, float]]
) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(f"motet_{name}", text, labels=["run", label])
    for run, status in statuses.items():
        for key, value in read(status).items():
            gauge.add_metric([run, key], value)
    return gauge


def _round_seconds(statuses: Mapping[str, Status]) -> SummaryMetricFamily:
    seconds = SummaryMetricFamily(
        "motet_round_seconds", "Duration of rounds, since the server started.", labels=["run"]
    )
    for run, status in statuses.items():
        if "rounds_timed" in status:
            seconds.add_metric([run], count_value=status["rounds_timed"], sum_value=status["round_seconds"])
    return seconds


def _is_running(status: Status) -> float:
    return float(status.get("state") == "running")


def _count(status: Status, key: str) -> float | None:
    return len(status[key]) if key in status else None


def _scores(status: Status) -> Mapping[str, float]:
    return {name: value for name, value in status.get("scores", {}).items() if name != "epsilon"}


def metrics_page(read_statuses: ReadStatuses) -> Page:
    """Return the page that Prometheus reads."""
    registry = CollectorRegistry()
    registry.register(StatusMetrics(read_statuses))
    return Page(CONTENT_TYPE_LATEST, lambda: generate_latest(registry))


def start_metrics_server(bind: str, read_statuses: ReadStatuses, token: str) -> tuple[str, Callable[[], None]]:
    """Serve the metrics at `bind` (host:port). Return their URL and a function that stops the server."""
    url, stop = start_pages(bind, {PATH: metrics_page(read_statuses)}, token, SOURCE)
    return url.rstrip("/") + PATH, stop
