"""Measure what bucketing by length saves: computed tokens, and the time of local training.

    python -m benchmarks.buckets [--clients 8] [--texts 200] [--device cpu] [--layers 2] [--hidden 64]

Texts have log-normal lengths (median 20 tokens, at most 256). Tokens are counted with padding: for one client after another,
and for packed clients, which are all padded to the longest text of a step. `own order` is packed with every client ordering
its batches by itself. Times are the best of three trainings after one to warm up.
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
from motet.models.load_model import load_model
from motet.models.model_config import ModelConfig

WINDOWS = (0, 4, 16, 64)


def make_jobs(clients: int, texts: int, layers: int, hidden: int) -> list[Fit]:
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


def serial_tokens(jobs: Sequence[Fit]) -> int:
    return sum(len(b) * int(job.examples.lengths[b].max()) for job in jobs for b in batches_for_job(job))


def packed_tokens(jobs: Sequence[Fit]) -> int:
    batches = [batches_for_job(job) for job in jobs]
    tokens = 0
    for step in range(max(map(len, batches))):
        active = [(job, client[step]) for job, client in zip(jobs, batches, strict=True) if step < len(client)]
        rows = max(len(batch) for _, batch in active)
        longest = max(int(job.examples.lengths[batch].max()) for job, batch in active)
        tokens += len(active) * rows * round_up_width(longest)
    return tokens


def measure_seconds(jobs: Sequence[Fit], device: torch.device, packed: bool) -> float:
    use_bf16 = device.type == "cuda"
    executor = PackedExecutor(device, len(jobs), use_bf16) if packed else SerialExecutor(device)
    seconds = []
    for _ in range(4):
        start = time.perf_counter()
        for i, job in enumerate(jobs):
            executor.submit(i, job)
        left = len(jobs)
        while left:
            left -= len(executor.wait_completed())
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    executor.close()
    return min(seconds[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("clients", 8), ("texts", 200), ("layers", 2), ("hidden", 64)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    device = torch.device(args.device)
    jobs = make_jobs(args.clients, args.texts, args.layers, args.hidden)
    if device.type == "cuda":
        jobs[0].model.to_device(device)
        jobs = [replace(job, start=jobs[0].model.initial_params) for job in jobs]
    real_tokens = sum(int(job.examples.lengths.sum()) for job in jobs)
    print(f"{args.clients} clients with {args.texts} texts each, {real_tokens:,} tokens, batches of 16, {device}")
    print("        computed tokens / real tokens       seconds")
    print(f"{'window':>7} {'serial':>8} {'packed':>8} {'own order':>10} {'serial':>9} {'packed':>9}")
    for window in WINDOWS:
        own_order = [replace(job, solver=replace(job.solver, bucket=window)) for job in jobs]
        shared_order = [replace(job, shuffle_seed=1) for job in own_order]
        tokens = (serial_tokens(shared_order), packed_tokens(shared_order), packed_tokens(own_order))
        ratios = [count / real_tokens for count in tokens]
        times = [measure_seconds(shared_order, device, packed) for packed in (False, True)]
        print(f"{window:>7} {ratios[0]:>8.2f} {ratios[1]:>8.2f} {ratios[2]:>10.2f} {times[0]:>9.2f} {times[1]:>9.2f}")


if __name__ == "__main__":
    main()
