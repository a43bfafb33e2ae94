"""The report page in a real browser: it renders, logs no errors, and its controls work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from motet.experiment.commands.recipe_runner import run_recipe
from motet.experiment.commands.report_data import collect_run_reports
from motet.experiment.recipe.recipe_files import load_recipe
from motet.report.web import write_report

TRAFFIC = {"payload_up": 8e6, "payload_down": 8e6}
CLIENTS = [f"client-{i}" for i in range(6)]

PARTITION = {
    "clients": CLIENTS, "train": [10] * 6, "test": [4] * 6, "left_out": 0, "by": "label", "labels": ["a", "b"],
    "counts": [[i, 10 - i] for i in range(6)],
}  # fmt: skip


def run(method: str, algorithm: str, seed: int, level: float, **more: Any) -> dict[str, Any]:
    points = [[r, level * (1 - 0.5**r), r * 1.5, r * 2_000_000] for r in range(1, 9)]
    return {
        "method": method, "setting": more.pop("setting", "skew · α=1"), "seed": seed, "folder": "runs/x", "finished": True,
        "primary_metric": "accuracy", "final": {"accuracy": level}, "client_spread": {"mean": level, "std": 0.1, "worst_decile": level / 2},
        "summary": {"dataset": "toy", "model": "tiny", "clients": 6, "seconds": 12.0, "bytes": TRAFFIC},
        "curves": {"accuracy": points, "loss": [[p[0], 2 - p[1], *p[2:]] for p in points]},
        "client_scores": {c: level * (i + 1) / 6 for i, c in enumerate(CLIENTS)}, "notes": {},
        "partition": PARTITION,
        "config": f"seed: {seed}\n", "settings": {"algorithm.type": algorithm, "seed": str(seed)},
        "environment": {"python": "3.11", "odd": "</script><b>x</b>"}, "command": "motet run x/config.yaml", **more,
    }  # fmt: skip


def notes() -> dict[str, Any]:
    weights = {str(r): {c: 0.1 + i / 30 for i, c in enumerate(CLIENTS)} for r in range(1, 5)}
    clusters = {str(r): {c: i // 3 for i, c in enumerate(CLIENTS)} for r in range(1, 5)}
    return {
        "weights": weights,
        "clusters": clusters,
        "neighbors": {"1": dict.fromkeys(CLIENTS, CLIENTS)},
        "objective": {"1": "mlm"},
    }


def benchmark() -> dict[str, Any]:
    def entry(mean: float, is_best: bool = False, published: float | None = None) -> dict[str, Any]:
        return {
            "mean": mean,
            "std": 0.5,
            "is_best": is_best,
            "is_tied": False,
            "is_partial": False,
            "published": published,
        }

    table = {
        "title": "Methods", "note": "", "rows": ["FedOpt", "FedAvg"], "bounds": ["centralized"], "columns": ["α=1"],
        "cells": {
            "FedOpt": {"α=1": entry(60, True, 53.5)},
            "FedAvg": {"α=1": entry(9.5, published=51.4)},
            "centralized": {"α=1": entry(90)},
        },
        "claims": [{"claim": "FedOpt > FedAvg", "verdict": "shown", "compared": 1, "text": "shown: FedOpt > FedAvg"}],
    }  # fmt: skip
    return {"tables": {"methods": table}, "seeds": [42, 43], "runs": {"all": 6, "done": 6}, "paper": "A paper"}


@pytest.fixture(scope="module")
def page(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("page") / "report.html"
    runs = [
        run(m, a, s, v + s / 1000)
        for s in (42, 43)
        for m, a, v in (("FedOpt", "fedopt", 0.6), ("FedAvg", "fedavg", 0.3))
    ]
    runs += [run("centralized", "centralized", s, 0.9) for s in (42, 43)]
    runs += [run("FedOpt", "fedopt", 42, 0.8, setting="skew · α=5", notes=notes())]
    write_report(path, "A <test> & more", runs, benchmark())
    browser.get(path.as_uri())
    return browser


def plots(page: Any) -> dict[str, int]:
    each = "[...document.querySelectorAll('.plot')].map(p => [p.parentNode.id, p.data ? p.data.length : 0])"
    script = f"return Object.fromEntries({each})"
    counts: dict[str, int] = page.execute_script(script)
    return counts


def trace_names(page: Any, plot: str) -> list[str]:
    script = "return [...new Set(document.querySelector('#' + arguments[0] + ' .plot').data.map(t => t.name))].filter(n => n)"
    names: list[str] = page.execute_script(script, plot)
    return names


def select(page: Any, control: str, value: str) -> None:
    dispatch = "for (const e of ['input', 'change']) c.dispatchEvent(new Event(e))"
    script = f"const c = document.getElementById(arguments[0]); c.value = arguments[1]; {dispatch}"
    page.execute_script(script, control, value)


def click(page: Any, target: Any) -> None:
    """Scroll to an element and click it."""
    page.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", target)
    target.click()


def test_every_figure_is_drawn_without_errors(page: Any) -> None:
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


def test_the_page_loads_nothing_from_the_network(page: Any) -> None:
    assert page.execute_script("return performance.getEntriesByType('resource').length") == 0


def test_titles_and_values_with_html_are_escaped(page: Any) -> None:
    assert page.execute_script("return document.querySelector('h1').textContent") == "A <test> & more"
    assert "</script><b>x</b>" in page.execute_script("return document.getElementById('environment').textContent")


def test_an_unchecked_run_is_not_drawn(page: Any) -> None:
    assert trace_names(page, "by-round") == ["FedOpt", "FedAvg", "centralized"]
    box = page.find_element("css selector", "#methods input[value=FedAvg]")
    click(page, box)
    assert trace_names(page, "by-round") == ["FedOpt", "centralized"]
    assert "FedAvg" not in trace_names(page, "fairness")
    click(page, box)
    assert "FedAvg" in trace_names(page, "by-round")


def test_metric_scale_smoothing_and_seeds_change_the_curves(page: Any) -> None:
    def plot(expression: str) -> Any:
        return page.execute_script(f"const p = document.querySelector('#by-round .plot'); return {expression}")

    select(page, "metric", "loss")
    assert plot("p.layout.yaxis.title.text") == "loss"
    select(page, "metric", "accuracy")
    unsmoothed = plot("p.data[1].y[1]")
    select(page, "smoothing", "0.9")
    assert plot("p.data[1].y[1]") < unsmoothed
    select(page, "smoothing", "0")
    click(page, page.find_element("id", "log-y"))
    assert plot("p.layout.yaxis.type") == "log"
    click(page, page.find_element("id", "log-y"))
    before = plot("p.data.length")
    click(page, page.find_element("id", "seeds"))
    assert plot("p.data.filter(t => t.name === 'FedOpt').length") == 2
    click(page, page.find_element("id", "seeds"))
    assert plot("p.data.length") == before


def test_selecting_a_setting_shows_its_runs(page: Any) -> None:
    select(page, "setting", "skew · α=5")
    assert trace_names(page, "by-round") == ["FedOpt"]
    select(page, "setting", "skew · α=1")
    assert len(trace_names(page, "by-round")) == 3


def test_tables_sort_by_their_headings(page: Any) -> None:
    column = "return [...document.querySelectorAll('#results tbody tr')].map(r => r.cells[0].textContent)"
    assert page.execute_script(column) == ["FedOpt", "FedAvg", "centralized"]
    heading = page.find_elements("css selector", "#results thead th button")[1]
    click(page, heading)
    assert page.execute_script(column) == ["FedAvg", "FedOpt", "centralized"]  # sorted as numbers: 9.5, 60, 90
    click(page, heading)
    assert page.execute_script(column) == ["centralized", "FedOpt", "FedAvg"]
    assert heading.find_element("xpath", "..").get_attribute("aria-sort") == "descending"
    assert "(53.5)" in page.find_element("id", "results").text


def test_the_settings_of_two_runs_are_compared(page: Any) -> None:
    select(page, "first-run", "0")
    select(page, "second-run", "1")
    assert (
        page.execute_script("return document.querySelector('#differences tbody').textContent")
        == "algorithm.typefedoptfedavg"
    )


def test_every_figure_has_a_description_and_a_table(page: Any) -> None:
    descriptions = page.execute_script(
        "return [...document.querySelectorAll('.plot')].map(p => p.getAttribute('aria-label'))"
    )
    assert all(len(text) > 40 for text in descriptions)
    tables = page.execute_script(
        "return [...document.querySelectorAll('figure details tbody')].map(b => b.rows.length)"
    )
    assert all(rows > 0 for rows in tables)


def test_the_page_has_a_dark_theme_and_fits_a_phone(page: Any) -> None:
    before = page.execute_script("return getComputedStyle(document.body).backgroundColor")
    click(page, page.find_element("id", "theme"))
    assert page.execute_script("return getComputedStyle(document.body).backgroundColor") != before
    click(page, page.find_element("id", "theme"))
    phone = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    assert page.execute_script("return document.documentElement.scrollWidth") <= 390
    page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert page.get_log("browser") == []


def test_a_report_of_runs_without_a_benchmark_hides_empty_sections(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "one.html"
    write_report(path, "one run", [run("fedopt", "fedopt", 42, 0.5, setting="", partition=None, environment={})])
    browser.get(path.as_uri())
    assert browser.get_log("browser") == []
    hidden = browser.execute_script(
        "return [...document.querySelectorAll('main section')].filter(s => s.hidden).map(s => s.id)"
    )
    assert set(hidden) == {
        "progress", "deployment", "results", "samples", "labels", "partition", "inspection", "relations", "weights",
    }  # fmt: skip
    assert browser.find_element("id", "settings").text.split("\n") == [  # nothing to compare, no environment yet
        "Configuration", "Full configuration", "Reproduce", "motet run x/config.yaml", "Copy",
    ]  # fmt: skip
    data = json.loads(browser.execute_script("return document.getElementById('data').textContent"))
    assert data["title"] == "one run"


def test_inspections_of_the_same_corpus_name_their_runs(browser: Any, tmp_path: Path) -> None:
    def inspect(title: str, truncated: str) -> dict[str, Any]:
        return {"title": title, "rows": [["truncated", truncated]], "findings": []}

    letters, mail = inspect("letters.csv", "5 texts"), inspect("mail.csv", "no text")
    runs = [
        run("FedOpt", "fedopt", 42, 0.6, inspections=[letters, mail]),
        run("FedAvg", "fedavg", 42, 0.3, inspections=[letters, mail]),
        run("Ditto", "ditto", 42, 0.3, inspections=[inspect("letters.csv", "9 texts")]),
    ]
    write_report(tmp_path / "three.html", "three runs", runs)
    browser.get((tmp_path / "three.html").as_uri())
    titles = [heading.text for heading in browser.find_elements("css selector", "#inspection h3")]
    labels = [option.text for option in browser.find_elements("css selector", "#first-run option")]
    assert titles == [f"letters.csv: {labels[0]}, {labels[1]}", "mail.csv", f"letters.csv: {labels[2]}"]


def test_the_data_of_a_real_run_fills_the_page(browser: Any, tmp_path: Path) -> None:
    settings = ["rounds=2", "device=cpu", "transport.workers=0", "data.limit=80", "data.test_limit=40"]
    run_recipe(load_recipe("toy-classification", settings), tmp_path / "run")
    write_report(tmp_path / "real.html", "a real run", collect_run_reports({"run": tmp_path / "run"}))
    browser.get((tmp_path / "real.html").as_uri())
    assert browser.get_log("browser") == []
    assert {name for name, traces in plots(browser).items() if traces} >= {
        "by-round",
        "by-bytes",
        "fairness",
        "heatmap",
    }
    overview = browser.find_element("id", "overview").text
    assert "final accuracy: fedopt" in overview
    assert "worst 10 % of clients" in overview
    inspection = browser.find_element("id", "inspection").text
    assert "toy-classification" in inspection
    assert "0 test texts are also in training (0.0 %)" in inspection
    assert "sample 3" in inspection
