"""Every model family trained side by side on a device, against the same trainings one after another on the CPU.

    python -m benchmarks.families [--device cuda]

Prints the way each family is packed, whether its steps could be recorded, and the relative distance of the updates (float32).
"""

from __future__ import annotations

import argparse

import torch
from tests.families import CASES, Case, shares, texts

from motet.learning.executors.packed_executor import PackedExecutor
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.jobs import Fit
from motet.learning.solver import Solver

SOLVER = Solver(optimizer="sgd", lr=0.1, batch=4, epochs=6, proximal_mu=0.1)


def tried(case: Case, device: torch.device, record: bool) -> tuple[str, int, float]:
    sizes = (9, 4, 14, 1)
    model, features = case.model(), texts(case, sum(sizes))
    jobs = [
        Fit(model, model.initial_params, e, case.objective, SOLVER, 5 + i)
        for i, e in enumerate(shares(features, sizes))
    ]
    want = [SerialExecutor(torch.device("cpu")).run(job).params.flat for job in jobs]
    model.to_device(device)
    executor = PackedExecutor(device, width=8, half=False, record=record)
    for i, job in enumerate(jobs):
        executor.submit(i, job)
    found = dict(executor.wait_completed())
    gaps = [
        float((found[i].params.flat.cpu() - w).norm() / ((w - job.start.flat).norm() + 1e-12))
        for i, (job, w) in enumerate(zip(jobs, want, strict=True))
        if i in found
    ]
    (way,) = executor.ways.values()
    recorded = len(executor.tape.graphs) if executor.tape else 0
    return (way.way + (f" ({way.why})" if way.why else "")), recorded, max(gaps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    for name, case in CASES.items():
        way, recorded, gap = tried(case, torch.device(args.device), record=True)
        print(f"{name:38} {gap:.1e}  recorded {recorded:2}  {way[:110]}", flush=True)


if __name__ == "__main__":
    main()
