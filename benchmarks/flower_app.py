"""`benchmarks.echo` as a Flower app. It is copied into a separate folder and passed to a SuperLink.

It runs in Flower's interpreter, which needs `flwr` and NumPy but not Motet. The server writes the seconds of each round when
the round ends, so that an interrupted run has results, too.
"""

from __future__ import annotations

import json
import resource
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

client = ClientApp()
server = ServerApp()


@client.train()
def echo(message: Message, _: Any) -> Message:
    content = {"arrays": message.content["arrays"], "metrics": MetricRecord({"num-examples": 1})}
    return Message(content=RecordDict(content), reply_to=message)


@server.main()
def main(grid: Any, context: Any) -> None:
    config = context.run_config
    clients, tensors, times = int(config["clients"]), int(config["tensors"]), []
    rng, size = np.random.default_rng(0), int(float(config["millions"]) * 1e6) // tensors

    def after_round(_: int, __: ArrayRecord) -> None:
        times.append(time.perf_counter())
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        partial = Path(config["out"] + ".part")
        partial.write_text(json.dumps({"seconds": [end - start for start, end in pairwise(times)], "peak": peak}))
        partial.replace(config["out"])

    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients)
    weights = ArrayRecord([rng.standard_normal(size, dtype=np.float32) for _ in range(tensors)])
    rounds, timeout = int(config["rounds"]) + 1, float(config["timeout"])
    strategy.start(grid, weights, rounds, timeout=timeout, evaluate_fn=after_round)
