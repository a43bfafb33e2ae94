"""Measure what a round of Motet costs over a hand-written PyTorch FedAvg with the same batches, on this CPU.

    python -m benchmarks.overhead [--size 2x128] [--cohort 10] [--rounds 6] [--freeze 0]

Rounds of the two alternate, so that other load on the machine affects both. The ratio of processor seconds (of all processes)
depends less on it than that of wall-clock seconds. Also measures how peak memory grows with the
cohort (it must not), and how long the first round takes from a cold start.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import numpy as np
import psutil
import torch

from benchmarks.bare import Bare
from benchmarks.workload import Workload
from motet.algorithms import fedavg
from motet.experiment.build.run_components import RunComponents
from motet.experiment.build.run_plan import RunPlan
from motet.experiment.loop.peak_memory import PeakMemory
from motet.experiment.loop.run_loop import FederatedRun
from motet.learning.executors.process_executor import ProcessExecutor
from motet.learning.executors.serial_executor import PrefixCache
from motet.learning.solver import Solver

SOLVER = Solver(optimizer="sgd", lr=0.1, batch=16)


class Motet:
    def __init__(self, workload: Workload, solver: Solver, workers: int, freeze: int) -> None:
        self.federation = workload.federation(freeze)
        model, features = self.federation.model, self.federation.features
        prefix_cache = PrefixCache()
        prefix_cache.prepare(model, features)
        self.executor = ProcessExecutor(workers, {model.key: model}, {features.key: features}, prefix_cache)
        plan = RunPlan(federation=self.federation, components=RunComponents(algorithm=fedavg(solver)), rounds=10**6)
        self.run = FederatedRun(plan, self.executor)

    def round(self, _: int, cohort: list[int]) -> None:
        self.run.engine.run_round([self.federation.clients[i] for i in cohort])

    def close(self) -> None:
        self.executor.close()


def processor_seconds() -> float:
    """Return the processor time of this process and its workers so far."""
    process = psutil.Process()
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return sum(t.user + t.system for t in times)


def median_ratio(seconds: dict[str, list[float]]) -> float:
    return statistics.median(b / a for a, b in zip(seconds["bare"], seconds["motet"], strict=True))


def compare(args: argparse.Namespace) -> None:
    workload = Workload(args.size, clients=max(100, args.cohort), tokens=args.tokens)
    bare = Bare(workload, SOLVER, args.workers, args.freeze)
    motet = Motet(workload, SOLVER, args.workers, args.freeze)
    seconds: dict[str, list[float]] = {"bare": [], "motet": []}
    processor: dict[str, list[float]] = {"bare": [], "motet": []}
    for index in range(args.rounds + 1):
        cohort = sorted(np.random.RandomState(index).choice(workload.clients, args.cohort, replace=False).tolist())
        for name, system in (("bare", bare), ("motet", motet)):
            start, processor_start = time.perf_counter(), processor_seconds()
            system.round(index, cohort)
            if index:  # the first round warms up
                seconds[name].append(time.perf_counter() - start)
                processor[name].append(processor_seconds() - processor_start)
    initial, final = motet.federation.model.initial_params.flat, motet.run.state.params.flat
    difference = float((bare.params - final).norm() / (bare.params - initial).norm())
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    print(
        f"{args.size}, cohort {args.cohort}, {args.tokens} tokens, {args.freeze} layers frozen, {args.workers} workers"
    )
    print(f"  bare {medians['bare']:.3f} s per round, motet {medians['motet']:.3f} s per round")
    print(f"  motet / bare: {median_ratio(seconds):.3f}, in processor time {median_ratio(processor):.3f}")
    print(f"  relative difference of the two models' updates: {difference:.1e}")
    bare.close()
    motet.close()


def measure_memory(cohort: int, workers: int) -> int:
    motet = Motet(Workload(clients=cohort, examples=16), SOLVER, workers, 0)
    with PeakMemory(interval=0.05) as memory:
        for index in range(2):
            motet.round(index, list(range(cohort)))
    motet.close()
    return memory.peak


def measure_start() -> float:
    """Return the seconds from the command to the end of the first round of the toy recipe."""
    start = time.perf_counter()
    folder = f"runs/cold-{time.time():.0f}"
    command = [sys.executable, "-m", "motet", "run", "toy-classification", "rounds=1", "--out", folder]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            if "round 1/1" in line:
                return time.perf_counter() - start
    raise RuntimeError("the run ended without a first round")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="2x128")
    parser.add_argument("--cohort", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--freeze", type=int, default=0)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--skip", nargs="*", default=[], help="Parts to skip: compare, memory, start.")
    parser.add_argument("--memory-of", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.memory_of:
        print(json.dumps(measure_memory(args.memory_of, args.workers)))
        return
    if "compare" not in args.skip:
        compare(args)
    if "memory" not in args.skip:
        for cohort in (10, 50, 200):  # each in a new process
            options = ["--memory-of", str(cohort), "--workers", str(args.workers)]
            command = [sys.executable, "-m", "benchmarks.overhead", *options]
            peak = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            print(f"  peak memory with a cohort of {cohort:3d}: {peak / 1e6:.0f} MB")
    if "start" not in args.skip:
        print(f"  from the command to the end of the first round: {measure_start():.1f} s")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
