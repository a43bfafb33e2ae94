"""Train the same cohort twice, with a new executor each time, and compare the models to the bit.

    python -m benchmarks.repeats [--device cuda] [--size 6x384] [--cohort 64] [--rounds 3] [--trace]

If two trainings differ, the rows show which part is to blame: each one switches a part off. With --trace, the first round
of a row that differs is trained twice more, without CUDA graphs, to find the first operation with another result. Exits
with 1 if a row differs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.operation_log import OperationLog, first_difference, log_kernels
from benchmarks.workload import Workload
from motet.algorithms import fedavg
from motet.core.params import Params
from motet.experiment.build.run_plan import RunComponents, RunPlan
from motet.experiment.loop.run_loop import FederatedRun
from motet.learning.executors.packed_executor import PackedExecutor
from motet.learning.packed import client_embedding, packed_blocks, packed_layers, packed_model, short_attention
from motet.learning.solver import Solver

ROWS: Mapping[str, Mapping[str, Any]] = {
    "as it is": {},
    "without CUDA graphs": {"capture_graphs": False},
    "without kernels": {"kernels": False},
    "without kernels and graphs": {"kernels": False, "capture_graphs": False},
    "in float32": {"use_bf16": False},
    "SGD": {"solver": Solver(optimizer="sgd", lr=0.01, batch=16)},
    "clients one by one": {"width": 1},
}


@contextmanager
def kernels_disabled() -> Iterator[None]:
    """Inside the block, torch computes everything."""
    with ExitStack() as stack:
        for module in (client_embedding, packed_blocks, packed_layers, packed_model, short_attention):
            # Not a mock: it would record the tensors of all calls, and with them the autograd graphs of all steps.
            stack.enter_context(patch.object(module, "kernels_for", lambda *_: None))
        yield


def train(workload: Workload, device: torch.device, rounds: int, options: Mapping[str, Any]) -> list[Params]:
    """Return the model after each round."""
    options = dict(options)
    solver = options.pop("solver", Solver(optimizer="adamw", lr=5e-4, batch=16))
    federation = workload.federation()
    federation.model.to_device(device)
    executor = PackedExecutor(device, **{"width": workload.clients, **options})
    plan = RunPlan(federation=federation, components=RunComponents(algorithm=fedavg(solver)), rounds=rounds)
    run, models = FederatedRun(plan, executor), list[Params]()
    for _ in range(rounds):
        run.engine.run_round()
        models.append(Params(run.state.params.layout, run.state.params.flat.cpu().clone()))
    executor.close()
    return models


def compare(first: list[Params], second: list[Params]) -> str:
    """Describe the first round after which the models differ, and the layers that do; "" if all are equal."""
    for index, (a, b) in enumerate(zip(first, second, strict=True)):
        if not torch.equal(a.flat, b.flat):
            names = [name for name, span in a.layout.slices.items() if not torch.equal(a.flat[span], b.flat[span])]
            relative = float((a.flat - b.flat).norm() / a.flat.norm())
            return f"differ after round {index + 1} by {relative:.1e} in {len(names)} tensors: {', '.join(names[:4])}"
    return ""


def trace(workload: Workload, device: torch.device, options: Mapping[str, Any]) -> str:
    """Train for a round twice, and describe the first operation with another result."""
    logs = OperationLog(), OperationLog()
    for log in logs:
        with log_kernels(log) if device.type == "cuda" else nullcontext(), log:
            train(workload, device, 1, {**options, "capture_graphs": False})
    return first_difference(*logs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", default="6x384")
    parser.add_argument("--cohort", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--examples", type=int, default=100, help="Texts of a client.")
    parser.add_argument("--tokens", type=int, default=64, help="Tokens of a text.")
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--only", help="Only rows that contain this text.")
    parser.add_argument("--trace", action="store_true", help="Find the first operation that differs.")
    args = parser.parse_args()
    workload = Workload(args.size, args.cohort, args.examples, args.tokens, dropout=args.dropout)
    device, differs = torch.device(args.device), False
    for name, options in ROWS.items():
        if args.only and args.only not in name:
            continue
        chosen = dict(options)
        with nullcontext() if chosen.pop("kernels", True) else kernels_disabled():
            difference = compare(*(train(workload, device, args.rounds, chosen) for _ in range(2)))
            cause = trace(workload, device, chosen) if difference and args.trace else ""
        print(f"{name:28s} {difference or 'equal to the bit'} {cause}".rstrip(), flush=True)
        differs = differs or bool(difference)
    sys.exit(int(differs))


if __name__ == "__main__":
    main()
