"""What secure sums cost: time and bytes of every stage, for three protocols and a plain sum, over sizes, cohorts, drop-outs.

    python -m benchmarks.secure [--sizes 1e5 1e6 2e7] [--clients 10 30 100] [--dropouts 0 0.1 0.3] [--flwr PYTHON] [--out DIR]
    python -m benchmarks.secure --training 6x384          whole rounds, with local training, secure beside plain

No training in the first: a client's work is to hand over a vector. All clients run one after another in this process, so times
are CPU seconds, a client's own being the mean over clients. Lost clients are lost after they have uploaded, which costs SecAgg
most. What would take more memory than --memory is left out, and said. With --out, every measurement is written down when it is
made (secure.jsonl), what is written there is not measured again, and the figure is drawn from all of it. With --flwr, an
interpreter that has flwr installed does the same sum with the functions of its SecAgg+ (quantise, mask, unmask), all clients
neighbours.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import torch

from motet.core.params import Params
from motet.core.program import Round
from motet.core.rng import Seed
from motet.core.script import ClientId, Script, rewrite_sums, run_script, to_all, total, work
from motet.core.weighted import Weighted
from motet.experiment.build.run_components import RunComponents
from motet.experiment.build.run_plan import RunPlan
from motet.learning.executors.serial_executor import PrefixCache, SerialExecutor
from motet.secure import SECURE
from motet.transport.client_runtime import ClientRuntime
from motet.transport.client_state import ClientStates
from motet.transport.mailbox import Mailbox
from motet.transport.requests import Reply, Request
from motet.transport.wait_policy import WaitPolicy
from motet.wire import measure_size

STAGES = ("advertise", "share", "upload", "confirm", "reveal")


@dataclass(frozen=True)
class Vectors:
    """Every client hands over the same vector, made once."""

    value: Params
    name: str = "vectors"

    def round(self, clients: Iterable[ClientId]) -> Script[Weighted]:
        return (yield from total(self.give, to_all(clients, None)))

    @work(reveals="sum")
    def give(self, ctx: Any, ask: Any, memory: None) -> tuple[Weighted, None]:
        return Weighted(self.value, 100.0), None


@dataclass(frozen=True)
class Where:
    client: ClientId
    round: int
    seed: Seed
    invoke: Any


@dataclass
class Meter:
    """In process; CPU seconds of clients and bytes by stage, and when the last reply was handed over."""

    host: ClientRuntime
    lost: set[ClientId]
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    up: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    down: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    waiting: list[Request] = field(default_factory=list)
    last: float = 0.0

    def send(self, request: Request) -> None:
        self.down[_stage(request.address)] += measure_size(request).wire
        self.waiting.append(request)

    def receive(self, timeout: float) -> Reply | None:
        while self.waiting:
            request = self.waiting.pop(0)
            began = time.process_time()
            reply = next(self.host.answer_requests(iter([request])))
            stage = _stage(request.address)
            self.seconds[stage] += time.process_time() - began
            self.up[stage] += measure_size(reply).wire
            self.last = time.process_time()
            if reply.error:
                raise RuntimeError(reply.error)
            if not (stage == "upload" and request.client in self.lost):
                return reply
        return None

    def close(self) -> None: ...


def _stage(address: str) -> str:
    return address.partition(".")[2].replace("give", "upload")


def measured(protocol: str, size: int, clients: int, dropouts: float) -> dict[str, Any]:
    names = [f"client-{k:03d}" for k in range(clients)]
    made = torch.randn(size, generator=torch.Generator().manual_seed(0)).clamp(-4, 4)
    program, secure = Vectors(Params.from_tensors({"x": made})), SECURE[protocol]()

    def context_of(client: ClientId, round: int, address: str, perform: Any, _: Any) -> Where:
        return Where(client, round, Seed(1).derive(client, address), perform)

    programs = [program, *([secure] if secure else [])]
    host = ClientRuntime(programs, context_of, SerialExecutor(torch.device("cpu")), ClientStates())
    lost = set(names[:: max(1, round(1 / dropouts))][: int(dropouts * clients)]) if dropouts else set()
    meter = Meter(host, lost)
    mailbox = Mailbox(meter, WaitPolicy(quorum=0.01))
    script = program.round(names)
    began = time.process_time()
    found = run_script(rewrite_sums(secure, script) if secure else script, mailbox.run_exchange, lambda job: None)
    ended = time.process_time()
    gap = float((found.value.flat - made).abs().max())
    return {
        "protocol": protocol, "size": size, "clients": clients, "dropouts": dropouts,
        "client_seconds": {s: meter.seconds[s] / clients for s in STAGES}, "recovery_seconds": ended - meter.last,
        "server_seconds": ended - began - sum(meter.seconds.values()),
        "up": {s: meter.up[s] / clients for s in STAGES}, "down": {s: meter.down[s] / clients for s in STAGES},
        "up_ratio": sum(meter.up.values()) / clients / (4 * size), "error": gap,
    }  # fmt: skip


def room_for(protocol: str, size: int, clients: int) -> float:
    """Gigabytes all clients together hold, as far as it grows: vectors, and LightSecAgg's shares, which are in memory once."""
    if protocol != "light_secagg":
        return 24 * size / 1e9
    masking = SECURE[protocol]().masking
    pieces = masking.threshold_count(clients) - masking.colluders(clients)
    return 1.25 * 4 * size * clients * (1 + clients / pieces) / 1e9


