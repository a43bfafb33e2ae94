"""Measure the time and memory to partition a corpus, next to the DirichletPartitioner of flwr-datasets on the same labels.

    python -m benchmarks.partition [--rows 1000000] [--clients 10000] [--labels 20] [--alpha 1] [--natural 1660820]
                                   [--peer FLWR_PYTHON] [--repeat 3]

The peer needs a separate environment: python -m venv /tmp/flwr && /tmp/flwr/bin/pip install flwr-datasets
and then --peer /tmp/flwr/bin/python. The two alternate, so that other load on the machine affects both. Each measurement runs
in a new process, so that its peak memory is separate (for Motet, memory above that of the corpus). Labels are generated from
the same seed and are not timed. Natural clients have three rows on average.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

PEER = Path(__file__).with_name("partition_flwr.py")


def measure(strategy: str, rows: int, clients: int, labels: int, alpha: float) -> dict[str, float]:
    """Make one partition in this process; return its seconds, and the megabytes above those of the corpus."""
    from motet.core.rng import Seed
    from motet.datasets.columns import CategoryColumn
    from motet.datasets.corpus import Corpus
    from motet.partitions import label, label_quantity, natural, quantity, uniform

    ids = np.random.default_rng(0).integers(labels, size=rows).astype(np.int32)
    names = tuple(f"label-{k:04d}" for k in range(labels))
    texts = CategoryColumn(np.zeros(rows, np.int8), ("a text",))
    corpus = Corpus("random", "classification", {"text": texts, "label": CategoryColumn(ids, names)}, rows)
    if strategy == "natural":
        owners = np.random.default_rng(1).integers(clients, size=rows).astype(np.int32)
        users = CategoryColumn(owners, tuple(f"user{k:07d}" for k in range(clients)))
        corpus = Corpus("random", "lm", {"text": texts, "client": users}, rows)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    partition = {
        "uniform": lambda: uniform(corpus, Seed(1), clients),
        "label": lambda: label(corpus, Seed(1), clients, alpha),
        "quantity": lambda: quantity(corpus, Seed(1), clients, 1.0),
        "label_quantity": lambda: label_quantity(corpus, Seed(1), clients, alpha, 1.0),
        "natural": lambda: natural(corpus, Seed(1)),
    }[strategy]()
    return {
        "seconds": time.perf_counter() - start,
        "megabytes": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3,
        "clients": len(partition),
        "rows": len(partition.train.rows),
    }


def run_script(python: str, arguments: list[str]) -> dict[str, float]:
    process = subprocess.run([python, *arguments], capture_output=True, text=True, check=False)
    if process.returncode:
        raise SystemExit(f"{python}: {process.stderr.strip().splitlines()[-1]}")
    result: dict[str, float] = json.loads(process.stdout.splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--labels", type=int, default=20)
    parser.add_argument("--natural", type=int, default=1_660_820, help="Number of natural clients.")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--alpha", type=float, default=1.0)
    parser.add_argument("--peer", help="A Python with flwr-datasets.")
    parser.add_argument("--only", help=argparse.SUPPRESS)  # the strategy to measure in this process
    args = parser.parse_args()
    if args.only:
        print(json.dumps(measure(args.only, args.rows, args.clients, args.labels, args.alpha)))
        return
    options = [f"--{name}={getattr(args, name)}" for name in ("labels", "alpha")]

    def measure_motet(strategy: str, clients: int, rows: int = args.rows) -> dict[str, float]:
        arguments = [f"--only={strategy}", f"--clients={clients}", f"--rows={rows}", *options]
        return run_script(sys.executable, ["-m", "benchmarks.partition", *arguments])

    for strategy in ("uniform", "quantity", "label_quantity"):
        print(f"{strategy:16}{_format(measure_motet(strategy, args.clients))}")
    print(f"{'natural':16}{_format(measure_motet('natural', args.natural, 3 * args.natural))}")
    peer, motet = [], []
    for _ in range(args.repeat):
        motet.append(measure_motet("label", args.clients))
        if args.peer:
            arguments = [str(PEER), f"--clients={args.clients}", f"--rows={args.rows}", *options]
            peer.append(run_script(args.peer, arguments))
    print(f"{'label':16}{_format(motet[-1])}")
    if peer:
        print(f"{'flwr-datasets':16}{_format(peer[-1])}")
        ratio = statistics.median(p["seconds"] / m["seconds"] for p, m in zip(peer, motet, strict=True))
        print(f"flwr-datasets / motet: {ratio:.1f} × the time (median of {args.repeat})")


def _format(result: dict[str, float]) -> str:
    size = f"{result['rows']:>12,.0f} rows {result['clients']:>10,.0f} clients {result['seconds']:>8.2f} s"
    return size + (f" {result['megabytes']:>8.0f} MB" if "megabytes" in result else "")


if __name__ == "__main__":
    main()
