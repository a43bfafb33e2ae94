"""An executor for GPUs: it runs the jobs of many clients as one packed model."""

from __future__ import annotations

import gc
import logging
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from motet.core.work import Executor, Job, JobFailure
from motet.learning.data.features import Examples, Features
from motet.learning.executors.memory_budget import (
    DeviceMemoryError,
    clients_per_packed_model,
    free_memory,
    is_memory_short,
)
from motet.learning.jobs import Fit, FitResult, Infer
from motet.learning.modules.frozen_prefix import FrozenPrefix, cut_frozen_prefix
from motet.learning.modules.model import Model
from motet.learning.packed.cuda_graphs import CudaGraphs
from motet.learning.packed.device_dataset import DeviceDataset
from motet.learning.packed.end_tokens import check_end_tokens
from motet.learning.packed.packed_model import PackedModel
from motet.learning.packed.packing_mode import PackingChoice, choose_packing_mode, choose_probe_rows
from motet.learning.packed.parallel_compilation import compile_kernels_of
from motet.learning.training.fit import fit
from motet.learning.training.inference import concatenate_predictions, infer, infer_packed

_MAX_CLIENTS = 64  # in one packed model; also the number of jobs that are submitted at once
_MAX_TOKENS, _MIN_TOKENS = 2**17, 2**8  # per batch of inference: at first, and at least if memory is short


