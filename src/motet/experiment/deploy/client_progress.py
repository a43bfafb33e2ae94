"""What a client prints during a run: its rounds, and the scores of its model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from motet.transport.client_runtime import ContextFactory


class ClientProgress:
    """Prints one line per round, and one for each evaluation on the client's held-out examples."""

    def __init__(self, rounds: int, primary_metric: str, log: Callable[[str], None]) -> None:
        self.rounds, self.primary_metric, self.log = rounds, primary_metric, log
        self.current_round, self.evaluated_round = 0, -1

    def observe_rounds(self, make_context: ContextFactory) -> ContextFactory:
        """Return the same function; when it is called for a new round, that is printed."""

        def make_observed_context(client: str, round: int, address: str, *functions: Any) -> Any:
            is_evaluation = address.startswith(("evaluate.", "evaluate_examples."))
            is_over = round >= self.rounds  # the secure sum of the last evaluation
            if not is_evaluation and not is_over and round + 1 != self.current_round:
                self.current_round = round + 1
                self.log(f"round {self.current_round} of {self.rounds}")
            return make_context(client, round, address, *functions)

        return make_observed_context

    def report_scores(self, round: int, scores: Mapping[str, float]) -> None:
        if round == self.evaluated_round or not scores:
            return
        self.evaluated_round = round
        text = ", ".join(f"{name} {scores[name]:.3f}" for name in (self.primary_metric, "loss") if name in scores)
        self.log(f"after round {round}, on your held-out examples: {text}")
