"""Compare training with captured CUDA graphs to training without: the same jobs on one executor, over several rounds.

    python -m benchmarks.captured_steps [--device cuda] [--only neighbors]

A graph outlives the job it was captured in. Errors show only in later rounds, and only if different jobs share an executor:
other texts, batch sizes or optimizers, or buffers that have moved. Prints the largest relative difference of the updates in
any round (float32), and exits with 1 if it is more than rounding. The biases of attention keys are left out: their gradient
is only rounding error, which AdamW scales up to full steps.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from tests.families import CASES, Case, random_features, split_examples
from tests.self_supervised import JOB_KINDS, MakeJobs, multitask_federation

from motet.core.params import Params
from motet.learning.executors.packed_executor import PackedExecutor
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.jobs import Fit, FitResult, Infer
from motet.learning.modules.model import Model
from motet.learning.objectives.readouts import Logits
from motet.learning.objectives.supervised import Objective
from motet.learning.packed import packed_model, sparse_embedding
from motet.learning.solver import Solver

ROUNDS = 3
# Tolerances: with and without graphs, and packed against one by one, where AdamW scales up the kernels' rounding.
GRAPH_TOLERANCE, SERIAL_TOLERANCE = 1e-4, 1e-2


@dataclass(frozen=True)
class Setting:
    """One federation: the seed of its corpus, how many texts each client has, and how it trains."""

    solver: Solver
    sizes: tuple[int, ...] = (24, 24, 18, 9)
    corpus_seed: int = 0
    anchored_to_initial: bool = False  # else to the start of the round
    case: Case = CASES["Bert SequenceClassification"]


SGD = Solver(optimizer="sgd", lr=0.1, batch=4, epochs=3)
ADAM = Solver(optimizer="adamw", lr=1e-3, batch=4, epochs=3)
SETTINGS: dict[str, Sequence[Setting]] = {
    "sgd": [Setting(SGD)],
    "adamw": [Setting(ADAM)],
    "adamw with decay": [Setting(replace(ADAM, weight_decay=0.1))],
    "momentum": [Setting(replace(SGD, momentum=0.9))],
    "batches in parts": [Setting(replace(ADAM, micro_batch=3)), Setting(replace(ADAM, micro_batch=2))],
    "proximal to the round's start": [Setting(replace(ADAM, proximal_mu=0.5))],
    "proximal to the initial model": [Setting(replace(SGD, proximal_mu=0.5), anchored_to_initial=True)],
    "two corpora": [Setting(ADAM), Setting(ADAM, corpus_seed=1)],
    "two batch sizes": [Setting(ADAM), Setting(replace(ADAM, batch=6))],
    "few examples": [Setting(ADAM), Setting(ADAM, sizes=(3, 2, 1, 1))],
    "three optimizers": [Setting(ADAM), Setting(SGD), Setting(replace(SGD, momentum=0.9))],
    "many clients finish early": [
        Setting(SGD, sizes=(24, *range(20, 3, -1))),
        Setting(ADAM, sizes=(24, *range(20, 3, -1))),
    ],
    "classifier of T5": [Setting(ADAM, case=CASES["T5 SequenceClassification"])],
    "classifier of BART": [Setting(ADAM, case=CASES["Bart SequenceClassification"])],
    "more clients, then fewer": [Setting(ADAM), Setting(ADAM, sizes=(24,) * 7), Setting(ADAM, sizes=(24, 9))],
}


class Scenario(NamedTuple):
    make_model: Callable[[], Model]
    make_jobs: Callable[[Model, Params, int], list[Fit]]  # (model, start, round)
    rounds: int


def alternate(settings: Sequence[Setting]) -> Scenario:
    def make_jobs(model: Model, start: Params, round: int) -> list[Fit]:
        setting = settings[round % len(settings)]
        rows = sum(setting.sizes)
        features = replace(
            random_features(setting.case, rows, seed=setting.corpus_seed),
            key=f"corpus {setting.corpus_seed}, {rows} rows",
        )
        anchor = model.initial_params if setting.anchored_to_initial else None
        return [
            Fit(model, start, examples, setting.case.objective, setting.solver, 100 * round + i, proximal_anchor=anchor)
            for i, examples in enumerate(split_examples(features, setting.sizes))
        ]

    return Scenario(settings[0].case.model, make_jobs, ROUNDS * len(settings))


def self_supervised(make: MakeJobs) -> Scenario:
    federation = multitask_federation()

    def make_jobs(model: Model, start: Params, round: int) -> list[Fit]:
        return [
            replace(job, model=model, start=start, keep_optimizer_state=True) for job in make(federation, ADAM, round)
        ]

    return Scenario(lambda: federation.model, make_jobs, ROUNDS)


@dataclass(frozen=True)
class HostSync(Objective):
    """An objective that reads its loss on the host. It cannot be captured; such steps must run eagerly."""

    inner: Any

    def losses(self, forward: Any, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
        losses, weights = self.inner.losses(forward, batch)
        float(losses.detach().sum())
        # Dropout draws random numbers, where a failed capture would show.
        return losses + 0 * torch.nn.functional.dropout(losses, 0.5), weights


def sometimes_uncapturable(solver: Solver) -> Scenario:
    make_model, make_jobs, rounds = alternate([Setting(solver)])

    def sync_in_even_rounds(model: Model, start: Params, round: int) -> list[Fit]:
        jobs = make_jobs(model, start, round)
        return jobs if round % 2 else [replace(job, objective=HostSync(job.objective)) for job in jobs]

    return Scenario(make_model, sync_in_even_rounds, 2 * rounds)


SCENARIOS: dict[str, tuple[Callable[[Any], Scenario], Any]] = {n: (alternate, s) for n, s in SETTINGS.items()}
SCENARIOS |= {name: (self_supervised, make) for name, make in JOB_KINDS.items()}
SCENARIOS["losses read on the host"] = (sometimes_uncapturable, SGD)


def play(
    scenario: Scenario, device: torch.device, executor: SerialExecutor | PackedExecutor
) -> tuple[list[torch.Tensor], int]:
    """Return the clients' updates of all rounds, and the number of captured graphs. A round starts from the last mean."""
    model = scenario.make_model()
    model.to_device(device)
    start, updates = model.initial_params, list[torch.Tensor]()
    is_compared = torch.ones_like(start.flat, device="cpu")
    for name, span in start.layout.slices.items():
        is_compared[span] = float("key.bias" not in name and "k_proj.bias" not in name)
    for round in range(scenario.rounds):
        jobs = scenario.make_jobs(model, start, round)
        results = run_all(executor, jobs)
        evaluate(executor, jobs, results)
        updates += [(result.params.flat.cpu() - start.flat.cpu()) * is_compared for result in results]
        start = Params(start.layout, torch.stack([result.params.flat for result in results]).mean(0))
    graphs = len(executor.graphs.graphs) if isinstance(executor, PackedExecutor) and executor.graphs else 0
    executor.close()  # fails if a failed capture left memory that cannot be freed
    return updates, graphs


