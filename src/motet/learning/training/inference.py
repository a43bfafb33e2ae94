"""Running models over examples: one model on a CPU, or many clients' side by side on a device."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from motet.learning.jobs import Infer, Predictions
from motet.learning.packed.device_dataset import DeviceDataset, round_up_width
from motet.learning.packed.packed_model import PackedModel
from motet.learning.training.step_schedule import Read


def infer(job: Infer, pack: PackedModel, read: Read, half: bool = False) -> Predictions:
    """Texts of like length stand together, so little is padded; the answer is in the examples' order."""
    pack.seat([job.params])
    pack.module.eval()
    by_length = np.argsort(job.examples.lengths, kind="stable")
    places = [by_length[at : at + job.batch_size] for at in range(0, len(by_length), job.batch_size)]
    with torch.no_grad(), torch.autocast(pack.device.type, torch.bfloat16, enabled=half):
        found = [
            job.readout.read(pack, {n: t.to(pack.device) for n, t in read(job.examples, p).items()}) for p in places
        ]
    return concatenate_predictions(found, np.concatenate(places) if places else np.zeros(0, np.int64))


def infer_together(
    jobs: Sequence[Infer], pack: PackedModel, resident: DeviceDataset, tokens: int, half: bool
) -> list[Predictions]:
    """Jobs of one model and readout, at most as many different parameters as the pack may hold; `tokens` at a time.

    Jobs with the very same parameters are one longer job: a model that all clients share goes over all their texts at once.
    """
    shared: dict[int, list[int]] = {}
    for i, job in enumerate(jobs):
        shared.setdefault(id(job.params), []).append(i)
    groups = sorted(shared.values(), key=lambda group: -sum(len(jobs[i].examples) for i in group))
    pack.seat([jobs[group[0]].params for group in groups])
    pack.refresh()
    pack.module.eval()
    lines = [_Line([jobs[i] for i in group]) for group in groups]
    with torch.no_grad(), torch.autocast(pack.device.type, torch.bfloat16, enabled=half):
        _go(lines, jobs[0], pack, resident, tokens)
    answers: dict[int, Predictions] = {}
    for group, line in zip(groups, lines, strict=True):
        answers |= dict(zip(group, line.answers(), strict=True))
    return [answers[i] for i in range(len(jobs))]


class _Line:
    """The examples of all jobs with the same parameters, shortest first, and what was read of them so far."""

    def __init__(self, jobs: Sequence[Infer]) -> None:
        self.ends = np.cumsum([len(job.examples) for job in jobs])
        rows = np.concatenate([job.examples.rows for job in jobs])
        lengths = np.concatenate([job.examples.lengths for job in jobs])
        self.places = np.argsort(lengths, kind="stable")
        self.rows, self.lengths, self.done = rows[self.places], lengths[self.places], 0
        names = jobs[0].examples.extra_columns
        each = {name: [job.examples.extra_columns[name] for job in jobs] for name in names}
        self.extra = {n: torch.cat([c for c in own if isinstance(c, Tensor)])[self.places] for n, own in each.items()}
        self.parts: list[Predictions] = []

    def answers(self) -> list[Predictions]:
        whole = concatenate_predictions(self.parts, self.places)
        cuts = [0, *self.ends.tolist()]
        return [{n: t[a:b] for n, t in whole.items()} for a, b in pairwise(cuts)]


def _go(lines: Sequence[_Line], job: Infer, pack: PackedModel, resident: DeviceDataset, tokens: int) -> None:
    """Longest line first; those that are through leave at the end."""
    while active := [line for line in lines if line.done < len(line.rows)]:
        k = len(active)
        if k != pack.crowd.clients:
            pack.narrow(k)
        longest = max(int(line.lengths[min(len(line.rows), line.done + 8) - 1]) for line in active)
        count = max(
            1, min(tokens // (k * round_up_width(max(1, longest))), max(len(line.rows) - line.done for line in active))
        )
        index = np.stack([line.rows[np.minimum(line.done + np.arange(count), len(line.rows) - 1)] for line in active])
        widths = resident.widths_of(index)
        batch = resident.batch(torch.from_numpy(index.reshape(-1)).to(pack.device), widths)
        for name in active[0].extra:
            columns = [
                line.extra[name][np.minimum(line.done + np.arange(count), len(line.rows) - 1)] for line in active
            ]
            batch[name] = torch.cat(columns).to(pack.device)
        found = {n: t.view(k, count, *t.shape[1:]).cpu() for n, t in job.readout.read(pack, batch).items()}
        for i, line in enumerate(active):
            real = min(count, len(line.rows) - line.done)
            line.parts.append({n: t[i, :real] for n, t in found.items()})
            line.done += real


def concatenate_predictions(parts: list[Predictions], places: np.ndarray) -> Predictions:
    """Predictions of batches as one table; rows of different widths are filled with −100."""
    table: Predictions = {}
    for name in parts[0] if parts else ():
        columns: list[Tensor] = [part[name].cpu() for part in parts]
        width = max(c.shape[1] for c in columns) if columns[0].dim() > 1 else 0
        wide = [nn.functional.pad(c, (0, width - c.shape[1]), value=-100) if width else c for c in columns]
        table[name] = torch.empty_like(whole := torch.cat(wide))
        table[name][torch.from_numpy(places)] = whole
    return table
