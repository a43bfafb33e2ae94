"""Measure secure sums: time and bytes of every stage for three protocols and a plain sum, by size, cohort and dropout.

    python -m benchmarks.secure [--sizes 1e5 1e6 2e7] [--clients 10 30 100] [--dropouts 0 0.1 0.3] [--flwr PYTHON] [--out DIR]
    python -m benchmarks.secure --training 6x384          whole rounds with local training, secure and plain

The first command does not train: a client only returns a vector. All clients run one after another in this process, so times
are CPU seconds; a client's time is the mean over clients. Clients drop out after their upload, the most expensive case for
SecAgg. Settings that need more memory than --memory are skipped with a note. With --out, every measurement is appended to
secure.jsonl, is not repeated later, and the figure is drawn from all of them. With --flwr, a Python with flwr computes the
same sum with the functions of its SecAgg+ (quantize, mask, unmask), with all clients as neighbors.
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
from motet.core.rng import Seed
from motet.core.script import ClientId, Program, Script, rewrite_sums, run_script, to_all, total, work
from motet.core.weighted import Weighted
from motet.experiment.build.run_components import RunComponents
from motet.experiment.build.run_plan import RunPlan
from motet.learning.executors.serial_executor import SerialExecutor
from motet.secure import SECURE
from motet.transport.client_runtime import ClientRuntime
from motet.transport.client_state import ClientStates
from motet.transport.mailbox import Mailbox
from motet.transport.requests import Reply, Request
from motet.transport.wait_policy import WaitPolicy
from motet.wire import measure_size

STAGES = ("advertise", "share", "upload", "confirm", "reveal")


@dataclass(frozen=True)
class SumVectors(Program):
    """A program that sums one vector, the same for every client."""

    value: Params
    name: str = "vectors"

    def round(self, clients: Iterable[ClientId]) -> Script[Weighted]:
        return (yield from total(self.upload, to_all(clients, None)))

    @work(reveals="sum")
    def upload(self, ctx: Any, payload: Any, client_state: None) -> tuple[Weighted, None]:
        return Weighted(self.value, 100.0), None


@dataclass(frozen=True)
class BareContext:
    """The part of a client context that secure sums use."""

    client: ClientId
    round: int
    seed: Seed
    invoke: Any


@dataclass
class MeteredTransport:
    """An in-process transport that counts the clients' CPU seconds and bytes by stage, and the time of the last reply."""

    runtime: ClientRuntime
    dropped: set[ClientId]
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    up: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    down: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    queue: list[Request] = field(default_factory=list)
    last_reply: float = 0.0

    def send(self, request: Request) -> None:
        self.down[_stage(request.address)] += measure_size(request).wire
        self.queue.append(request)

    def receive(self, timeout: float) -> Reply | None:
        while self.queue:
            request = self.queue.pop(0)
            start = time.process_time()
            reply = next(self.runtime.answer_requests(iter([request])))
            stage = _stage(request.address)
            self.seconds[stage] += time.process_time() - start
            self.up[stage] += measure_size(reply).wire
            self.last_reply = time.process_time()
            if reply.error:
                raise RuntimeError(reply.error)
            if not (stage == "upload" and request.client in self.dropped):
                return reply
        return None

    def close(self) -> None: ...


def _stage(address: str) -> str:
    return address.partition(".")[2]


def measure(protocol: str, size: int, clients: int, dropouts: float) -> dict[str, Any]:
    names = [f"client-{k:03d}" for k in range(clients)]
    vector = torch.randn(size, generator=torch.Generator().manual_seed(0)).clamp(-4, 4)
    program, secure = SumVectors(Params.from_tensors({"x": vector})), SECURE[protocol]()

    def make_context(client: ClientId, round: int, address: str, invoke: Any, _: Any) -> BareContext:
        return BareContext(client, round, Seed(1).derive(client, address), invoke)

    programs = [program, *([secure] if secure else [])]
    runtime = ClientRuntime(programs, make_context, SerialExecutor(torch.device("cpu")), ClientStates())
    dropped = set(names[:: max(1, round(1 / dropouts))][: int(dropouts * clients)]) if dropouts else set()
    transport = MeteredTransport(runtime, dropped)
    mailbox = Mailbox(transport, WaitPolicy(quorum=0.01))
    script = program.round(names)
    start = time.process_time()
    mean = run_script(rewrite_sums(secure, script) if secure else script, mailbox.run_exchange, lambda job: None)
    end = time.process_time()
    error = float((mean.value.flat - vector).abs().max())
    return {
        "protocol": protocol, "size": size, "clients": clients, "dropouts": dropouts,
        "client_seconds": {s: transport.seconds[s] / clients for s in STAGES},
        "recovery_seconds": end - transport.last_reply,
        "server_seconds": end - start - sum(transport.seconds.values()),
        "up": {s: transport.up[s] / clients for s in STAGES}, "down": {s: transport.down[s] / clients for s in STAGES},
        "up_ratio": sum(transport.up.values()) / clients / (4 * size), "error": error,
    }  # fmt: skip


