"""An executor for CPUs: one worker process per core with one thread each. Results do not depend on the number of workers.

Workers are forked once, with the first job, so they already hold every model and corpus. Jobs and results are encoded
like messages (no pickle); their tensors are in shared memory.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import struct
import traceback
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Lock
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
from torch import Tensor

from motet.core import errors
from motet.core.errors import MotetError, RunError
from motet.core.work import Executor, Job, JobFailure
from motet.learning.data.features import NO_FEATURES, Features
from motet.learning.executors.serial_executor import PrefixCache, SerialExecutor
from motet.learning.executors.shared_memory import SharedMemoryPool
from motet.learning.jobs import Fit, FitResult, Infer
from motet.learning.modules.model import Model
from motet.learning.training.inference import concatenate_predictions
from motet.wire.format import (
    Buffer,
    buffer_bytes,
    decode_header,
    deserialize,
    encode_header,
    read_header,
    serialize,
    tensor_from_bytes,
)

_COMMAND = struct.Struct("<qqq")  # the job's number, its address in shared memory and its size
_STOP = -1
_NO_ADDRESS = -1  # the tensor did not fit in shared memory and is sent inline


class _PendingJob(NamedTuple):
    """A submitted job and the shared memory that it uses."""

    key: Hashable
    chunk: int
    shared_ids: list[int]  # of its tensors in shared memory
    tensors: list[Buffer]  # kept alive, so that their ids stay unique
    body_address: int
    result_address: int


class _SharedTensor(NamedTuple):
    tensor: Buffer
    address: int
    users: int


@dataclass
class _ChunkedJob:
    """An inference job that was split over workers."""

    results: list[Any]
    order: np.ndarray  # of the examples
    missing: int


class ProcessExecutor(Executor):
    """Runs jobs in `count` processes. Jobs may refer to these models and features, which the workers inherit."""

    capacity: int

    def __init__(
        self,
        count: int,
        models: Mapping[str, Model],
        features: Mapping[str, Features],
        prefix_cache: PrefixCache | None = None,
        use_bf16: bool = False,
    ) -> None:
        self.count, self.capacity = count, 2 * count
        self.known: dict[str, Model | Features] = {NO_FEATURES.key: NO_FEATURES, **models, **features}
        self.prefix_cache, self.use_bf16 = prefix_cache, use_bf16
        self.local = SerialExecutor(torch.device("cpu"), prefix_cache, use_bf16)
        self.threads = torch.get_num_threads()
        self.processes: list[BaseProcess] = []
        self.pending: dict[int, _PendingJob] = {}
        self.chunked: dict[Hashable, _ChunkedJob] = {}
        self.shared_tensors: dict[int, _SharedTensor] = {}  # by id
        self.num_jobs = self.examples_in_workers = 0

    @property
    def examples_processed(self) -> int:
        return self.examples_in_workers + self.local.examples_processed

    # ---- the parent ---------------------------------------------------------------------------------------------

    def submit(self, key: Hashable, job: Job) -> None:
        if isinstance(job, Infer):
            chunks = list(job.chunks())
            self.chunked[key] = _ChunkedJob([None] * len(chunks), job.chunk_order(), missing=len(chunks))
            for i, chunk in enumerate(chunks):
                self._send(key, i, chunk)
        else:
            self._send(key, 0, job)

    def run(self, job: Job) -> Any:
        """Run a job of the server: training in this process with all threads, inference in the workers."""
        if not isinstance(job, Infer) or not len(job.examples):
            torch.set_num_threads(self.threads)
            try:
                return self.local.run(job)
            finally:
                torch.set_num_threads(1 if self.processes else self.threads)
        self.submit("server", job)
        result = None
        while result is None:
            result = dict(self.wait_completed()).get("server")
        if isinstance(result, JobFailure):
            raise result.error
        return result

    def wait_completed(self) -> Sequence[tuple[Hashable, Any]]:
        empty = [key for key, job in self.chunked.items() if not job.results]
        completed: list[tuple[Hashable, Any]] = [
            (key, concatenate_predictions([], np.zeros(0, np.int64))) for key in empty
        ]
        for key in empty:
            del self.chunked[key]
        while not completed:
            for pipe in wait([*self.pipes, *(process.sentinel for process in self.processes)]):
                if not isinstance(pipe, Connection):
                    self._raise_worker_died()
                completed += self._receive(pipe)
        return completed

    def _send(self, key: Hashable, chunk: int, job: Job) -> None:
        if not self.processes:
            self._fork()
        self.num_jobs += 1
        header, tensors = encode_header(job, self._reference)
        shared_ids, addresses, inline = [], [], []
        for tensor in tensors:
            address = self._share(tensor)
            if address is None:
                addresses.append(_NO_ADDRESS)
                inline.append(bytes(buffer_bytes(tensor)))
            else:
                addresses.append(address)
                shared_ids.append(id(tensor))
        result_size = 4 * job.start.layout.size + 2**16 if isinstance(job, Fit) else 2**16
        result_address = self.pool.allocate(result_size)
        if result_address is None:
            result_address, result_size = _NO_ADDRESS, 0
        body = serialize((header, tuple(addresses), inline, result_address, result_size))
        body_address = self.pool.allocate(len(body))
        if body_address is None:
            raise RunError(
                f"the memory shared with workers ({self.pool.size / 2**30:.1f} GiB) is full; "
                "lower transport.workers, or train fewer layers (model.freeze)."
            )
        self.pool.write(body_address, body)
        self.pending[self.num_jobs] = _PendingJob(
            key, chunk, shared_ids, [*tensors], body_address=body_address, result_address=result_address
        )
        self.commands.send_bytes(_COMMAND.pack(self.num_jobs, body_address, len(body)))

    def _share(self, tensor: Buffer) -> int | None:
        """Return the tensor's address in shared memory.

        A tensor that many jobs use (the global model) is stored once.
        """
        if id(tensor) in self.shared_tensors:
            shared = self.shared_tensors[id(tensor)]
            self.shared_tensors[id(tensor)] = shared._replace(users=shared.users + 1)
            return shared.address
        address = self.pool.store(tensor)
        if address is not None:
            self.shared_tensors[id(tensor)] = _SharedTensor(tensor, address, users=1)
        return address

    def _release(self, job: _PendingJob) -> None:
        """Free the shared memory of a job's inputs."""
        for tensor_id in job.shared_ids:
            shared = self.shared_tensors.pop(tensor_id)
            if shared.users > 1:
                self.shared_tensors[tensor_id] = shared._replace(users=shared.users - 1)
            else:
                self.pool.free(shared.address)
        self.pool.free(job.body_address)

    def _receive(self, pipe: Connection) -> list[tuple[Hashable, Any]]:
        try:
            number, kind, header, addresses, inline = deserialize(pipe.recv_bytes())
        except EOFError:
            self._raise_worker_died()
        job = self.pending.pop(number)
        self._release(job)
        if kind == "bug":
            raise RuntimeError(f"a worker failed:\n{header.decode()}")
        if kind != "result":
            result: Any = JobFailure(getattr(errors, kind)(header.decode()))
            if job.result_address != _NO_ADDRESS:
                self.pool.free(job.result_address)
        else:
            result = self._decode_result(header, addresses, inline, job.result_address)
            self.examples_in_workers += result.examples_processed if isinstance(result, FitResult) else 0
        return self._join_chunks(job, result)

    def _decode_result(self, header: bytes, addresses: tuple[int, ...], inline: list[bytes], start: int) -> Any:
        """Decode a result. Its tensors are views of shared memory, or copies if that is getting full."""
        block = np.zeros(0, np.uint8)
        if start != _NO_ADDRESS and any(address != _NO_ADDRESS for address in addresses):
            size = self.pool.allocated[start]
            if self.pool.is_half_full:
                block = self.pool.bytes[start : start + size].copy()
            else:
                block = self.pool.view_until_unused(start, size)
        if start != _NO_ADDRESS and (block.base is None or not len(block)):  # no view of shared memory
            self.pool.free(start)
        next_address, next_inline = iter(addresses), iter(inline)

        def tensor(dtype: torch.dtype, shape: tuple[int, ...], size: int) -> Tensor:
            address = next(next_address)
            if address == _NO_ADDRESS:
                return tensor_from_bytes(bytearray(next(next_inline)), dtype, shape)
            return torch.from_numpy(block[address - start : address - start + size]).view(dtype).view(shape)

        return decode_header(read_header(memoryview(header))[0], tensor)

    def _join_chunks(self, job: _PendingJob, result: Any) -> list[tuple[Hashable, Any]]:
        whole = self.chunked.get(job.key)
        if whole is None:
            return [(job.key, result)]
        whole.results[job.chunk] = result
        whole.missing -= 1
        if whole.missing:
            return []
        del self.chunked[job.key]
        failures = [chunk for chunk in whole.results if isinstance(chunk, JobFailure)]
        return [(job.key, failures[0] if failures else concatenate_predictions(whole.results, whole.order))]

    def _reference(self, value: object) -> str | None:
        """Return the key of a model or corpus, which is sent instead of it."""
        if isinstance(value, Model | Features):
            if value.key not in self.known:
                raise RuntimeError(f"{value.key} was not known when the workers were forked")
            return value.key
        return None

    def _fork(self) -> None:
        largest = max((m.layout.size for m in self.known.values() if isinstance(m, Model)), default=0)
        self.pool = SharedMemoryPool(4 * largest * (6 * self.capacity + 4) + 2**27)
        context = multiprocessing.get_context("fork")
        worker_commands, self.commands = context.Pipe(duplex=False)
        lock = context.Lock()
        self.pipes: list[Connection] = []
        torch.set_num_threads(1)
        for _ in range(self.count):
            pipe, worker_results = context.Pipe(duplex=False)
            process = context.Process(target=self._work, args=(worker_commands, lock, worker_results), daemon=True)
            process.start()
            worker_results.close()
            self.processes.append(process)
            self.pipes.append(pipe)
        worker_commands.close()

    def _raise_worker_died(self) -> NoReturn:
        dead = wait([process.sentinel for process in self.processes])
        for process in self.processes:
            if process.sentinel in dead:
                process.join()  # its pipe closes a moment before its exit code can be read
        code = next((process.exitcode for process in self.processes if process.exitcode is not None), 0)
        how = (
            f"was killed by signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"ended with status {code}"
        )
        raise RunError(
            f"a worker process {how} while training; the usual cause is too little memory. Lower solver.batch, "
            "model.max_tokens or transport.workers, then continue with: motet resume."
        )

    def close(self) -> None:
        if self.processes:
            with suppress(BrokenPipeError):  # all workers are dead already
                for _ in self.processes:
                    self.commands.send_bytes(_COMMAND.pack(_STOP, 0, 0))
            for process in self.processes:
                process.join(timeout=1 if self.pending else 5)  # do not wait for a worker that is still busy
                if process.is_alive():
                    process.terminate()
                    process.join()
            self.processes.clear()
            torch.set_num_threads(self.threads)
        self.local.close()

    # ---- a worker -----------------------------------------------------------------------------------------------

    def _work(self, commands: Connection, lock: Lock, results: Connection) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the parent sends it to a worker that is still busy
        self.commands.close()
        torch.set_num_threads(1)
        executor = SerialExecutor(torch.device("cpu"), self.prefix_cache, self.use_bf16)
        while True:
            try:
                with lock:
                    number, address, size = _COMMAND.unpack(commands.recv_bytes())
                if number == _STOP:
                    return
                results.send_bytes(self._run_command(executor, number, address, size))
            except (EOFError, BrokenPipeError):  # the parent is gone
                os._exit(0)

    def _run_command(self, executor: SerialExecutor, number: int, address: int, size: int) -> bytes:
        try:
            header, addresses, inline, result_address, result_size = deserialize(self.pool.view(address, size))
            next_address, next_inline = iter(addresses), iter(inline)

            def tensor(dtype: torch.dtype, shape: tuple[int, ...], num_bytes: int) -> Tensor:
                tensor_address = next(next_address)
                if tensor_address == _NO_ADDRESS:
                    return tensor_from_bytes(bytearray(next(next_inline)), dtype, shape)
                return self.pool.tensor(tensor_address, dtype, shape, num_bytes)

            result = executor.run(decode_header(read_header(memoryview(header))[0], tensor, self.known.__getitem__))
        except MotetError as error:
            return serialize((number, type(error).__name__, str(error).encode(), (), []))
        except Exception:
            return serialize((number, "bug", traceback.format_exc().encode(), (), []))
        return self._encode_result(number, result, result_address, result_size)

    def _encode_result(self, number: int, result: Any, start: int, available: int) -> bytes:
        header, tensors = encode_header(result)
        addresses, inline, used = [], [], 0
        for tensor in tensors:
            data = buffer_bytes(tensor)
            if start != _NO_ADDRESS and used + len(data) <= available:
                self.pool.write(start + used, data)
                addresses.append(start + used)
                used += -(-len(data) // 64) * 64
            else:
                addresses.append(_NO_ADDRESS)
                inline.append(bytes(data))
        return serialize((number, "result", header, tuple(addresses), inline))


def default_worker_count() -> int:
    """Return the number of cores that this process may use, or 0 on systems other than Linux: jobs then run here."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
