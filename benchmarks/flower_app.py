"""The echo of `benchmarks.echo` as a Flower app: it is copied into a folder of its own and handed to a SuperLink.

It runs in Flower's interpreter, which needs `flwr` and NumPy and nothing of Motet. The server writes down the seconds of each
round as it ends, so that a run that is cut off has shown what it did.
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
def back(message: Message, _: Any) -> Message:
    content = {"arrays": message.content["arrays"], "metrics": MetricRecord({"num-examples": 1})}
    return Message(content=RecordDict(content), reply_to=message)


@server.main()
def main(grid: Any, context: Any) -> None:
    given = context.run_config
    count, tensors, stamps = int(given["clients"]), int(given["tensors"]), []
    rng, size = np.random.default_rng(0), int(float(given["millions"]) * 1e6) // tensors

    def after(_: int, __: ArrayRecord) -> None:
        stamps.append(time.perf_counter())
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        beside = Path(given["out"] + ".part")
        beside.write_text(json.dumps({"seconds": [b - a for a, b in pairwise(stamps)], "peak": peak}))
        beside.replace(given["out"])

    everybody = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=count, min_available_nodes=count)
    weights = ArrayRecord([rng.standard_normal(size, dtype=np.float32) for _ in range(tensors)])
    everybody.start(grid, weights, int(given["rounds"]) + 1, timeout=float(given["patience"]), evaluate_fn=after)
