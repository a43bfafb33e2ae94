"""Train every model family packed on a device, and compare with training one client after another on the CPU.

    python -m benchmarks.families [--device cuda]

Prints each family's packing mode, how many CUDA graphs were captured, and the relative difference of the updates (float32).
"""

from __future__ import annotations

import argparse

import torch
from tests.families import CASES, Case, random_features, split_examples

from motet.learning.executors.packed_executor import PackedExecutor
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.jobs import Fit
from motet.learning.solver import Solver

SOLVER = Solver(optimizer="sgd", lr=0.1, batch=4, epochs=6, proximal_mu=0.1)


def compare(case: Case, device: torch.device) -> tuple[str, int, float]:
    """Return the packing mode, the number of CUDA graphs and the largest difference."""
    sizes = (9, 4, 14, 1)
    model, features = case.model(), random_features(case, sum(sizes))
    jobs = [
        Fit(model, model.initial_params, examples, case.objective, SOLVER, 5 + i)
        for i, examples in enumerate(split_examples(features, sizes))
    ]
    expected = [SerialExecutor(torch.device("cpu")).run(job).params.flat for job in jobs]
    model.to_device(device)
    executor = PackedExecutor(device, width=8, use_bf16=False)
    for i, job in enumerate(jobs):
        executor.submit(i, job)
    results = dict(executor.wait_completed())
    differences = [
        float((results[i].params.flat.cpu() - want).norm() / ((want - job.start.flat.cpu()).norm() + 1e-12))
        for i, (job, want) in enumerate(zip(jobs, expected, strict=True))
        if i in results
    ]
    (choice,) = executor.packing_choices.values()
    graphs = len(executor.graphs.graphs) if executor.graphs else 0
    return choice.mode + (f" ({choice.rejections})" if choice.rejections else ""), graphs, max(differences)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    for name, case in CASES.items():
        mode, graphs, difference = compare(case, torch.device(args.device))
        print(f"{name:38} {difference:.1e}  graphs {graphs:2}  {mode[:110]}", flush=True)


if __name__ == "__main__":
    main()
