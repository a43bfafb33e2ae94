"""What a round of Motet costs over the fastest bare PyTorch FedAvg that does the same batches, on this CPU.

    python -m benchmarks.overhead [--size 2x128] [--cohort 10] [--rounds 6] [--freeze 0]

Rounds of the two alternate, so that whatever else the machine does meets both. Also: how peak memory grows with the cohort
(it must not), and how long a first round takes from a cold start.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time

import numpy as np
import torch

from benchmarks.bare import Bare
from benchmarks.workload import Workload
from motet.algorithms import fedavg
from motet.core.program import Round
from motet.core.script import run_script
from motet.experiment.build.run_components import RunComponents
from motet.experiment.build.run_plan import RunPlan
from motet.experiment.loop.peak_memory import PeakMemory
from motet.experiment.loop.run_loop import FederatedRun
from motet.learning.executors.process_executor import ProcessExecutor
from motet.learning.executors.serial_executor import PrefixCache
from motet.learning.solver import Solver
from motet.report.progress import SilentProgress

SOLVER = Solver(optimizer="sgd", lr=0.1, batch=16)


class Motet:
    def __init__(self, workload: Workload, solver: Solver, workers: int, freeze: int) -> None:
        self.federation = workload.federation(freeze)
        self.scratch = PrefixCache()
        self.scratch.prepare(self.federation.model, self.federation.features)
        models = {self.federation.model.key: self.federation.model}
        self.executor = ProcessExecutor(
            workers, models, {self.federation.features.key: self.federation.features}, self.scratch
        )
        self.running = FederatedRun(
            RunPlan(federation=self.federation, components=RunComponents(algorithm=fedavg(solver)), rounds=10**6),
            self.executor,
            None,
            SilentProgress(),
        )

    def round(self, index: int, cohort: list[int]) -> None:
        names = tuple(self.federation.clients[i] for i in cohort)
        rnd = Round(index, 10**6, names, self.federation.seed, self.federation.server_context(index))
        running = self.running
        running.mailbox.round = index
        running.state = run_script(
            running.plan.algorithm.round(running.state, rnd), running.mailbox.run_exchange, self.executor.run
        )

    def close(self) -> None:
        self.executor.close()
        self.scratch.close()


def compare(args: argparse.Namespace) -> None:
    workload = Workload(args.size, clients=max(100, args.cohort), tokens=args.tokens)
    bare = Bare(workload, SOLVER, args.workers, args.freeze)
    ours = Motet(workload, SOLVER, args.workers, args.freeze)
    spent: dict[str, list[float]] = {"bare": [], "motet": []}
    for index in range(args.rounds + 1):
        cohort = sorted(np.random.RandomState(index).choice(workload.clients, args.cohort, replace=False).tolist())
        for name, system in (("bare", bare), ("motet", ours)):
            began = time.perf_counter()
            system.round(index, cohort)
            if index:  # the first round warms up
                spent[name].append(time.perf_counter() - began)
    gap = float(
        (bare.params - ours.running.state.params.flat).norm()
        / (bare.params - ours.federation.model.initial_params.flat).norm()
    )
    middle = {name: statistics.median(times) for name, times in spent.items()}
    ratio = statistics.median(b / a for a, b in zip(spent["bare"], spent["motet"], strict=True))
    print(
        f"{args.size}, cohort {args.cohort}, {args.tokens} tokens, {args.freeze} layers frozen, {args.workers} workers"
    )
    print(f"  bare {middle['bare']:.3f} s a round, motet {middle['motet']:.3f} s a round, ratio {ratio:.3f}")
    print(f"  the weights of the two differ by {gap:.1e} of the way they went")
    bare.close()
    ours.close()


def memory(cohort: int, workers: int) -> int:
    ours = Motet(Workload(clients=cohort, examples=16), SOLVER, workers, 0)
    with PeakMemory(interval=0.05) as peak:
        for index in range(2):
            ours.round(index, list(range(cohort)))
    ours.close()
    return peak.peak


def start_up() -> float:
    """Seconds from the command to the end of the first round of the toy recipe."""
    began = time.perf_counter()
    where = f"runs/cold-{time.time():.0f}"
    command = [sys.executable, "-m", "motet", "run", "toy-classification", "rounds=1", "--out", where]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            if "round 1/1" in line:
                return time.perf_counter() - began
    raise RuntimeError("the first round never came")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="2x128")
    parser.add_argument("--cohort", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--freeze", type=int, default=0)
    parser.add_argument("--workers", type=int, default=len(__import__("os").sched_getaffinity(0)))
    parser.add_argument("--skip", nargs="*", default=[], help="compare, memory, start")
    parser.add_argument("--memory-of", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.memory_of:
        print(json.dumps(memory(args.memory_of, args.workers)))
        return
    if "compare" not in args.skip:
        compare(args)
    if "memory" not in args.skip:
        for cohort in (10, 50, 200):
            command = [
                sys.executable,
                "-m",
                "benchmarks.overhead",
                "--memory-of",
                str(cohort),
                "--workers",
                str(args.workers),
            ]
            peak = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            print(f"  peak memory with a cohort of {cohort:3d}: {peak / 1e6:.0f} MB")
    if "start" not in args.skip:
        print(f"  from the command to the end of the first round: {start_up():.1f} s")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
