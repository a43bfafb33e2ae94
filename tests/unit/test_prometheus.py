"""The metrics for Prometheus: what they say, who may read them, and that they tell nothing that the status does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from motet.core.errors import ConfigError, RunError
from motet.experiment.commands.run_folder import create_run_folder
from motet.experiment.recipe.run_config import RunConfig
from motet.report.run_callback import RunCallback
from motet.report.run_status import RunStatus
from motet.transport.reply_timer import TimedTransport
from motet.transport.requests import Reply
from motet.transport.traffic import Traffic

pytest.importorskip("prometheus_client", reason="prometheus-client is not installed")
from prometheus_client.parser import text_string_to_metric_families

from motet.report.prometheus_metrics import start_metrics_server

CLIENTS = {
    "connected": ["north", "south"],
    "away": ["east"],
    "waited_for": {"east": 12.5},
    "refused": {"10.1.2.3:4711": 2, "eve": 1},
    "traffic": {"north": {"up": 10, "down": 20}},
    "failures": {"east": 1},
    "certificate_expires": 1_900_000_000,
}
Sample = tuple[str, tuple[tuple[str, str], ...]]


@pytest.fixture
def status(tmp_path: Path) -> RunStatus:
    status = RunStatus(RunCallback(), lambda: CLIENTS, tmp_path / "status.json")
    status.on_run_begin("fedavg", 5, 1)
    status.on_round_begin(2, 3)
    status.on_round_end(2, {"accuracy": 0.75, "epsilon": 3.5}, "accuracy", Traffic(2, 10, 10, 2_000, 1_000))
    status.on_round_begin(3, 3)
    return status


@pytest.fixture
def url(status: RunStatus) -> Iterator[str]:
    url, stop = start_metrics_server("127.0.0.1:0", lambda: {"pilot": status.snapshot()}, "")
    yield url
    stop()


def parse(text: str) -> dict[Sample, float]:
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for s in samples}


def scrape(url: str, token: str = "") -> dict[Sample, float]:
    with urlopen(Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})) as response:
        return parse(response.read().decode())


def test_prometheus_reads_rounds_clients_bytes_scores_and_failures(url: str) -> None:
    samples = scrape(url)
    run_samples = {name: value for (name, labels), value in samples.items() if labels == (("run", "pilot"),)}
    seconds = run_samples.pop("motet_round_seconds_sum")
    assert seconds > 0
    assert run_samples == {
        "motet_run_running": 1,
        "motet_rounds": 5,
        "motet_rounds_completed": 2,
        "motet_round": 3,
        "motet_clients_connected": 2,
        "motet_clients_away": 1,
        "motet_clients_pending": 1,
        "motet_epsilon": 3.5,
        "motet_round_seconds_count": 1,
        "motet_rejected_messages_total": 3,
        "motet_certificate_expiry_timestamp_seconds": 1_900_000_000,
    }
    by_label = {
        (name, *(value for label, value in labels if label != "run")): value
        for (name, labels), value in samples.items()
        if len(labels) > 1
    }
    assert by_label == {
        ("motet_score", "accuracy"): 0.75,
        ("motet_bytes_total", "up"): 2_000,
        ("motet_bytes_total", "down"): 1_000,
        ("motet_client_bytes_total", "north", "up"): 10,
        ("motet_client_bytes_total", "north", "down"): 20,
        ("motet_client_pending_seconds", "east"): 12.5,
        ("motet_client_failures_total", "east"): 1,
    }


def test_metrics_before_the_first_round_are_valid(tmp_path: Path) -> None:
    waiting = RunStatus(RunCallback(), lambda: {}, tmp_path / "status.json")
    url, stop = start_metrics_server("127.0.0.1:0", lambda: {"pilot": waiting.snapshot()}, "")
    try:
        assert scrape(url)["motet_run_running", (("run", "pilot"),)] == 0
    finally:
        stop()


def test_metrics_that_other_machines_can_reach_need_a_token(status: RunStatus) -> None:
    with pytest.raises(ConfigError, match=r"transport.metrics is 0.0.0.0:0.*Set MOTET_METRICS_TOKEN"):
        start_metrics_server("0.0.0.0:0", dict, "")
    with pytest.raises(RunError, match=r"the metrics cannot be served at 127.0.0.1:many"):
        start_metrics_server("127.0.0.1:many", dict, "")
    url, stop = start_metrics_server("127.0.0.1:0", lambda: {"pilot": status.snapshot()}, "secret")
    try:
        with pytest.raises(HTTPError, match="401"):
            scrape(url, "guess")
        assert scrape(url, "secret")
    finally:
        stop()


def test_the_dashboard_has_the_metrics_of_all_runs_behind_its_token(status: RunStatus, tmp_path: Path) -> None:
    testclient = pytest.importorskip("starlette.testclient", reason="starlette is not installed")
    from motet.dashboard.web_app import create_app

    for name in ("served", "local"):
        create_run_folder(tmp_path / name, {"": RunConfig.from_settings("toy", {"rounds": 4})})
    (tmp_path / "served" / "status.json").write_text(json.dumps(status.snapshot()))
    client = testclient.TestClient(create_app(tmp_path, "a long enough token"))
    assert client.get("/metrics").status_code == 401
    text = client.get("/metrics", headers={"Authorization": "Bearer a long enough token"}).text
    samples = parse(text)
    assert samples["motet_rounds", (("run", "local"),)] == 4
    assert samples["motet_rounds_completed", (("run", "served"),)] == 2
    (tmp_path / "served" / "status.json").write_text("{")
    assert client.get("/metrics", headers={"Authorization": "Bearer a long enough token"}).status_code == 200


def test_failed_requests_are_counted() -> None:
    replies = iter([Reply(1, "north"), Reply(2, "east", error="east is away"), None])
    transport = TimedTransport(_Replies(replies))  # type: ignore[arg-type]
    while transport.receive(0.0) is not None:
        pass
    assert transport.failed_requests() == {"north": 0, "east": 1}


class _Replies:
    def __init__(self, replies: Iterator[Reply | None]) -> None:
        self.replies = replies

    def receive(self, timeout: float) -> Reply | None:
        return next(self.replies)
