"""Measure what a round costs besides training: every client returns the parameters it received, and the server sums them.

    python -m benchmarks.transport --params 1 22 --clients 2 8 --flower-python ~/flower/bin/python --out transport.jsonl

Bytes go both ways between real processes on this machine. Ratios are within one run: to plain TCP, the lower bound, and to
Flower's deployment, if `--flower-python` is set. Flower sends each tensor separately, so `flower_flat` sends the same bytes as
one tensor, its best case; the ratio is to that. MB/s counts both directions. The time is the best round's, because others may
use the machine. Peak memory is that of the server process. Rows that are already in `--out` are not measured again, and rows
that need more memory than this machine has are skipped with a note.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import psutil
import torch

from benchmarks.echo import measure_sockets, measure_transport, random_params, serve_rank
from benchmarks.flower_link import UnmeasuredError, measure_flower

NETWORKS = ["sockets", "in_process", "grpc", "mqtt", "mpi", "ray", "flower", "flower_flat"]
TITLES = ["M params", "clients", "over", "s per round", "MB/s", "× sockets", "Flower takes ×", "server MB"]
# Memory: GB per process, and how many copies of a client's message exist at once, in all processes together.
MEMORY_NEEDS = {
    "sockets": (0.3, 1.0), "in_process": (0.0, 0.0), "grpc": (0.35, 1.5), "mqtt": (0.35, 2.5), "mpi": (0.35, 2.0),
    "ray": (0.5, 1.5), "flower": (0.45, 8.0), "flower_flat": (0.45, 8.0),
}  # fmt: skip


def estimate_memory(network: str, millions: float, clients: int, workers: int) -> float:
    """Return the GB that a row needs, extrapolated from small runs."""
    per_process, copies = MEMORY_NEEDS[network]
    processes = clients if network.startswith("flower") else min(workers, clients)
    return 1.0 + per_process * processes + 4e-3 * millions * (4 + copies * clients)


def measure_here(network: str, millions: float, clients: int, args: argparse.Namespace) -> tuple[list[float], float]:
    """Return the seconds of each round, and the server's peak memory in MB."""
    torch.set_num_threads(1)  # more threads would measure the other load on the machine
    params, names = random_params(millions, args.tensors), tuple(f"c{k:03d}" for k in range(clients))
    if network == "sockets":
        times = measure_sockets(params, names, args.rounds, args.workers)
    else:
        times = measure_transport(network, params, names, args.rounds, args.workers)
    return times, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def measure_in_new_process(
    network: str, millions: float, clients: int, args: argparse.Namespace
) -> tuple[list[float], float]:
    """Do the same in a new process, so that its memory is measured separately."""
    options = {"over": network, "params": millions, "clients": clients}
    options |= {"rounds": args.rounds, "workers": args.workers, "tensors": args.tensors}
    arguments = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
    command = [sys.executable, "-m", "benchmarks.transport", "--one", *arguments]
    if network == "mpi":
        mpirun = Path(sys.executable).parent / "mpirun"
        if not mpirun.exists():
            raise UnmeasuredError("there is no mpirun next to this Python; run pip install 'motet[mpi]'")
        command = [str(mpirun), "-n", str(1 + min(args.workers, clients)), *command]
    try:
        process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=args.timeout)
    except subprocess.TimeoutExpired:
        raise UnmeasuredError(f"not done after {args.timeout:g} s (--timeout)") from None
    if process.returncode:
        last_line = (process.stderr.strip().splitlines() or ["no message"])[-1][:200]
        raise UnmeasuredError(f"ended with {process.returncode}: {last_line}")
    result = json.loads(process.stdout.strip().splitlines()[-1])
    return result["seconds"], result["peak"]


def measure(network: str, millions: float, clients: int, args: argparse.Namespace) -> dict[str, Any]:
    if network.startswith("flower") and not args.flower_python:
        raise UnmeasuredError("--flower-python is not set")
    needed, available = (
        estimate_memory(network, millions, clients, args.workers),
        psutil.virtual_memory().available / 1e9,
    )
    if needed > available:
        raise UnmeasuredError(f"it needs about {needed:.0f} GB of memory, and {available:.0f} GB are free")
    if network.startswith("flower"):
        tensors = 1 if network == "flower_flat" else args.tensors
        seconds, peak = measure_flower(args.flower_python, millions, tensors, clients, args.rounds, args.timeout)
    else:
        seconds, peak = measure_in_new_process(network, millions, clients, args)
    return {**setting(network, millions, clients, args), "seconds": seconds, "peak": peak}


def setting(network: str, millions: float, clients: int, args: argparse.Namespace) -> dict[str, Any]:
    workers = clients if network.startswith("flower") else 0 if network == "in_process" else min(args.workers, clients)
    return {"over": network, "millions": millions, "clients": clients, "tensors": args.tensors, "workers": workers}


def format_table(rows: list[dict[str, Any]]) -> str:
    best = {(r["millions"], r["clients"], r["over"]): min(r["seconds"]) for r in rows}
    lines = [TITLES, ["--:", "--:", ":--", *["--:"] * 5]]
    for r in rows:
        size, seconds = (r["millions"], r["clients"]), min(r["seconds"])
        sockets, flower = best.get((*size, "sockets")), best.get((*size, "flower_flat"))
        lines.append(
            [
                f"{r['millions']:g}", str(r["clients"]), r["over"], f"{seconds:.3f}",
                f"{8 * r['millions'] * r['clients'] / seconds:.0f}",
                f"{seconds / sockets:.2f}" if sockets else "–",
                f"{flower / seconds:.1f}" if flower else "–", f"{r['peak']:.0f}",
            ]
        )  # fmt: skip
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--params", type=float, nargs="+", default=[1, 22], help="Millions of parameters.")
    parser.add_argument("--clients", type=int, nargs="+", default=[2, 8])
    parser.add_argument("--over", nargs="+", default=NETWORKS, choices=NETWORKS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2, help="Client processes; Flower has one per client.")
    parser.add_argument("--tensors", type=int, default=200, help="Tensors of the model; BERT has about 200.")
    parser.add_argument("--flower-python", help="A Python with flwr; without it Flower is skipped.")
    parser.add_argument("--timeout", type=float, default=1800.0, help="Seconds per row.")
    parser.add_argument("--out", type=Path, default=Path("transport.jsonl"), help="Append each row to this file.")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def run_one(args: argparse.Namespace) -> None:
    if args.over[0] == "mpi":
        from motet.transport.mpi import MpiEndpoint

        if (port := MpiEndpoint()).rank:
            serve_rank(port)
            return
    seconds, peak = measure_here(args.over[0], args.params[0], args.clients[0], args)
    print(json.dumps({"seconds": seconds, "peak": peak}), flush=True)


def main() -> None:
    args = parse_args()
    if args.one:
        run_one(args)
        return
    rows = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.exists() else []
    for millions, clients, network in product(args.params, args.clients, args.over):
        current = setting(network, millions, clients, args)
        if any(current.items() <= row.items() for row in rows):
            continue
        label = f"# {millions:g} M, {clients} clients over {network}"
        try:
            rows.append(measure(network, millions, clients, args))
        except UnmeasuredError as reason:
            print(f"{label}: skipped, {reason}", flush=True)
            continue
        with args.out.open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
            file.flush()
            os.fsync(file.fileno())
        print(f"{label}: {min(rows[-1]['seconds']):.3f} s per round", flush=True)
    order = {name: index for index, name in enumerate(NETWORKS)}
    print(format_table(sorted(rows, key=lambda r: (r["millions"], r["clients"], order[r["over"]]))))


if __name__ == "__main__":
    main()
