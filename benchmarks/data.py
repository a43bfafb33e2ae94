"""Measure how fast texts become features, and how fast features and corpora are loaded from disk.

    python -m benchmarks.data [--rows 1600000] [--clients 10000] [--texts 5000]

Compares reading a corpus file with generating the corpus, and reading features with tokenizing.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.datasets.hdf5_store import read_store, write_store
from motet.experiment.build.feature_cache import load_features
from motet.experiment.build.federation_builder import build_task
from motet.experiment.recipe.run_config import ComponentConfig
from motet.learning.data.features import Examples
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.jobs import Infer
from motet.models.load_model import load_model
from motet.models.model_config import ModelConfig

WORDS = "the of a film good bad slow fine story actor plot end music light loved hated".split()  # noqa: SIM905


def time_call(function: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds that a call takes, and its result."""
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def random_corpus(rows: int, clients: int) -> Corpus:
    rng = np.random.default_rng(0)
    lines = [" ".join(rng.choice(WORDS, 14)) for _ in range(1000)]
    texts = [lines[i] for i in rng.integers(0, len(lines), rows)]
    labels = [("no", "yes")[k] for k in rng.integers(0, 2, rows)]
    owners = [f"user-{k:06d}" for k in rng.integers(0, clients, rows)]
    return Corpus("random", "classification", {"text": texts, "label": labels, "client": owners}, rows - rows // 10)


def measure_store(rows: int, clients: int, folder: Path) -> None:
    generate, corpus = time_call(lambda: random_corpus(rows, clients))
    path = folder / "big.h5"
    write, _ = time_call(lambda: write_store(corpus, path))
    read, _ = time_call(lambda: read_store(path))
    print(f"store of {rows:,} rows, {clients:,} clients: {path.stat().st_size / 1e6:.0f} MB, written in {write:.1f} s")
    print(f"  read in {read:.2f} s ({generate / read:.0f}× faster than generating it)")


def measure_features(texts: int, folder: Path) -> None:
    os.environ["MOTET_CACHE"] = str(folder)
    corpus = random_corpus(texts, 10)
    task = build_task(ComponentConfig("auto"), corpus)
    model = load_model(ModelConfig("minilm", 64), task.name, task.labels, lambda: (), Seed(0))
    tokenize, _ = time_call(lambda: load_features(task, corpus, model, 64))
    read, _ = time_call(lambda: load_features(task, corpus, model, 64))
    print(
        f"features of {texts:,} texts: tokenized in {tokenize:.2f} s ({texts / tokenize:,.0f} per second), "
        f"read from disk in {read:.3f} s"
    )
    small = load_model(ModelConfig("tiny", 64), task.name, task.labels, lambda: corpus.columns["text"][:500], Seed(0))
    features = load_features(task, corpus, small, 64)
    job = Infer(small, small.initial_params, Examples(features, np.arange(texts)), task.readout)
    infer, _ = time_call(lambda: SerialExecutor(torch.device("cpu")).run(job))
    print(f"evaluation of a tiny model: {texts / infer:,.0f} texts per second on one thread")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_600_000)
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--texts", type=int, default=5_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure_features(args.texts, Path(folder))
        measure_store(args.rows, args.clients, Path(folder))


if __name__ == "__main__":
    main()