def estimate_memory(protocol: str, size: int, clients: int) -> float:
    """Return the GB that grow with the setting: vectors, and the shares of LightSecAgg, which are stored once."""
    if protocol != "light_secagg":
        return 24 * size / 1e9
    masking = SECURE[protocol]().masking
    pieces = masking.threshold_count(clients) - masking.colluder_count(clients)
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
for key in keys:  # the private mask and n - 1 pairwise masks
    y = parameters_addition(y, pseudo_rand_gen(key, 1 << 32, [(size,)]))
y = parameters_mod(y, 1 << 32)
client = time.process_time() - began
began = time.process_time()
for key in [*keys[lost:], *[k for _ in range(lost) for k in keys[lost:]]]:
    y = parameters_subtraction(y, pseudo_rand_gen(key, 1 << 32, [(size,)]))
y = dequantize(parameters_mod(y, 1 << 32), 8.0, 1 << 22)
print(json.dumps({"client": client, "recovery": time.process_time() - began, "bytes": 8 * size}))
"""


def measure_flwr(python: str, size: int, clients: int, dropouts: float) -> dict[str, Any]:
    command = [python, "-c", FLWR, str(size), str(clients), str(int(dropouts * clients))]
    result = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return {
        "protocol": "flwr", "size": size, "clients": clients, "dropouts": dropouts,
        "client_seconds": {"upload": result["client"]}, "recovery_seconds": result["recovery"],
        "up_ratio": result["bytes"] / (4 * size), "error": float("nan"),
    }  # fmt: skip


def measure_training(
    model: str, clients: int, examples: int, rounds: int, protocols: list[str], out: Path | None
) -> None:
    """Time rounds of FedAvg on random texts. Protocols alternate, so that other load on the machine affects all of them."""
    from benchmarks.overhead import SOLVER
    from benchmarks.workload import Workload
    from motet.algorithms import fedavg
    from motet.experiment.loop.run_loop import FederatedRun
    from motet.learning.executors.process_executor import ProcessExecutor, default_worker_count

    federation = Workload(model, clients=clients, examples=examples).federation()
    features = {federation.features.key: federation.features}
    executor = ProcessExecutor(default_worker_count(), {federation.model.key: federation.model}, features)
    runs = {
        protocol: FederatedRun(
            RunPlan(
                federation=federation,
                components=RunComponents(algorithm=fedavg(SOLVER), secure=SECURE[protocol]()),
                rounds=10**6,
            ),
            executor,
        )
        for protocol in protocols
    }
    size, rows = federation.model.layout.size, list[dict[str, Any]]()
    for index in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            run.engine.run_round()
            seconds = time.perf_counter() - start
            rows.append({"protocol": name, "round": index, "size": size, "clients": clients, "seconds": seconds})
            if out:
                _append(out / "training.jsonl", rows[-1])
            print(f"{size:,} parameters, {clients} clients, round {index + 1}, {name}: {seconds:.2f} s", flush=True)
    executor.close()
    # The median, because the first round also loads libraries.
    medians = {name: median(row["seconds"] for row in rows if row["protocol"] == name) for name in protocols}
    for name, seconds in medians.items():
        ratio = f"  {seconds / medians['none']:.3f} × plain" if "none" in medians else ""
        print(f"{name:13s} median of {rounds} rounds {seconds:8.2f} s{ratio}")


def _append(path: Path, row: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")


def format_row(row: dict[str, Any]) -> str:
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
    "flwr": "flwr",
}
# marker, line style, marker size: overlapping lines stay visible
STYLES = (("o", "-", 9), ("s", "-", 6), ("^", "--", 11), ("D", "-.", 6), ("v", ":", 6))


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(13, 4), constrained_layout=True)
    protocols = list(dict.fromkeys(row["protocol"] for row in rows))
    by_setting: dict[tuple[int, int], list[str]] = defaultdict(list)
    for row in rows:
        by_setting[row["size"], row["clients"]].append(row["protocol"])
    most = max(map(len, by_setting.values()))  # a setting with all protocols and dropout rates
    size, clients = max(setting for setting, measured in by_setting.items() if len(measured) == most)
    fewest = min(row["clients"] for row in rows)
    for protocol in protocols:
        selected = [r for r in rows if r["protocol"] == protocol]
        lines = (
            [
                (100 * r["dropouts"], r["recovery_seconds"])
                for r in selected
                if (r["size"], r["clients"]) == (size, clients)
            ],
            [
                (r["size"], sum(r["client_seconds"].values()))
                for r in selected
                if r["clients"] == fewest and not r["dropouts"]
            ],
            [(r["clients"], r["up_ratio"]) for r in selected if r["size"] == size and not r["dropouts"]],
        )
        for axis, points in zip(axes, lines, strict=True):
            if points:
                style = dict(zip(("marker", "linestyle", "markersize"), STYLES[protocols.index(protocol)], strict=True))
                axis.plot(
                    *zip(*sorted(points), strict=True), label=NAMES.get(protocol, protocol), fillstyle="none", **style
                )
    titles = (
        (f"recovery on the server\n{size / 1e6:g} million parameters, {clients} clients", "dropouts, %", "CPU seconds"),
        (f"one client of {fewest}", "parameters", "CPU seconds"),
        (f"upload bytes relative to a plain upload\n{size / 1e6:g} million parameters", "clients", "ratio"),
    )
    for axis, (title, xlabel, ylabel) in zip(axes, titles, strict=True):
        axis.set(title=title, xlabel=xlabel, ylabel=ylabel, yscale="log")
    axes[1].set_xscale("log")
    figure.legend(*axes[1].get_legend_handles_labels(), loc="outside lower center", ncols=len(protocols), frameon=False)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=float, nargs="+", default=[1e5, 1e6, 2e7])
    parser.add_argument("--clients", type=int, nargs="+", default=[10, 30, 100])
    parser.add_argument("--dropouts", type=float, nargs="+", default=[0.0, 0.1, 0.3])
    parser.add_argument("--protocols", nargs="+", default=list(SECURE), choices=list(SECURE))
    parser.add_argument("--memory", type=float, default=4.0, help="Skip settings that need more GB than this.")
    parser.add_argument("--flwr", help="A Python with flwr.")
    parser.add_argument("--out", type=Path, help="Folder for secure.jsonl, secure.png and training.jsonl.")
    parser.add_argument("--training", help="A model of benchmarks.workload, such as 6x384.")
    parser.add_argument("--examples", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    if args.training:
        measure_training(args.training, args.clients[0], args.examples, args.rounds, args.protocols, args.out)
        return
    path = args.out / "secure.jsonl" if args.out else None
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path and path.exists() else []
    try:
        sweep(args, rows, path)
    finally:
        if args.out and rows:
            plot(rows, args.out / "secure.png")


def sweep(args: argparse.Namespace, rows: list[dict[str, Any]], path: Path | None) -> None:
    """Measure all combinations of the options that are not in `rows` yet."""
    protocols = [*args.protocols, *(["flwr"] if args.flwr else [])]
    settings = product(map(int, args.sizes), args.clients, args.dropouts, protocols)
    known = {(row["size"], row["clients"], row["dropouts"], row["protocol"]): row for row in rows}
    for size, clients, dropouts, protocol in settings:
        if (size, clients, dropouts, protocol) in known:
            print(f"{format_row(known[size, clients, dropouts, protocol])}  (from {path})", flush=True)
            continue
        if (needed := estimate_memory(protocol, size, clients)) > args.memory:
            print(
                f"{protocol:13s} {size:>10,d} {clients:4d} {dropouts:5.0%}  skipped: needs about {needed:.0f} GB, "
                f"and --memory is {args.memory:g}",
                flush=True,
            )
            continue
        if protocol == "flwr":
            row = measure_flwr(args.flwr, size, clients, dropouts)
        else:
            row = measure(protocol, size, clients, dropouts)
        rows.append(row)
        print(format_row(row), flush=True)
        if path:
            _append(path, row)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
