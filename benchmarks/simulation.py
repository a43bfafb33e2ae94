"""Whole rounds (sampling, training, aggregation): Motet against a plain loop and against pfl, in one run.

    python -m benchmarks.simulation                                                  the table of the README, on a GPU
    python -m benchmarks.simulation --freeze 3 --sizes 6x768 --tokens 128            the embeddings and three layers frozen
    python -m benchmarks.simulation --device cpu --sizes 2x128 --tokens 64           on CPU, worker processes of one thread

All systems do the same batches. On a GPU: `bare` is a plain PyTorch loop, one client after another (the floor for one by one);
`big` is one model with one batch of all clients' rows (the ceiling); `one by one` and `packed` are Motet. On CPU: `bare` is
benchmarks/bare.py and `motet` the executor of workers, and rounds of the systems alternate, so that whatever else the machine does
meets all of them. `pfl` joins if it is installed. Times are seconds a round, the median on CPU; the ratio is bare / Motet.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.bare import Bare, train
from benchmarks.overhead import Motet
from benchmarks.peers import pfl_processes, pfl_round
from benchmarks.workload import Workload
from motet.algorithms import fedavg
from motet.core.program import Round
from motet.core.script import run_script
from motet.experiment.build.run_components import RunComponents
from motet.experiment.build.run_plan import RunPlan
from motet.experiment.loop.run_loop import FederatedRun
from motet.learning.executors.packed_executor import PackedExecutor
from motet.learning.solver import Solver
from motet.report.progress import SilentProgress

System = Callable[[int, list[int]], None]


def packed(workload: Workload, solver: Solver, device: torch.device, freeze: int, width: int | None = None) -> System:
    federation = workload.federation(freeze)
    federation.model.to_device(device)
    executor = PackedExecutor(device, width)
    running = FederatedRun(
        RunPlan(federation=federation, components=RunComponents(algorithm=fedavg(solver)), rounds=10**6),
        executor,
        None,
        SilentProgress(),
    )

    def round_(index: int, cohort: list[int]) -> None:
        names = tuple(federation.clients[i] for i in cohort)
        rnd = Round(index, 10**6, names, federation.seed, federation.server_context(index))
        running.mailbox.round = index
        running.state = run_script(
            running.plan.algorithm.round(running.state, rnd), running.mailbox.run_exchange, executor.run
        )

    return round_


def bare(workload: Workload, solver: Solver, device: torch.device, freeze: int) -> System:
    module = workload.module(freeze).to(device).train()
    own = [p for p in module.parameters() if p.requires_grad]
    ids, labels = (torch.from_numpy(a).to(device).long() for a in workload.texts())
    shared = [p.detach().clone() for p in own]

    def round_(index: int, cohort: list[int]) -> None:
        sums = [torch.zeros_like(p) for p in own]
        for client in cohort:
            with torch.no_grad():
                torch._foreach_copy_(own, shared)
            train(module, own, solver, workload.rows(solver, index, client), ids, labels)
            with torch.no_grad():
                torch._foreach_add_(sums, torch._foreach_sub(own, shared))
        torch._foreach_add_(shared, sums, alpha=1 / len(cohort))

    return round_


def big(workload: Workload, solver: Solver, device: torch.device, freeze: int) -> System:
    module = workload.module(freeze).to(device).train()
    own = [p for p in module.parameters() if p.requires_grad]
    ids, labels = (torch.from_numpy(a).to(device).long() for a in workload.texts())

    def round_(index: int, cohort: list[int]) -> None:
        orders = [workload.rows(solver, index, client) for client in cohort]
        train(module, own, solver, [np.concatenate(step) for step in zip(*orders, strict=True)], ids, labels)

    return round_


def cohorts(workload: Workload, size: int, count: int) -> list[list[int]]:
    rng = np.random.default_rng(1)
    return [rng.choice(workload.clients, size, replace=False).tolist() for _ in range(count)]


def on_gpu(args: argparse.Namespace, workload: Workload, solver: Solver, cohort: int) -> dict[str, Any]:
    """One system after another, each with the GPU to itself."""
    device, few = torch.device(args.device), max(1, args.rounds // 4)
    systems: dict[str, tuple[Callable[..., System], int, int]] = {
        "bare": (bare, few, 1),
        "one by one": (lambda *known: packed(*known, width=1), few, 1),
        "packed": (packed, args.rounds, 2),
        "big": (big, args.rounds, 1),
        "pfl": (pfl_round, few, 1),
    }
    found: dict[str, Any] = {}
    for name in columns(args):
        make, rounds, warm = systems[name]
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        system = make(workload, solver, device, args.freeze)
        chosen = cohorts(workload, cohort, rounds + warm)
        times = [0.0, 0.0]
        for stage, indices in enumerate((range(warm), range(warm, warm + rounds))):
            began = time.perf_counter()
            for i in indices:
                system(i, chosen[i])
            torch.cuda.synchronize()
            times[stage] = time.perf_counter() - began
        peak = torch.cuda.max_memory_allocated() / 2**30
        found[name] = {"seconds": times[1] / rounds, "warm": times[0], "peak_gb": peak}
        del system
    return found


def on_cpu(args: argparse.Namespace, workload: Workload, solver: Solver, cohort: int) -> dict[str, Any]:
    """All systems at once, a round of each in turn; the first round of each is kept apart."""
    systems: dict[str, Callable[[], AbstractContextManager[System]]] = {
        "bare": lambda: _closing(Bare(workload, solver, args.workers, args.freeze)),
        "motet": lambda: _closing(Motet(workload, solver, args.workers, args.freeze)),
        "pfl": lambda: pfl_processes(workload, solver, args.workers, args.freeze),
    }
    with ExitStack() as stack:
        made = {name: stack.enter_context(systems[name]()) for name in columns(args)}
        spent: dict[str, list[float]] = {name: [] for name in made}
        for index, chosen in enumerate(cohorts(workload, cohort, args.rounds + 1)):
            for name, system in made.items():
                began = time.perf_counter()
                system(index, chosen)
                spent[name].append(time.perf_counter() - began)
    return {name: {"seconds": statistics.median(times[1:]), "warm": times[0]} for name, times in spent.items()}


@contextmanager
def _closing(system: Any) -> Iterator[System]:
    try:
        yield system.round
    finally:
        system.close()


def columns(args: argparse.Namespace) -> list[str]:
    names = ["bare", "motet", "pfl"] if args.device == "cpu" else ["bare", "one by one", "packed", "big", "pfl"]
    return [n for n in names if n in (args.systems or names) and (n != "pfl" or find_spec("pfl"))]


def row(args: argparse.Namespace, size: str, cohort: int, optimizer: str, tokens: int) -> dict[str, Any]:
    workload = Workload(size, clients=max(100, cohort), tokens=tokens)
    solver = Solver(optimizer=optimizer, lr=1e-2 if optimizer == "sgd" else 1e-5, batch=16)  # type: ignore[arg-type]
    found = (on_cpu if args.device == "cpu" else on_gpu)(args, workload, solver, cohort)
    ours = found.get("packed") or found.get("motet")
    ratio = {"ratio": found["bare"]["seconds"] / ours["seconds"]} if ours and "bare" in found else {}
    known = {"size": size, "cohort": cohort, "optimizer": optimizer, "tokens": tokens, "freeze": args.freeze}
    return {**known, "device": args.device, **found, **ratio}


def told(args: argparse.Namespace, found: dict[str, Any]) -> str:
    about = [str(found[k]) for k in ("size", "cohort", "optimizer", "tokens", "freeze")]
    times = [f"{found[name]['seconds']:.3f}" for name in columns(args)]
    ratio = f"{found['ratio']:.2f}" if "ratio" in found else "–"
    peak = f"{found['packed']['peak_gb']:.1f}" if "packed" in found else "–"
    return "| " + " | ".join([*about, *times, ratio, peak]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["2x128", "6x384", "6x768", "12x768"])
    parser.add_argument("--cohorts", nargs="+", type=int, default=[10, 50])
    parser.add_argument("--optimizers", nargs="+", default=["sgd", "adamw"])
    parser.add_argument("--tokens", nargs="+", type=int, default=[64, 128])
    parser.add_argument("--systems", nargs="+", help="Only these columns.")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--freeze", type=int, default=0, help="So many layers from the bottom, and the embeddings.")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--workers", type=int, default=2, help="Processes of one thread each, on CPU.")
    parser.add_argument("--json", type=Path, help="Where the numbers go, a line a row.")
    args = parser.parse_args()
    titles = ["model", "cohort", "optimiser", "tokens", "frozen", *columns(args), "bare / Motet", "peak GB"]
    print("| " + " | ".join(titles) + " |")
    print("|" + " --- |" * len(titles))
    for size in args.sizes:
        for cohort in args.cohorts:
            for optimizer in args.optimizers:
                for tokens in args.tokens:
                    found = row(args, size, cohort, optimizer, tokens)
                    print(told(args, found), flush=True)
                    if args.json:
                        with args.json.open("a") as lines:
                            lines.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
