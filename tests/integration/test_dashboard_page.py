"""The dashboard in a real browser, while a run is going on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from motet.experiment.commands.recipe_runner import run_recipe
from motet.experiment.commands.run_folder import create_run_folder
from motet.experiment.loop.metrics_log import MetricsLog
from motet.experiment.recipe.recipe_files import load_recipe
from motet.experiment.recipe.run_config import RunConfig
from motet.report.run_callback import RunCallback
from motet.transport.json_files import write_json
from motet.transport.traffic import Traffic

pytest.importorskip("starlette", reason="starlette is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")
from motet.dashboard.http_server import Dashboard, DashboardOptions

SETTINGS = [
    "rounds=3", "device=cpu", "transport.workers=0", "data.limit=60", "data.test_limit=24", "checkpoint.last=false",
    "model.config={hidden_size: 16, num_hidden_layers: 1, intermediate_size: 16}",
]  # fmt: skip
PATIENCE = 60  # seconds until a test gives up; it never waits so long
CURVE = "return document.querySelector('#by-round .plot')?.data?.[0]?.x ?? []"


class StepByStep(RunCallback):
    """A run in a thread, which waits after each round until the test lets it go on."""

    def __init__(self, folder: Path) -> None:
        self.permits = threading.Semaphore(0)
        self.config = load_recipe("toy-classification", SETTINGS)
        self.thread = threading.Thread(target=run_recipe, args=(self.config, folder), kwargs={"callback": self})
        self.thread.start()

    def on_round_end(self, round: int, scores: Mapping[str, float], primary_metric: str, traffic: Traffic) -> None:
        assert self.permits.acquire(timeout=PATIENCE)

    def go_on(self, rounds: int = 1) -> None:
        self.permits.release(rounds)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[StepByStep]:
    run = StepByStep(tmp_path / "runs" / "first <b>run")
    yield run
    run.go_on(100)
    run.thread.join(PATIENCE)


def wait_until(browser: Any, condition: Callable[[], Any]) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, PATIENCE, 0.1).until(lambda _: condition())


def test_a_page_grows_while_the_run_goes_on(browser: Any, run: StepByStep, tmp_path: Path) -> None:
    def text(element: str) -> str:
        content: str = browser.execute_script("return document.getElementById(arguments[0]).innerText", element)
        return content

    (tmp_path / "runs").mkdir(exist_ok=True)
    dashboard = Dashboard(tmp_path / "runs", DashboardOptions(bind="127.0.0.1:0"))
    with dashboard.serve_in_background():
        browser.get_log("browser")
        browser.get(dashboard.url)
        assert "token" not in browser.current_url
        wait_until(browser, lambda: "round 1 of 3" in text("runs-list"))
        assert "first <b>run" in text("runs-list")
        assert "running" in text("runs-list")

        browser.find_element("css selector", "#runs-list a").click()
        wait_until(browser, lambda: browser.execute_script(CURVE) == [1])
        assert "round 1 of 3" in text("progress-list")
        assert browser.execute_script("return document.querySelector('#heatmap .plot').data.length") > 0
        run.go_on()
        wait_until(browser, lambda: browser.execute_script(CURVE) == [1, 2])
        assert "round 2 of 3" in text("progress-list")
        run.go_on(100)
        wait_until(browser, lambda: "final accuracy" in text("overview"))
        assert browser.execute_script(CURVE) == [1, 2, 3]
        assert text("progress-list") == ""
        assert "client-0" in text("fairness")

        phone = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        hosts = "return [...new Set(performance.getEntriesByType('resource').map(e => new URL(e.name).host))]"
        assert browser.execute_script(hosts) == [dashboard.url.split("/")[2]]
        assert browser.get_log("browser") == []
        browser.get("about:blank")  # the page must not ask for news of a closed dashboard in other tests


EVIL = '<a href="https://evil.example/">x</a><img src=x onerror=alert(1)></script><script>alert(2)</script>'


def test_names_in_a_run_of_someone_else_are_neither_links_nor_scripts(browser: Any, tmp_path: Path) -> None:
    """plotly drew links, and a metric named as a method of every JavaScript object stopped the updates."""
    folder = tmp_path / "runs" / "<a href='javascript:alert(3)'>evil"
    create_run_folder(folder, {"": RunConfig.from_settings("toy", {"data": {"name": "toy-classification"}})})

    def add_round(round: int, *metrics: str) -> None:
        log = MetricsLog(folder)
        log.add(round, "server", "global", {EVIL: round / 10, **dict.fromkeys(metrics, 0.5)}, Traffic(2, 100))
        for client in (EVIL, "__proto__"):
            log.add(round, client, "test", {EVIL: 0.5}, Traffic(2, 100))
            log.add(round, client, "weight", {"weight": 0.5}, Traffic(2, 100))

    table = {"clients": [EVIL, "b"], "train": [3, 4], "test": [1, 2], "labels": [EVIL, "c"], "counts": [[1, 2], [3, 1]]}
    write_json(folder / "partition.json", {**table, "by": EVIL, "left_out": 0})
    add_round(1, "__proto__")
    add_round(2, "__proto__")
    dashboard = Dashboard(tmp_path / "runs", DashboardOptions(bind="127.0.0.1:0"))
    with dashboard.serve_in_background():
        browser.get_log("browser")
        browser.get(dashboard.url)
        wait_until(browser, lambda: browser.find_elements("css selector", "#runs-list a"))
        browser.find_element("css selector", "#runs-list a").click()
        wait_until(browser, lambda: browser.execute_script(CURVE) == [1, 2])
        links = "return [...document.querySelectorAll('.plot a, img, script:not([src]):not([type])')].length"
        assert browser.execute_script(links) == 0
        assert "evil.example" in browser.execute_script("return document.querySelector('#heatmap .plot').textContent")
        add_round(3, "__proto__", "valueOf")
        wait_until(browser, lambda: browser.execute_script(CURVE) == [1, 2, 3])
        assert browser.execute_script("return Object.keys(Object.prototype)") == []
        assert browser.execute_script(links) == 0
        assert browser.get_log("browser") == []
        browser.get("about:blank")
