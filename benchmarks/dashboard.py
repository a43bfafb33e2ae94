"""Measure what a viewer of the dashboard costs a run: train with and without one, in turn, on this machine.

    python -m benchmarks.dashboard [--rounds 60] [--pairs 5] [--threaded]

The viewer looks as an open page does: at the list and at the run, every two seconds. `--threaded` serves the dashboard from
a thread of the run, as `motet serve --dashboard` does; otherwise it is a process of its own. The runs of a pair follow each
other, and their order alternates, so that other load on the machine affects both.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

TRAIN = """
import contextlib, sys, time
from pathlib import Path
from motet.dashboard.http_server import Dashboard, DashboardOptions
from motet.experiment.commands.recipe_runner import run_recipe
from motet.experiment.recipe.recipe_files import load_recipe

folder, rounds, bind = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
settings = [f"rounds={rounds}", "device=cpu", "transport.workers=0", "checkpoint.last=false"]
options = DashboardOptions(bind=bind, is_open=True)
viewer = Dashboard(folder, options, is_new=True).serve_in_background() if bind else contextlib.nullcontext()
with viewer:
    start = time.perf_counter()
    run_recipe(load_recipe("toy-classification", settings), folder)
    print(time.perf_counter() - start)
"""


@contextmanager
def watching(port: int) -> Iterator[list[float]]:
    """Look at the dashboard every two seconds, in a process of its own. Yield a list that gets the time of each look."""
    looks: list[float] = []
    viewer = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.dashboard", "--look-at", str(port)], stdout=subprocess.PIPE, text=True
    )
    try:
        yield looks
    finally:
        viewer.terminate()
        output, _ = viewer.communicate()
        looks += [float(line) for line in output.splitlines()]


def look_repeatedly(port: int) -> None:
    """Do what an open page does, and print how long each look took."""
    page, cursor = f"http://127.0.0.1:{port}", ""
    while True:
        start = time.perf_counter()
        try:
            with urlopen(f"{page}/api/runs") as answer:
                entries = json.load(answer)["entries"]
            for entry in entries[:1]:
                with urlopen(f"{page}/api/updates?run={entry['id']}&after={cursor}") as answer:
                    cursor = json.load(answer)["runs"][entry["id"]]["cursor"]
                print(time.perf_counter() - start, flush=True)
        except OSError:
            pass  # the dashboard is starting
        time.sleep(2)


def train(folder: Path, rounds: int, bind: str = "") -> float:
    command = [sys.executable, "-c", TRAIN, str(folder), str(rounds), bind]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return float(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment).stdout)


def train_with_viewer(folder: Path, rounds: int, port: int, threaded: bool) -> tuple[float, list[float]]:
    bind = f"127.0.0.1:{port}"
    if threaded:
        with watching(port) as looks:
            return train(folder, rounds, bind), looks
    command = [sys.executable, "-m", "motet", "dashboard", str(folder.parent), "--bind", bind, "--no-token"]
    dashboard = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert dashboard.stdout is not None
    dashboard.stdout.readline()
    try:
        with watching(port) as looks:
            return train(folder, rounds), looks
    finally:
        dashboard.terminate()
        dashboard.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--port", type=int, default=8896)
    parser.add_argument("--threaded", action="store_true")
    parser.add_argument("--look-at", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.look_at is not None:
        look_repeatedly(args.look_at)
        return
    ratios, looks = [], list[float]()
    for pair in range(args.pairs):
        with tempfile.TemporaryDirectory() as parent:
            seconds = {}
            for is_watched in (pair % 2 == 0, pair % 2 != 0):
                folder = Path(parent) / str(is_watched) / "run"
                folder.parent.mkdir()
                if is_watched:
                    seconds[True], times = train_with_viewer(folder, args.rounds, args.port, args.threaded)
                    looks += times
                else:
                    seconds[False] = train(folder, args.rounds)
        ratios.append(seconds[True] / seconds[False])
        print(f"  without {seconds[False]:.2f} s, with a viewer {seconds[True]:.2f} s, ratio {ratios[-1]:.3f}")
    place = "in a thread of the run" if args.threaded else "in its own process"
    print(f"dashboard {place}, {args.rounds} rounds: median ratio {statistics.median(ratios):.3f}")
    print(f"  {len(looks)} looks, {1000 * statistics.median(looks):.1f} ms each")


if __name__ == "__main__":
    main()
