"""What a run writes down of its traffic, and what it took to get somewhere."""

from __future__ import annotations

from motet.experiment.loop.metrics_log import MetricsLog, cost_to_reach, mean_metrics
from motet.transport.mailbox import Traffic


def test_what_it_took_to_reach_a_value_is_counted_up_to_the_first_look_at_which_it_was_there() -> None:
    record = MetricsLog(None)
    for number, (everywhere, own) in enumerate([(0.5, 0.6), (0.7, 0.9), (0.65, 0.95), (0.9, 0.92)], 1):
        traffic = Traffic(payload_up=10 * number, payload_down=30 * number, network_seconds=2.5 * number)
        record.add(number, "server", "global", {"accuracy": everywhere, "loss": 1.0}, traffic)
        record.add(number, "clients", "test", {"accuracy": own}, traffic)
    found = cost_to_reach(record, "accuracy", [0.7, 0.9, 0.95, 0.99])
    assert found["global"]["0.7"] == {"round": 2, "payload_up": 20, "payload_down": 60, "network_seconds": 5.0}
    assert found["global"]["0.9"] == {"round": 4, "payload_up": 40, "payload_down": 120, "network_seconds": 10.0}
    assert found["global"]["0.95"] is found["global"]["0.99"] is None
    assert [found["local"][t] and found["local"][t]["round"] for t in ("0.7", "0.9", "0.95", "0.99")] == [2, 2, 3, None]
    assert record.traffic_curve("accuracy") == [(40, 0.5), (80, 0.7), (120, 0.65), (160, 0.9)]


def test_in_a_mean_over_clients_all_count_alike() -> None:
    assert mean_metrics([{"f1": 0.5, "loss": 2.0}, {"f1": 1.0, "loss": 0.0}]) == {"f1": 0.75, "loss": 1.0}
    assert mean_metrics([]) == {}
