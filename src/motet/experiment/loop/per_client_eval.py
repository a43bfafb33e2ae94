"""Evaluate the global model on each client's test set: how well one model serves every domain."""

from __future__ import annotations

from motet.core.rebased import ModelParams
from motet.core.work import Work
from motet.experiment.build.federation import Federation
from motet.learning.context import EvaluationResult, score_predictions
from motet.learning.data.features import Examples


def evaluate_per_client(
    federation: Federation, params: ModelParams, round: int, per_example: bool
) -> Work[dict[str, EvaluationResult]]:
    """Evaluate the server's model on the test set of each client with the server's corpus, and on all under "".

    The model predicts all test sets in one pass. Clients without test rows are left out.
    """
    server = federation.server
    examples = Examples(server.features, server.test.rows)
    predictions = yield from federation.server_context(round).infer(params, examples)
    clients = [client for group in federation.groups if group.corpus is server.corpus for client in group.clients]
    results = {"": score_predictions(server.task, predictions, examples, per_example)} if len(examples) else {}
    for client, start, stop in zip(clients, server.test.offsets[:-1], server.test.offsets[1:], strict=True):
        if stop > start:
            own_predictions = {name: column[start:stop] for name, column in predictions.items()}
            own_examples = Examples(server.features, server.test.rows[start:stop])
            results[client] = score_predictions(server.task, own_predictions, own_examples, per_example)
    return results
