"""Scripts: the server side of a program, written as a generator.

A script yields exchanges with clients, jobs for the server's executor, and notes. Each `yield` returns the result.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from motet.core.errors import PrivacyError
from motet.core.weighted import RunningSum, Weighted
from motet.core.work import Job

ClientId = str
Reveal = Literal["each", "sum"]

F = TypeVar("F", bound=Callable[..., Any])
Q = TypeVar("Q")
T = TypeVar("T")


def work(*, reveals: Reveal, name: str | None = None) -> Callable[[F], F]:
    """Mark a method that runs on clients. `reveals` says whether the server may read each reply or only their sum.

    `name` is the method's name in messages and in seeds, by default its Python name. When you rename a method, pass its
    old name here, so that a run with the same seed still gives the same numbers.
    """

    def mark(method: F) -> F:
        method.reveals = reveals  # type: ignore[attr-defined]
        method.wire_name = name or method.__name__  # type: ignore[attr-defined]
        return method

    return mark


def client_methods(program: object) -> dict[str, Callable[..., Any]]:
    """Return a program's client methods by the name they have in messages. Each has an attribute `reveals`."""
    names = [name for name in dir(type(program)) if hasattr(getattr(type(program), name, None), "reveals")]
    methods = [getattr(program, name) for name in names]
    return {method.wire_name: method for method in methods}


def iter_programs(program: Any) -> Iterator[Any]:
    """Yield a program and, recursively, its subprograms."""
    yield program
    for subprogram in getattr(program, "subprograms", ()):
        yield from iter_programs(subprogram)


def all_client_methods(program: object) -> dict[str, Reveal]:
    """Return the addresses of all client methods of a program and its subprograms, and what each one reveals."""
    return {
        method_address(method): method.reveals  # type: ignore[attr-defined]
        for each in iter_programs(program)
        for method in client_methods(each).values()
    }


class Collector(Protocol):
    """Collects replies one by one, in the order of the cohort."""

    def add(self, client: ClientId, reply: Any) -> None: ...
    def value(self) -> Any: ...


@dataclass(frozen=True)
class Exchange:
    """A call of one client method on several clients, and how the replies are collected."""

    address: str
    payloads: Mapping[ClientId, Any]
    reads: Reveal
    collector: Callable[[], Collector]


@dataclass(frozen=True)
class Transaction:
    """Exchanges that succeed or fail together, such as the stages of a secure sum. `begin` starts their script.

    If one of them is interrupted, all are run again from the first. `address` is the client method that they replace.
    """

    address: str
    begin: Callable[[], Script[Any]]


@dataclass(frozen=True)
class Note:
    """A sentence for the console and values for the metrics log. It does not influence the run."""

    text: str = ""
    source: str = "server"
    kind: str = "note"
    values: Mapping[str, Any] = field(default_factory=dict)


Script = Generator[Exchange | Transaction | Job | Note, Any, T]


class _Replies:
    def __init__(self) -> None:
        self.replies: dict[ClientId, Any] = {}

    def add(self, client: ClientId, reply: Any) -> None:
        self.replies[client] = reply

    def value(self) -> dict[ClientId, Any]:
        return self.replies


def method_address(method: Callable[..., Any]) -> str:
    """Return the address under which clients offer a method, e.g. `fedavg.train`."""
    return f"{method.__self__.name}.{getattr(method, 'wire_name', method.__name__)}"  # type: ignore[attr-defined]


def gather(method: Callable[..., Any], payloads: Mapping[ClientId, Any]) -> Script[dict[ClientId, Any]]:
    """Call a client method and return every client's reply."""
    if getattr(method, "reveals", None) != "each":
        raise PrivacyError(f"{method_address(method)} reveals only sums and cannot be gathered; read it with total().")
    replies: dict[ClientId, Any] = yield Exchange(method_address(method), payloads, "each", _Replies)
    return replies


def total(method: Callable[..., Any], payloads: Mapping[ClientId, Any]) -> Script[Weighted]:
    """Call a client method and return only the weighted mean of the replies and their total weight."""
    result: Weighted = yield Exchange(method_address(method), payloads, "sum", RunningSum)
    return result


def to_all(clients: Iterable[ClientId], payload: Q) -> dict[ClientId, Q]:
    """Address the same payload to every client."""
    return dict.fromkeys(clients, payload)


class _Steps:
    """Iterates over the steps of a script. Set `answer` before asking for the next step; read `result` at the end."""

    def __init__(self, script: Script[Any]) -> None:
        self.script = script
        self.answer: Any = None
        self.result: Any = None

    def __iter__(self) -> Iterator[Exchange | Transaction | Job | Note]:
        while True:
            try:
                step = self.script.send(self.answer)
            except StopIteration as end:
                self.result = end.value
                return
            yield step


def rewrite_sums(summation: Callable[[Exchange], Script[Weighted]], script: Script[T]) -> Script[T]:
    """Replace every sum in a script by the exchanges of `summation`, e.g. secure aggregation."""
    steps = _Steps(script)
    for step in steps:
        if isinstance(step, Exchange) and step.reads == "sum":
            steps.answer = yield from summation(step)
        else:
            steps.answer = yield step
    result: T = steps.result
    return result


def run_script(
    script: Script[T],
    exchange: Callable[[Exchange], Any],
    run_job: Callable[[Job], Any],
    log_note: Callable[[Note], None] = lambda note: None,
    run_transaction: Callable[[Transaction], Any] | None = None,
) -> T:
    """Run a script to its end and return its result. By default, a transaction runs as part of the script."""
    steps = _Steps(script)
    for step in steps:
        match step:
            case Exchange():
                steps.answer = exchange(step)
            case Transaction() if run_transaction is not None:
                steps.answer = run_transaction(step)
            case Transaction():
                steps.answer = run_script(step.begin(), exchange, run_job, log_note)
            case Note():
                log_note(step)
                steps.answer = None
            case _:
                steps.answer = run_job(step)
    result: T = steps.result
    return result
