"""What a run keeps: client states, metrics and, in its folder, checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import torch

from motet.core.work import Executor
from motet.experiment.loop.checkpoint import Checkpoint, RunProgress, load_checkpoint, save_checkpoint
from motet.experiment.loop.metrics_log import MetricsLog
from motet.experiment.loop.param_offload import MIN_OFFLOADED_BYTES, ParamOffload
from motet.experiment.loop.run_origin import check_origin
from motet.experiment.recipe.run_config import CheckpointConfig
from motet.learning.executors.memory_budget import CLIENT_STATE_FRACTION, free_memory
from motet.report.profiler import span
from motet.transport.client_state import ClientStates
from motet.transport.mailbox import ClientFailure

MAX_SAVING_SHARE = 1 / 20  # of the time of a run


class StateBudget(NamedTuple):
    """Bytes of client state that stay on the device, and in host memory. The rest is written to disk."""

    device: int
    host: int


class RunStorage:
    """Client states, metrics and checkpoints of one run. Without a folder, everything stays in memory."""

    def __init__(
        self,
        folder: Path | None,
        config: CheckpointConfig,
        digest: str,
        budget: StateBudget,
        describe_origin: Callable[[], dict[str, str]] = dict,
    ) -> None:
        self.folder, self.config, self.digest, self.budget = folder, config, digest, budget
        self._describe_origin = describe_origin
        self.checkpoint_folder = folder / "checkpoint" if folder else None
        states_folder = self.checkpoint_folder / "client_states" if self.checkpoint_folder else None
        self.client_states = ClientStates(states_folder, budget.device, budget.host)
        self.metrics = MetricsLog(folder)
        self.best: RunProgress | None = None  # after the best round on the development set, if that model is kept
        self._complete_bytes = 0  # of metrics.jsonl
        self.failures: tuple[ClientFailure, ...] = ()  # of clients, up to the last complete round
        self._last_save, self._save_seconds = time.monotonic(), 0.0

    def offload_for(self, clients: int) -> ParamOffload:
        """Return the offload of the server's personal models; a round has an old and a new one for each client.

        On a GPU they stay there if they take no more memory than client states may: copies to the host take longer
        than a round of a small model.
        """
        models = 2 * max(1, clients)
        min_bytes = max(MIN_OFFLOADED_BYTES, self.budget.device // models)
        return ParamOffload(self.checkpoint_folder, self.budget.host // models, min_bytes)

    @cached_property
    def origin(self) -> dict[str, str]:
        """Digests of what the run began with. A run with other ones does not continue it."""
        return self._describe_origin()

    @property
    def is_save_due(self) -> bool:
        """True if losing the rounds since the last checkpoint would cost more than saving them."""
        interval = self.config.seconds and max(self.config.seconds, self._save_seconds / MAX_SAVING_SHARE)
        return time.monotonic() - self._last_save > interval

    def mark_complete(self, failures: Iterable[ClientFailure]) -> None:
        """Make the metrics and the clients' failures so far part of the next checkpoint."""
        self._complete_bytes, self.failures = self.metrics.size(), tuple(failures)

    def save(self, progress: RunProgress) -> None:
        """Write a checkpoint; without a folder, do nothing."""
        if self.checkpoint_folder is not None:
            with span("checkpoint", "saving", after_round=progress.rounds):
                self._save(progress, self.checkpoint_folder)

    def _save(self, progress: RunProgress, folder: Path) -> None:
        start = time.monotonic()
        self.client_states.discard_round()
        checkpoint = Checkpoint(
            progress=progress,
            client_states=self.client_states.save(),
            metrics_bytes=self._complete_bytes,
            seconds=self.metrics.seconds,
            digest=self.digest,
            best=self.best,
            origin=self.origin,
            failures=self.failures,
        )
        save_checkpoint(folder, checkpoint)
        self.client_states.delete_unused_files()  # only now: until then, the previous checkpoint needs its files
        self._last_save = time.monotonic()
        self._save_seconds = self._last_save - start

    def restore(self) -> Checkpoint | None:
        """Load the last checkpoint and its client states; None if there is none. Metrics stay as they are."""
        checkpoint = load_checkpoint(self.checkpoint_folder, self.digest) if self.checkpoint_folder else None
        if checkpoint is not None:
            self.client_states.restore(checkpoint.client_states)
            self.best = checkpoint.best
            self.failures = tuple(ClientFailure(*failure) for failure in checkpoint.failures)
        return checkpoint

    def resume(self) -> Checkpoint | None:
        """Like `restore`, but drop the metrics that are newer than the checkpoint."""
        checkpoint = self.restore()
        if checkpoint is not None and self.folder is not None:
            check_origin(checkpoint.origin, self.origin, self.folder)
        self.client_states.delete_unused_files()
        self._complete_bytes = checkpoint.metrics_bytes if checkpoint else 0
        self.metrics.resume(self._complete_bytes, checkpoint.seconds if checkpoint else 0.0)
        return checkpoint


def state_budget(memory: float | None, executor: Executor) -> StateBudget:
    """Return the budget of client states; `memory` is `checkpoint.memory` in GiB.

    On a GPU, client states may use a fraction of its free memory, on a CPU 1/16 of it and at least 1 GiB. Serialized
    states may use 1/8 of free host memory, and so may the personal models of the server.
    """
    if memory is not None:
        return StateBudget(device=int(memory * 2**30), host=0)
    host = torch.device("cpu")
    device = executor.device
    if device.type == "cuda":
        on_device = int(CLIENT_STATE_FRACTION * free_memory(device))
    else:
        on_device = max(2**30, free_memory(host) // 16)
    return StateBudget(device=on_device, host=free_memory(host) // 8)
