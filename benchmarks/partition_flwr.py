"""The DirichletPartitioner of flwr-datasets on the labels of benchmarks.partition. It does not need Motet."""

from __future__ import annotations

import argparse
import json
import time

import numpy as np


def main() -> None:
    from datasets import Dataset
    from flwr_datasets.partitioner import DirichletPartitioner

    parser = argparse.ArgumentParser()
    for name in ("rows", "clients", "labels"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--alpha", type=float)
    args = parser.parse_args()
    ids = np.random.default_rng(0).integers(args.labels, size=args.rows)
    partitioner = DirichletPartitioner(
        args.clients, "label", args.alpha, min_partition_size=0, self_balancing=False, seed=1
    )
    partitioner.dataset = Dataset.from_dict({"label": ids})
    start = time.perf_counter()
    partitioner.load_partition(0)  # computes all partitions
    seconds = time.perf_counter() - start
    rows = sum(map(len, partitioner._partition_id_to_indices.values()))
    print(json.dumps({"seconds": seconds, "clients": args.clients, "rows": rows}))


if __name__ == "__main__":
    main()
