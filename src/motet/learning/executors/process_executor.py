"""On CPU, one worker process a core with one thread each: the fastest form, and the same results for any number of workers.

Workers are forked once, when the first job comes, and so already hold every model and every corpus. Jobs and answers are
framed as messages are (no pickle); their tensors lie in memory that all share.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import struct
import traceback
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Lock
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from motet.core import errors
from motet.core.errors import MotetError, RunError
from motet.core.work import Job, JobFailure
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

_ORDER = struct.Struct("<qqq")  # the job's number, where it lies in the arena, how long it is
_STOP = -1


@dataclass
class _Open:
    """A job under way: whose it is, what it holds in the arena, where its answer goes."""

    key: Hashable
    piece: int
    held: list[int]
    tensors: list[Buffer]
    room: tuple[int, int]


@dataclass
class _Pieces:
    parts: list[Any]
    rows: int
    missing: int = field(default=0)


class ProcessExecutor:
    """A executor of `count` processes. Jobs may be about these models and features, which are forked along with the workers."""

    def __init__(
        self, count: int, models: Mapping[str, Model], features: Mapping[str, Features], scratch: PrefixCache
    ) -> None:
        self.count, self.capacity = count, 2 * count
        self.known: dict[str, Model | Features] = {NO_FEATURES.key: NO_FEATURES, **models, **features}
        self.scratch, self.here = scratch, SerialExecutor(torch.device("cpu"), scratch)
        self.threads = torch.get_num_threads()
        self.processes: list[BaseProcess] = []
        self.open: dict[int, _Open] = {}
        self.pieces: dict[Hashable, _Pieces] = {}
        self.placed: dict[int, tuple[Buffer, int, int]] = {}  # tensors in the arena now: itself, its place, its users
        self.jobs = self.shared_out = 0

    @property
    def examples_processed(self) -> int:
        return self.shared_out + self.here.examples_processed

    # ---- the parent ---------------------------------------------------------------------------------------------

    def submit(self, key: Hashable, job: Job) -> None:
        if isinstance(job, Infer):
            parts = list(job.chunks())
            self.pieces[key] = _Pieces([None] * len(parts), len(job.examples), len(parts))
            for i, part in enumerate(parts):
                self._send(key, i, part)
        else:
            self._send(key, 0, job)

    def run(self, job: Job) -> Any:
        """A training of the server's own runs here with all threads; inference is shared out."""
        if not isinstance(job, Infer) or not len(job.examples):
            torch.set_num_threads(self.threads)
            try:
                return self.here.run(job)
            finally:
                torch.set_num_threads(1 if self.processes else self.threads)
        self.submit("server", job)
        answer = None
        while answer is None:
            answer = dict(self.wait_completed()).get("server")
        if isinstance(answer, JobFailure):
            raise answer.error
        return answer

    def wait_completed(self) -> Sequence[tuple[Hashable, Any]]:
        empty = [(k, concatenate_predictions([], np.zeros(0, np.int64))) for k, p in self.pieces.items() if not p.parts]
        for key, _ in empty:
            del self.pieces[key]
        done: list[tuple[Hashable, Any]] = list(empty)
        while not done:
            for pipe in wait([*self.pipes, *(p.sentinel for p in self.processes)]):
                if not isinstance(pipe, Connection):
                    self._bury()
                else:
                    done += self._receive(pipe)
        return done

    def _send(self, key: Hashable, piece: int, job: Job) -> None:
        if not self.processes:
            self._fork()
        self.jobs += 1
        head, tensors = encode_header(job, self._name)
        held, places, blobs = [], [], []
        for tensor in tensors:
            place = self._place(tensor)
            places.append(-1 if place is None else place)
            if place is None:
                blobs.append(bytes(buffer_bytes(tensor)))
            else:
                held.append(id(tensor))
        size = 4 * job.start.layout.size + 2**16 if isinstance(job, Fit) else 2**16
        room = self.arena.take(size)
        body = serialize((head, tuple(places), blobs, -1 if room is None else room, size if room is not None else 0))
        at = self.arena.take(len(body))
        if at is None:
            raise RunError(
                f"the memory shared with workers ({self.arena.size / 2**30:.1f} GiB) is full; "
                "lower transport.workers, or train fewer layers (model.freeze)."
            )
        self.arena.write(at, body)
        self.open[self.jobs] = _Open(key, piece, [*held], [*tensors], (at, -1 if room is None else room))
        self.orders.send_bytes(_ORDER.pack(self.jobs, at, len(body)))

    def _place(self, tensor: Buffer) -> int | None:
        """Where the tensor lies in the arena; one that many jobs share (the global model) lies there once."""
        if id(tensor) in self.placed:
            itself, place, users = self.placed[id(tensor)]
            self.placed[id(tensor)] = (itself, place, users + 1)
            return place
        found = self.arena.put(tensor)
        if found is not None:
            self.placed[id(tensor)] = (tensor, found, 1)
        return found

    def _receive(self, pipe: Connection) -> list[tuple[Hashable, Any]]:
        try:
            number, kind, head, places, blobs = deserialize(pipe.recv_bytes())
        except EOFError:
            self._bury()
        job = self.open.pop(number)
        body, room = job.room
        for mark in job.held:
            itself, place, users = self.placed.pop(mark)
            if users > 1:
                self.placed[mark] = (itself, place, users - 1)
            else:
                self.arena.give(place)
        self.arena.give(body)
        if kind == "bug":
            raise RuntimeError(f"a worker failed:\n{head.decode()}")
        if kind != "answer":
            answer: Any = JobFailure(getattr(errors, kind)(head.decode()))
            if room >= 0:
                self.arena.give(room)
        else:
            answer = self._answer(head, places, blobs, room)
            self.shared_out += answer.examples_processed if isinstance(answer, FitResult) else 0
        return self._joined(job, answer)

    def _answer(self, head: bytes, places: tuple[int, ...], blobs: list[bytes], room: int) -> Any:
        window = np.zeros(0, np.uint8)
        if room >= 0 and any(p >= 0 for p in places):
            span = self.arena.taken[room]
            window = self.arena.bytes[room : room + span].copy() if self.arena.crowded else self.arena.lend(room, span)
        if room >= 0 and (window.base is None or not len(window)):  # nothing of it is still in the arena
            self.arena.give(room)
        spots, inline = iter(places), iter(blobs)

        def tensor(dtype: torch.dtype, shape: tuple[int, ...], size: int) -> Tensor:
            at = next(spots)
            if at < 0:
                return tensor_from_bytes(bytearray(next(inline)), dtype, shape)
            return torch.from_numpy(window[at - room : at - room + size]).view(dtype).view(shape)

        return decode_header(read_header(memoryview(head))[0], tensor)

    def _joined(self, job: _Open, answer: Any) -> list[tuple[Hashable, Any]]:
        whole = self.pieces.get(job.key)
        if whole is None:
            return [(job.key, answer)]
        whole.parts[job.piece] = answer
        whole.missing -= 1
        if whole.missing:
            return []
        del self.pieces[job.key]
        failed = [p for p in whole.parts if isinstance(p, JobFailure)]
        return [(job.key, failed[0] if failed else concatenate_predictions(whole.parts, np.arange(whole.rows)))]

    def _name(self, value: object) -> str | None:
        if isinstance(value, Model | Features):
            if value.key not in self.known:
                raise RuntimeError(f"{value.key} was not known when the workers were made")
            return value.key
        return None

    def _fork(self) -> None:
        largest = max((m.layout.size for m in self.known.values() if isinstance(m, Model)), default=0)
        self.arena = SharedMemoryPool(4 * largest * (6 * self.capacity + 4) + 2**27)
        context = multiprocessing.get_context("fork")
        take, self.orders = context.Pipe(duplex=False)
        lock = context.Lock()
        self.pipes: list[Connection] = []
        torch.set_num_threads(1)
        for _ in range(self.count):
            back, answers = context.Pipe(duplex=False)
            process = context.Process(target=self._work, args=(take, lock, answers), daemon=True)
            process.start()
            answers.close()
            self.processes.append(process)
            self.pipes.append(back)
        take.close()

    def _bury(self) -> NoReturn:
        gone = wait([p.sentinel for p in self.processes])
        for process in self.processes:
            if process.sentinel in gone:
                process.join()  # its pipe closes a moment before its status can be read
        code = next((p.exitcode for p in self.processes if p.exitcode is not None), 0)
        how = f"killed by signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"ended with status {code}"
        raise RunError(
            f"a worker process was {how} while training; most often memory ran out. Lower solver.batch, model.max_tokens "
            "or transport.workers, then continue with: motet resume."
        )

    def close(self) -> None:
        if self.processes:
            with suppress(BrokenPipeError):  # all of them are dead already
                for _ in self.processes:
                    self.orders.send_bytes(_ORDER.pack(_STOP, 0, 0))
            for process in self.processes:
                process.join(timeout=1 if self.open else 5)  # one that is still at work is not waited for
                if process.is_alive():
                    process.terminate()
                    process.join()
            self.processes.clear()
            torch.set_num_threads(self.threads)
        self.here.close()

    # ---- a worker -----------------------------------------------------------------------------------------------

    def _work(self, orders: Connection, lock: Lock, answers: Connection) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
        self.orders.close()
        torch.set_num_threads(1)
        executor = SerialExecutor(torch.device("cpu"), self.scratch)
        while True:
            try:
                with lock:
                    number, at, size = _ORDER.unpack(orders.recv_bytes())
                if number == _STOP:
                    return
                answers.send_bytes(self._done(executor, number, at, size))
            except (EOFError, BrokenPipeError):  # the parent is gone
                os._exit(0)

    def _done(self, executor: SerialExecutor, number: int, at: int, size: int) -> bytes:
        try:
            head, places, blobs, room, space = deserialize(self.arena.window(at, size))
            spots, inline = iter(places), iter(blobs)

            def tensor(dtype: torch.dtype, shape: tuple[int, ...], span: int) -> Tensor:
                place = next(spots)
                if place < 0:
                    return tensor_from_bytes(bytearray(next(inline)), dtype, shape)
                return self.arena.tensor(place, dtype, shape, span)

            answer = executor.run(decode_header(read_header(memoryview(head))[0], tensor, self.known.__getitem__))
        except MotetError as error:
            return serialize((number, type(error).__name__, str(error).encode(), (), []))
        except Exception:
            return serialize((number, "bug", traceback.format_exc().encode(), (), []))
        return self._reply(number, answer, room, space)

    def _reply(self, number: int, answer: Any, room: int, space: int) -> bytes:
        head, tensors = encode_header(answer)
        spots, blobs, used = [], [], 0
        for t in tensors:
            data = buffer_bytes(t)
            if used + len(data) <= space:
                self.arena.write(room + used, data)
                spots.append(room + used)
                used += -(-len(data) // 64) * 64
            else:
                spots.append(-1)
                blobs.append(bytes(data))
        return serialize((number, "answer", head, tuple(spots), blobs))


def default_worker_count() -> int:
    """One a core this process may use; one where processes cannot be forked."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
