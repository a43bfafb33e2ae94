"""How much work a server may ask of a client in a round, counted in tokens that a model reads or writes."""

from __future__ import annotations

from collections import Counter
from typing import Any

from motet.core.errors import PrivacyError
from motet.core.work import Job
from motet.experiment.deploy.nested_values import find_values
from motet.learning.context import Context
from motet.learning.data.features import Examples
from motet.learning.jobs import Fit, Infer
from motet.learning.solver import Solver
from motet.transport.client_runtime import ContextFactory


class WorkLimit:
    """Counts the jobs of each round before they begin. Without `tokens_per_round`, there is no limit."""

    def __init__(self, tokens_per_round: int | None) -> None:
        self.tokens_per_round = tokens_per_round
        self.tokens: Counter[int] = Counter()  # by round

    def check_algorithm(self, algorithm: Any, examples: Examples) -> None:
        """Raise an error if a training with a solver of the algorithm is too long. Some algorithms plan it before a job."""
        for solver in find_values(algorithm, Solver):
            self._check(_count_training(solver, examples), "one training of this run")

    def observe_jobs(self, make_context: ContextFactory) -> ContextFactory:
        """Return a function that makes the same contexts, which refuse jobs beyond the limit."""

        def make_limited_context(*arguments: Any) -> Any:
            return make_context(*arguments).observe_jobs(self._add)

        return make_limited_context

    def _add(self, ctx: Context, job: Job) -> None:
        self._check(self.tokens[ctx.round] + count_tokens(job), f"round {ctx.round + 1}")
        self.tokens[ctx.round] += count_tokens(job)

    def _check(self, tokens: int, cause: str) -> None:
        if self.tokens_per_round is not None and tokens > self.tokens_per_round:
            raise PrivacyError(
                f"{cause} needs {tokens:,} tokens of work, and this client's limit is {self.tokens_per_round:,} per round; "
                "ask for fewer epochs, steps or generated tokens, or raise policy.tokens_per_round at the client."
            )


def count_tokens(job: Job) -> int:
    """Return how many tokens of texts a job reads, each time it reads them, and how many it may write."""
    match job:
        case Fit():
            return _count_training(job.solver, job.examples)
        case Infer():
            return int(job.examples.lengths.sum()) + len(job.examples) * job.readout.max_written_tokens
    return 0


def _count_training(solver: Solver, examples: Examples) -> int:
    """Return the tokens of a training. A batch has at most all examples, but `solver.steps` may repeat them."""
    count = len(examples)
    texts = solver.num_steps(count) * min(solver.batch, count)
    return texts * max(1, int(examples.lengths.sum()) // max(1, count))
