"""The metrics log: curves, and the traffic that it took to reach a score."""

from __future__ import annotations

from motet.experiment.loop.metrics_log import MetricsLog, is_client_row
from motet.experiment.loop.scores import cost_to_reach, mean_metrics, score_spread
from motet.transport.traffic import Traffic


def make_log() -> MetricsLog:
    """Four rounds of the global model, and of the clients' own."""
    log = MetricsLog(None)
    for round, (global_accuracy, local_accuracy) in enumerate([(0.5, 0.6), (0.7, 0.9), (0.65, 0.95), (0.9, 0.92)], 1):
        traffic = Traffic(payload_up=10 * round, payload_down=30 * round, network_seconds=2.5 * round)
        log.add(round, "server", "global", {"accuracy": global_accuracy, "loss": 1.0}, traffic)
        log.add(round, "clients", "test", {"accuracy": local_accuracy}, traffic)
    return log


def test_the_cost_of_a_score_is_that_of_the_first_evaluation_that_reached_it() -> None:
    costs = cost_to_reach(make_log(), "accuracy", [0.7, 0.9, 0.95, 0.99])
    assert costs["global"]["0.7"] == {"round": 2, "payload_up": 20, "payload_down": 60, "network_seconds": 5.0}
    assert costs["global"]["0.9"] == {"round": 4, "payload_up": 40, "payload_down": 120, "network_seconds": 10.0}
    assert costs["global"]["0.95"] is costs["global"]["0.99"] is None
    local = costs["local"].values()
    assert [cost and cost["round"] for cost in local] == [2, 2, 3, None]


def test_a_loss_reaches_a_target_when_it_falls_to_it() -> None:
    log = MetricsLog(None)
    for round, loss in enumerate([5.0, 2.5, 1.5], 1):
        log.add(round, "server", "global", {"loss": loss}, Traffic(payload_up=round))
    costs = cost_to_reach(log, "loss", [2.0, 1.0])["global"]
    assert [cost and cost["round"] for cost in costs.values()] == [3, None]


def test_a_curve_has_a_point_for_each_evaluation() -> None:
    log = make_log()
    assert log.curve("accuracy") == [(1, 0.5), (2, 0.7), (3, 0.65), (4, 0.9)]
    assert log.traffic_curve("accuracy") == [(40, 0.5), (80, 0.7), (120, 0.65), (160, 0.9)]
    assert log.curve("accuracy", "test", "clients")[-1] == (4, 0.92)


def test_rows_of_single_clients_are_told_from_those_of_the_server_and_means() -> None:
    assert is_client_row({"who": "client-3"})
    assert not is_client_row({"who": "server"})
    assert not is_client_row({"who": "clients"})


def test_the_mean_over_clients_is_unweighted() -> None:
    assert mean_metrics([{"f1": 0.5, "loss": 2.0}, {"f1": 1.0, "loss": 0.0}]) == {"f1": 0.75, "loss": 1.0}
    assert mean_metrics([{"f1": 0.5, "loss": 2.0}, {"f1": 1.0}]) == {"f1": 0.75}
    assert mean_metrics([]) == {}


def test_the_spread_has_the_mean_of_the_worst_tenth() -> None:
    spread = score_spread([k / 20 for k in range(20)])
    assert spread["worst_decile"] == 0.025
    assert score_spread([0.5]) == {"mean": 0.5, "std": 0.0, "worst_decile": 0.5}
    assert score_spread([]) == {}
