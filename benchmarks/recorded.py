"""Recorded steps against steps taken one by one: the same rounds of trainings on one executor, with recording and without.

    python -m benchmarks.recorded [--device cuda] [--only neighbours]

A recording outlives the training it was made in, so what can go wrong shows only in later rounds, and only where two trainings
share a executor: other texts, other batch sizes, other optimisers, anchors that have moved. Prints the largest relative distance
of the updates in any round (float32), and ends with 1 where it is not rounding. The biases of attention's keys are left out:
their gradient is nothing but rounding, which AdamW scales up to whole steps.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from tests.families import CASES, shares, texts
from tests.lessons import KINDS, Make, readers_of_lessons

from motet.core.params import Params
from motet.learning.executors.packed_executor import PackedExecutor
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.jobs import Fit, FitResult, Infer
from motet.learning.modules.model import Model
from motet.learning.objectives.readouts import Logits
from motet.learning.packed import packed_model as pack
from motet.learning.packed import sparse_embedding as words
from motet.learning.solver import Solver

ROUNDS = 3
ROUNDING, SCALED = 1e-4, 1e-2  # the second between different kernels, whose rounding AdamW scales up
CASE = CASES["Bert SequenceClassification"]


@dataclass(frozen=True)
class Kind:
    """One federation: whose texts (by their seed), how many each client has, and how it trains."""

    solver: Solver
    sizes: tuple[int, ...] = (24, 24, 18, 9)
    corpus: int = 0
    anchored: bool = False  # to where the client began, not to where the round begins


SGD = Solver(optimizer="sgd", lr=0.1, batch=4, epochs=3)
ADAM = Solver(optimizer="adamw", lr=1e-3, batch=4, epochs=3)
TEXTS: dict[str, Sequence[Kind]] = {
    "sgd": [Kind(SGD)],
    "adamw": [Kind(ADAM)],
    "adamw with decay": [Kind(replace(ADAM, weight_decay=0.1))],
    "momentum": [Kind(replace(SGD, momentum=0.9))],
    "a pull to the round's start": [Kind(replace(ADAM, proximal_mu=0.5))],
    "a pull elsewhere": [Kind(replace(SGD, proximal_mu=0.5), anchored=True)],
    "two corpora": [Kind(ADAM), Kind(ADAM, corpus=1)],
    "two batch sizes": [Kind(ADAM), Kind(replace(ADAM, batch=6))],
    "few examples": [Kind(ADAM), Kind(ADAM, sizes=(3, 2, 1, 1))],
    "two optimisers": [Kind(ADAM), Kind(SGD), Kind(replace(SGD, momentum=0.9))],
    "many who finish early": [Kind(SGD, sizes=(24, *range(20, 3, -1))), Kind(ADAM, sizes=(24, *range(20, 3, -1)))],
    "more clients, then fewer": [Kind(ADAM), Kind(ADAM, sizes=(24,) * 7), Kind(ADAM, sizes=(24, 9))],
}
Story = tuple[Callable[[], Model], Callable[[Model, Params, int], list[Fit]], int]  # a model, a round's jobs, rounds


def of_texts(kinds: Sequence[Kind]) -> Story:
    def jobs(model: Model, start: Params, number: int) -> list[Fit]:
        kind = kinds[number % len(kinds)]
        features = replace(
            texts(CASE, sum(kind.sizes), seed=kind.corpus), key=f"corpus {kind.corpus}, {sum(kind.sizes)} rows"
        )
        anchor = model.initial_params if kind.anchored else None
        return [
            Fit(model, start, e, CASE.objective, kind.solver, 100 * number + i, proximal_anchor=anchor)
            for i, e in enumerate(shares(features, kind.sizes))
        ]

    return CASE.model, jobs, ROUNDS * len(kinds)


def of_lessons(make: Make) -> Story:
    readers = readers_of_lessons()

    def jobs(model: Model, start: Params, number: int) -> list[Fit]:
        return [
            replace(job, model=model, start=start, keep_optimizer_state=True) for job in make(readers, ADAM, number)
        ]

    return lambda: readers.model, jobs, ROUNDS


@dataclass(frozen=True)
class Waiting:
    """A loss that the host reads, which no recording can hold: such steps must go on as ordinary ones."""

    within: Any

    def losses(self, forward: Any, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
        losses, worth = self.within.losses(forward, batch)
        float(losses.detach().sum())
        return losses + 0 * torch.nn.functional.dropout(
            losses, 0.5
        ), worth  # what draws is where a broken recording shows


def of_waiting(solver: Solver) -> Story:
    model, jobs, rounds = of_texts([Kind(solver)])

    def some_wait(start: Model, params: Params, number: int) -> list[Fit]:
        found = jobs(start, params, number)
        return found if number % 2 else [replace(job, objective=Waiting(job.objective)) for job in found]

    return model, some_wait, 2 * rounds


STORIES: dict[str, tuple[Callable[[Any], Story], Any]] = {name: (of_texts, kinds) for name, kinds in TEXTS.items()}
STORIES |= {name: (of_lessons, make) for name, make in KINDS.items()}
STORIES["losses that the host reads"] = (of_waiting, SGD)


def told(story: Story, device: torch.device, recorded: bool | None) -> tuple[list[torch.Tensor], int]:
    """The updates of every round, each round beginning with the mean of the one before; None: one by one."""
    make, jobs_of, rounds = story
    model = make()
    model.to_device(device)
    executor = (
        SerialExecutor(device) if recorded is None else PackedExecutor(device, width=32, half=False, record=recorded)
    )
    start, updates = model.initial_params, list[torch.Tensor]()
    counts = torch.ones_like(start.flat, device="cpu")
    for name, span in start.layout.slices.items():
        counts[span] = float("key.bias" not in name)
    for number in range(rounds):
        jobs = jobs_of(model, start, number)
        ends = (
            [executor.run(job) for job in jobs]
            if isinstance(executor, SerialExecutor)
            else side_by_side(executor, jobs)
        )
        judged(executor, jobs, ends)
        updates += [(end.params.flat.cpu() - start.flat.cpu()) * counts for end in ends]
        start = Params(start.layout, torch.stack([end.params.flat for end in ends]).mean(0))
    graphs = len(executor.tape.graphs) if isinstance(executor, PackedExecutor) and executor.tape else 0
    executor.close()  # where a recording failed on the way, memory that cannot be given back shows here
    return updates, graphs


def judged(executor: SerialExecutor | PackedExecutor, jobs: Sequence[Fit], ends: Sequence[FitResult]) -> None:
    """Every client's model on its examples, and one on all of them: packs are seated anew between two trainings."""
    if jobs[0].needs_full_model:
        return
    for some in (ends, ends[:1] * len(ends)):
        asked = [
            Infer(j.model, end.params, j.examples, Logits())
            for j, end in zip(jobs, some, strict=True)
            if len(j.examples)
        ]
        if isinstance(executor, PackedExecutor):
            side_by_side(executor, asked)


