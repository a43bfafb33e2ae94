"""Train the clients of a Flower app with Motet: with FedAvg, then with a codec and a secure sum."""

from client_app import client_fn

import motet
from motet.flower import create_clients


def main():
    nodes = {f"node-{k}": {"partition-id": k, "num-partitions": 3} for k in range(3)}
    clients = create_clients(client_fn, nodes)
    federation = motet.flower_federation(clients, primary_metric="accuracy", fit_config={"lr": 0.1})
    plain = motet.run(federation, "fedavg", rounds=5)
    print(f"FedAvg: accuracy {plain.final['accuracy']:.3f}, {plain.traffic.payload_up:,} bytes sent by the clients")
    small = motet.run(federation, "fedavg", rounds=5, codec={"up": ["int8"]})
    print(f"8 bits: accuracy {small.final['accuracy']:.3f}, {small.traffic.payload_up:,} bytes sent by the clients")
    # A batch norm counts its batches: numbers above the default range of a secure sum.
    secure = motet.run(federation, "fedavg", rounds=5, secure={"type": "secagg", "range": 64.0})
    print(f"SecAgg: accuracy {secure.final['accuracy']:.3f}, from masked updates")


if __name__ == "__main__":
    main()