class PackedExecutor(Executor):
    """Packs compatible jobs, as many as fit in memory. This number, the width, is measured with the first jobs.

    Results depend on the width in their last bits, and with dropout in its masks. Set `width` to fix it across
    machines.
    """

    capacity = _MAX_CLIENTS
    device: torch.device
    examples_processed: int

    def __init__(
        self, device: torch.device, width: int | None = None, use_bf16: bool = True, capture_graphs: bool = True
    ) -> None:
        self.device, self.use_bf16, self.fixed_width = device, use_bf16, width
        self.graphs = CudaGraphs(device) if capture_graphs and device.type == "cuda" else None
        self.submitted: dict[Hashable, Job] = {}
        self.packing_choices: dict[tuple[str, bool], PackingChoice] = {}  # by model and whether its prefix is cut off
        self.models: dict[tuple[str, bool, bool], PackedModel] = {}  # the same, and whether it is packed
        self.prefixes: dict[str, FrozenPrefix | None] = {}
        self.datasets: dict[tuple[str, str, bool], DeviceDataset] = {}  # by model, corpus and `needs_full_model`
        self.widths: dict[Hashable, int] = {}  # packed clients, by the kind of jobs
        self.max_tokens: dict[Hashable, int] = {}  # per batch of inference, where memory was short
        self.max_texts: dict[Hashable, int] = {}  # the same for jobs that run alone
        self.examples_processed = 0

    # ---- jobs ---------------------------------------------------------------------------------------------------

    def submit(self, key: Hashable, job: Job) -> None:
        self.submitted[key] = job

    def wait_completed(self) -> Sequence[tuple[Hashable, Any]]:
        """Run the largest group of compatible jobs, or as many of it as fit in memory."""
        groups: dict[Hashable, list[Hashable]] = {}
        for key, job in self.submitted.items():
            groups.setdefault(job.key, []).append(key)
        largest = max(groups.values(), key=len)
        largest.sort(key=lambda key: _sort_key(self.submitted[key]))
        results = dict(zip(largest, self._run_first([self.submitted[key] for key in largest]), strict=False))
        # In the order of submission, so that sums can add the results at once.
        completed = [(key, results[key]) for key in self.submitted if key in results]
        for key in results:
            del self.submitted[key]
        return completed

    def run(self, job: Job) -> Any:
        (result,) = self._run_first([job])
        if isinstance(result, JobFailure):
            raise result.error
        return result

    def _run_first(self, jobs: list[Any]) -> list[Any]:
        """Run the first jobs, as many as fit in memory, and return their results."""
        while True:
            try:
                return self._fit_first(jobs) if isinstance(jobs[0], Fit) else self._infer_first(jobs)
            except torch.OutOfMemoryError as error:
                reason = str(error).split(".")[0]
            self._reduce_memory(jobs, reason)  # outside of the except block: the error keeps tensors alive

    def _fit_first(self, jobs: list[Fit]) -> list[FitResult | JobFailure]:
        first = jobs[0]
        if first.must_run_alone:
            results = fit([first], self._plain_model(first), Examples.batch, None, self.use_bf16)
        else:
            dataset = self._dataset(first)
            has_new_shapes = first.kind not in self.widths and len(jobs) > 1
            if has_new_shapes:
                self.widths[first.kind] = self._measure_width(jobs, dataset)
            jobs = jobs[: _balanced_width(len(jobs), self.widths.get(first.kind, 1))]
            dataset.fill(np.concatenate([job.examples.rows for job in jobs]))
            model = self._model(first, dataset, packed=len(jobs) > 1)
            if has_new_shapes:
                self._compile_kernels([_with_one_step(job) for job in jobs], model, dataset)
            results = self._fit_captured(jobs, model, dataset)
        self.examples_processed += sum(r.examples_processed for r in results if isinstance(r, FitResult))
        return results

    def _fit_captured(
        self, jobs: list[Fit], model: PackedModel, dataset: DeviceDataset
    ) -> list[FitResult | JobFailure]:
        """Train with captured steps. Drop them if they leave too little memory for what comes after the training."""
        graphs = self.graphs if model.can_be_captured else None
        captures_before = graphs.num_captures if graphs is not None else 0
        results = fit(jobs, model, dataset, graphs, self.use_bf16)
        if graphs is not None and graphs.num_captures > captures_before and is_memory_short(self.device):
            self._release_memory()
        return results

    def _infer_first(self, jobs: list[Infer]) -> list[Any]:
        first = jobs[0]
        if first.must_run_alone:
            chunks = [replace(chunk, batch_size=self._texts_per_batch(first)) for chunk in first.chunks()]
            predictions = [infer(chunk, self._plain_model(first), Examples.batch, self.use_bf16) for chunk in chunks]
            return [concatenate_predictions(predictions, first.chunk_order())]
        dataset = self._dataset(first)
        width = (self.fixed_width or _MAX_CLIENTS) if self._can_pack(first, dataset) else 1
        jobs = jobs[: _count_jobs_with_models(jobs, width)]
        num_models = len({id(job.params) for job in jobs})
        dataset.fill(np.concatenate([job.examples.rows for job in jobs]))
        model = self._model(first, dataset, packed=num_models > 1)
        return infer_packed(jobs, model, dataset, self.max_tokens.get(first.kind, _MAX_TOKENS), self.use_bf16)

    # ---- models and data ----------------------------------------------------------------------------------------

    def _dataset(self, job: Fit | Infer) -> DeviceDataset:
        model, features = job.model, job.examples.features
        key = (model.key, features.key, job.needs_full_model)
        if key not in self.datasets:
            check_end_tokens(model.module, features)
            prefix = self._prefix(model, features)
            dataset = DeviceDataset(features, self.device, None if job.needs_full_model else prefix)
            self.datasets[key] = dataset
            if prefix is None:  # the dataset serves both kinds of jobs
                self.datasets[model.key, features.key, not job.needs_full_model] = dataset
        return self.datasets[key]

    def _prefix(self, model: Model, features: Features) -> FrozenPrefix | None:
        """Return the frozen prefix, if the model has one and its hidden states of this corpus fit in 1/4 of the memory."""
        if model.key not in self.prefixes:
            probe = features.batch(np.arange(min(3, len(features))))
            self.prefixes[model.key] = cut_frozen_prefix(model, {n: t.to(self.device) for n, t in probe.items()})
        width = getattr(getattr(model.module, "config", None), "hidden_size", 0)
        fits = 4 * width * int(features.lengths.sum()) < self._free_memory() // 4
        return self.prefixes[model.key] if fits else None

    def _model(self, job: Fit | Infer, dataset: DeviceDataset, packed: bool) -> PackedModel:
        key = (job.model.key, dataset.prefix is not None, packed)
        if key not in self.models:
            mode = self._packing_choice(job, dataset).mode if packed else "plain"
            self.models[key] = PackedModel(*self._module(job, dataset), self.device, mode, self.use_bf16)
        return self.models[key]

    def _plain_model(self, job: Fit | Infer) -> PackedModel:
        """Return the full model for one client, with batches made by the host."""
        key = (job.model.key, False, False)
        if key not in self.models:
            self.models[key] = PackedModel(job.model, job.model.module, self.device)
        return self.models[key]

    def _module(self, job: Fit | Infer, dataset: DeviceDataset) -> tuple[Model, torch.nn.Module]:
        prefix = dataset.prefix
        return (job.model, job.model.module) if prefix is None else (prefix.model, prefix.upper)

    def _packing_choice(self, job: Fit | Infer, dataset: DeviceDataset) -> PackingChoice:
        key = (job.model.key, dataset.prefix is not None)
        if key not in self.packing_choices:
            rows = choose_probe_rows(job.examples.features)
            dataset.fill(rows)
            probe = dataset.batch(torch.from_numpy(rows).to(self.device), dataset.batch_widths(rows))
            choice = choose_packing_mode(*self._module(job, dataset), probe, self.device)
            self.packing_choices[key] = choice
            if choice.mode == "plain":
                logging.getLogger("motet").warning(
                    "clients are trained one by one because this model cannot be packed (%s)", choice.rejections
                )
        return self.packing_choices[key]

    def _can_pack(self, job: Fit | Infer, dataset: DeviceDataset) -> bool:
        mode = self._packing_choice(job, dataset).mode
        return mode == "packed_layers" or (
            mode == "vmap" and not job.needs_full_model
        )  # vmap: whole forward passes only

    # ---- memory -------------------------------------------------------------------------------------------------

    def _measure_width(self, jobs: list[Fit], dataset: DeviceDataset) -> int:
        """Return how many clients can be packed, from the memory that two of them need for their longest texts."""
        if not self._can_pack(jobs[0], dataset):
            return 1
        if self.fixed_width is not None or self.device.type != "cuda":
            return self.fixed_width or _MAX_CLIENTS
        probes = [_with_one_step(replace(job, examples=job.examples.select(_longest_texts(job)))) for job in jobs[:2]]
        dataset.fill(np.concatenate([job.examples.rows for job in probes]))
        torch.cuda.reset_peak_memory_stats(self.device)
        before = torch.cuda.memory_allocated(self.device)
        model = self._model(jobs[0], dataset, packed=len(probes) > 1)
        self._compile_kernels(probes, model, dataset)  # allocates the model's buffers, which count
        fit(probes, model, dataset, None, self.use_bf16)
        per_client = (torch.cuda.max_memory_allocated(self.device) - before) / len(probes)
        return clients_per_packed_model(per_client, self._free_memory(), _MAX_CLIENTS)

    def _compile_kernels(self, jobs: list[Fit], model: PackedModel, dataset: DeviceDataset) -> None:
        if model.packing_mode == "packed_layers":
            compile_kernels_of(lambda: fit(jobs, model, dataset, None, self.use_bf16), self.device)

    def _free_memory(self) -> int:
        return free_memory(self.device) if self.device.type == "cuda" else 2**40

    def _texts_per_batch(self, job: Infer) -> int:
        """Return the batch size of a job that runs alone."""
        return self.max_texts.get(job.kind, job.readout.device_batch_size or job.batch_size)

    def _reduce_memory(self, jobs: Sequence[Fit] | Sequence[Infer], reason: str) -> None:
        """Halve the width or batch size that did not fit, and drop models and graphs, which can be made again."""
        job, unit, options = jobs[0], "text", "model.max_tokens, task.max_target_tokens or task.num_beams"
        if isinstance(job, Fit):
            unit, options = "client", "solver.batch or model.max_tokens"
            tried = min(self.widths.get(job.kind, 2), max(2, len(jobs)))
            self.widths[job.kind], is_exhausted = max(1, tried // 2), tried <= 1
        elif job.must_run_alone:
            tried = min(self._texts_per_batch(job), len(job.examples))
            self.max_texts[job.kind], is_exhausted = tried // 2, tried <= 1
        else:
            self.max_tokens[job.kind] = self.max_tokens.get(job.kind, _MAX_TOKENS) // 2
            is_exhausted = self.max_tokens[job.kind] < _MIN_TOKENS
        if is_exhausted:
            raise DeviceMemoryError(f"the device's memory does not hold one {unit} ({reason}); lower {options}.")
        self._release_memory()

    def close(self) -> None:
        self.datasets.clear()
        self._release_memory()

    def _release_memory(self) -> None:
        """Drop models and graphs.

        The layers of a packed model refer to each other, so only the collector frees them.
        """
        self.models.clear()
        if self.graphs is not None:
            self.graphs.clear()
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()  # for other runs on this GPU


def _sort_key(job: Any) -> tuple[int, int]:
    """Sort by length, longest first, so that the order does not depend on the order of submission."""
    return (-job.solver.num_steps(len(job.examples)), job.seed) if isinstance(job, Fit) else (-len(job.examples), 0)


def _count_jobs_with_models(jobs: list[Infer], max_models: int) -> int:
    """Return how many of the first jobs have at most this many different parameters."""
    models: set[int] = set()
    for i, job in enumerate(jobs):
        models.add(id(job.params))
        if len(models) > max_models:
            return i
    return len(jobs)


def _balanced_width(jobs: int, width: int) -> int:
    """Return the largest width up to `width` for which the last group is not a small remainder."""
    groups = -(-jobs // width)
    return -(-jobs // groups)


def _with_one_step(job: Fit) -> Fit:
    return replace(job, solver=replace(job.solver, steps=1))


def _longest_texts(job: Fit) -> np.ndarray:
    """Return the indices of the longest batch of texts, in ascending order."""
    return np.sort(np.argsort(job.examples.lengths, kind="stable")[-job.solver.batch :])
