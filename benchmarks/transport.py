"""What a round costs beyond training: every client sends back what it was sent, and the server sums.

    python -m benchmarks.transport --params 1 22 --clients 2 8 --flower-python ~/flower/bin/python --out transport.jsonl

Bytes go both ways through real processes on this machine. Ratios are within one run: to plain TCP, which is the floor, and to
Flower's deployment, if an interpreter that has it is given. Flower moves each tensor by itself, so `flower_flat` is the same
bytes as one tensor, its best case, and that is what the ratio is to. MB/s counts both ways; the time is the best round's, on
a machine that others may use too. Peak memory is the server's process alone. Rows that `--out` has already are not measured
again, and those for which this machine has too little memory are left out with a word.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from benchmarks import flower_link
from benchmarks.echo import attend_rank, layers, seconds_of, seconds_of_sockets
from benchmarks.flower_link import UnmeasuredError

NETWORKS = ["sockets", "in_process", "grpc", "mqtt", "mpi", "ray", "flower", "flower_flat"]
HEADS = ["M params", "clients", "over", "s a round", "MB/s", "× sockets", "Flower takes ×", "server MB"]
# What a row needs: GB a process of its own, then how often a client's message is held at once, on all sides together.
NEEDS = {
    "sockets": (0.3, 1.0), "in_process": (0.0, 0.0), "grpc": (0.35, 1.5), "mqtt": (0.35, 2.5), "mpi": (0.35, 2.0),
    "ray": (0.5, 1.5), "flower": (0.45, 8.0), "flower_flat": (0.45, 8.0),
}  # fmt: skip


def needed(network: str, millions: float, clients: int, workers: int) -> float:
    """GB, by what small runs needed."""
    base, held = NEEDS[network]
    apart = clients if network.startswith("flower") else min(workers, clients)
    return 1.0 + base * apart + 4e-3 * millions * (4 + held * clients)


def available() -> float:
    found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    return int(found[1]) / 1e6 if found else 0.0


def measured(network: str, millions: float, clients: int, given: argparse.Namespace) -> tuple[list[float], float]:
    """Seconds of each round, and the server's peak memory in MB."""
    torch.set_num_threads(1)  # threads that wait for one another measure who else uses the machine
    params, names = layers(millions, given.tensors), tuple(f"c{k:03d}" for k in range(clients))
    if network == "sockets":
        times = seconds_of_sockets(params, names, given.rounds, given.workers)
    else:
        times = seconds_of(network, params, names, given.rounds, given.workers)
    return times, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def apart(network: str, millions: float, clients: int, given: argparse.Namespace) -> tuple[list[float], float]:
    """The same in a process of its own, so that memory is this measurement's alone."""
    words = [
        "--one",
        "--over",
        network,
        "--params",
        str(millions),
        "--clients",
        str(clients),
        "--rounds",
        str(given.rounds),
    ]
    words += ["--workers", str(given.workers), "--tensors", str(given.tensors)]
    command = [sys.executable, "-m", "benchmarks.transport", *words]
    if network == "mpi":
        mpirun = Path(sys.executable).parent / "mpirun"
        if not mpirun.exists():
            raise UnmeasuredError("no mpirun beside this Python (pip install 'motet[mpi]')")
        command = [str(mpirun), "-n", str(1 + min(given.workers, clients)), *command]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=given.patience)
    except subprocess.TimeoutExpired:
        raise UnmeasuredError(f"not done in {given.patience:g} s (--patience)") from None
    if ran.returncode:
        raise UnmeasuredError(
            f"ended with {ran.returncode}: {(ran.stderr.strip().splitlines() or ['no word'])[-1][:200]}"
        )
    found = json.loads(ran.stdout.strip().splitlines()[-1])
    return found["seconds"], found["peak"]


def row(network: str, millions: float, clients: int, given: argparse.Namespace) -> dict[str, Any]:
    if network.startswith("flower") and not given.flower_python:
        raise UnmeasuredError("no --flower-python")
    if (need := needed(network, millions, clients, given.workers)) > (there := available()):
        raise UnmeasuredError(f"needs about {need:.0f} GB of memory, and {there:.0f} are free")
    if network.startswith("flower"):
        tensors = 1 if network == "flower_flat" else given.tensors
        seconds, peak = flower_link.measured(
            given.flower_python, millions, tensors, clients, given.rounds, given.patience
        )
    else:
        seconds, peak = apart(network, millions, clients, given)
    return {**place(network, millions, clients, given), "seconds": seconds, "peak": peak}


def place(network: str, millions: float, clients: int, given: argparse.Namespace) -> dict[str, Any]:
    workers = clients if network.startswith("flower") else 0 if network == "in_process" else min(given.workers, clients)
    return {"over": network, "millions": millions, "clients": clients, "tensors": given.tensors, "workers": workers}


def table(rows: list[dict[str, Any]]) -> str:
    best = {(r["millions"], r["clients"], r["over"]): min(r["seconds"]) for r in rows}
    lines = [HEADS, ["--:", "--:", ":--", *["--:"] * 5]]
    for r in rows:
        where, seconds = (r["millions"], r["clients"]), min(r["seconds"])
        floor, flower = best.get((*where, "sockets")), best.get((*where, "flower_flat"))
        lines.append(
            [
                f"{r['millions']:g}", str(r["clients"]), r["over"], f"{seconds:.3f}",
                f"{8 * r['millions'] * r['clients'] / seconds:.0f}",
                f"{seconds / floor:.2f}" if floor else "–", f"{flower / seconds:.1f}" if flower else "–", f"{r['peak']:.0f}",
            ]
        )  # fmt: skip
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--params", type=float, nargs="+", default=[1, 22], help="millions")
    parser.add_argument("--clients", type=int, nargs="+", default=[2, 8])
    parser.add_argument("--over", nargs="+", default=NETWORKS, choices=NETWORKS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--workers", type=int, default=2, help="processes that play the clients (Flower has one a client)"
    )
    parser.add_argument("--tensors", type=int, default=200, help="of a model; a BERT has about 200")
    parser.add_argument("--flower-python", help="a Python that has flwr; without it Flower is left out")
    parser.add_argument("--patience", type=float, default=1800.0, help="seconds a row may take")
    parser.add_argument("--out", type=Path, default=Path("transport.jsonl"), help="where rows are written as they come")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def one(given: argparse.Namespace) -> None:
    if given.over[0] == "mpi":
        from motet.transport.mpi import MpiEndpoint

        if (port := MpiEndpoint()).rank:
            attend_rank(port)
            return
    seconds, peak = measured(given.over[0], given.params[0], given.clients[0], given)
    print(json.dumps({"seconds": seconds, "peak": peak}), flush=True)


def main() -> None:
    given = asked()
    if given.one:
        one(given)
        return
    rows = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    for millions in given.params:
        for clients in given.clients:
            for network in given.over:
                here = place(network, millions, clients, given)
                if any(here.items() <= r.items() for r in rows):
                    continue
                try:
                    rows.append(row(network, millions, clients, given))
                except UnmeasuredError as why:
                    print(f"# {millions:g} M, {clients} clients over {network}: left out, {why}", flush=True)
                    continue
                with given.out.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
                    file.flush()
                    os.fsync(file.fileno())
                print(
                    f"# {millions:g} M, {clients} clients over {network}: {min(rows[-1]['seconds']):.3f} s a round",
                    flush=True,
                )
    order = {name: index for index, name in enumerate(NETWORKS)}
    print(table(sorted(rows, key=lambda r: (r["millions"], r["clients"], order[r["over"]]))))


if __name__ == "__main__":
    main()