FLWR = """
import json, sys, time
import numpy as np
from flwr.common.secure_aggregation.quantization import quantize, dequantize
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
from flwr.common.secure_aggregation.ndarrays_arithmetic import parameters_addition, parameters_mod, parameters_subtraction
size, clients, lost = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
x = [np.random.default_rng(0).normal(size=size).astype(np.float32).clip(-4, 4)]
keys = [np.random.default_rng(k).bytes(32) for k in range(clients)]
began = time.process_time()
y = quantize(x, 8.0, 1 << 22)
for key in keys:  # one's own and n - 1 pairwise masks
    y = parameters_addition(y, pseudo_rand_gen(key, 1 << 32, [(size,)]))
y = parameters_mod(y, 1 << 32)
client = time.process_time() - began
began = time.process_time()
for key in [*keys[lost:], *[k for _ in range(lost) for k in keys[lost:]]]:
    y = parameters_subtraction(y, pseudo_rand_gen(key, 1 << 32, [(size,)]))
y = dequantize(parameters_mod(y, 1 << 32), 8.0, 1 << 22)
print(json.dumps({"client": client, "recovery": time.process_time() - began, "bytes": 8 * size}))
"""


def beside_flwr(python: str, size: int, clients: int, dropouts: float) -> dict[str, Any]:
    command = [python, "-c", FLWR, str(size), str(clients), str(int(dropouts * clients))]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return {
        "protocol": "flwr", "size": size, "clients": clients, "dropouts": dropouts,
        "client_seconds": {"upload": found["client"]}, "recovery_seconds": found["recovery"],
        "up_ratio": found["bytes"] / (4 * size), "error": float("nan"),
    }  # fmt: skip


def with_training(model: str, clients: int, examples: int, rounds: int, protocols: list[str], out: Path | None) -> None:
    """Rounds of FedAvg on random texts, plain and secure in turn, so that whatever else the machine does meets both."""
    from benchmarks.overhead import SOLVER
    from benchmarks.workload import Workload
    from motet.algorithms import fedavg
    from motet.experiment.loop.run_loop import FederatedRun
    from motet.learning.executors.process_executor import ProcessExecutor, default_worker_count
    from motet.report.progress import SilentProgress

    federation = Workload(model, clients=clients, examples=examples).federation()
    features = {federation.features.key: federation.features}
    executor = ProcessExecutor(
        default_worker_count(), {federation.model.key: federation.model}, features, PrefixCache()
    )
    systems = {
        p: FederatedRun(
            RunPlan(
                federation=federation,
                components=RunComponents(algorithm=fedavg(SOLVER), secure=SECURE[p]()),
                rounds=10**6,
            ),
            executor,
            None,
            SilentProgress(),
        )
        for p in protocols
    }
    size, rows = federation.model.layout.size, list[dict[str, Any]]()
    for index in range(rounds):
        for name, running in systems.items():
            rnd = Round(index, 10**6, tuple(federation.clients), federation.seed, federation.server_context(index))
            running.mailbox.round = index
            began = time.perf_counter()
            running.state = running._play(running.plan.algorithm.round(running.state, rnd))
            seconds = time.perf_counter() - began
            rows.append({"protocol": name, "round": index, "size": size, "clients": clients, "seconds": seconds})
            if out:
                _append(out / "training.jsonl", rows[-1])
            print(f"{size:,} numbers, {clients} clients, round {index + 1}, {name}: {seconds:.2f} s", flush=True)
    executor.close()
    middle = {p: median(row["seconds"] for row in rows if row["protocol"] == p) for p in protocols}
    for name, seconds in middle.items():  # the first round pays for what is loaded once; the median of a few does not
        beside = f"  {seconds / middle['none']:.3f} of plain" if "none" in middle else ""
        print(f"{name:13s} median of {rounds} rounds {seconds:8.2f} s{beside}")


