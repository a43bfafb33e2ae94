"""Measure rounds on the nodes of a Ray cluster: scaling, the driver's traffic, the cost of a job, a node that dies.

    python -m benchmarks.cluster [--actors 1 2 4 8] [--parts scaling traffic jobs death] [--figure cluster.svg] [--json rows.json]

The nodes are processes of this machine, each with its own object store, and the driver is on a node of its own. So tensors move over
sockets as between machines, but cores and memory bandwidth are shared. Therefore the clients of `scaling` and `death` do not train:
they are emulated, and sleep for as long as a client of their size and speed would train. These parts show how clients are scheduled
and what the cluster adds to a round; they say nothing about training. `traffic` and `jobs` move real tensors.

Every mean is compared with the one of a single process, to the bit.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray
import torch
from ray.cluster_utils import Cluster

from benchmarks.emulated_clients import (
    EmulatedTraining,
    EmulatingActor,
    PauseExecutor,
    client_traits,
    make_runtime,
    training_seconds,
)
from motet.core.params import Params
from motet.core.script import run_script
from motet.core.weighted import Weighted
from motet.core.work import Job
from motet.experiment.deploy.ray_actor_pool import ActorPool
from motet.experiment.deploy.ray_executor import RayExecutor
from motet.experiment.deploy.ray_transport import RayTransport, SumSetup
from motet.report.figure_files import new_figure, save_figure
from motet.transport.client_state import ClientStates
from motet.transport.in_process import InProcessTransport
from motet.transport.mailbox import Mailbox

ROOT = Path(__file__).parents[1]
CPU = torch.device("cpu")
NODES, STORE_BYTES = 4, 2_500_000_000
RESTARTS = 2
SLEEPING = EmulatedTraining(sleeps=True)


# ---- the cluster -------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class NodeCluster:
    """Nodes with one or two actors each, and the driver on its own node."""

    cluster: Cluster
    nodes: list[Any]
    actors: list[Any]

    def pool(self, actors: int) -> ActorPool:
        return ActorPool(self.actors[:actors], 1, RESTARTS)


@contextmanager
def start_cluster(actors: int) -> Iterator[NodeCluster]:
    """Start nodes and actors. The first actors are on different nodes."""
    os.environ |= {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
    }
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": STORE_BYTES})
    count = min(actors, NODES)
    nodes = [
        cluster.add_node(num_cpus=-(-actors // count), object_store_memory=STORE_BYTES, resources={f"node{k}": 100})
        for k in range(count)
    ]
    ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
    remote_class: Any = ray.remote(EmulatingActor)
    started = [
        remote_class.options(max_restarts=RESTARTS, num_cpus=1, resources={f"node{k % count}": 1}).remote()
        for k in range(actors)
    ]
    ray.get([actor.capacity.remote() for actor in started])
    try:
        yield NodeCluster(cluster, nodes, started)
    finally:
        ray.shutdown()
        cluster.shutdown()


def random_params(millions: float) -> Params:
    numbers = torch.randn(int(millions * 1e6), generator=torch.Generator().manual_seed(0))
    return Params.from_tensors({"weight": numbers})


def names(count: int) -> tuple[str, ...]:
    return tuple(f"client-{k:05}" for k in range(count))


@dataclass(eq=False)
class Rounds:
    """Rounds over a pool of actors, with the sum on the actors (`tree`) or in the driver."""

    pool: ActorPool
    training: EmulatedTraining
    tree: bool = True

    def __post_init__(self) -> None:
        self.states = ClientStates()
        runtime = make_runtime(self.training, RayExecutor(self.pool, PauseExecutor()), self.states)
        setup = SumSetup(str(self.training), lambda client: client_traits(client)[0], CPU)
        self.mailbox = Mailbox(RayTransport(runtime, self.pool, setup) if self.tree else InProcessTransport(runtime))
        self.reference = Reference(replace(self.training, sleeps=False))

    def run(self, params: Params, cohort: tuple[str, ...]) -> dict[str, Any]:
        """Run one round. Return its seconds and the driver's megabytes, and check the mean."""
        sent, received = self.pool.bytes_sent, self.pool.bytes_received
        start = time.perf_counter()
        mean = run_script(self.training.round(params, cohort), self.mailbox.run_exchange, _no_job)
        self.states.commit_round()
        seconds = time.perf_counter() - start
        return {
            "seconds": seconds,
            "sent_mb": (self.pool.bytes_sent - sent) / 1e6,
            "received_mb": (self.pool.bytes_received - received) / 1e6,
            "same_bits": bool(mean.value.flat.equal(self.reference.run(params, cohort).value.flat)),
        }


