"""Flower's simulation (PyPI `flwr[simulation]`, Ray actors) on the benchmarks' workload.

    python -m benchmarks.flower --size 2x128 --cohort 10 --rounds 4 [--device cuda --actors 4]

Run it in a separate environment, because flwr needs older releases of ray and protobuf than Motet. Clients train with the
bare loop on the same batches as in the other benchmarks; a Ray actor builds its model and texts once. Nothing is evaluated.
Flower samples its own cohorts. If `--clients` equals `--cohort`, all clients take part, and `--check` compares the final
weights with the bare loop's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from functools import cache
from itertools import pairwise
from typing import Any

import torch

from benchmarks.bare import Bare, train
from benchmarks.workload import Inputs, Workload
from motet.learning.solver import Solver


@cache
def actor_state(job: str) -> tuple[Workload, Solver, Any, list[Any], Inputs]:
    """Build what an actor keeps between clients."""
    config = json.loads(job)
    torch.set_num_threads(1)
    workload, solver = Workload(**config["workload"]), Solver(**config["solver"])
    device = torch.device(config["device"])
    module = workload.module(config["freeze"]).to(device).train()
    inputs = workload.inputs(device)
    return workload, solver, module, [p for p in module.parameters() if p.requires_grad], inputs


def train_client(message: Any, context: Any) -> Any:
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

    config = message.content["config"]
    workload, solver, module, trained, inputs = actor_state(config["job"])
    with torch.no_grad():
        for p, new in zip(trained, message.content["arrays"].to_numpy_ndarrays(), strict=True):
            p.copy_(torch.from_numpy(new))
    batches = workload.batches(solver, config["server-round"] - 1, int(context.node_config["partition-id"]))
    train(module, trained, solver, batches, inputs)
    arrays = ArrayRecord([p.detach().cpu().numpy() for p in trained])
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": workload.examples})})
    return Message(content=content, reply_to=message)


def simulate(args: argparse.Namespace, workload: Workload, solver: Solver) -> tuple[list[float], list[Any]]:
    """Return the seconds of each round, and the final weights."""
    from flwr.app import ArrayRecord, ConfigRecord
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    job = {"workload": vars(workload), "solver": vars(solver), "device": args.device, "freeze": args.freeze}
    server, client = ServerApp(), ClientApp()
    times: list[float] = []
    weights: list[Any] = []

    @client.train()
    def train_by_name(message: Any, context: Any) -> Any:
        from benchmarks.flower import train_client  # by name, so that an actor's state is not sent with it

        return train_client(message, context)

    def after_round(index: int, arrays: Any) -> None:
        times.append(time.perf_counter())
        weights[:] = arrays.to_numpy_ndarrays() if index == args.rounds + 1 else []

    @server.main()
    def main(grid: Any, _: Any) -> None:
        fraction = args.cohort / workload.clients
        strategy = FedAvg(
            fraction_train=fraction, fraction_evaluate=0.0, min_train_nodes=args.cohort, min_available_nodes=args.cohort
        )
        initial = [p.detach().numpy() for p in workload.module(args.freeze).parameters() if p.requires_grad]
        config = ConfigRecord({"job": json.dumps(job)})
        strategy.start(grid, ArrayRecord(initial), args.rounds + 1, train_config=config, evaluate_fn=after_round)

    gpus = 1 / args.actors if args.device == "cuda" else 0.0
    backend = {"init_args": {"num_cpus": args.actors}, "client_resources": {"num_cpus": 1, "num_gpus": gpus}}
    run_simulation(server, client, num_supernodes=workload.clients, backend_config=backend)
    return [end - start for start, end in pairwise(times)], weights


def check(args: argparse.Namespace, workload: Workload, solver: Solver, weights: list[Any]) -> None:
    bare = Bare(workload, solver, 1, args.freeze)
    start = bare.params.clone()
    for index in range(args.rounds + 1):
        bare.round(index, list(range(workload.clients)))
    bare.close()
    final = torch.cat([torch.from_numpy(w).reshape(-1) for w in weights])
    difference = (final - bare.params).norm() / (bare.params - start).norm()
    print(f"relative difference of flwr's and the bare loop's updates: {difference:.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="2x128")
    parser.add_argument("--cohort", type=int, default=10)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--optimizer", default="sgd")
    parser.add_argument("--freeze", type=int, default=0)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--actors", type=int, default=2, help="Ray actors with one core each; they share the GPU.")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    workload = Workload(args.size, clients=max(args.clients, args.cohort), tokens=args.tokens)
    solver = Solver(optimizer=args.optimizer, lr=1e-2 if args.optimizer == "sgd" else 1e-5, batch=16)
    (first, *times), weights = simulate(args, workload, solver)
    if args.check:
        check(args, workload, solver, weights)
    print(
        f"flwr, {args.size}, cohort {args.cohort}, {args.tokens} tokens, {args.freeze} layers frozen, {args.actors} actors"
    )
    print(f"  first round {first:.3f} s, then {statistics.median(times):.3f} s per round")


if __name__ == "__main__":
    main()
