"""Time local training on 20 Newsgroups with MiniLM on one CPU core: a plain Hugging Face loop against Motet.

    python -m benchmarks.real_texts --data .data --model MODELS/minilm-l6 [--clients 4] [--batch 32] [--bucket 16]

Clients have real texts of at most 128 tokens. The plain loop pads each batch to its longest text (dynamic padding), has
shuffled batches and computes frozen layers in every step. Motet sorts the texts of some batches by length (`solver.bucket`),
computes frozen layers once per text, and trains only the embedding rows of the words that occur. The two alternate, client
by client, with one thread. Times are seconds of processor time per client (and of wall-clock time in brackets), which other
load on the machine changes less. The first round, in which Motet fills its cache, is in a separate column. With
`model.first_token_only`, the last layer is computed for the token that the classifier reads.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def plain_loop(module: Any, examples: Examples, solver: Solver) -> None:
    """Train a copy of the model as one would with transformers and a collator that pads dynamically."""
    model = copy.deepcopy(module).train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=solver.learning_rate, weight_decay=0.0, fused=True)
    for indices in solver.draw_batches(len(examples), np.random.default_rng(0)):
        batch = examples.batch(indices)
        loss = model(**select_model_inputs(batch), labels=batch["labels"]).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, solver.clip)
        optimizer.step()


class Side:
    """Motet's side: a federation and an executor on one core."""

    def __init__(self, args: argparse.Namespace, corpus: Any, frozen: list[str], first_token_only: bool) -> None:
        self.federation = motet.federation(
            corpus,
            model={"name": str(args.model), "first_token_only": first_token_only},
            max_tokens=128,
            freeze=frozen,
            partition="uniform",
            clients=100,
        )
        self.model, self.group = self.federation.model, self.federation.groups[0]
        self.cache = PrefixCache()
        self.cache.prepare(self.model, self.federation.features)
        self.executor = SerialExecutor(torch.device("cpu"), self.cache)
        self.solver = Solver(optimizer="adamw", lr=2e-4, batch=args.batch, bucket=args.bucket)

    def examples(self, client: int) -> Examples:
        return Examples(self.federation.features, self.group.train[client])

    def train(self, client: int) -> None:
        start, objective = self.model.initial_params, self.group.task.objective
        self.executor.run(Fit(self.model, start, self.examples(client), objective, self.solver, seed=client))


def measure(args: argparse.Namespace, corpus: Any, frozen: list[str]) -> dict[str, tuple[float, float]]:
    """Return the median processor and wall-clock seconds per client, for the plain loop and both sides of Motet."""
    sides = {name: Side(args, corpus, frozen, name == "short") for name in ("motet", "short")}
    plain = Solver(optimizer="adamw", lr=2e-4, batch=args.batch)
    module = copy.deepcopy(sides["motet"].model.module)
    seconds: dict[str, list[tuple[float, float]]] = {"plain": [], "motet": [], "short": [], "first": []}

    def clock(name: str, train: Callable[[], object]) -> None:
        wall, processor = time.perf_counter(), time.process_time()
        train()
        seconds[name].append((time.process_time() - processor, time.perf_counter() - wall))

    for client in range(args.clients):
        examples = sides["motet"].examples(client)
        clock("first", lambda client=client: sides["motet"].train(client))
        if sides["short"].cache.states:
            sides["short"].train(client)  # fill its cache
        clock("plain", lambda examples=examples: plain_loop(module, examples, plain))
        for name, side in sides.items():
            clock(name, lambda side=side, client=client: side.train(client))
    for side in sides.values():
        side.cache.close()
    return {
        name: (statistics.median(t for t, _ in times), statistics.median(t for _, t in times))
        for name, times in seconds.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="The folder that contains 20news.")
    parser.add_argument("--model", type=Path, required=True, help="The folder of a MiniLM with 6 layers.")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--bucket", type=int, default=16)
    parser.add_argument("--only", default="", help="Measure only rows with this text in their name.")
    args = parser.parse_args()
    torch.set_num_threads(1)
    corpus = motet.load("20news", path=args.data)
    print("| | plain loop | Motet | plain / Motet | first token only | plain / that | Motet, first round |")
    print("| --- |" + " ---: |" * 6)
    for name, frozen in FROZEN.items():
        if args.only not in name:
            continue
        medians = measure(args, corpus, frozen)
        texts = {key: f"{processor:.2f} ({wall:.2f})" for key, (processor, wall) in medians.items()}
        ratios = {key: f"{medians['plain'][0] / medians[key][0]:.2f}" for key in ("motet", "short")}
        cells = (texts["plain"], texts["motet"], ratios["motet"], texts["short"], ratios["short"], texts["first"])
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
