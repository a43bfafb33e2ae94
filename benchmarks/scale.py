"""Measure the cost of a round against the number of clients: seconds, the server's share of them, and memory.

    python -m benchmarks.scale [--clients 1000 10000 100000 1000000] [--cohort 1000] [--rounds 3]
                               [--algorithms fedavg scaffold] [--figure scale.png] [--json rows.json]

The clients are natural: their number of texts is log-normal, and rows and tokens are in files that are mapped into memory,
so that only the rows of the cohort are read. Jobs run one after another in this process. The server's share is all of a round
but the jobs. Every number of clients is measured in a new process. Memory is what the process allocates; pages of mapped
files, which the system can drop at any time, do not count. The growth per round leaves out memory that is free, but that
the allocator has not returned to the system. The first round is a warm-up.

FedAvg has no client states, and SCAFFOLD has one for each client that has taken part. Two steps are measured alone: sampling a
cohort with each sampler (for Oort after rounds in which nine of ten clients took part), and reading the rows of its clients.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from motet.algorithms import ALGORITHMS
from motet.core.rng import Seed, seeded_torch
from motet.datasets.columns import CategoryColumn
from motet.datasets.corpus import Corpus
from motet.experiment.build.client_lists import ClientRange
from motet.experiment.build.federation import Federation
from motet.experiment.build.group_builder import build_group
from motet.experiment.build.run_components import RunComponents
from motet.experiment.build.run_plan import RunPlan
from motet.experiment.loop.client_sampling import sample_cohort
from motet.experiment.loop.oort import OortState, sample_by_utility
from motet.experiment.loop.run_loop import FederatedRun
from motet.experiment.loop.traced_executor import trace_executor
from motet.experiment.recipe.run_config import CheckpointConfig, CohortConfig, EvaluationConfig, OortConfig
from motet.learning.data.features import Features, Ragged
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.modules.model import Model
from motet.learning.solver import Solver
from motet.models.parameter_roles import infer_parameter_roles
from motet.models.tiny_models import TINY_BERT
from motet.partitions.partition import ClientRows, Partition
from motet.report.figure_files import new_figure, save_figure
from motet.report.profiler import Profiler, activate
from motet.tasks.classification import Classification

TOKENS, WORDS, CLASSES, TEST_ROWS = 16, 1000, 4, 64
STEPS = {
    "round": "cohort, sampler round",
    "seeded": "cohort, sampler seeded",
    "oort": "cohort, sampler oort",
    "rows": "rows of its clients",
}
LABELS = tuple(f"label-{k}" for k in range(CLASSES))


def write_texts(clients: int, folder: Path) -> None:
    """Write the rows of each client and random tokens to files, a part at a time."""
    rng = np.random.default_rng(0)
    sizes = np.maximum(1, rng.lognormal(1.2, 0.6, clients)).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    np.save(folder / "offsets.npy", offsets)
    rows = int(offsets[-1]) + TEST_ROWS
    tokens = np.lib.format.open_memmap(folder / "tokens.npy", "w+", np.int32, (rows * TOKENS,))
    for start in range(0, len(tokens), 2**22):
        tokens[start : start + 2**22] = rng.integers(1, WORDS, len(tokens[start : start + 2**22]))
    np.save(folder / "labels.npy", rng.integers(0, CLASSES, rows))
    np.save(folder / "starts.npy", np.arange(rows + 1) * TOKENS)
    np.save(folder / "rows.npy", np.arange(rows))


def build_federation(folder: Path) -> Federation:
    """Map the files into memory as a federation with a tiny BERT."""
    arrays = {p.stem: np.load(p, mmap_mode="r") for p in folder.glob("*.npy")}
    offsets, rows = arrays["offsets"], arrays["rows"]
    train, clients = len(rows) - TEST_ROWS, len(offsets) - 1
    columns: dict[str, Any] = {
        "text": CategoryColumn(np.broadcast_to(np.int8(0), len(rows)), ("",)),
        "label": CategoryColumn(arrays["labels"], LABELS),
    }
    corpus = Corpus("random", "classification", columns, train)
    features = Features("random", {"input_ids": Ragged(arrays["tokens"], arrays["starts"]), "labels": arrays["labels"]})
    with seeded_torch(0, torch.device("cpu")):
        config = transformers.BertConfig(**{**TINY_BERT, "vocab_size": WORDS, "num_labels": CLASSES})
        module: Any = transformers.BertForSequenceClassification(config)
    roles = infer_parameter_roles(module)
    model = Model(
        key="tiny",
        module=module,
        roles=roles.roles,
        embeddings_path=roles.embeddings_path,
        layers_path=roles.layers_path,
    )
    no_tests = ClientRows(np.zeros(0, np.int64), np.broadcast_to(np.int64(0), (clients + 1,)))
    partition = Partition(ClientRows(rows[:train], offsets), no_tests, {}, global_test=rows[train:])
    group = build_group(
        name="random",
        task=Classification(LABELS),
        model=model,
        corpus=corpus,
        features=features,
        partition=partition,
        max_tokens=TOKENS,
        clients=ClientRange(partition.clients, 0, clients),
    )
    return Federation((group,), group, Seed(0))


def memory() -> float:
    """Return the megabytes that this process has allocated, without mapped files."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) / 1e3


