"""Client work, also written as a generator: it yields jobs to an executor, which runs many clients' jobs together."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import GeneratorType
from typing import Any, Protocol, TypeVar

import torch

from motet.core.attributes import attribute
from motet.core.errors import MotetError
from motet.core.generator_mistakes import reject_generator

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


class Job(Protocol):
    """A task for an executor: train a model, or run it over examples. Every job inherits from this class."""

    @property
    @abstractmethod
    def key(self) -> Hashable:
        """Jobs with equal keys may be batched together."""

    @attribute
    def must_run_alone(self) -> bool:
        """True if the job cannot be packed with others."""
        return False

    @attribute
    def needs_full_model(self) -> bool:
        """True if the job needs the whole model, not only the layers above a frozen prefix."""
        return False


Work = Generator[Job, Any, R]


@dataclass(frozen=True)
class JobFailure:
    """The result of a job that failed with an error the user can fix."""

    error: MotetError


class Executor(Protocol):
    """Runs jobs, several at a time if it can. Every executor inherits from this class."""

    @attribute
    def capacity(self) -> int:
        """How many jobs should be submitted at once. This bounds memory: one result is held per job."""
        return 1

    @attribute
    def examples_processed(self) -> int:
        """The number of training examples processed so far."""
        return 0

    @attribute
    def device(self) -> torch.device:
        """The device on which models are trained, and on which client state may stay."""
        return torch.device("cpu")

    @abstractmethod
    def submit(self, key: Hashable, job: Job) -> None: ...

    @abstractmethod
    def wait_completed(self) -> Sequence[tuple[Hashable, Any]]:
        """Wait until at least one submitted job has completed, and return all completed ones as (key, result)."""

    @abstractmethod
    def run(self, job: Job) -> Any:
        """Run one job of the server, which may use the whole machine."""

    def close(self) -> None:
        """Free the memory and processes of the executor. By default there are none."""


def drive(works: Iterator[tuple[K, Callable[[], Any]]], executor: Executor) -> Iterator[tuple[K, Any]]:
    """Advance many client methods together, at most `executor.capacity` at a time, and yield each result when it is ready.

    A method starts when there is capacity for it. If it needs no job, it may return its result directly. A method that
    raises a `MotetError` yields a `JobFailure`.
    """
    running: dict[K, Work[Any]] = {}

    def advance(key: K, step: Callable[[], Any]) -> Iterator[tuple[K, Any]]:
        try:
            executor.submit(key, reject_generator(step(), running[key]))
        except StopIteration as end:
            running.pop(key, None)
            yield key, end.value
        except MotetError as error:
            running.pop(key, None)
            yield key, JobFailure(error)

    def start(key: K, begin: Callable[[], Any]) -> Any:
        result = begin()
        if not isinstance(result, GeneratorType):
            raise StopIteration(result)  # what a generator that has returned raises
        running[key] = result
        return next(result)

    more = True
    while more or running:
        while more and len(running) < executor.capacity:
            item = next(works, None)
            if item is None:
                more = False
            else:
                yield from advance(item[0], partial(start, *item))
        if running:
            for key, result in executor.wait_completed():
                yield from advance(key, partial(_resume, running[key], result))  # type: ignore[index, arg-type]


def _resume(work: Work[Any], result: Any) -> Any:
    return work.throw(result.error) if isinstance(result, JobFailure) else work.send(result)
