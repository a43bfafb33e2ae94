"""Measure what a viewer of the dashboard costs a run: train with and without one, in turn, on this machine.

    python -m benchmarks.dashboard [--rounds 20] [--pairs 3] [--threaded]

The viewer looks as an open page does: at the list and at the run, every two seconds. `--threaded` serves the dashboard from
a thread of the run, as `motet serve --dashboard` does; otherwise it is a process of its own. The runs of a pair follow each
other, and their order alternates. The ratio compares the processor time of the run and of the dashboard while the run goes on
with that of the run alone. On a busy machine it varies by more than a viewer costs. So the processor time of the dashboard is also
printed on its own, as a share of the time on the clock; it is exact.
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
from typing import NamedTuple
from urllib.request import urlopen

import psutil

TRAIN = """
import contextlib, sys, threading, time
from pathlib import Path
import psutil
from motet.dashboard.http_server import Dashboard, DashboardOptions
from motet.experiment.commands.recipe_runner import run_recipe
from motet.experiment.recipe.recipe_files import load_recipe

folder, rounds, bind = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
settings = [f"rounds={rounds}", "device=cpu", "transport.workers=0", "checkpoint.last=false"]
options = DashboardOptions(bind=bind, is_open=True)
viewer = Dashboard(folder, options, is_new=True).serve_in_background() if bind else contextlib.nullcontext()
with viewer:
    start, processor_start = time.perf_counter(), time.process_time()
    run_recipe(load_recipe("toy-classification", settings), folder)
    threads = [t for t in psutil.Process().threads() if t.id != threading.get_native_id()]
    dashboard = sum(t.user_time + t.system_time for t in threads)
    print(time.perf_counter() - start, time.process_time() - processor_start - dashboard, dashboard)
"""


class Cost(NamedTuple):
    seconds: float  # on the clock
    processor_seconds: float
    dashboard_seconds: float = 0.0  # processor time of the dashboard, in its own process or in threads of the run


@contextmanager
def watching(port: int) -> Iterator[list[float]]:
    """Look at the dashboard from another process. The list that is yielded gets the time of each look at the end."""
    looks: list[float] = []
    command = [sys.executable, "-m", "benchmarks.dashboard", "--look-at", str(port)]
    viewer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield looks
    finally:
        viewer.terminate()
        output, _ = viewer.communicate()
        looks += [float(line) for line in output.splitlines()]


def look_repeatedly(port: int) -> None:
    """Do what an open page does every two seconds, and print how long each look took."""
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


def train(folder: Path, rounds: int, bind: str = "") -> Cost:
    command = [sys.executable, "-c", TRAIN, str(folder), str(rounds), bind]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment).stdout
    return Cost(*map(float, output.split()))


def train_with_viewer(folder: Path, rounds: int, port: int, threaded: bool) -> tuple[Cost, list[float]]:
    bind = f"127.0.0.1:{port}"
    if threaded:
        with watching(port) as looks:
            return train(folder, rounds, bind), looks
    command = [sys.executable, "-m", "motet", "dashboard", str(folder.parent), "--bind", bind, "--no-token"]
    dashboard = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert dashboard.stdout is not None
    dashboard.stdout.readline()
    try:
        before = processor_seconds(dashboard.pid)
        with watching(port) as looks:
            cost = train(folder, rounds)
            spent = processor_seconds(dashboard.pid) - before
        return cost._replace(dashboard_seconds=spent), looks
    finally:
        dashboard.terminate()
        dashboard.wait()


def processor_seconds(process: int) -> float:
    times = psutil.Process(process).cpu_times()
    return float(times.user + times.system)


def compare(args: argparse.Namespace) -> None:
    ratios, shares, parts, looks = [], list[float](), list[float](), list[float]()
    for pair in range(args.pairs):
        costs: dict[bool, Cost] = {}
        for is_watched in (pair % 2 == 0, pair % 2 != 0):
            with tempfile.TemporaryDirectory() as parent:
                folder = Path(parent) / "run"
                if is_watched:
                    costs[True], times = train_with_viewer(folder, args.rounds, args.port, args.threaded)
                    looks += times
                else:
                    costs[False] = train(folder, args.rounds)
        watched, alone = costs[True], costs[False]
        ratios.append((watched.processor_seconds + watched.dashboard_seconds) / alone.processor_seconds)
        shares.append(watched.dashboard_seconds / watched.seconds)
        parts.append(watched.dashboard_seconds / watched.processor_seconds)
        for name, cost in (("without", alone), ("with a viewer", watched)):
            seconds = f"{cost.processor_seconds:.2f} s of processor time, {cost.seconds:.1f} s on the clock"
            print(f"  {name}: {seconds}", flush=True)
    place = "in a thread of the run" if args.threaded else "in its own process"
    spread = ", ".join(f"{ratio:.3f}" for ratio in sorted(ratios))
    print(f"dashboard {place}, {args.rounds} rounds: median ratio {statistics.median(ratios):.3f} ({spread})")
    share, part = statistics.median(shares), statistics.median(parts)
    print(f"  processor time of the dashboard: {share:.2%} of one core, {part:.2%} of that of the run")
    print(f"  {len(looks)} looks, {1000 * statistics.median(looks):.1f} ms each")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--port", type=int, default=8896)
    parser.add_argument("--threaded", action="store_true")
    parser.add_argument("--look-at", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.look_at is not None:
        look_repeatedly(args.look_at)
    else:
        compare(args)


if __name__ == "__main__":
    main()