class Reference:
    """The same rounds in this process, without the time that clients take."""

    def __init__(self, training: EmulatedTraining) -> None:
        self.training, self.states = training, ClientStates()
        self.mailbox = Mailbox(InProcessTransport(make_runtime(training, PauseExecutor(), self.states)))
        self.means: dict[tuple[str, ...], Weighted] = {}  # by cohort; without states, rounds do not differ

    def run(self, params: Params, cohort: tuple[str, ...]) -> Weighted:
        if self.training.keeps_state or cohort not in self.means:
            script = self.training.round(params, cohort)
            self.means[cohort] = run_script(script, self.mailbox.run_exchange, _no_job)
            self.states.commit_round()
        return self.means[cohort]


def _no_job(job: Job) -> None:
    raise NotImplementedError("the server submits no jobs in this benchmark")


# ---- the parts -----------------------------------------------------------------------------------------------------------


def measure_scaling(cluster: NodeCluster, actor_counts: list[int]) -> Iterator[dict[str, Any]]:
    """Emulated clients: 64 in all (strong scaling), or the same 16 for each actor (weak scaling)."""
    params = random_params(0.1)
    for actors in actor_counts:
        copies = tuple(f"{client}-{k}" for client in names(16) for k in range(actors))
        for kind, cohort in (("strong", names(64)), ("weak", copies)):
            times = [training_seconds(client) for client in cohort]
            arrival = Rounds(pool := cluster.pool(actors), SLEEPING)
            pool.estimates.estimate = len  # type: ignore[method-assign] - every client counts the same
            by_arrival = arrival.run(params, cohort)
            longest = Rounds(cluster.pool(actors), SLEEPING)
            by_examples, by_time = longest.run(params, cohort), longest.run(params, cohort)
            yield {
                "part": kind,
                "actors": actors,
                "clients": len(cohort),
                "bound": max(sum(times) / actors, *times),
                "by_number": max(sum(times[k::actors]) for k in range(actors)),  # equal numbers, computed
                "arrival": by_arrival["seconds"],
                "by_examples": by_examples["seconds"],
                "by_time": by_time["seconds"],
                "same_bits": all(row["same_bits"] for row in (by_arrival, by_examples, by_time)),
            }


def measure_traffic(cluster: NodeCluster, cohorts: list[int]) -> Iterator[dict[str, Any]]:
    """A million numbers and no training: what the driver sends and receives in a round, the second of the clients."""
    params = random_params(1)
    for clients, keeps_state, tree in itertools.product(cohorts, (False, True), (True, False)):
        rounds = Rounds(cluster.pool(NODES), EmulatedTraining(sleeps=False, keeps_state=keeps_state), tree)
        rounds.run(params, names(clients))  # a warm-up, in which clients get their states
        row = rounds.run(params, names(clients))
        yield {"part": "traffic", "clients": clients, "states": keeps_state, "tree": tree, **row}


def measure_jobs(cluster: NodeCluster, millions: list[float]) -> Iterator[dict[str, Any]]:
    """One actor and no training: a round with one client, and what another client adds."""
    for size in millions:
        params = random_params(size)
        for tree in (True, False):
            rounds = Rounds(cluster.pool(1), EmulatedTraining(sleeps=False), tree)
            rounds.run(params, names(1))  # a warm-up
            one, two = rounds.run(params, names(1)), rounds.run(params, names(2))
            yield {
                "part": "jobs",
                "millions": size,
                "tree": tree,
                "first": one["seconds"],
                "another": two["seconds"] - one["seconds"],
                "same_bits": one["same_bits"] and two["same_bits"],
            }


