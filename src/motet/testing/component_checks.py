"""The contract suites of tasks, datasets, partitions, codecs and trackers."""

from __future__ import annotations

import dataclasses
import inspect
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import torch

from motet.algorithms import fedavg
from motet.codecs.chain import Channel, Codec, CodecChain
from motet.core.attributes import require_parent
from motet.core.errors import MotetError
from motet.core.params import Params
from motet.core.rebased import split_base
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.datasets.toy_corpora import toy_classification
from motet.learning.jobs import Infer
from motet.learning.solver import Solver
from motet.partitions import Partition
from motet.report.trackers import Tracker
from motet.tasks import Task
from motet.testing.algorithm_checks import require
from motet.testing.small_federation import make_federation, run_rounds
from motet.wire import deserialize, measure_size, serialize

_SGD = Solver(optimizer="sgd", lr=0.05, batch=8)


def check_task(create: Callable[..., Task], corpus: Corpus, **options: Any) -> None:
    """Check a task formulation on a corpus: one round of FedAvg, its metrics, and one score per example."""
    task = create(corpus, **options)
    _require_parent(task, Task, "the function's result")
    require(
        dataclasses.is_dataclass(task),
        "the task is no dataclass, so its fields cannot be sent; add @dataclass(frozen=True).",
    )
    kind = get_type_hints(create).get("return")
    require(
        kind is type(task),
        f"the function's return annotation is {kind}; clients rebuild the task from it: write -> {type(task).__name__}",
    )
    values: Any = task
    fields = {f.name: getattr(task, f.name) for f in dataclasses.fields(values)}
    copy = type(task)(**deserialize(serialize(fields)))
    require(
        copy == task,
        "the task changes when its fields are sent; use fields that are messages, numbers, texts and tuples.",
    )
    require(task.primary_metric in task.metric_names, f"primary_metric {task.primary_metric} is not in metric_names.")
    federation = make_federation(corpus, clients=2, task=task.name, public_share=0.0)
    run = run_rounds(federation, fedavg(_SGD), 1)
    server = federation.server_participant
    examples, params = server.split("global"), split_base(run.model_for())[0]
    predictions = run.engine.executor.run(Infer(federation.model, params, examples, task.readout))
    metrics = task.compute_metrics(predictions, examples)
    require(
        set(metrics) <= set(task.metric_names),
        f"compute_metrics returns {sorted(set(metrics) - set(task.metric_names))}, which metric_names lacks.",
    )
    missing = set(task.metric_names) - set(task.partial_metrics) - set(metrics)
    require(not missing, f"compute_metrics lacks {sorted(missing)} of metric_names; return all of them.")
    require(
        all(math.isfinite(value) for value in metrics.values()),
        f"compute_metrics returns {metrics}; expected finite numbers.",
    )
    rows = len(task.score_examples(predictions, examples))
    count = len(np.unique(examples.features.example_ids(examples.rows)))
    require(rows == count, f"score_examples returns {rows} scores for {count} examples; return one per example.")


def check_dataset(create: Callable[[], Corpus]) -> None:
    """Check a dataset: a corpus with training and test rows that is the same on every call."""
    first, second = create(), create()
    require(isinstance(first, Corpus), f"the function returned a {type(first).__name__}; return a Corpus.")
    require(
        0 < first.num_train < len(first),
        f"{first.num_train} of {len(first)} rows are training rows; leave some for the test set.",
    )
    require(first.fingerprint == second.fingerprint, "two calls return different corpora; draw from a fixed seed.")


def check_partition(create: Callable[..., Partition], corpus: Corpus | None = None, **options: Any) -> None:
    """Check a partition strategy: every row has at most one client, and the seed decides everything."""
    corpus = toy_classification(train=96, test=48, authors=6) if corpus is None else corpus
    parameters = inspect.signature(create).parameters
    fixed = {name: value for name, value in (("corpus", corpus), ("seed", Seed(3))) if name in parameters}
    first, second = create(**fixed, **options), create(**fixed, **options)
    require(isinstance(first, Partition), f"the function returned a {type(first).__name__}; return a Partition.")
    for name, rows, low, high in (
        ("training", first.train.rows, 0, corpus.num_train),
        ("test", first.test.rows, corpus.num_train, len(corpus)),
    ):
        require(
            bool(((rows >= low) & (rows < high)).all()),
            f"a {name} row is not in {low}…{high - 1}; use rows of the corpus.",
        )
    require(
        len(np.unique(first.train.rows)) == len(first.train.rows), "a training row has several clients; give it to one."
    )
    require(bool((first.train.sizes > 0).all()), "a client has no training rows; give each client some.")
    is_same = np.array_equal(first.train.rows, second.train.rows) and np.array_equal(
        first.train.offsets, second.train.offsets
    )
    require(is_same, "the same seed gives two different partitions; draw from seed.numpy().")


def check_codec(create: Callable[..., Codec], **options: Any) -> None:
    """Check a codec: what it promises about sizes and errors is true, and it changes no input."""
    codec = create(**options)
    _require_parent(codec, Codec, "the function's result")
    chain, generator = CodecChain((codec,)), torch.Generator().manual_seed(0)
    tensors = {"weight": torch.randn(12, 33, generator=generator), "bias": torch.randn(33, generator=generator)}
    params = Params.from_tensors(tensors, {"weight": "layers.0", "bias": "head"})
    before = params.flat.clone()
    encoded, again = chain.encode(params, Seed(1)), chain.encode(params, Seed(1))
    require(torch.equal(params.flat, before), "encode changes its input; compute new values.")
    require(serialize(encoded) == serialize(again), "the same seed gives two different encodings; draw from the seed.")
    decoded = chain.decode(deserialize(serialize(encoded)))
    require(decoded.layout == params.layout, "decode returns another layout; return a vector of the original length.")
    size, promised = measure_size(encoded).payload, chain.encoded_size(params.layout)
    require(size == promised, f"encoded_size promises {promised} bytes, and the message has {size}.")
    error, bound = (decoded - params).norm(), chain.error_bound(params)
    require(error <= bound * (1 + 1e-5), f"the error is {error:g}, and error_bound promises {bound:g}.")
    if codec.is_additive:
        _check_additive(chain, params)
    if not codec.updates_only:
        run_rounds(make_federation(clients=2, public_share=0.0), fedavg(_SGD), 1, channel=Channel(up=chain, down=chain))


def _check_additive(chain: CodecChain, params: Params) -> None:
    first, second = chain.encode(params, Seed(1)), chain.encode(0.5 * params, Seed(2))
    total = dataclasses.replace(first, body=first.body + second.body)
    separately = chain.decode(first) + chain.decode(second)
    error = (chain.decode(total) - separately).norm()
    require(
        error <= 1e-4 * params.norm(), "decoding a sum is not the sum of decoded vectors; declare is_additive = False."
    )


def check_tracker(create: Callable[..., Tracker]) -> None:
    """Check a tracker: it opens in a folder, takes the metrics of two rounds and closes."""
    with tempfile.TemporaryDirectory() as folder:
        tracker = create("recipe", Path(folder), {"seed": 1})
        for name in ("log", "close"):
            require(callable(getattr(tracker, name, None)), f"the tracker has no method {name}.")
        for round in (1, 2):
            tracker.log(round, {"accuracy": 0.5 * round, "loss": 1.0 / round})
        tracker.close()


def _require_parent(value: object, parent: type, source: str) -> None:
    try:
        require_parent(value, parent, source)
    except MotetError as error:
        raise AssertionError(str(error)) from error
