"""Run models over examples: one model at a time, or the models of many clients together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from motet.learning.data.features import IGNORE_INDEX
from motet.learning.jobs import Infer, Predictions
from motet.learning.packed.device_dataset import DeviceDataset, round_up_width
from motet.learning.packed.packed_model import PackedModel
from motet.learning.training.step_schedule import ReadBatch


def infer(job: Infer, model: PackedModel, read_batch: ReadBatch, use_bf16: bool = False) -> Predictions:
    """Run one job. Texts of similar length share a batch; the result is in the order of the examples."""
    model.model.frozen_weights.apply(job.base_update)
    model.load_clients([job.params])
    model.module.eval()
    by_length = np.argsort(job.examples.lengths, kind="stable")
    batches = [by_length[start : start + job.batch_size] for start in range(0, len(by_length), job.batch_size)]
    with torch.no_grad(), torch.autocast(model.device.type, torch.bfloat16, enabled=use_bf16):
        chunks = [
            job.readout.read(model, {n: t.to(model.device) for n, t in read_batch(job.examples, indices).items()})
            for indices in batches
        ]
    return concatenate_predictions(chunks, np.concatenate(batches) if batches else np.zeros(0, np.int64))


def infer_packed(
    jobs: Sequence[Infer], model: PackedModel, dataset: DeviceDataset, max_tokens: int, use_bf16: bool
) -> list[Predictions]:
    """Run jobs with the same model and readout, at most `max_tokens` per batch.

    Jobs with the same `Params` object become one longer job: a model that all clients share runs over all their texts.
    """
    model.model.frozen_weights.apply(jobs[0].base_update)
    by_params: dict[int, list[int]] = {}
    for i, job in enumerate(jobs):
        by_params.setdefault(id(job.params), []).append(i)
    groups = sorted(by_params.values(), key=lambda group: -sum(len(jobs[i].examples) for i in group))
    model.load_clients([jobs[group[0]].params for group in groups])
    model.begin_step()
    model.module.eval()
    queues = [_ExampleQueue([jobs[i] for i in group]) for group in groups]
    with torch.no_grad(), torch.autocast(model.device.type, torch.bfloat16, enabled=use_bf16):
        _drain(queues, jobs[0], model, dataset, max_tokens)
    results: dict[int, Predictions] = {}
    for group, queue in zip(groups, queues, strict=True):
        results |= dict(zip(group, queue.results(), strict=True))
    return [results[i] for i in range(len(jobs))]


class _ExampleQueue:
    """The examples of all jobs with the same parameters, shortest first, and their predictions so far."""

    def __init__(self, jobs: Sequence[Infer]) -> None:
        self.job_ends = np.cumsum([len(job.examples) for job in jobs])
        rows = np.concatenate([job.examples.rows for job in jobs])
        lengths = np.concatenate([job.examples.lengths for job in jobs])
        self.order = np.argsort(lengths, kind="stable")
        self.rows, self.lengths, self.done = rows[self.order], lengths[self.order], 0
        columns = {name: [job.examples.extra_columns[name] for job in jobs] for name in jobs[0].examples.extra_columns}
        self.extra_columns = {
            name: torch.cat([column for column in by_job if isinstance(column, Tensor)])[self.order]
            for name, by_job in columns.items()
        }
        self.chunks: list[Predictions] = []

    def next_indices(self, count: int) -> np.ndarray:
        """Return the next examples; the last one is repeated if there are fewer than `count`."""
        return np.minimum(self.done + np.arange(count), len(self.rows) - 1)

    def results(self) -> list[Predictions]:
        """Return the predictions of each job."""
        predictions = concatenate_predictions(self.chunks, self.order)
        bounds = pairwise([0, *self.job_ends.tolist()])
        return [{name: t[start:end] for name, t in predictions.items()} for start, end in bounds]


def _drain(
    queues: Sequence[_ExampleQueue], job: Infer, model: PackedModel, dataset: DeviceDataset, max_tokens: int
) -> None:
    """Run all queues, sorted by length, longest first: finished queues are at the end and leave by slicing."""
    while active := [queue for queue in queues if queue.done < len(queue.rows)]:
        clients = len(active)
        if clients != model.client_axis.clients:
            model.keep_first(clients)
        longest = max(int(queue.lengths[min(len(queue.rows), queue.done + 8) - 1]) for queue in active)
        fitting = max_tokens // (clients * round_up_width(max(1, longest)))
        count = max(1, min(fitting, max(len(queue.rows) - queue.done for queue in active)))
        rows = np.stack([queue.rows[queue.next_indices(count)] for queue in active])
        batch = dataset.batch(torch.from_numpy(rows.reshape(-1)).to(model.device), dataset.batch_widths(rows))
        for name in active[0].extra_columns:
            columns = [queue.extra_columns[name][queue.next_indices(count)] for queue in active]
            batch[name] = torch.cat(columns).to(model.device)
        outputs = {
            name: t.view(clients, count, *t.shape[1:]).cpu() for name, t in job.readout.read(model, batch).items()
        }
        for i, queue in enumerate(active):
            real = min(count, len(queue.rows) - queue.done)
            queue.chunks.append({name: t[i, :real] for name, t in outputs.items()})
            queue.done += real


def concatenate_predictions(chunks: list[Predictions], order: np.ndarray) -> Predictions:
    """Join predictions; row i of the chunks becomes row `order[i]`. Short rows are padded with IGNORE_INDEX."""
    result: Predictions = {}
    for name in chunks[0] if chunks else ():
        columns: list[Tensor] = [chunk[name].cpu() for chunk in chunks]
        width = max(c.shape[1] for c in columns) if columns[0].dim() > 1 else 0
        padded = [nn.functional.pad(c, (0, width - c.shape[1]), value=IGNORE_INDEX) if width else c for c in columns]
        joined = torch.cat(padded)
        result[name] = torch.empty_like(joined)
        result[name][torch.from_numpy(order)] = joined
    return result
