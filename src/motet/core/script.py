"""Scripts: the server side of a program, written as a generator.

A script yields exchanges with clients, jobs for the server's executor, and notes. Each `yield` returns the result.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, Protocol, TypeVar

from motet.core.attributes import attribute, undeclared
from motet.core.errors import ConfigError, PrivacyError
from motet.core.generator_mistakes import reject_generator
from motet.core.weighted import RunningSum, Weighted
from motet.core.work import Job

ClientId = str
Reveal = Literal["each", "sum"]

F = TypeVar("F", bound=Callable[..., Any])
Q = TypeVar("Q")
T = TypeVar("T")

_MARK = "client_method"  # the key of a mark in the __dict__ of a function


@dataclass(frozen=True)
class _Mark:
    reveals: Reveal
    name: str
    follows: str | None


@dataclass(frozen=True)
class ClientMethod:
    """A method that clients offer: its address, what the server may read of the replies, and the method itself.

    `follows` is the address of a method that all clients of a sum must have run in the same round.
    """

    address: str
    reveals: Reveal
    call: Callable[..., Any]
    follows: str | None = None


class Program(Protocol):
    """A named set of client methods, such as an algorithm or a secure sum. Every program inherits from this class."""

    @attribute
    def name(self) -> str:
        """The first part of the addresses of its client methods."""
        raise undeclared(self, "name", 'name: str = "mine"')

    @attribute
    def subprograms(self) -> tuple[Program, ...]:
        """Other programs that this one uses. Clients offer their methods too."""
        return ()

    @attribute
    def ephemeral(self) -> bool:
        """True if its client state must never be written to disk."""
        return False

    @attribute
    def max_sent_norm(self) -> float:
        """The largest L2 norm of a reply. Codecs scale a longer one down."""
        return math.inf


def work(*, reveals: Reveal, name: str | None = None, follows: str | None = None) -> Callable[[F], F]:
    """Mark a method that runs on clients. `reveals` says whether the server may read each reply or only their sum.

    `name` is the method's name in messages and in seeds, by default its Python name. When you rename a method, pass its
    old name here, so that a run with the same seed still gives the same numbers.

    `follows` is the name in messages of a method of the same program. In a secure sum, only clients that took part in the
    sum of that method in the same round may take part.
    """

    def mark(method: F) -> F:
        vars(method)[_MARK] = _Mark(reveals, name or method.__name__, follows)
        return method

    return mark


def find_client_method(method: Callable[..., Any]) -> ClientMethod:
    """Return what a bound method declares with `@work`, or raise an error if it is not marked."""
    mark: _Mark | None = vars(method.__func__).get(_MARK) if inspect.ismethod(method) else None
    if mark is None:
        raise ConfigError(
            f'{method.__qualname__} is not marked as a client method; put @work(reveals="sum") above it, '
            'or @work(reveals="each") if the server must read every reply.'
        )
    program: Program = method.__self__  # type: ignore[attr-defined]
    return ClientMethod(
        address=f"{program.name}.{mark.name}",
        reveals=mark.reveals,
        call=method,
        follows=f"{program.name}.{mark.follows}" if mark.follows else None,
    )


def client_methods(program: Program) -> dict[str, ClientMethod]:
    """Return a program's client methods by the name they have in messages."""
    return {name: find_client_method(getattr(program, attribute)) for name, attribute in _marked(type(program)).items()}


@cache
def _marked(cls: type[Program]) -> dict[str, str]:
    """Return the attributes of a class that are client methods, by their name in messages.

    Every request asks for them, and looking at all members of a class takes 240 µs.
    """
    members = inspect.getmembers_static(cls, inspect.isfunction)
    return {vars(function)[_MARK].name: name for name, function in members if _MARK in vars(function)}


def iter_programs(program: Program) -> Iterator[Program]:
    """Yield a program and, recursively, its subprograms."""
    yield program
    for subprogram in program.subprograms:
        yield from iter_programs(subprogram)


def all_client_methods(program: Program) -> dict[str, Reveal]:
    """Return the addresses of all client methods of a program and its subprograms, and what each one reveals."""
    methods = [method for each in iter_programs(program) for method in client_methods(each).values()]
    return {method.address: method.reveals for method in methods}


class Collector(Protocol):
    """Collects replies one by one, in the order of the cohort."""

    def add(self, client: ClientId, reply: Any) -> None: ...
    def value(self) -> Any: ...


@dataclass(frozen=True)
class Exchange:
    """A call of one client method on several clients, and how the replies are collected.

    `on_start` is called before the first request of every attempt, and not if a logged result is used.
    """

    address: str
    payloads: Mapping[ClientId, Any]
    reads: Reveal
    collector: Callable[[], Collector]
    on_start: Callable[[], None] = lambda: None


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


def gather(method: Callable[..., Any], payloads: Mapping[ClientId, Any]) -> Script[dict[ClientId, Any]]:
    """Call a client method and return every client's reply."""
    marked = find_client_method(method)
    if marked.reveals != "each":
        raise PrivacyError(f"{marked.address} reveals only sums and cannot be gathered; read it with total().")
    replies: dict[ClientId, Any] = yield Exchange(marked.address, payloads, "each", _Replies)
    return replies


def total(method: Callable[..., Any], payloads: Mapping[ClientId, Any]) -> Script[Weighted]:
    """Call a client method and return only the weighted mean of the replies and their total weight."""
    result: Weighted = yield Exchange(find_client_method(method).address, payloads, "sum", RunningSum)
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
                step = reject_generator(self.script.send(self.answer), self.script)
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
