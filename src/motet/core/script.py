"""Scripts: the server half of a program, as a generator of exchanges with clients and of jobs for the server's own executor."""

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


def work(*, reveals: Reveal) -> Callable[[F], F]:
    """Mark a method as one that runs on clients, and say how its replies may be read: each, or only their sum."""

    def mark(method: F) -> F:
        method.reveals = reveals  # type: ignore[attr-defined]
        return method

    return mark


def client_methods(program: object) -> dict[str, Reveal]:
    """The methods a program runs on clients, and what each reveals."""
    found = ((n, getattr(getattr(type(program), n, None), "reveals", None)) for n in dir(type(program)))
    return {name: reveals for name, reveals in found if reveals is not None}


def subprograms(program: Any) -> Iterator[Any]:
    """A program and those it is made of: phases, or a step that has messages of its own."""
    yield program
    for part in getattr(program, "parts", ()):
        yield from subprograms(part)


def all_client_methods(program: object) -> dict[str, Reveal]:
    """All that a program and its parts run on clients, by address."""
    return {
        f"{part.name}.{method}": reveals
        for part in subprograms(program)
        for method, reveals in client_methods(part).items()
    }


class Collector(Protocol):
    """Takes replies one by one, in the order of the cohort."""

    def add(self, client: ClientId, reply: Any) -> None: ...
    def value(self) -> Any: ...


@dataclass(frozen=True)
class Exchange:
    """One question put to some clients, and how their answers are read."""

    address: str
    payloads: Mapping[ClientId, Any]
    reads: Reveal
    collector: Callable[[], Collector]


@dataclass(frozen=True)
class Note:
    """Something a script wants known: a sentence for whoever watches, values for the record. It changes nothing."""

    text: str = ""
    who: str = "server"
    about: str = "note"
    values: Mapping[str, Any] = field(default_factory=dict)


Script = Generator[Exchange | Job | Note, Any, T]


class _Replies:
    def __init__(self) -> None:
        self.replies: dict[ClientId, Any] = {}

    def add(self, client: ClientId, reply: Any) -> None:
        self.replies[client] = reply

    def value(self) -> dict[ClientId, Any]:
        return self.replies


def address_of(method: Callable[..., Any]) -> str:
    return f"{method.__self__.name}.{method.__name__}"  # type: ignore[attr-defined]


def gather(method: Callable[..., Any], payloads: Mapping[ClientId, Any]) -> Script[dict[ClientId, Any]]:
    """Ask, and read every reply on its own."""
    if getattr(method, "reveals", None) != "each":
        raise PrivacyError(f"{address_of(method)} reveals only sums and cannot be gathered; read it with total().")
    replies: dict[ClientId, Any] = yield Exchange(address_of(method), payloads, "each", _Replies)
    return replies


def total(method: Callable[..., Any], payloads: Mapping[ClientId, Any]) -> Script[Weighted]:
    """Ask, and read nothing but the sum of the replies."""
    answer: Weighted = yield Exchange(address_of(method), payloads, "sum", RunningSum)
    return answer


def to_all(clients: Iterable[ClientId], payload: Q) -> dict[ClientId, Q]:
    return dict.fromkeys(clients, payload)


def rewrite_sums(summation: Callable[[Exchange], Script[Weighted]], script: Script[T]) -> Script[T]:
    """Rewrite every sum in a script into the summation's own exchanges; the script does not know."""
    answer: Any = None
    while True:
        try:
            step = script.send(answer)
        except StopIteration as done:
            result: T = done.value
            return result
        if isinstance(step, Exchange) and step.reads == "sum":
            answer = yield from summation(step)
        else:
            answer = yield step


def run_script(
    script: Script[T],
    ask: Callable[[Exchange], Any],
    do: Callable[[Job], Any],
    note: Callable[[Note], None] = lambda remark: None,
) -> T:
    """Run a script: exchanges go to clients, jobs to the server's executor, remarks to the record."""
    answer: Any = None
    while True:
        try:
            step = script.send(answer)
        except StopIteration as done:
            result: T = done.value
            return result
        match step:
            case Exchange():
                answer = ask(step)
            case Note():
                note(step)
                answer = None
            case _:
                answer = do(step)
