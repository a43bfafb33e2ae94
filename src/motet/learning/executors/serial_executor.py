"""An executor that runs one job after another in this process."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from motet.core.errors import MotetError
from motet.core.threads import single_thread
from motet.core.work import Executor, Job, JobFailure, Work
from motet.learning.data.features import Examples, Features
from motet.learning.jobs import Fit, Infer
from motet.learning.modules.first_token import install_first_token_layer
from motet.learning.modules.frozen_prefix import FrozenPrefix, HiddenStateCache, cut_frozen_prefix
from motet.learning.modules.model import Model
from motet.learning.packed.packed_model import PackedModel
from motet.learning.training.fit import fit
from motet.learning.training.inference import concatenate_predictions, infer
from motet.learning.training.step_schedule import ReadBatch

R = TypeVar("R")
MAX_CACHE_BYTES = 4 * 2**30  # of disk, for the hidden states of one corpus


class PrefixCache:
    """Frozen prefixes and their hidden states. Prepare it before workers are forked, so that all share it."""

    def __init__(self, max_bytes: int = MAX_CACHE_BYTES) -> None:
        self.max_bytes = max_bytes
        self.folder = tempfile.TemporaryDirectory(prefix="motet-")
        self.prefixes: dict[str, FrozenPrefix | None] = {}
        self.states: dict[tuple[str, str], HiddenStateCache] = {}

    def prepare(self, model: Model, features: Features) -> None:
        """Create the files for this model and corpus, if the model has a frozen prefix and they fit on disk."""
        if (model.key, features.key) in self.states or not len(features):
            return
        probe = features.batch(np.arange(min(3, len(features))))
        if model.key not in self.prefixes:
            self.prefixes[model.key] = cut_frozen_prefix(model, probe)
        prefix = self.prefixes[model.key]
        if prefix is None:
            return
        width = prefix.hidden_states(probe).shape[-1]
        if HiddenStateCache.num_bytes(features, width) <= self.max_bytes:
            folder = Path(tempfile.mkdtemp(dir=self.folder.name))
            self.states[model.key, features.key] = HiddenStateCache(prefix, features, width, folder)

    def close(self) -> None:
        self.states.clear()
        self.folder.cleanup()


class SerialExecutor(Executor):
    """Runs one job after another. Each worker process uses one, too. Closing it also closes its prefix cache."""

    device: torch.device
    examples_processed: int

    def __init__(self, device: torch.device, prefix_cache: PrefixCache | None = None, use_bf16: bool = False) -> None:
        self.device, self.prefix_cache, self.use_bf16 = device, prefix_cache, use_bf16
        self.queue: deque[tuple[Hashable, Job]] = deque()
        self.models: dict[tuple[str, bool, bool], PackedModel] = {}  # by key, without prefix, short last layer
        self.examples_processed = 0

    def submit(self, key: Hashable, job: Job) -> None:
        self.queue.append((key, job))

    def wait_completed(self) -> Sequence[tuple[Hashable, Any]]:
        key, job = self.queue.popleft()
        try:
            with single_thread():  # a client's job gives the same bits in every executor
                return [(key, self.run(job))]
        except MotetError as error:
            return [(key, JobFailure(error))]

    def run(self, job: Job) -> Any:
        match job:
            case Fit():
                model, read_batch = self._prepare_model(job)
                (result,) = fit([job], model, read_batch, use_bf16=self.use_bf16)
                if isinstance(result, JobFailure):
                    raise result.error
                self.examples_processed += result.examples_processed
                return result
            case Infer():
                model, read_batch = self._prepare_model(job)
                with single_thread():  # as in worker processes, so that both give the same bits
                    chunks = [infer(chunk, model, read_batch, self.use_bf16) for chunk in job.chunks()]
                return concatenate_predictions(chunks, job.chunk_order())
        raise TypeError(f"an executor cannot run {type(job).__name__}; expected Fit or Infer")

    def run_work(self, work: Work[R]) -> R:
        """Run all jobs of one client method, and return its result."""
        try:
            job = next(work)
            while True:
                job = work.send(self.run(job))
        except StopIteration as end:
            result: R = end.value
            return result

    def _prepare_model(self, job: Fit | Infer) -> tuple[PackedModel, ReadBatch]:
        model = job.model
        cached = self.prefix_cache.states if self.prefix_cache and not job.needs_full_model else {}
        states = cached.get((model.key, job.examples.features.key))
        if states is not None:
            with torch.autocast("cpu", torch.bfloat16, enabled=self.use_bf16):
                states.fill(job.examples.rows)
        is_short = model.first_token_only and self.device.type == "cpu" and not job.needs_full_model
        key = (model.key, states is not None, is_short)
        if key not in self.models:
            # The upper part shares parameters with the model that was cut, maybe another object than this.
            parts = (model, model.module) if states is None else (states.prefix.model, states.prefix.upper)
            self.models[key] = PackedModel(*parts, self.device, use_bf16=self.use_bf16)
            if is_short:
                install_first_token_layer(self.models[key].module, model.layers_path)
        return self.models[key], states.batch if states else Examples.batch

    def close(self) -> None:
        self.models.clear()
        if self.prefix_cache is not None:
            self.prefix_cache.close()
