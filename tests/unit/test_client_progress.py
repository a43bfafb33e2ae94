"""What a client prints during a run."""

from __future__ import annotations

from motet.experiment.deploy.client_progress import ClientProgress


def test_each_round_is_printed_once_and_the_evaluation_at_the_end_is_none() -> None:
    lines: list[str] = []
    observe = ClientProgress(2, "accuracy", lines.append).observe_rounds(lambda *request: request)
    for round, address in ((0, "fedavg.train"), (0, "secure.upload"), (1, "evaluate.sum_metrics"), (1, "fedavg.train")):
        assert observe("north", round, address) == ("north", round, address)
    observe("north", 2, "secure.upload")  # the last evaluation under a secure sum
    assert lines == ["round 1 of 2", "round 2 of 2"]