def measure_death(cluster: NodeCluster) -> Iterator[dict[str, Any]]:
    """Emulated clients with states on four actors; the last node is stopped in the middle of a round.

    It had one of two copies of some states.
    """
    params, cohort = random_params(1), names(64)
    rounds = Rounds(cluster.pool(NODES), EmulatedTraining(sleeps=True, keeps_state=True))
    first = rounds.run(params, cohort)  # measures the times
    whole = rounds.run(params, cohort)
    stop = threading.Timer(whole["seconds"] / 2, lambda: cluster.cluster.remove_node(cluster.nodes[-1], False))
    stop.start()
    dead = rounds.run(params, cohort)
    stop.join()
    after = rounds.run(params, cohort)
    yield {
        "part": "death",
        "before": whole["seconds"],
        "death": dead["seconds"],
        "after": after["seconds"],
        "same_bits": all(row["same_bits"] for row in (first, whole, dead, after)),
    }


# ---- the picture -----------------------------------------------------------------------------------------------------------


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    figure, panels = new_figure(columns=3, width=4.2, height=3.6)
    labels = {"by_time": "longest first, measured", "by_examples": "longest first, examples", "arrival": "in order"}
    for axes, kind, title in (
        (panels[0], "strong", "64 emulated clients"),
        (panels[1], "weak", "16 emulated clients per actor"),
    ):
        chosen = [row for row in rows if row["part"] == kind]
        actors = [row["actors"] for row in chosen]
        for key, label in labels.items():
            axes.plot(actors, [row[key] for row in chosen], marker="o", label=label)
        axes.plot(actors, [row["by_number"] for row in chosen], ":", color="gray", label="equal numbers (computed)")
        axes.plot(actors, [row["bound"] for row in chosen], "--", color="gray", label="lower bound")
        axes.set(xlabel="actors", ylabel="seconds of a round", title=title, xticks=actors)
        axes.legend(frameon=False, fontsize=8)
    received = [row for row in rows if row["part"] == "traffic"]
    for tree, label in ((True, "summed on the actors"), (False, "updates through the driver")):
        chosen = [row for row in received if row["tree"] is tree and not row.get("states")]
        panels[2].plot([r["clients"] for r in chosen], [r["received_mb"] for r in chosen], marker="o", label=label)
    panels[2].set(xlabel="clients of a round", ylabel="MB", title="The driver receives (1 M numbers)", yscale="log")
    panels[2].set_xticks(sorted({row["clients"] for row in received}))
    panels[2].legend(frameon=False, fontsize=8)
    for axes in panels:
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels[:2]:
        axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
    save_figure(figure, path)


def show(row: dict[str, Any]) -> str:
    return "  ".join(
        f"{key} {value:.3f}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actors", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--parts", nargs="*", default=["scaling", "traffic", "jobs", "death"])
    parser.add_argument("--cohorts", type=int, nargs="+", default=[16, 64, 256])
    parser.add_argument("--params", type=float, nargs="+", default=[22, 110], help="millions of numbers of a job")
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--json", type=Path, help="Add the rows to this file.")
    args = parser.parse_args()
    parts: dict[str, Callable[[NodeCluster], Iterator[dict[str, Any]]]] = {
        "scaling": lambda cluster: measure_scaling(cluster, args.actors),
        "traffic": lambda cluster: measure_traffic(cluster, args.cohorts),
        "jobs": lambda cluster: measure_jobs(cluster, args.params),
        "death": measure_death,
    }
    rows = json.loads(args.json.read_text()) if args.json and args.json.exists() else []
    if args.parts:
        fewest = NODES if {"traffic", "death"} & {*args.parts} else 1
        with start_cluster(max([fewest, *args.actors])) as cluster:
            for part in args.parts:
                for row in parts[part](cluster):
                    rows.append(row)
                    print(show(row), flush=True)
                    if args.json:
                        args.json.write_text(json.dumps(rows, indent=1))
    if args.figure:
        draw(rows, args.figure)


if __name__ == "__main__":
    main()