def return_free_memory() -> None:
    """Let the allocator return free memory to the system, if it is glibc's."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def measure_steps(federation: Federation, size: int, repeats: int = 5) -> dict[str, float]:
    """Return the median seconds of sampling a cohort by each sampler, and of reading the rows of its clients."""
    clients, oort = federation.clients, OortConfig()
    explored = np.arange(len(clients) * 9 // 10)
    rng = np.random.default_rng(0)
    columns = [explored, *rng.lognormal(0, 0.7, (2, len(explored))), *rng.integers(1, 100, (2, len(explored)))]
    state = OortState(np.stack(columns).astype(np.float64), (), oort.pace)
    cohorts = [sample_cohort(CohortConfig(size, "seeded"), clients, k, federation.seed) for k in range(repeats)]
    steps: dict[str, Callable[[int], Any]] = {
        "round": lambda k: sample_cohort(CohortConfig(size, "round"), clients, k, federation.seed),
        "seeded": lambda k: sample_cohort(CohortConfig(size, "seeded"), clients, k, federation.seed),
        "oort": lambda k: sample_by_utility(oort, state, clients, size, 100 + k, federation.seed),
        "rows": lambda k: [federation.participant(client) for client in cohorts[k]],
    }
    return {name: statistics.median(_seconds(step, k) for k in range(repeats)) for name, step in steps.items()}


def _seconds(step: Callable[[int], Any], argument: int) -> float:
    start = time.perf_counter()
    step(argument)
    return time.perf_counter() - start


def measure(clients: int, cohort: int, rounds: int, algorithm: str, folder: Path) -> dict[str, Any]:
    """Run rounds with a checkpoint after each, and return the medians of their costs."""
    write_texts(clients, folder)
    start, before = time.perf_counter(), memory()
    federation = build_federation(folder)
    plan = RunPlan(
        federation=federation,
        components=RunComponents(ALGORITHMS[algorithm](solver=Solver(optimizer="sgd", lr=0.1, batch=8))),
        rounds=rounds + 1,
        cohort=CohortConfig(cohort, "seeded"),
        evaluation=EvaluationConfig(clients=1),
        checkpoint=CheckpointConfig(seconds=0.0),
    )
    levels, held = [], []
    with activate(Profiler(max_spans=0)) as profiler:  # a span for each job would be memory that grows with the rounds
        executor = trace_executor(SerialExecutor(torch.device("cpu")))
        run = FederatedRun(plan, executor, folder=folder / "run")
        startup = time.perf_counter() - start
        for number in range(1, rounds + 2):
            run.run_rounds(until=number)
            levels.append(memory())
            return_free_memory()
            held.append(memory())
    times = profiler.rounds[1:]
    seconds = [t.clients + t.server for t in times]
    return {
        "clients": clients,
        "algorithm": algorithm,
        "cohort": min(cohort, clients),
        "startup": startup,
        "seconds": statistics.median(seconds),
        "server_share": sum(t.server for t in times) / sum(seconds),
        "server": statistics.median(t.server for t in times),
        "checkpoint": statistics.median(t.saving for t in times),
        "megabytes": max(levels) - before,
        "growth": (held[-1] - held[0]) / rounds,
        "steps": measure_steps(federation, min(cohort, clients // 2)),
    }


def measure_in_new_process(clients: int, algorithm: str, args: argparse.Namespace) -> dict[str, Any]:
    options = ["--cohort", args.cohort, "--rounds", args.rounds, "--algorithms", algorithm]
    command = [sys.executable, "-m", "benchmarks.scale", "--only", clients, *options]
    process = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if process.returncode:
        raise SystemExit(process.stderr.strip())
    row: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return row


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw each cost against the number of clients. Times are those of the first algorithm."""
    figure, (time_axes, memory_axes, share_axes, step_axes) = new_figure(columns=4, width=4.2, height=3.4)
    by_algorithm: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_algorithm.setdefault(row["algorithm"], []).append(row)
    for algorithm, chosen in by_algorithm.items():
        megabytes = [row["megabytes"] for row in chosen]
        memory_axes.plot([row["clients"] for row in chosen], megabytes, marker="o", label=algorithm)
    first = next(iter(by_algorithm.values()))
    clients = [row["clients"] for row in first]
    for key, label in (("seconds", "whole round"), ("server", "server"), ("checkpoint", "checkpoint")):
        time_axes.plot(clients, [1e3 * row[key] / row["cohort"] for row in first], marker="o", label=label)
    share_axes.plot(clients, [100 * row["server_share"] for row in first], marker="o")
    share_axes.axhline(10, color="gray", linestyle="--", linewidth=1)
    for key, label in STEPS.items():
        step_axes.plot(clients, [1e3 * row["steps"][key] for row in first], marker="o", label=label)
    time_axes.set(ylabel="ms per client of the cohort", title="Time of a round")
    memory_axes.set(ylabel="MB above the start", title="Memory")
    share_axes.set(ylabel="% of a round", title="Share of the server")
    step_axes.set(ylabel="ms for a cohort", title="Sampling and rows of a cohort")
    for axes in (time_axes, memory_axes, share_axes, step_axes):
        axes.set(xlabel="clients", xscale="log")
        axes.set_ylim(0, 1.15 * axes.get_ylim()[1])
        if axes is not share_axes:
            axes.legend(frameon=False, fontsize=9)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    save_figure(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[1_000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--cohort", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--algorithms", nargs="+", default=["fedavg", "scaffold"])
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--json", type=Path, help="Write the rows to this file.")
    parser.add_argument("--only", type=int, help=argparse.SUPPRESS)  # measure in this process
    args = parser.parse_args()
    if args.only:
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            print(json.dumps(measure(args.only, args.cohort, args.rounds, args.algorithms[0], Path(folder))))
        return
    print(
        "algorithm   clients  cohort  start s  round s  ms/client  server  checkpoint s     MB  MB/round",
        *STEPS,
        sep="  ",
    )
    rows = []
    for algorithm, clients in itertools.product(args.algorithms, args.clients):
        rows.append(row := measure_in_new_process(clients, algorithm, args))
        print(
            f"{algorithm:9} {clients:9,} {row['cohort']:7,} {row['startup']:8.2f} {row['seconds']:8.2f} "
            f"{1e3 * row['seconds'] / row['cohort']:10.2f} {100 * row['server_share']:5.1f} % "
            f"{row['checkpoint']:13.3f} {row['megabytes']:6.0f} {row['growth']:9.2f} ",
            *(f"{1e3 * row['steps'][key]:{len(key)}.1f}" for key in STEPS),
            sep="  ",
            flush=True,
        )
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    if args.figure:
        draw(rows, args.figure)


if __name__ == "__main__":
    main()
