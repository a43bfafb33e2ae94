"""The motet command, called in this process, and a browser."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from motet import cli

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def motet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    """Call the command in an empty folder. Return its exit status, its output and its errors."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["motet", *words])
        status = 0
        try:
            cli.main()
        except SystemExit as end:
            status = int(end.code or 0)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium without a window. Tests that need it are skipped where it is not installed or does not start."""
    pytest.importorskip("selenium", reason="selenium is not installed")
    from selenium import webdriver
    from selenium.common.exceptions import WebDriverException
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    names = ("chromium", "chromium-browser", "google-chrome")
    program = next((path for name in names if (path := shutil.which(name))), None)
    driver_program = shutil.which("chromedriver")
    if program is None or driver_program is None:
        pytest.skip("chromium or chromedriver is not installed")
    options = Options()
    options.binary_location = program
    for word in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1280,900",
    ):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # Not the environment of this process: Ray and MPI, which other tests start in it, set variables.
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    driver, reason = None, ""
    for seconds in (0, 1, 5, 15):
        time.sleep(seconds)
        try:
            driver = webdriver.Chrome(options=options, service=Service(driver_program, env=environment))
            break
        except WebDriverException as error:  # on a loaded machine the browser may exit at once
            reason = str(error).splitlines()[0]
    if driver is None:
        pytest.skip(f"{program} does not start: {reason}")
    yield driver
    driver.quit()
