"""Time local training on 20 Newsgroups with MiniLM on one CPU core: a plain Hugging Face loop against Motet.

    python -m benchmarks.real_texts --data .data --model MODELS/minilm-l6 [--clients 4] [--batch 32] [--bucket 16]

Clients have real texts of at most 128 tokens. The plain loop pads each batch to its longest text (dynamic padding), has
shuffled batches and computes frozen layers in every step. In bfloat16 it runs under torch's autocast. Motet sorts the texts
of some batches by length (`solver.bucket`), computes frozen layers once per text, and trains only the embedding rows of the
words that occur. With `model.first_token_only`, the last layer is computed for the token that the classifier reads.

All of them alternate, client by client, with one thread. Times are medians over the clients: seconds of processor time (and
of wall-clock time in brackets), which other load on the machine changes less. Ratios are medians of the clients' ratios of
processor times (and their range). The first round, in which Motet fills its cache, is in a separate column.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import motet
from motet.learning.data.features import Examples
from motet.learning.executors.serial_executor import PrefixCache, SerialExecutor
from motet.learning.jobs import Fit
from motet.learning.modules.model import select_model_inputs
from motet.learning.solver import Solver

FROZEN: dict[str, list[str]] = {
    "nothing frozen": [],
    "embeddings frozen": ["embeddings"],
    "embeddings and layers 0-2 frozen": ["embeddings", "layers 0-2"],
    "embeddings and layers 0-4 frozen": ["embeddings", "layers 0-4"],
}
PRECISIONS = ("float32", "bfloat16")
COLUMNS = (
    "plain loop",
    "Motet",
    "plain / Motet",
    "first token only",
    "plain / that",
    "plain in float32 / that",
    "Motet, first round",
)


class Seconds(NamedTuple):
    """What one client's training took."""

    processor: float
    wall: float


Times = dict[tuple[str, str], list[Seconds]]  # by what was trained and its precision, one for each client


def plain_loop(module: Any, examples: Examples, solver: Solver, use_bf16: bool) -> None:
    """Train a copy of the model as one would with transformers and a collator that pads dynamically."""
    model = copy.deepcopy(module).train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=solver.learning_rate, weight_decay=0.0, fused=True)
    for indices in solver.draw_batches(len(examples), np.random.default_rng(0)):
        batch = examples.batch(indices)
        with torch.autocast("cpu", torch.bfloat16, enabled=use_bf16):
            loss = model(**select_model_inputs(batch), labels=batch["labels"]).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, solver.clip)
        optimizer.step()


class Side:
    """Motet's side: a federation and an executor on one core."""

    def __init__(self, args: argparse.Namespace, corpus: Any, frozen: list[str], name: str, precision: str) -> None:
        self.federation = motet.federation(
            corpus,
            model={"name": str(args.model), "first_token_only": name == "short"},
            max_tokens=128,
            freeze=frozen,
            partition="uniform",
            clients=100,
        )
        self.model, self.group = self.federation.model, self.federation.groups[0]
        self.cache = PrefixCache()
        self.cache.prepare(self.model, self.federation.features)
        self.executor = SerialExecutor(torch.device("cpu"), self.cache, use_bf16=precision == "bfloat16")
        self.solver = Solver(optimizer="adamw", lr=2e-4, batch=args.batch, bucket=args.bucket)

    def examples(self, client: int) -> Examples:
        return Examples(self.federation.features, self.group.train[client])

    def train(self, client: int) -> None:
        start, objective = self.model.initial_params, self.group.task.objective
        self.executor.run(Fit(self.model, start, self.examples(client), objective, self.solver, seed=client))


def measure(args: argparse.Namespace, corpus: Any, frozen: list[str]) -> Times:
    """Train each client with the plain loop and both sides of Motet, in all precisions."""
    keys = [(name, precision) for precision in args.precisions for name in ("motet", "short")]
    sides = {key: Side(args, corpus, frozen, *key) for key in keys}
    some_side = sides["motet", args.precisions[0]]
    plain = Solver(optimizer="adamw", lr=2e-4, batch=args.batch)
    module = copy.deepcopy(some_side.model.module)
    times: Times = {}

    def clock(name: str, precision: str, train: Callable[[], object]) -> None:
        wall, processor = time.perf_counter(), time.process_time()
        train()
        seconds = Seconds(time.process_time() - processor, time.perf_counter() - wall)
        times.setdefault((name, precision), []).append(seconds)

    for client in range(args.clients):
        examples = some_side.examples(client)
        for (name, precision), side in sides.items():
            if side.cache.states:  # fill its cache
                clock("first" if name == "motet" else "", precision, partial(side.train, client))
        for precision in args.precisions:
            clock("plain", precision, partial(plain_loop, module, examples, plain, precision == "bfloat16"))
        for (name, precision), side in sides.items():
            clock(name, precision, partial(side.train, client))
    for side in sides.values():
        side.executor.close()
    return times


def format_row(times: Times, precision: str) -> str:
    def seconds(name: str) -> str:
        clients = times.get((name, precision))
        if not clients:  # without a frozen prefix, the first round is like the others
            return "–"
        processor, wall = (statistics.median(column) for column in zip(*clients, strict=True))
        return f"{processor:.2f} ({wall:.2f})"

    def ratio(name: str, plain: str) -> str:
        pairs = zip(times.get(("plain", plain), []), times[name, precision], strict=False)
        ratios = [slow.processor / fast.processor for slow, fast in pairs]
        return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})" if ratios else "–"

    cells = (seconds("plain"), seconds("motet"), ratio("motet", precision), seconds("short"), ratio("short", precision))
    return " | ".join((*cells, ratio("short", "float32"), seconds("first")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="The folder that contains 20news.")
    parser.add_argument("--model", type=Path, required=True, help="The folder of a MiniLM with 6 layers.")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--bucket", type=int, default=16)
    parser.add_argument("--only", default="", help="Measure only rows with this text in their name.")
    parser.add_argument("--precisions", nargs="+", default=PRECISIONS, choices=PRECISIONS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    corpus = motet.load("20news", path=args.data)
    print(f"| | {' | '.join(COLUMNS)} |")
    print("| --- |" + " ---: |" * len(COLUMNS))
    for name, frozen in FROZEN.items():
        if args.only not in name:
            continue
        times = measure(args, corpus, frozen)
        for precision in args.precisions:
            print(f"| {name}, {precision} | {format_row(times, precision)} |", flush=True)
    print("load of the machine in the last 1, 5 and 15 minutes:", *(f"{load:.1f}" for load in os.getloadavg()))


if __name__ == "__main__":
    main()