def _append(path: Path, row: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")


def told(row: dict[str, Any]) -> str:
    client = sum(row["client_seconds"].values())
    return (
        f"{row['protocol']:13s} {row['size']:>10,d} {row['clients']:4d} {row['dropouts']:5.0%}  client {client * 1e3:9.1f} ms"
        f"  recovery {row['recovery_seconds'] * 1e3:9.1f} ms  up {row['up_ratio']:6.3f}x  error {row['error']:.1e}"
    )


NAMES = {
    "none": "plain",
    "secagg": "SecAgg",
    "secagg_plus": "SecAgg+",
    "light_secagg": "LightSecAgg",
    "flwr": "flwr's own",
}
# of lines, so that one under another is seen
LOOKS = (("o", "-", 9), ("s", "-", 6), ("^", "--", 11), ("D", "-.", 6), ("v", ":", 6))


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(13, 4), constrained_layout=True)
    protocols = list(dict.fromkeys(row["protocol"] for row in rows))
    measured_of: dict[tuple[int, int], list[str]] = defaultdict(list)
    for row in rows:
        measured_of[row["size"], row["clients"]].append(row["protocol"])
    full = max(map(len, measured_of.values()))  # where every protocol was measured with every share of lost clients
    size, clients = max(place for place, found in measured_of.items() if len(found) == full)
    few = min(row["clients"] for row in rows)
    for protocol in protocols:
        own = [r for r in rows if r["protocol"] == protocol]
        lines = (
            [(r["dropouts"] * 100, r["recovery_seconds"]) for r in own if (r["size"], r["clients"]) == (size, clients)],
            [(r["size"], sum(r["client_seconds"].values())) for r in own if r["clients"] == few and not r["dropouts"]],
            [(r["clients"], r["up_ratio"]) for r in own if r["size"] == size and not r["dropouts"]],
        )
        for axis, points in zip(axes, lines, strict=True):
            if points:
                look = dict(zip(("marker", "linestyle", "markersize"), LOOKS[protocols.index(protocol)], strict=True))
                axis.plot(
                    *zip(*sorted(points), strict=True), label=NAMES.get(protocol, protocol), fillstyle="none", **look
                )
    titles = (
        (f"server's recovery\n{size / 1e6:g} million numbers, {clients} clients", "lost clients, %", "CPU seconds"),
        (f"work of one client of {few}", "numbers", "CPU seconds"),
        (f"bytes up, as multiples of a plain upload\n{size / 1e6:g} million numbers", "clients", "ratio"),
    )
    for axis, (title, across, along) in zip(axes, titles, strict=True):
        axis.set(title=title, xlabel=across, ylabel=along, yscale="log")
    axes[1].set_xscale("log")
    figure.legend(*axes[1].get_legend_handles_labels(), loc="outside lower center", ncols=len(protocols), frameon=False)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=float, nargs="+", default=[1e5, 1e6, 2e7])
    parser.add_argument("--clients", type=int, nargs="+", default=[10, 30, 100])
    parser.add_argument("--dropouts", type=float, nargs="+", default=[0.0, 0.1, 0.3])
    parser.add_argument("--protocols", nargs="+", default=list(SECURE), choices=list(SECURE))
    parser.add_argument("--memory", type=float, default=4.0, help="gigabytes")
    parser.add_argument("--flwr", help="a Python that has flwr")
    parser.add_argument("--out", type=Path, help="folder for secure.jsonl, secure.png and training.jsonl")
    parser.add_argument("--training", help="a model of benchmarks.workload, such as 6x384")
    parser.add_argument("--examples", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    if args.training:
        with_training(args.training, args.clients[0], args.examples, args.rounds, args.protocols, args.out)
        return
    kept = args.out / "secure.jsonl" if args.out else None
    rows = [json.loads(line) for line in kept.read_text().splitlines()] if kept and kept.exists() else []
    try:
        sweep(args, rows, kept)
    finally:
        if args.out and rows:
            draw(rows, args.out / "secure.png")


def sweep(args: argparse.Namespace, rows: list[dict[str, Any]], kept: Path | None) -> None:
    protocols = [*args.protocols, *(["flwr"] if args.flwr else [])]
    cells = product(map(int, args.sizes), args.clients, args.dropouts, protocols)
    there = {_cell(row): row for row in rows}
    for size, clients, dropouts, protocol in cells:
        if (size, clients, dropouts, protocol) in there:
            print(f"{told(there[size, clients, dropouts, protocol])}  (from {kept})", flush=True)
            continue
        if (need := room_for(protocol, size, clients)) > args.memory:
            print(
                f"{protocol:13s} {size:>10,d} {clients:4d} {dropouts:5.0%}  left out: its shares take about {need:.0f} GB in "
                f"one process, and --memory is {args.memory:g}",
                flush=True,
            )
            continue
        found = (
            beside_flwr(args.flwr, size, clients, dropouts)
            if protocol == "flwr"
            else measured(protocol, size, clients, dropouts)
        )
        rows.append(found)
        print(told(found), flush=True)
        if kept:
            _append(kept, found)


def _cell(row: dict[str, Any]) -> tuple[int, int, float, str]:
    return row["size"], row["clients"], row["dropouts"], row["protocol"]


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
