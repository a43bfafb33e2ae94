"""The pictures of the README, from real runs: python -m benchmarks.readme_figures

It trains toy recipes, one of them with two baselines, and takes pictures of the learning curves, of the report and of the
dashboard with a headless Chromium (package selenium). The pictures are written to docs/figures.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "docs" / "figures"
SETTINGS = (
    "partition.alpha=0.5",
    "baselines={fedavg: {algorithm: fedavg, solver: {optimizer: adamw, lr: 0.002}}, isolated: {algorithm: isolated, solver: {lr: 0.002}}}",
)
OTHER_RECIPES = ("regression", "tagging", "qa", "lm", "instruct", "preference")
WIDTH = 1200


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp())
    run = folder / "runs" / "topics"
    if not run.exists():
        motet(folder, "run", "toy-classification", *SETTINGS, "--out", str(run))
    for name in OTHER_RECIPES:
        if not (other := folder / "runs" / name).exists():
            motet(folder, "run", f"toy-{name}", "--out", str(other))
    motet(folder, "report", str(run), "--out", str(folder / "report.html"))
    with browser() as driver:
        driver.get((folder / "report.html").as_uri())
        take_picture(driver, FIGURES / "readme-report.png", height=960)
        with dashboard(folder / "runs") as address:
            driver.get(address)
            time.sleep(3)  # the page fetches its runs
            take_picture(driver, FIGURES / "readme-dashboard.png", height=820)


def motet(folder: Path, *arguments: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    subprocess.run([sys.executable, "-m", "motet", *arguments], cwd=folder, env=environment, check=True)


@contextmanager
def dashboard(runs: Path) -> Iterator[str]:
    """Serve the dashboard of a folder, and yield its address."""
    command = [sys.executable, "-u", "-m", "motet", "dashboard", str(runs), "--bind", "127.0.0.1:8897", "--no-token"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        lines = iter(process.stdout or ())
        yield next(match[0] for line in lines if (match := re.search(r"http://\S+", line)))
    finally:
        process.terminate()
        process.wait()


@contextmanager
def browser() -> Iterator[object]:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--hide-scrollbars"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options)
    try:
        yield driver
    finally:
        driver.quit()


def take_picture(driver, path: Path, height: int) -> None:  # type: ignore[no-untyped-def]
    size = {"width": WIDTH, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    time.sleep(1)  # charts are drawn again
    driver.save_screenshot(str(path))
    shrink(path, path)


def shrink(source: Path, target: Path) -> None:
    """Write a picture with at most 128 colors, which is enough for lines and text."""
    image = Image.open(source).convert("RGB")
    image.quantize(128).save(target, optimize=True)
    print(f"{target.relative_to(ROOT)}: {target.stat().st_size // 1024} kB")


if __name__ == "__main__":
    main()