def side_by_side(executor: PackedExecutor, jobs: Sequence[Any]) -> list[Any]:
    for i, job in enumerate(jobs):
        executor.submit(i, job)
    found: dict[int, Any] = {}
    while len(found) < len(jobs):
        found |= dict(executor.wait_completed())  # type: ignore[arg-type]
    return [found[i] for i in range(len(jobs))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", default="", help="part of a story's name")
    args = parser.parse_args()
    device = torch.device(args.device)
    torch.backends.cuda.matmul.allow_tf32 = False
    words.WORTH_IT, pack._ROUND = 10, 8  # so that rows are taken out of this small vocabulary as out of a real one
    wrong = 0
    print(f"{'':30} {'to unrecorded':>14} {'to one by one':>14}  recordings")
    for name, (tell, what) in STORIES.items():
        if args.only not in name:
            continue
        story = tell(what)
        found, graphs = told(story, device, recorded=True)
        gaps = []
        for other in (False, None):
            wanted, _ = told(story, device, recorded=other)
            gaps.append(max(float((f - w).norm() / (w.norm() + 1e-12)) for f, w in zip(found, wanted, strict=True)))
        wrong += gaps[0] > ROUNDING or gaps[1] > SCALED
        print(f"{name:30} {gaps[0]:14.1e} {gaps[1]:14.1e}  {graphs}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
