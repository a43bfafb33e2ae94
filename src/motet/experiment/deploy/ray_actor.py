"""A Ray actor: an executor on one device. Ray has a serializer; we give it only bytes and arrays."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from motet.core.errors import ConfigError
from motet.core.install_hint import install_command
from motet.core.weighted import PartialSum, TermLimits, Weighted
from motet.core.work import Executor, Job, JobFailure
from motet.experiment.build.executor_builder import create_executor, resolve_device
from motet.experiment.build.federation_builder import build_federations
from motet.experiment.build.in_process_options import InProcessOptions
from motet.experiment.deploy.ray_partial_sums import PartialSumRunner, PartialSumTask, sum_terms
from motet.experiment.recipe.run_config import RunConfig
from motet.learning.data.features import Features
from motet.learning.executors.memory_budget import limit_device_memory
from motet.learning.modules.model import Model
from motet.transport.client_state import StateKey
from motet.wire.format import buffer_bytes, decode_header, encode_header, read_header, tensor_from_bytes

try:
    import ray
except ImportError:  # pragma: no cover
    raise ConfigError(f"transport.type=ray needs the package ray. Run: {install_command('ray')}") from None

Packet = tuple[bytes, list[np.ndarray]]  # a value in the format of our messages: its header and its tensors
StateRefs = list[tuple[str, str, list[Any]]]  # program, client, and references to copies of the client's state
TaskMessage = tuple[bytes, list[Any], StateRefs]  # a header, references to its tensors, and the states that it may read


FIRST_WAIT = 1.0  # seconds for a copy of a client state, before the next one is tried


def pack(value: object) -> Packet:
    header, tensors = encode_header(value)
    return header, [np.frombuffer(buffer_bytes(tensor), np.uint8) for tensor in tensors]


def unpack(packet: Packet, resolve: Callable[[str], Any] | None = None) -> Any:
    header, arrays = packet
    remaining = iter(arrays)

    def next_tensor(dtype: torch.dtype, shape: tuple[int, ...], _: int) -> Tensor:
        return tensor_from_bytes(next(remaining).data, dtype, shape)

    return decode_header(read_header(memoryview(header))[0], next_tensor, resolve)


def packet_bytes(packet: Packet) -> int:
    header, arrays = packet
    return len(header) + sum(array.nbytes for array in arrays)


def read_first(copies: Sequence[Any]) -> Any:
    """Return the value of the first reference that can be read. If all are lost, raise Ray's error.

    Ray notices only after half a minute that a node is gone. So if a copy takes long, the next one is tried.
    """
    remaining, seconds = [*copies], FIRST_WAIT
    while True:
        for reference in [*remaining]:
            try:
                return ray.get(reference, timeout=seconds)
            except ray.exceptions.GetTimeoutError:
                continue
            except ray.exceptions.RayError:
                remaining.remove(reference)
                if not remaining:
                    raise
        seconds *= 2


def load_first(copies: Sequence[Any]) -> Any:
    """Return the client state of which these are copies."""
    return unpack(read_first(copies))


class RayActor:
    """Builds models and features from the configurations of the runs, then runs jobs and sums replies.

    Several actors on one device each use a share of its memory.
    """

    executor: Executor
    shared_values: dict[str, Model | Features]  # tasks refer to these by key
    runners: dict[str, PartialSumRunner]  # by the digest of the run

    def __init__(self, configs: list[dict[str, Any]], device: str, memory_share: float) -> None:
        torch.set_num_threads(1)
        runs = [RunConfig.from_settings("actor", config) for config in configs]
        federations = build_federations({str(i): run for i, run in enumerate(runs)})
        unique = list({id(federation): federation for federation in federations.values()}.values())
        chosen = resolve_device(device)
        if chosen.type == "cuda":
            limit_device_memory(chosen, memory_share)
        self.executor = create_executor(chosen, InProcessOptions(workers=0), unique, runs[0].precision)
        self.shared_values = {}
        for model, features in (pair for federation in unique for pair in federation.models_with_features):
            self.shared_values |= {model.key: model, features.key: features}
        self.runners = {
            run.digest: PartialSumRunner.build(run, federations[str(i)], self.executor) for i, run in enumerate(runs)
        }

    def capacity(self) -> int:
        return self.executor.capacity

    def run_tasks(self, messages: list[TaskMessage]) -> list[Any]:
        """Run tasks together. Return a list with a report of each one, and then each one's result on its own.

        So the driver can read the reports and leave the results where they are.
        """
        tasks = [unpack((header, ray.get(refs)), self.shared_values.__getitem__) for header, refs, _ in messages]
        if all(isinstance(task, PartialSumTask) for task in tasks):
            states = {(p, client): partial(load_first, copies) for *_, refs in messages for p, client, copies in refs}
            node = ray.get_runtime_context().get_node_id()
            outcomes = [(replace(r, node=node), x) for r, x in self.runners[tasks[0].run].run(tasks, states)]
        else:
            outcomes = self._run_jobs(tasks)
        return [[pack(report) for report, _ in outcomes], *(pack(result) for _, result in outcomes)]

    def _run_jobs(self, jobs: Sequence[Job]) -> list[tuple[Any, Any]]:
        """Run jobs. The report of one is the name and text of its error, and its seconds."""
        for index, job in enumerate(jobs):
            self.executor.submit(index, job)
        outcomes: dict[Any, tuple[Any, Any]] = {}
        start = time.perf_counter()
        while len(outcomes) < len(jobs):
            completed = self.executor.wait_completed()
            end = time.perf_counter()
            for key, result in completed:
                seconds = (end - start) / len(completed)
                if isinstance(result, JobFailure):
                    outcomes[key] = ((type(result.error).__name__, str(result.error), seconds), None)
                else:
                    outcomes[key] = (("", "", seconds), result)
            start = end
        return [outcomes[index] for index in range(len(jobs))]

    def take_states(self, run: str, keys: list[StateKey]) -> list[Any]:
        """Return None, and then new client states, each on its own. They stay in the object store of this node."""
        return [None, *map(pack, self.runners[run].states.take(keys))]

    def copy_states(self, *packets: Packet) -> list[Any]:
        """Return None, and then client states of another node. They are stored here a second time."""
        return [None, *packets]

    def sum_block(self, limits: Packet, *packets: Packet) -> Packet:
        """Add terms that were computed by several actors."""
        terms: list[Weighted | None] = [term for packet in packets for term in unpack(packet)]
        # On the device on which a whole sum would be computed: it may round differently.
        on_device = [term and Weighted(term.value.to(self.executor.device), term.weight) for term in terms]
        term_limits: TermLimits = unpack(limits)
        return pack(sum_terms(on_device, term_limits))

    def add_parts(self, left: Packet, right: Packet) -> Packet:
        parts: list[PartialSum] = [unpack(left), unpack(right)]
        return pack(parts[0] + parts[1])
