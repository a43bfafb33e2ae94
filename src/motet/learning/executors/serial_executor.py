"""A executor that runs one job after another in this process."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from motet.core.errors import MotetError
from motet.core.work import Job, JobFailure
from motet.learning.data.features import Examples, Features
from motet.learning.jobs import Fit, Infer
from motet.learning.modules.frozen_prefix import FrozenPrefix, HiddenStateCache, cut_frozen_prefix
from motet.learning.modules.model import Model
from motet.learning.packed.packed_model import PackedModel
from motet.learning.training.fit import fit
from motet.learning.training.inference import concatenate_predictions, infer
from motet.learning.training.step_schedule import Read

PREFIX_BYTES = 4 * 2**30  # of disk for the states of one corpus


class PrefixCache:
    """Frozen prefixes and their hidden states, made before workers are forked so that all share them."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="motet-")
        self.prefixes: dict[str, FrozenPrefix | None] = {}
        self.states: dict[tuple[str, str], HiddenStateCache] = {}

    def prepare(self, model: Model, features: Features) -> None:
        """Make room for the prefix of this model on these texts, if it has one that can be cut off and it fits on disk."""
        if (model.key, features.key) in self.states or not len(features):
            return
        probe = features.batch(np.arange(min(3, len(features))))
        if model.key not in self.prefixes:
            self.prefixes[model.key] = cut_frozen_prefix(model, probe)
        prefix = self.prefixes[model.key]
        if prefix is None:
            return
        width = prefix.hidden_states(probe).shape[-1]
        if HiddenStateCache.num_bytes(features, width) <= PREFIX_BYTES:
            folder = Path(tempfile.mkdtemp(dir=self.folder.name))
            self.states[model.key, features.key] = HiddenStateCache(prefix, features, width, folder)

    def close(self) -> None:
        self.states.clear()
        self.folder.cleanup()


@contextmanager
def one_thread() -> Iterator[None]:
    """A client's job gives the same bits wherever it runs: sums in a kernel must not depend on the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class SerialExecutor:
    """One job after another. Also what runs inside each worker process."""

    capacity = 1

    def __init__(self, device: torch.device, scratch: PrefixCache | None = None) -> None:
        self.device, self.scratch = device, scratch
        self.waiting: deque[tuple[Hashable, Job]] = deque()
        self.packs: dict[tuple[str, bool], PackedModel] = {}
        self.examples_processed = 0

    def submit(self, key: Hashable, job: Job) -> None:
        self.waiting.append((key, job))

    def wait_completed(self) -> Sequence[tuple[Hashable, Any]]:
        key, job = self.waiting.popleft()
        try:
            with one_thread():
                return [(key, self.run(job))]
        except MotetError as error:
            return [(key, JobFailure(error))]

    def run(self, job: Job) -> Any:
        match job:
            case Fit():
                pack, read = self._ready_for(job.model, job)
                (fitted,) = fit([job], pack, read)
                if isinstance(fitted, JobFailure):
                    raise fitted.error
                self.examples_processed += fitted.examples_processed
                return fitted
            case Infer():
                pieces = list(job.chunks())
                pack, read = self._ready_for(job.model, job)
                with (
                    one_thread()
                ):  # as worker processes do it, so that the server reads the same bits with and without them
                    found = [infer(piece, pack, read) for piece in pieces]
                return concatenate_predictions(found, np.arange(len(job.examples)))
        raise TypeError(f"a executor cannot run {type(job).__name__}")

    def _ready_for(self, model: Model, job: Fit | Infer) -> tuple[PackedModel, Read]:
        known = self.scratch.states if self.scratch and not job.needs_full_model else {}
        states = known.get((model.key, job.examples.features.key))
        if states is not None:
            states.fill(job.examples.rows)
        cut = states is not None
        if (model.key, cut) not in self.packs:
            if states is None:
                self.packs[model.key, cut] = PackedModel(model, model.module, self.device)
            else:  # the cut module is over the tensors of the model it was cut from, which is this one by another object
                self.packs[model.key, cut] = PackedModel(states.prefix.model, states.prefix.upper, self.device)
        return self.packs[model.key, cut], states.batch if states else Examples.batch

    def close(self) -> None:
        self.packs.clear()
