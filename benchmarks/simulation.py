"""Time whole rounds (sampling, training, aggregation) of Motet, a plain PyTorch loop and pfl, in one run.

    python -m benchmarks.simulation                                                  the table of docs/reference/speed.md, on a GPU
    python -m benchmarks.simulation --frozen --systems packed                        with a frozen lower half
    python -m benchmarks.simulation --sizes 6x384 --cohorts 10 50                    a grid of sizes, cohorts, …
    python -m benchmarks.simulation --sizes 6x768 --tokens 128 --freeze 3            with frozen embeddings and 3 layers
    python -m benchmarks.simulation --uneven --bucket 16 --sizes 6x384               texts of uneven length
    python -m benchmarks.simulation --sizes t5-60m gpt2-124m --cohorts 10            models that write texts
    python -m benchmarks.simulation --device cpu --sizes 2x128 --tokens 64           on a CPU, with worker processes

All systems train on the same batches. On a GPU, `bare` is a plain PyTorch loop over clients, `big` is one model with one
batch of all clients' rows (the upper bound), and `one by one` and `packed` are Motet. On a CPU, `bare` is benchmarks/bare.py
and `motet` is the process executor; rounds of the systems alternate, so that other load on the machine affects all of them.
`pfl` is included if it is installed. Times are seconds per round, on a CPU the median. The ratio is the time of the faster one
of `bare` and `pfl`, divided by Motet's. `limit` is what the arithmetic and the optimizer's traffic take at least on an H200,
and `reached` is limit / packed.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.bare import Bare, train
from benchmarks.kernel_profile import profile_round
from benchmarks.overhead import Motet
from benchmarks.peers import pfl_processes, pfl_round
from benchmarks.workload import WRITERS, Workload
from motet.algorithms import fedavg
from motet.experiment.build.run_components import RunComponents
from motet.experiment.build.run_plan import RunPlan
from motet.experiment.loop.run_loop import FederatedRun
from motet.learning.executors.packed_executor import PackedExecutor
from motet.learning.solver import Solver

PlayRound = Callable[[int, list[int]], None]  # (round index, cohort)
# Of an H200, measured: products of large bfloat16 matrices, and copies in its memory.
OPERATIONS_PER_SECOND, BYTES_PER_SECOND = 790e12, 4.3e12
OPTIMIZER_BYTES = {"adamw": 28, "sgd": 12}  # per trained number and step: weight, gradient and moments, in and out


class Row(NamedTuple):
    """One line of the table."""

    size: str
    cohort: int
    freeze: int = 0
    optimizer: str = "adamw"
    tokens: int = 64


TABLE_ROWS = (
    *(Row(size, cohort) for size in ("2x128", "6x384") for cohort in (10, 50)),
    *(Row(size, 10) for size in ("6x768", "12x768", "gpt2-124m", "t5-60m")),
)
FROZEN_ROWS = (
    *(Row(size, cohort, freeze) for size, freeze in (("2x128", 1), ("6x384", 3)) for cohort in (10, 50)),
    Row("12x768", 10, freeze=6),
)


def hardware_limit(workload: Workload, solver: Solver, cohort_size: int, freeze: int) -> float:
    """Return the seconds that a round takes at least: the arithmetic of its texts, and the traffic of its optimizer.

    Embedding tables are not multiplied, except by an output layer, and only the words of a client's texts are trained.
    """
    module = workload.module(freeze)
    tables = {id(m.weight): m.weight.shape[1] for m in module.modules() if isinstance(m, torch.nn.Embedding)}
    output = module.get_output_embeddings()
    multiplied = sum(p.numel() for p in module.parameters() if p.requires_grad and id(p) not in tables)
    trained, words = multiplied, module.get_input_embeddings().weight
    if output is not None:  # tied to the table of words, all of which it trains
        trained, multiplied = trained + words.numel(), multiplied + words.numel()
    elif words.requires_grad:
        first_client = workload.texts()[0][: workload.examples]
        trained += len(np.unique(first_client)) * tables[id(words)]
    operations = 6 * multiplied * workload.lengths()[: workload.examples].sum()
    traffic = OPTIMIZER_BYTES[solver.optimizer] * trained * solver.num_steps(workload.examples)
    return float(cohort_size * (operations / OPERATIONS_PER_SECOND + traffic / BYTES_PER_SECOND))


def packed(
    workload: Workload, solver: Solver, device: torch.device, freeze: int, width: int | None = None
) -> PlayRound:
    federation = workload.federation(freeze)
    federation.model.to_device(device)
    executor = PackedExecutor(device, width)
    plan = RunPlan(federation=federation, components=RunComponents(algorithm=fedavg(solver)), rounds=10**6)
    run = FederatedRun(plan, executor)
    return lambda _, cohort: run.engine.run_round([federation.clients[i] for i in cohort])


def bare(workload: Workload, solver: Solver, device: torch.device, freeze: int) -> PlayRound:
    module = workload.module(freeze).to(device).train()
    trained = [p for p in module.parameters() if p.requires_grad]
    inputs = workload.inputs(device)
    shared = [p.detach().clone() for p in trained]

    def play(index: int, cohort: list[int]) -> None:
        sums = [torch.zeros_like(p) for p in trained]
        for client in cohort:
            with torch.no_grad():
                torch._foreach_copy_(trained, shared)
            train(module, trained, solver, workload.batches(solver, index, client), inputs)
            with torch.no_grad():
                torch._foreach_add_(sums, torch._foreach_sub(trained, shared))
        torch._foreach_add_(shared, sums, alpha=1 / len(cohort))

    return play


def big(workload: Workload, solver: Solver, device: torch.device, freeze: int) -> PlayRound:
    module = workload.module(freeze).to(device).train()
    trained = [p for p in module.parameters() if p.requires_grad]
    inputs = workload.inputs(device)

    def play(index: int, cohort: list[int]) -> None:
        by_client = [workload.batches(solver, index, client) for client in cohort]
        batches = [np.concatenate(step) for step in zip(*by_client, strict=True)]
        train(module, trained, solver, batches, inputs)

    return play


def draw_cohorts(workload: Workload, size: int, count: int) -> list[list[int]]:
    rng = np.random.default_rng(1)
    return [rng.choice(workload.clients, size, replace=False).tolist() for _ in range(count)]


def measure_gpu(args: argparse.Namespace, workload: Workload, solver: Solver, row: Row) -> dict[str, Any]:
    """Measure one system after another, each with the GPU to itself."""
    device, few_rounds = torch.device(args.device), max(1, args.rounds // 4)
    systems: dict[str, tuple[Callable[..., PlayRound], int, int]] = {  # with rounds and warmup rounds
        "bare": (bare, few_rounds, 1),
        "one by one": (lambda *options: packed(*options, width=1), few_rounds, 1),
        "packed": (packed, args.rounds, args.warmup),
        "big": (big, args.rounds, 1),
        "pfl": (pfl_round, few_rounds, 1),
    }
    results: dict[str, Any] = {}
    for name in selected_systems(args):
        if name == "pfl" and workload.size in WRITERS:  # pfl's model here is a classifier
            continue
        make, rounds, warmup = systems[name]
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        play = make(workload, solver, device, row.freeze)
        cohorts = draw_cohorts(workload, row.cohort, rounds + warmup)
        seconds = [0.0, 0.0]
        for stage, indices in enumerate((range(warmup), range(warmup, warmup + rounds))):
            start = time.perf_counter()
            for i in indices:
                play(i, cohorts[i])
            torch.cuda.synchronize()
            seconds[stage] = time.perf_counter() - start
        peak = torch.cuda.max_memory_allocated() / 2**30
        if args.profile and name == "packed":
            print(profile_round(partial(play, 0, cohorts[0])), flush=True)
        results[name] = {"seconds": seconds[1] / rounds, "warm": seconds[0], "peak_gb": peak}
        del play
    return results


def measure_cpu(args: argparse.Namespace, workload: Workload, solver: Solver, row: Row) -> dict[str, Any]:
    """Measure all systems in turn, round by round. The first round of each is reported separately."""
    systems: dict[str, Callable[[], AbstractContextManager[PlayRound]]] = {
        "bare": lambda: _closing(Bare(workload, solver, args.workers, row.freeze)),
        "motet": lambda: _closing(Motet(workload, solver, args.workers, row.freeze)),
        "pfl": lambda: pfl_processes(workload, solver, args.workers, row.freeze),
    }
    with ExitStack() as stack:
        opened = {name: stack.enter_context(systems[name]()) for name in selected_systems(args)}
        seconds: dict[str, list[float]] = {name: [] for name in opened}
        for index, cohort in enumerate(draw_cohorts(workload, row.cohort, args.rounds + 1)):
            for name, play in opened.items():
                start = time.perf_counter()
                play(index, cohort)
                seconds[name].append(time.perf_counter() - start)
    return {name: {"seconds": statistics.median(times[1:]), "warm": times[0]} for name, times in seconds.items()}


@contextmanager
def _closing(system: Any) -> Iterator[PlayRound]:
    try:
        yield system.round
    finally:
        system.close()


def selected_systems(args: argparse.Namespace) -> list[str]:
    names = ["bare", "motet", "pfl"] if args.device == "cpu" else ["bare", "one by one", "packed", "big", "pfl"]
    return [name for name in names if name in (args.systems or names) and (name != "pfl" or find_spec("pfl"))]


def measure(args: argparse.Namespace, row: Row) -> dict[str, Any]:
    clients = args.clients or max(100, row.cohort)
    workload = Workload(row.size, clients, tokens=row.tokens, uneven=args.uneven, lengths_file=args.lengths)
    rate = 1e-2 if row.optimizer == "sgd" else 1e-5
    solver = Solver(optimizer=row.optimizer, lr=rate, batch=16, bucket=args.bucket)  # type: ignore[arg-type]
    results = (measure_cpu if args.device == "cpu" else measure_gpu)(args, workload, solver, row)
    ours = results.get("packed") or results.get("motet")
    others = [results[name]["seconds"] for name in ("bare", "pfl") if name in results]
    ratio = {"ratio": min(others) / ours["seconds"]} if ours and others else {}
    if args.device != "cpu":
        ratio["limit"] = hardware_limit(workload, solver, row.cohort, row.freeze)
    return {**row._asdict(), "device": args.device, **results, **ratio}


def format_row(args: argparse.Namespace, row: dict[str, Any]) -> str:
    setting = [str(row[key]) for key in ("size", "cohort", "optimizer", "tokens", "freeze")]
    times = [f"{row[name]['seconds']:.3f}" if name in row else "–" for name in selected_systems(args)]
    ratio = f"{row['ratio']:.2f}" if "ratio" in row else "–"
    cells = [*setting, *times, ratio]
    if args.device != "cpu":
        packed_row = row.get("packed")
        share = f"{row['limit'] / packed_row['seconds']:.0%}" if packed_row else "–"
        cells += [f"{row['limit']:.3f}", share, f"{packed_row['peak_gb']:.1f}" if packed_row else "–"]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", help="Measure these sizes instead of the rows of that table.")
    parser.add_argument("--frozen", action="store_true", help="Measure models with a frozen lower half.")
    parser.add_argument("--cohorts", nargs="+", type=int, default=[10])
    parser.add_argument("--optimizers", nargs="+", default=["adamw"])
    parser.add_argument("--tokens", nargs="+", type=int, default=[64])
    parser.add_argument("--systems", nargs="+", help="Measure only these systems.")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--freeze", type=int, default=0, help="Freeze the embeddings and this many layers.")
    parser.add_argument(
        "--uneven", action="store_true", help="Texts of log-normal lengths, with --tokens as their mean."
    )
    parser.add_argument("--lengths", type=Path, help="A .npy file with the lengths of texts; --tokens is the longest.")
    parser.add_argument(
        "--clients", type=int, help="Clients of the federation; by default 100, or the cohort if larger."
    )
    parser.add_argument("--warmup", type=int, default=4, help="Rounds of `packed` before the measured ones.")
    parser.add_argument("--profile", action="store_true", help="Also show the kernels of a round on a GPU.")
    parser.add_argument("--bucket", type=int, default=0, help="solver.bucket: batches of similar length.")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--workers", type=int, default=2, help="Worker processes with one thread each, on a CPU.")
    parser.add_argument("--json", type=Path, help="Append the results to this file, one JSON object per line.")
    args = parser.parse_args()
    titles = ["model", "cohort", "optimizer", "tokens", "frozen", *selected_systems(args), "ratio"]
    titles += ["limit", "reached", "peak GB"] if args.device != "cpu" else []
    print("| " + " | ".join(titles) + " |")
    print("|" + " --- |" * len(titles))
    grid = product(args.sizes or (), args.cohorts, [args.freeze], args.optimizers, args.tokens)
    rows = [Row(*values) for values in grid] or (FROZEN_ROWS if args.frozen else TABLE_ROWS)
    for row in rows:
        result = measure(args, row)
        print(format_row(args, result), flush=True)
        if args.json:
            with args.json.open("a") as file:
                file.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
