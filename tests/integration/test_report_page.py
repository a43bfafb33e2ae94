"""The page in a real browser: it renders, says nothing to the console, and does what its controls say."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from motet.report.web import write_report

selenium = pytest.importorskip("selenium", reason="selenium is not installed")
CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="no chromium with its chromedriver is installed"
)
MOVED = {"payload_up": 8e6, "payload_down": 8e6}
CLIENTS = [f"client-{i}" for i in range(6)]


DIVISION = {
    "clients": CLIENTS, "train": [10] * 6, "test": [4] * 6, "left_out": 0, "by": "label", "labels": ["a", "b"],
    "counts": [[i, 10 - i] for i in range(6)],
}  # fmt: skip


def run(method: str, algorithm: str, seed: int, level: float, **more: Any) -> dict[str, Any]:
    points = [[r, level * (1 - 0.5**r), r * 1.5, r * 2_000_000] for r in range(1, 9)]
    return {
        "method": method, "setting": more.pop("setting", "skew · α=1"), "seed": seed, "folder": "runs/x", "finished": True,
        "headline": "accuracy", "final": {"accuracy": level}, "spread": {"mean": level, "std": 0.1, "worst_decile": level / 2},
        "summary": {"dataset": "toy", "model": "tiny", "clients": 6, "seconds": 12.0, "bytes": MOVED},
        "curves": {"accuracy": points, "loss": [[p[0], 2 - p[1], *p[2:]] for p in points]},
        "own": {c: level * (i + 1) / 6 for i, c in enumerate(CLIENTS)}, "notes": {},
        "partition": DIVISION,
        "config": f"seed: {seed}\n", "settings": {"algorithm.type": algorithm, "seed": str(seed)},
        "environment": {"python": "3.11", "odd": "</script><b>x</b>"}, "command": "motet run x/config.yaml", **more,
    }  # fmt: skip


def noted() -> dict[str, Any]:
    weights = {str(r): {c: 0.1 + i / 30 for i, c in enumerate(CLIENTS)} for r in range(1, 5)}
    clusters = {str(r): {c: i // 3 for i, c in enumerate(CLIENTS)} for r in range(1, 5)}
    return {
        "weights": weights,
        "clusters": clusters,
        "neighbours": {"1": dict.fromkeys(CLIENTS, CLIENTS)},
        "lesson": {"1": "mlm"},
    }


def benchmark() -> dict[str, Any]:
    def entry(mean: float, best: bool = False, published: float | None = None) -> dict[str, Any]:
        return {"mean": mean, "deviation": 0.5, "best": best, "tied": False, "published": published}

    table = {
        "title": "Methods", "note": "", "rows": ["FedOpt", "FedAvg"], "bounds": ["centralised"], "columns": ["α=1"],
        "cells": {
            "FedOpt": {"α=1": entry(60, True, 53.5)},
            "FedAvg": {"α=1": entry(9.5, published=51.4)},
            "centralised": {"α=1": entry(90)},
        },
        "claims": [{"claim": "FedOpt > FedAvg", "held": 1, "places": 1, "against": []}],
    }  # fmt: skip
    return {"tables": {"methods": table}, "seeds": [42, 43], "runs": {"all": 6, "done": 6}, "paper": "A paper"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = str(CHROMIUM)
    for word in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1280,900",
    ):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def page(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("page") / "report.html"
    runs = [
        run(m, a, s, v + s / 1000)
        for s in (42, 43)
        for m, a, v in (("FedOpt", "fedopt", 0.6), ("FedAvg", "fedavg", 0.3))
    ]
    runs += [run("centralised", "centralised", s, 0.9) for s in (42, 43)]
    runs += [run("FedOpt", "fedopt", 42, 0.8, setting="skew · α=5", notes=noted())]
    write_report(path, "A <test> & more", runs, benchmark())
    browser.get(path.as_uri())
    return browser


def plots(page: Any) -> dict[str, int]:
    each = "[...document.querySelectorAll('.plot')].map(p => [p.parentNode.id, p.data ? p.data.length : 0])"
    script = f"return Object.fromEntries({each})"
    found: dict[str, int] = page.execute_script(script)
    return found


def names(page: Any, plot: str) -> list[str]:
    script = "return [...new Set(document.querySelector('#' + arguments[0] + ' .plot').data.map(t => t.name))].filter(n => n)"
    found: list[str] = page.execute_script(script, plot)
    return found


def pick(page: Any, select: str, value: str) -> None:
    tell = "for (const e of ['input', 'change']) s.dispatchEvent(new Event(e))"
    script = f"const s = document.getElementById(arguments[0]); s.value = arguments[1]; {tell}"
    page.execute_script(script, select, value)


def press(page: Any, target: Any) -> None:
    """Click as a person would, once it is in the middle of the window."""
    page.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", target)
    target.click()


def test_every_figure_is_drawn_and_the_console_is_silent(page: Any) -> None:
    assert set(plots(page)) == {
        "by-round",
        "by-bytes",
        "by-seconds",
        "fairness",
        "heatmap",
        "matrix",
        "weights-by-round",
    }
    assert all(plots(page).values())
    assert page.execute_script("return document.querySelectorAll('.plot svg.main-svg').length") >= 7
    assert page.get_log("browser") == []


def test_nothing_is_asked_of_the_network(page: Any) -> None:
    assert page.execute_script("return performance.getEntriesByType('resource').length") == 0


def test_a_title_or_a_value_that_looks_like_html_is_text(page: Any) -> None:
    assert page.execute_script("return document.querySelector('h1').textContent") == "A <test> & more"
    assert "</script><b>x</b>" in page.execute_script("return document.getElementById('environment').textContent")


def test_a_run_that_is_not_chosen_is_not_drawn(page: Any) -> None:
    assert names(page, "by-round") == ["FedOpt", "FedAvg", "centralised"]
    box = page.find_element("css selector", "#methods input[value=FedAvg]")
    press(page, box)
    assert names(page, "by-round") == ["FedOpt", "centralised"]
    assert "FedAvg" not in names(page, "fairness")
    press(page, box)
    assert "FedAvg" in names(page, "by-round")


def test_metric_scale_smoothing_and_seeds_change_the_curves(page: Any) -> None:
    def first(what: str) -> Any:
        return page.execute_script(f"const p = document.querySelector('#by-round .plot'); return {what}")

    pick(page, "metric", "loss")
    assert first("p.layout.yaxis.title.text") == "loss"
    pick(page, "metric", "accuracy")
    rough = first("p.data[1].y[1]")
    pick(page, "smoothing", "0.9")
    assert first("p.data[1].y[1]") < rough
    pick(page, "smoothing", "0")
    press(page, page.find_element("id", "log-y"))
    assert first("p.layout.yaxis.type") == "log"
    press(page, page.find_element("id", "log-y"))
    before = first("p.data.length")
    press(page, page.find_element("id", "seeds"))
    assert first("p.data.filter(t => t.name === 'FedOpt').length") == 2
    press(page, page.find_element("id", "seeds"))
    assert first("p.data.length") == before


def test_another_setting_shows_its_own_runs(page: Any) -> None:
    pick(page, "setting", "skew · α=5")
    assert names(page, "by-round") == ["FedOpt"]
    pick(page, "setting", "skew · α=1")
    assert len(names(page, "by-round")) == 3


def test_tables_sort_by_their_headings(page: Any) -> None:
    column = "return [...document.querySelectorAll('#results tbody tr')].map(r => r.cells[0].textContent)"
    assert page.execute_script(column) == ["FedOpt", "FedAvg", "centralised"]
    heading = page.find_elements("css selector", "#results thead th button")[1]
    press(page, heading)
    assert page.execute_script(column) == ["FedAvg", "FedOpt", "centralised"]  # 9.5, 60, 90: as numbers, not as texts
    press(page, heading)
    assert page.execute_script(column) == ["centralised", "FedOpt", "FedAvg"]
    assert heading.find_element("xpath", "..").get_attribute("aria-sort") == "descending"
    assert "(53.5)" in page.find_element("id", "results").text


def test_two_configurations_are_compared_setting_by_setting(page: Any) -> None:
    pick(page, "first-run", "0")
    pick(page, "second-run", "1")
    assert (
        page.execute_script("return document.querySelector('#differences tbody').textContent")
        == "algorithm.typefedoptfedavg"
    )


def test_every_figure_says_in_words_what_it_shows(page: Any) -> None:
    said = page.execute_script("return [...document.querySelectorAll('.plot')].map(p => p.getAttribute('aria-label'))")
    assert all(len(text) > 40 for text in said)
    tables = page.execute_script(
        "return [...document.querySelectorAll('figure details tbody')].map(b => b.rows.length)"
    )
    assert all(rows > 0 for rows in tables)


def test_dark_and_light_and_a_telephone_fit(page: Any) -> None:
    before = page.execute_script("return getComputedStyle(document.body).backgroundColor")
    press(page, page.find_element("id", "theme"))
    assert page.execute_script("return getComputedStyle(document.body).backgroundColor") != before
    press(page, page.find_element("id", "theme"))
    small = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", small)
    assert page.execute_script("return document.documentElement.scrollWidth") <= 390
    page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert page.get_log("browser") == []


def test_runs_without_a_benchmark_make_a_page_too(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "one.html"
    write_report(path, "one run", [run("fedopt", "fedopt", 42, 0.5, setting="", partition=None)])
    browser.get(path.as_uri())
    assert browser.get_log("browser") == []
    hidden = browser.execute_script(
        "return [...document.querySelectorAll('main section')].filter(s => s.hidden).map(s => s.id)"
    )
    assert set(hidden) == {"results", "division", "kin", "weights"}
    assert (
        json.loads(browser.execute_script("return document.getElementById('told').textContent"))["title"] == "one run"
    )
