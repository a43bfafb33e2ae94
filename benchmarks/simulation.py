"""Whole rounds (sampling, training, aggregation) on one device: clients side by side against everything else.

    python -m benchmarks.simulation                               the table of the README, on a GPU
    python -m benchmarks.simulation --sizes 2x128 --cohorts 4 --rounds 1 --device cpu       a small try

All systems do the same batches in one run: `bare` is a plain PyTorch loop, one client after another (the floor for one by one);
`big` is one model with one batch of all clients' rows (the ceiling); `one by one` and `packed` are Motet. `pfl` joins if it is
installed. Times are seconds a round; the ratio is bare / packed.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.workload import Workload
from motet.algorithms import fedavg
from motet.core.program import Round
from motet.core.rng import Seed
from motet.core.script import play
from motet.experiment.plan import Plan
from motet.experiment.run import Running
from motet.learning.solver import Solver
from motet.learning.together import Together
from motet.report.progress import Silent

System = Callable[[int, list[int]], None]
HALF = torch.bfloat16


def packed(workload: Workload, solver: Solver, device: torch.device, width: int | None) -> System:
    federation = workload.federation()
    federation.model.move(device)
    bench = Together(device, width)
    running = Running(Plan(federation, fedavg(solver), 10**6), bench, None, Silent())

    def round_(index: int, cohort: list[int]) -> None:
        names = tuple(federation.clients[i] for i in cohort)
        rnd = Round(index, 10**6, names, federation.seed, federation.server_context(index))
        running.mailbox.round = index
        running.state = play(running.plan.algorithm.round(running.state, rnd), running.mailbox.ask, bench.run)

    return round_


def bare(workload: Workload, solver: Solver, device: torch.device) -> System:
    module = workload.module().to(device).train()
    own = list(module.parameters())
    ids, labels = (torch.from_numpy(a).to(device).long() for a in workload.texts())
    mask = torch.ones_like(ids)
    shared = [p.detach().clone() for p in own]

    def round_(index: int, cohort: list[int]) -> None:
        sums = [torch.zeros_like(p) for p in own]
        for client in cohort:
            with torch.no_grad():
                torch._foreach_copy_(own, shared)
            _train(module, own, solver, _rows(workload, solver, index, client), ids, labels, mask)
            with torch.no_grad():
                torch._foreach_add_(sums, torch._foreach_sub(own, shared))
        torch._foreach_add_(shared, sums, alpha=1 / len(cohort))

    return round_


def big(workload: Workload, solver: Solver, device: torch.device) -> System:
    module = workload.module().to(device).train()
    own = list(module.parameters())
    ids, labels = (torch.from_numpy(a).to(device).long() for a in workload.texts())
    mask = torch.ones_like(ids)

    def round_(index: int, cohort: list[int]) -> None:
        orders = [_rows(workload, solver, index, client) for client in cohort]
        _train(module, own, solver, [np.concatenate(step) for step in zip(*orders, strict=True)], ids, labels, mask)

    return round_


def _rows(workload: Workload, solver: Solver, index: int, client: int) -> list[np.ndarray]:
    order = solver.order(workload.examples, Seed(index, (client,)).numpy())
    return [client * workload.examples + places for places in order]


def _train(
    module: Any,
    own: list[Any],
    solver: Solver,
    order: list[np.ndarray],
    ids: torch.Tensor,
    labels: torch.Tensor,
    mask: torch.Tensor,
) -> None:
    make: Any = torch.optim.SGD if solver.optimizer == "sgd" else torch.optim.AdamW
    optimiser = make(own, lr=solver.rate, fused=True, **({} if solver.optimizer == "sgd" else {"weight_decay": 0.0}))
    for step, places in enumerate(order):
        rows = torch.from_numpy(places).to(ids.device)
        with torch.autocast(ids.device.type, HALF, enabled=ids.is_cuda):
            loss = module(input_ids=ids[rows], attention_mask=mask[rows], labels=labels[rows]).loss
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(own, solver.clip)
        for group in optimiser.param_groups:
            group["lr"] = solver.rate_at(step, len(order))
        optimiser.step()


def timed(
    make: Callable[[], System], workload: Workload, cohort: int, rounds: int, warm: int, device: torch.device
) -> dict[str, float]:
    rng = np.random.default_rng(1)
    cohorts = [rng.choice(workload.clients, cohort, replace=False).tolist() for _ in range(rounds + warm)]
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    if device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    system = make()
    began = time.perf_counter()
    for i in range(warm):
        system(i, cohorts[i])
    wait()
    first = time.perf_counter() - began
    began = time.perf_counter()
    for i in range(warm, warm + rounds):
        system(i, cohorts[i])
    wait()
    took = (time.perf_counter() - began) / rounds
    peak = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else 0.0
    return {"seconds": took, "warm": first, "peak_gb": peak}


def row(args: argparse.Namespace, size: str, cohort: int, optimizer: str, tokens: int, device: torch.device) -> dict[str, Any]:
    workload = Workload(size, clients=max(100, cohort), tokens=tokens)
    solver = Solver(optimizer=optimizer, lr=1e-2 if optimizer == "sgd" else 1e-5, batch=16)  # type: ignore[arg-type]
    systems: dict[str, tuple[Callable[[], System], int, int]] = {
        "bare": (lambda: bare(workload, solver, device), max(1, args.rounds // 4), 1),
        "one by one": (lambda: packed(workload, solver, device, 1), max(1, args.rounds // 4), 1),
        "packed": (lambda: packed(workload, solver, device, None), args.rounds, 2),
        "big": (lambda: big(workload, solver, device), args.rounds, 1),
    }
    with suppress(ImportError):
        from benchmarks.peers import pfl_round

        systems["pfl"] = (lambda: pfl_round(workload, solver, device), max(1, args.rounds // 4), 1)
    found: dict[str, Any] = {"size": size, "cohort": cohort, "optimizer": optimizer, "tokens": tokens}
    for name, (make, rounds, warm) in systems.items():
        if name in args.systems:
            found[name] = timed(make, workload, cohort, rounds, warm, device)
    if "bare" in found and "packed" in found:
        found["ratio"] = found["bare"]["seconds"] / found["packed"]["seconds"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["2x128", "6x384", "6x768", "12x768"])
    parser.add_argument("--cohorts", nargs="+", type=int, default=[10, 50])
    parser.add_argument("--optimizers", nargs="+", default=["sgd", "adamw"])
    parser.add_argument("--tokens", nargs="+", type=int, default=[64, 128])
    parser.add_argument("--systems", nargs="+", default=["bare", "one by one", "packed", "big", "pfl"])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", type=Path, help="Where the numbers go, a line a row.")
    args = parser.parse_args()
    device = torch.device(args.device)
    print("| model | cohort | optimiser | tokens | bare | one by one | packed | big | pfl | bare / packed | peak GB |")
    print("| --- |" + " --- |" * 10)
    for size in args.sizes:
        for cohort in args.cohorts:
            for optimizer in args.optimizers:
                for tokens in args.tokens:
                    found = row(args, size, cohort, optimizer, tokens, device)
                    cells = [
                        f"{found[n]['seconds']:.3f}" if n in found else "–"
                        for n in ("bare", "one by one", "packed", "big", "pfl")
                    ]
                    ratio, peak = found.get("ratio"), found.get("packed", {}).get("peak_gb", 0.0)
                    told = [size, str(cohort), optimizer, str(tokens), *cells, f"{ratio:.1f}" if ratio else "–", f"{peak:.1f}"]
                    print("| " + " | ".join(told) + " |", flush=True)
                    if args.json:
                        with args.json.open("a") as lines:
                            lines.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