def evaluate(executor: SerialExecutor | PackedExecutor, jobs: Sequence[Fit], results: Sequence[FitResult]) -> None:
    """Evaluate every client's model, then one model on all data, so that the packed model is reloaded between rounds."""
    if jobs[0].needs_full_model or isinstance(executor, SerialExecutor):
        return
    for models in (results, results[:1] * len(results)):
        pairs = zip(jobs, models, strict=True)
        inference = [Infer(job.model, r.params, job.examples, Logits()) for job, r in pairs if len(job.examples)]
        run_all(executor, inference)


def run_all(executor: SerialExecutor | PackedExecutor, jobs: Sequence[Any]) -> list[Any]:
    if isinstance(executor, SerialExecutor):
        return [executor.run(job) for job in jobs]
    for i, job in enumerate(jobs):
        executor.submit(i, job)
    results: dict[int, Any] = {}
    while len(results) < len(jobs):
        results |= dict(executor.wait_completed())  # type: ignore[arg-type]
    return [results[i] for i in range(len(jobs))]


def packed_executor(device: torch.device, capture_graphs: bool) -> PackedExecutor:
    return PackedExecutor(device, width=32, use_bf16=False, capture_graphs=capture_graphs)


def largest_difference(updates: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    return max(float((u - e).norm() / (e.norm() + 1e-12)) for u, e in zip(updates, expected, strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--only", nargs="+", default=[""], help="Run only scenarios with one of these texts in their name."
    )
    args = parser.parse_args()
    device = torch.device(args.device)
    torch.backends.cuda.matmul.allow_tf32 = False
    # Select embedding rows even from the small vocabulary of these models.
    sparse_embedding.MIN_VOCABULARY, packed_model._EMBEDDING_ROWS_STEP = 10, 8
    failures = 0
    print(f"{'':30} {'to no graphs':>14} {'to one by one':>14}  graphs")
    for name, (make, argument) in SCENARIOS.items():
        if not any(text in name for text in args.only):
            continue
        scenario = make(argument)
        updates, graphs = play(scenario, device, packed_executor(device, capture_graphs=True))
        eager, _ = play(scenario, device, packed_executor(device, capture_graphs=False))
        serial, _ = play(scenario, device, SerialExecutor(device))
        to_eager, to_serial = largest_difference(updates, eager), largest_difference(updates, serial)
        failures += to_eager > GRAPH_TOLERANCE or to_serial > SERIAL_TOLERANCE
        print(f"{name:30} {to_eager:14.1e} {to_serial:14.1e}  {graphs}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
