"""What batches of like length save: tokens that are computed, and the time of a local training.

    python -m benchmarks.buckets [--clients 8] [--texts 200] [--device cpu] [--layers 2] [--hidden 64]

Texts have log-normal lengths (a median of 20 tokens, at most 256). Tokens are counted with their padding, as a client alone
computes them and as clients side by side do, who are all padded to the longest text of a step; `own pace` is side by side when
every client orders its batches for itself. Times are of the same trainings, once to warm up and then the best of three.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.experiment.build.federation_builder import build_task
from motet.experiment.recipe.run_config import ComponentConfig
from motet.learning.data.features import Examples
from motet.learning.executors.packed_executor import PackedExecutor
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.jobs import Fit
from motet.learning.packed.device_dataset import round_up_width
from motet.learning.solver import Solver
from motet.learning.training.batch_order import batches_for_job
from motet.models.load_model import ModelConfig, load_model

WINDOWS = (0, 4, 16, 64)


def jobs_of(clients: int, texts: int, layers: int, hidden: int) -> list[Fit]:
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in range(500)]
    lengths = np.clip(rng.lognormal(3, 1, clients * texts + 1), 1, 254).astype(int)
    rows = [" ".join(rng.choice(words, n)) for n in lengths]
    corpus = Corpus(
        "skewed", "classification", {"text": rows, "label": ["a", "b"] * (len(rows) // 2) + ["a"]}, len(rows) - 1
    )
    task = build_task(ComponentConfig("auto"), corpus)
    config = {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": 4 * hidden,
        "max_position_embeddings": 256,
    }
    model = load_model(ModelConfig("tiny", 256, config=config), task.name, task.labels, lambda: iter(rows), Seed(0))
    features = task.build_features(corpus, model, 256)
    parts = np.split(rng.permutation(clients * texts), clients)
    return [
        Fit(model, model.initial_params, Examples(features, p), task.objective, Solver(batch=16), 5 + i)
        for i, p in enumerate(parts)
    ]


def alone(jobs: Sequence[Fit]) -> int:
    return sum(len(b) * int(job.examples.lengths[b].max()) for job in jobs for b in batches_for_job(job))


def side_by_side(jobs: Sequence[Fit]) -> int:
    orders = [batches_for_job(job) for job in jobs]
    tokens = 0
    for at in range(max(map(len, orders))):
        here = [(job, order[at]) for job, order in zip(jobs, orders, strict=True) if at < len(order)]
        rows = max(len(batch) for _, batch in here)
        tokens += len(here) * rows * round_up_width(max(int(job.examples.lengths[batch].max()) for job, batch in here))
    return tokens


def seconds(jobs: Sequence[Fit], device: torch.device, packed: bool) -> float:
    executor = PackedExecutor(device, width=len(jobs), half=device.type == "cuda") if packed else SerialExecutor(device)
    taken = []
    for _ in range(4):
        began = time.perf_counter()
        for i, job in enumerate(jobs):
            executor.submit(i, job)
        left = len(jobs)
        while left:
            left -= len(executor.wait_completed())
        if device.type == "cuda":
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - began)
    executor.close()
    return min(taken[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("clients", 8), ("texts", 200), ("layers", 2), ("hidden", 64)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    device = torch.device(given.device)
    jobs = jobs_of(given.clients, given.texts, given.layers, given.hidden)
    if device.type == "cuda":
        jobs[0].model.to_device(device)
        jobs = [replace(job, start=jobs[0].model.initial_params) for job in jobs]
    real = sum(int(job.examples.lengths.sum()) for job in jobs)
    print(f"{given.clients} clients of {given.texts} texts, {real:,} tokens, batches of 16, {device}")
    print(f"{'window':>7} {'alone':>8} {'side by side':>13} {'own pace':>9} {'s alone':>9} {'s side by side':>15}")
    for window in WINDOWS:
        own = [replace(job, solver=replace(job.solver, bucket=window)) for job in jobs]
        shared = [replace(job, shuffle_seed=1) for job in own]
        ratios = [count / real for count in (alone(shared), side_by_side(shared), side_by_side(own))]
        times = [seconds(shared, device, packed) for packed in (False, True)]
        print(f"{window:>7} {ratios[0]:>8.2f} {ratios[1]:>13.2f} {ratios[2]:>9.2f} {times[0]:>9.2f} {times[1]:>15.2f}")


if __name__ == "__main__":
    main()
