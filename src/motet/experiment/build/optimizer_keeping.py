"""Give client methods the optimizers that their client keeps between rounds (`solver.keep_state`)."""

from __future__ import annotations

from typing import Any

from motet.algorithms.phases import Phases
from motet.core.program import Algorithm
from motet.learning.kept_optimizers import KeptOptimizers
from motet.transport.client_runtime import ContextFactory, StateStore


def keep_optimizers(
    make_context: ContextFactory, store: StateStore, algorithm: Algorithm, rounds: int
) -> ContextFactory:
    """Return a function that makes the same contexts, with the optimizers of the client in `store`."""

    def make_keeping_context(client: str, round: int, address: str, *functions: Any) -> Any:
        context = make_context(client, round, address, *functions)
        program = address.partition(".")[0]
        kept = KeptOptimizers(store, client, address, round, find_rounds(algorithm, program, rounds))
        return context.keep_optimizers(kept)

    return make_keeping_context


def find_rounds(algorithm: Algorithm, program: str, rounds: int) -> range:
    """Return the rounds in which a program takes part: those of its phase, or all."""
    if isinstance(algorithm, Phases):
        for index, phase in enumerate(algorithm.phases):
            if phase.algorithm.name == program:
                return algorithm.phase_rounds(index, rounds)
    return range(rounds)
