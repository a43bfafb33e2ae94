"""The common model on each client's own test set: how a model for all does in every domain."""

from __future__ import annotations

from motet.core.params import Params
from motet.core.work import Work
from motet.experiment.build.federation import Federation
from motet.learning.context import EvaluationResult, score_predictions
from motet.learning.data.features import Examples


def evaluate_per_client(
    federation: Federation, params: Params, round: int, items: bool
) -> Work[dict[str, EvaluationResult]]:
    """Metrics, and items if they are asked for, for each client of the server's corpus that has a test set, and for all of
    them together under "".

    The server's model reads all test sets in one pass; what each client's own model makes of them is another matter.
    """
    server = federation.server
    whole = Examples(server.features, server.test.rows)
    context = federation.server_context(round)
    readings = yield from context.infer(params, whole)
    names = [client for group in federation.groups if group.corpus is server.corpus for client in group.clients]
    found = {"": score_predictions(server.task, readings, whole, items)} if len(whole) else {}
    for client, first, last in zip(names, server.test.offsets[:-1], server.test.offsets[1:], strict=True):
        if last > first:
            part = {name: column[first:last] for name, column in readings.items()}
            found[client] = score_predictions(
                server.task, part, Examples(server.features, server.test.rows[first:last]), items
            )
    return found
