"""A executor that runs the jobs of many clients as one: what stands on a GPU."""

from __future__ import annotations

import gc
import logging
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from motet.core.errors import RunError
from motet.core.work import Job, JobFailure
from motet.learning.data.features import Examples, Features
from motet.learning.executors.memory_budget import PACKED_MODEL_FRACTION, free_memory
from motet.learning.jobs import Fit, FitResult, Infer
from motet.learning.modules.frozen_prefix import FrozenPrefix, cut_frozen_prefix
from motet.learning.modules.model import Model
from motet.learning.packed.cuda_graphs import CudaGraphs
from motet.learning.packed.device_dataset import DeviceDataset
from motet.learning.packed.packed_model import PackedModel
from motet.learning.packed.packing_mode import PackingChoice, choose_packing_mode, choose_probe_rows
from motet.learning.training.fit import fit
from motet.learning.training.inference import concatenate_predictions, infer, infer_together

_MOST = 64  # clients whose jobs are open at once
_TOKENS, _FEWEST = 2**17, 2**8  # of one batch of inference, and of the last that is tried when memory is short
Answer = tuple[Hashable, Any]


class PackedExecutor:
    """Compatible jobs run side by side, as many as memory allows; how many that is, is measured at the first pack.

    Results depend on the width in the last bits (and with dropout in its masks): give `width` to fix it across machines.
    """

    capacity = _MOST

    def __init__(self, device: torch.device, width: int | None = None, half: bool = True, record: bool = True) -> None:
        self.device, self.half, self.limit = device, half, width
        self.tape = CudaGraphs(device) if record and device.type == "cuda" else None
        self.waiting: dict[Hashable, Job] = {}
        self.ways: dict[tuple[str, bool], PackingChoice] = {}
        self.packs: dict[tuple[str, bool, bool], PackedModel] = {}
        self.prefixes: dict[str, FrozenPrefix | None] = {}
        self.residents: dict[tuple[str, str, bool], DeviceDataset] = {}
        self.widths: dict[Hashable, int] = {}
        self.tokens: dict[Hashable, int] = {}  # of a batch of inference, where memory was short
        self.texts: dict[Hashable, int] = {}  # the same of jobs that stand alone
        self.examples_processed = 0

    # ---- jobs ---------------------------------------------------------------------------------------------------

    def submit(self, key: Hashable, job: Job) -> None:
        self.waiting[key] = job

    def wait_completed(self) -> Sequence[Answer]:
        """The largest group of jobs that agree, or as many of it as fit side by side."""
        groups: dict[Hashable, list[Hashable]] = {}
        for key, job in self.waiting.items():
            groups.setdefault(job.key, []).append(key)
        chosen = max(groups.values(), key=len)
        chosen.sort(key=lambda key: _order(self.waiting[key]))
        answers = self._answers([self.waiting[key] for key in chosen])
        found = dict(zip(chosen, answers, strict=False))
        done = [
            (key, found[key]) for key in self.waiting if key in found
        ]  # as they were asked for: sums fold them at once
        for key in found:
            del self.waiting[key]
        return done

    def run(self, job: Job) -> Any:
        (answer,) = self._answers([job])
        if isinstance(answer, JobFailure):
            raise answer.error
        return answer

    def _answers(self, jobs: list[Any]) -> list[Any]:
        """The answers to the first jobs: to all, if they fit."""
        while True:
            try:
                return self._fits(jobs) if isinstance(jobs[0], Fit) else self._infers(jobs)
            except torch.OutOfMemoryError as error:
                why = str(error).split(".")[0]
            self._make_room(jobs, why)  # not while the error is at hand: it holds on to what there was no room for

    def _fits(self, jobs: list[Fit]) -> list[FitResult | JobFailure]:
        first = jobs[0]
        if first.must_run_alone:
            ends = fit([first], self._whole(first), Examples.batch, None, self.half)
            self.examples_processed += sum(end.examples_processed for end in ends if isinstance(end, FitResult))
            return ends
        resident = self._resident(first)
        if first.key not in self.widths and len(jobs) > 1:
            self.widths[first.key] = self._planned(jobs, resident)
        some = jobs[: _even(len(jobs), self.widths.get(first.key, 1))]
        resident.fill(np.concatenate([job.examples.rows for job in some]))
        pack = self._pack(first, resident, packed=len(some) > 1)
        tape = self.tape if pack.way != "vmap" else None
        ends = fit(some, pack, resident, tape, self.half)
        self.examples_processed += sum(end.examples_processed for end in ends if isinstance(end, FitResult))
        return ends

    def _infers(self, jobs: list[Infer]) -> list[Any]:
        first = jobs[0]
        if first.must_run_alone:
            pieces = [replace(piece, batch_size=self._texts(first)) for piece in first.chunks()]
            found = [infer(piece, self._whole(first), Examples.batch, self.half) for piece in pieces]
            return [concatenate_predictions(found, np.arange(len(first.examples)))]
        resident = self._resident(first)
        alone = self._way(first, resident).way == "plain"
        jobs = jobs[: _with_models(jobs, 1 if alone else self.widths.get(first.key, self.limit or _MOST))]
        different = len({id(job.params) for job in jobs})
        resident.fill(np.concatenate([job.examples.rows for job in jobs]))
        pack = self._pack(first, resident, packed=different > 1)
        return infer_together(jobs, pack, resident, self.tokens.get(first.key, _TOKENS), self.half)

    # ---- what jobs need -----------------------------------------------------------------------------------------

    def _resident(self, job: Fit | Infer) -> DeviceDataset:
        model, features = job.model, job.examples.features
        mark = (model.key, features.key, job.needs_full_model)
        if mark not in self.residents:
            prefix = self._prefix(model, features)
            self.residents[mark] = found = DeviceDataset(
                features, self.device, None if job.needs_full_model else prefix
            )
            if prefix is None:  # one for both kinds of jobs
                self.residents[model.key, features.key, not job.needs_full_model] = found
        return self.residents[mark]

    def _prefix(self, model: Model, features: Features) -> FrozenPrefix | None:
        """The frozen layers below, if they can be cut off and their states of these texts take little of the memory."""
        if model.key not in self.prefixes:
            probe = features.batch(np.arange(min(3, len(features))))
            self.prefixes[model.key] = cut_frozen_prefix(model, {n: t.to(self.device) for n, t in probe.items()})
        width = getattr(getattr(model.module, "config", None), "hidden_size", 0)
        return self.prefixes[model.key] if 4 * width * int(features.lengths.sum()) < self._free() // 4 else None

    def _pack(self, job: Fit | Infer, resident: DeviceDataset, packed: bool) -> PackedModel:
        cut = resident.prefix is not None
        mark = (job.model.key, cut, packed)
        if mark not in self.packs:
            way = self._way(job, resident).way if packed else "plain"
            self.packs[mark] = PackedModel(*self._module(job, resident), self.device, way, self.half)
        return self.packs[mark]

    def _whole(self, job: Fit | Infer) -> PackedModel:
        """For one client, whose batches the host makes."""
        mark = (job.model.key, False, False)
        if mark not in self.packs:
            self.packs[mark] = PackedModel(job.model, job.model.module, self.device)
        return self.packs[mark]

    def _module(self, job: Fit | Infer, resident: DeviceDataset) -> tuple[Model, torch.nn.Module]:
        prefix = resident.prefix
        return (job.model, job.model.module) if prefix is None else (prefix.model, prefix.upper)

    def _way(self, job: Fit | Infer, resident: DeviceDataset) -> PackingChoice:
        mark = (job.model.key, resident.prefix is not None)
        if mark not in self.ways:
            rows = choose_probe_rows(job.examples.features)
            resident.fill(rows)
            widths = resident.widths_of(rows)
            probe = resident.batch(torch.from_numpy(rows).to(self.device), widths)
            self.ways[mark] = found = choose_packing_mode(*self._module(job, resident), probe, self.device)
            if found.way == "plain":
                logging.getLogger("motet").warning(
                    "clients are trained one by one, since they cannot be packed (%s)", found.why
                )
        return self.ways[mark]

    # ---- memory -------------------------------------------------------------------------------------------------

    def _planned(self, jobs: list[Fit], resident: DeviceDataset) -> int:
        """How many clients fit side by side: measured on two of them with their longest texts."""
        way = self._way(jobs[0], resident).way
        if way == "plain" or (
            way == "vmap" and jobs[0].needs_full_model
        ):  # only a forward pass is vectorised, no other part of a module
            return 1
        if self.limit is not None or self.device.type != "cuda":
            return self.limit or _MOST
        longest = [
            replace(job, examples=job.examples.select(_longest(job)), solver=replace(job.solver, steps=1))
            for job in jobs[:2]
        ]
        resident.fill(np.concatenate([job.examples.rows for job in longest]))
        torch.cuda.reset_peak_memory_stats(self.device)
        before = torch.cuda.memory_allocated(self.device)
        fit(longest, self._pack(jobs[0], resident, packed=len(longest) > 1), resident, None, self.half)
        each = (torch.cuda.max_memory_allocated(self.device) - before) / len(longest)
        return max(1, min(_MOST, int(PACKED_MODEL_FRACTION * self._free() / max(each, 1))))

    def _free(self) -> int:
        return free_memory(self.device) if self.device.type == "cuda" else 2**40

    def _texts(self, job: Infer) -> int:
        """How many texts at a time one that stands alone is given."""
        return self.texts.get(job.key, getattr(job.readout, "device_batch_size", job.batch_size))

    def _make_room(self, jobs: Sequence[Fit] | Sequence[Infer], why: str) -> None:
        """Half as much at a time as was tried; packs and recordings, which can be made again, are let go."""
        job, one, lower = jobs[0], "text", "model.max_tokens, task.target_tokens or task.beams"
        if isinstance(job, Fit):
            one, lower = "client", "solver.batch or model.max_tokens"
            tried = min(self.widths.get(job.key, 2), max(2, len(jobs)))
            self.widths[job.key], spent = max(1, tried // 2), tried <= 1
        elif job.must_run_alone:
            tried = min(self._texts(job), len(job.examples))
            self.texts[job.key], spent = tried // 2, tried <= 1
        else:
            self.tokens[job.key] = self.tokens.get(job.key, _TOKENS) // 2
            spent = self.tokens[job.key] < _FEWEST
        if spent:
            raise RunError(f"the device's memory does not hold one {one} ({why}); lower {lower}.")
        self._let_go()

    def close(self) -> None:
        self.residents.clear()
        self._let_go()

    def _let_go(self) -> None:
        """Packs and recordings leave the device. A pack's layers refer to one another, so only a collection frees them."""
        self.packs.clear()
        if self.tape is not None:
            self.tape.forget()
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()  # for the runs beside this one


def _order(job: Any) -> tuple[int, int]:
    """Longest first, and one order whatever order the jobs came in."""
    return (-job.solver.num_steps(len(job.examples)), job.seed) if isinstance(job, Fit) else (-len(job.examples), 0)


def _with_models(jobs: list[Infer], most: int) -> int:
    """How many of the first jobs have at most so many different parameters."""
    seen: set[int] = set()
    for i, job in enumerate(jobs):
        seen.add(id(job.params))
        if len(seen) > most:
            return i
    return len(jobs)


def _even(jobs: int, width: int) -> int:
    """So many at a time that the last pack is not a small remainder."""
    return -(-jobs // -(-jobs // width))


def _longest(job: Fit) -> np.ndarray:
    return np.sort(np.argsort(job.examples.lengths, kind="stable")[-job.solver.batch :])
