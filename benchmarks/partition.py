"""How long it takes to divide a corpus, beside flwr-datasets' DirichletPartitioner on the same labels, and in how much memory.

    python -m benchmarks.partition [--rows 1000000] [--clients 10000] [--labels 20] [--alpha 1] [--natural 1660820]
                                   [--peer FLWR_PYTHON] [--repeat 3]

The peer needs an environment of its own: python -m venv /tmp/flwr && /tmp/flwr/bin/pip install flwr-datasets
and then --peer /tmp/flwr/bin/python. The two alternate, so that whatever else the machine does meets both. Each measurement is
a process of its own, so that its peak memory is its own too (ours above the corpus's); labels are made in each from the same
seed and are not timed. Natural clients have three rows each on average.
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


def ours(what: str, rows: int, clients: int, labels: int, alpha: float) -> dict[str, float]:
    """One partition made in this process: seconds, and megabytes above what the corpus itself takes."""
    from motet.core.rng import Seed
    from motet.datasets.columns import CategoryColumn
    from motet.datasets.corpus import Corpus
    from motet.partitions import label, label_quantity, natural, quantity, uniform

    ids = np.random.default_rng(0).integers(labels, size=rows).astype(np.int32)
    names = tuple(f"label-{k:04d}" for k in range(labels))
    texts = CategoryColumn(np.zeros(rows, np.int8), ("a text",))
    corpus = Corpus("made", "classification", {"text": texts, "label": CategoryColumn(ids, names)}, rows)
    if what == "natural":
        many = np.random.default_rng(1).integers(clients, size=rows).astype(np.int32)
        corpus = Corpus(
            "made",
            "lm",
            {"text": texts, "client": CategoryColumn(many, tuple(f"user{k:07d}" for k in range(clients)))},
            rows,
        )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    made = {
        "uniform": lambda: uniform(corpus, Seed(1), clients),
        "label": lambda: label(corpus, Seed(1), clients, alpha),
        "quantity": lambda: quantity(corpus, Seed(1), clients, 1.0),
        "label_quantity": lambda: label_quantity(corpus, Seed(1), clients, alpha, 1.0),
        "natural": lambda: natural(corpus, Seed(1)),
    }[what]()
    seconds = time.perf_counter() - began
    found = {"seconds": seconds, "megabytes": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3}
    return {**found, "clients": len(made), "rows": len(made.train.rows)}


def measured(python: str, script: list[str]) -> dict[str, float]:
    done = subprocess.run([python, *script], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{python}: {done.stderr.strip().splitlines()[-1]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (
        ("rows", 1_000_000),
        ("clients", 10_000),
        ("labels", 20),
        ("natural", 1_660_820),
        ("repeat", 3),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--alpha", type=float, default=1.0)
    parser.add_argument("--peer")
    parser.add_argument("--only", help="(what a measurement's own process is started with)")
    args = parser.parse_args()
    if args.only:
        print(json.dumps(ours(args.only, args.rows, args.clients, args.labels, args.alpha)))
        return
    options = [f"--{n}={getattr(args, n)}" for n in ("labels", "alpha")]

    def mine(what: str, clients: int, rows: int = args.rows) -> dict[str, float]:
        how = [f"--only={what}", f"--clients={clients}", f"--rows={rows}", *options]
        return measured(sys.executable, ["-m", "benchmarks.partition", *how])

    for what in ("uniform", "quantity", "label_quantity"):
        print(f"{what:16}{_said(mine(what, args.clients))}")
    print(f"{'natural':16}{_said(mine('natural', args.natural, 3 * args.natural))}")
    peer, own = [], []
    for _ in range(args.repeat):
        own.append(mine("label", args.clients))
        if args.peer:
            peer.append(measured(args.peer, [str(PEER), f"--clients={args.clients}", f"--rows={args.rows}", *options]))
    print(f"{'label':16}{_said(own[-1])}")
    if peer:
        print(f"{'flwr-datasets':16}{_said(peer[-1])}")
        ratio = statistics.median(p["seconds"] / o["seconds"] for p, o in zip(peer, own, strict=True))
        print(f"flwr-datasets / motet: {ratio:.1f} × the time (median of {args.repeat})")


def _said(found: dict[str, float]) -> str:
    size = f"{found['rows']:>12,.0f} rows {found['clients']:>10,.0f} clients {found['seconds']:>8.2f} s"
    return size + (f" {found['megabytes']:>8.0f} MB" if "megabytes" in found else "")


if __name__ == "__main__":
    main()
