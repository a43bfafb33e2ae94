"""Client work is a script too: it yields jobs to the executor that hosts it, and many clients' works are driven together."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import GeneratorType
from typing import Any, Protocol, TypeVar

from motet.core.errors import MotetError

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


class Job(Protocol):
    """Something a executor can do: train, or run a model over examples."""

    @property
    def key(self) -> Hashable:
        """What must agree for two jobs to be run as one."""


Work = Generator[Job, Any, R]


@dataclass(frozen=True)
class JobFailure:
    """An answer that is an error a person can mend."""

    error: MotetError


class Executor(Protocol):
    """Runs jobs, several at a time if it can."""

    @property
    def room(self) -> int:
        """How many jobs it wants open at once; one answer is held for each, not one for each client."""

    @property
    def processed(self) -> int:
        """How many training examples have gone through it."""

    def submit(self, key: Hashable, job: Job) -> None: ...

    def ready(self) -> Sequence[tuple[Hashable, Any]]:
        """At least one answer to a submitted job; waits for it."""

    def run(self, job: Job) -> Any:
        """One job for which the whole machine may be used; the server's own."""

    def close(self) -> None: ...


def drive(works: Iterator[tuple[K, Callable[[], Any]]], executor: Executor) -> Iterator[tuple[K, Any]]:
    """Advance many works together, at most `bench.room` at a time; each result, or `JobFailure`, as it comes.

    A work is begun when there is room for it. One that needs no job may return its result directly.
    """
    running: dict[K, Work[Any]] = {}

    def advance(key: K, step: Callable[[], Any]) -> Iterator[tuple[K, Any]]:
        try:
            executor.submit(key, step())
        except StopIteration as end:
            running.pop(key, None)
            yield key, end.value
        except MotetError as error:
            running.pop(key, None)
            yield key, JobFailure(error)

    def begin(key: K, start: Callable[[], Any]) -> Any:
        made = start()
        if not isinstance(made, GeneratorType):
            raise StopIteration(made)
        running[key] = made
        return next(made)

    more = True
    while more or running:
        while more and len(running) < executor.room:
            item = next(works, None)
            if item is None:
                more = False
            else:
                yield from advance(item[0], partial(begin, *item))
        if running:
            for key, answer in executor.ready():
                yield from advance(key, partial(_resume, running[key], answer))  # type: ignore[index, arg-type]


def _resume(work: Work[Any], answer: Any) -> Any:
    return work.throw(answer.error) if isinstance(answer, JobFailure) else work.send(answer)
