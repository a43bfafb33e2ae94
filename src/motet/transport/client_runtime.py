"""The client side: look up the method asked for, check that it is offered, run it, keep what it wants remembered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import GeneratorType
from typing import Any, Protocol

from motet.codecs.chain import Channel
from motet.core.errors import MotetError, PrivacyError, RunError
from motet.core.script import ClientId, client_methods, iter_programs
from motet.core.work import Executor, JobFailure, Work, drive
from motet.transport.client_state import EphemeralStates
from motet.transport.requests import Reply, Request

# (client, round, address) and the two doors back into the host → the context a method is given
ContextFactory = Callable[[ClientId, int, str, Callable[[str, Any], Work[Any]], Callable[[str], Any]], Any]


class StateStore(Protocol):
    """What each client's programs remember."""

    def get(self, program: str, client: ClientId) -> Any: ...
    def put(self, program: str, client: ClientId, value: Any) -> None: ...


class ClientRuntime:
    """One client, or in a simulation many: works of all that are asked are driven together on one executor.

    A `steady` host answers whatever goes wrong with a sentence, as it must that is asked by strangers; in a simulation a bug
    shows itself.
    """

    def __init__(
        self,
        programs: Sequence[Any],
        context_of: ContextFactory,
        executor: Executor,
        memories: StateStore,
        channel: Channel = Channel(),
        only_sums: bool = False,
        behind: Mapping[str, frozenset[str]] = {},
        steady: bool = False,
    ) -> None:
        self.programs = {part.name: part for p in programs for part in iter_programs(p)}
        self.context_of, self.executor, self.memories, self.channel = context_of, executor, memories, channel
        self.behind, self.secrets = (
            behind,
            EphemeralStates(),
        )  # behind: which programs a program may only be reached through
        self.only_sums, self.steady = only_sums, steady

    def replies(self, requests: Iterator[Request]) -> Iterator[Reply]:
        """Answer requests as they come; replies may come in another order."""
        asked: dict[int, Request] = {}

        def works() -> Iterator[tuple[int, Callable[[], Any]]]:
            for request in requests:
                asked[request.id] = request
                yield request.id, partial(self._answer, request)

        for number, value in drive(works(), self.executor):
            request = asked.pop(number)
            if isinstance(value, JobFailure):
                yield Reply(number, request.client, error=str(value.error))
            else:
                yield Reply(number, request.client, value)

    def _answer(self, request: Request) -> Work[Any]:
        try:
            if self.only_sums and self._offered(request.address).reveals == "sum":
                raise PrivacyError(
                    f"{request.address} is given out only inside a secure sum; set secure.type on the server."
                )
            payload = self.channel.down.decode(request.payload)
            value = yield from self._perform(request.client, request.round, request.address, payload)
            return self._coded(request, value)
        except Exception as error:
            error.add_note(f"in {request.address}, client {request.client}, round {request.round}")
            if self.steady and not isinstance(error, MotetError):  # the message of a bug may hold what is private
                raise RunError(f"{request.client}: {request.address} failed with a {type(error).__name__}") from error
            raise

    def _coded(self, request: Request, value: Any) -> Any:
        """The reply as it travels. What its codecs leave out is owed: the client remembers it, and adds it to the next one."""
        seed = self.channel.seed.derive("up", request.client, request.round, request.address)
        if not self.channel.up.feeds_back:
            return self.channel.up.encode(value, seed)
        debts = f"owed.{request.address}"
        coded, owed = self.channel.up.encode_owing(value, self.memories.get(debts, request.client) or (), seed)
        if owed:
            self.memories.put(debts, request.client, owed)
        return coded

    def _perform(
        self, client: ClientId, round: int, address: str, payload: Any, through: frozenset[str] = frozenset()
    ) -> Work[Any]:
        method, program = self._offered(address), address.partition(".")[0]
        if missing := self.behind.get(program, frozenset()) - through:
            raise PrivacyError(
                f"{address} is given out only inside {' and '.join(sorted(missing))}; the server must ask for that."
            )
        memories = self.secrets if getattr(self.programs[program], "ephemeral", False) else self.memories
        inside = partial(self._inside, client, round, through | {program})
        ctx = self.context_of(client, round, address, inside, lambda name: self.memories.get(name, client))
        result = method(ctx, payload, memories.get(program, client))
        if isinstance(result, GeneratorType):
            result = yield from result
        reply, memory = result
        if memory is not None:
            memories.put(program, client, memory)
        return reply

    def _inside(self, client: ClientId, round: int, through: frozenset[str], address: str, payload: Any) -> Work[Any]:
        """Work done within other work: only what reveals sums, or a secure sum's own stages could be nested in each other."""
        if self._offered(address).reveals != "sum":
            raise PrivacyError(
                f"{address} does not reveal a sum, and only what does can be performed inside other work."
            )
        return (yield from self._perform(client, round, address, payload, through))

    def _offered(self, address: str) -> Any:
        name, _, method = address.partition(".")
        program = self.programs.get(name)
        if program is None or method not in client_methods(program):
            known = ", ".join(f"{p.name}.{m}" for p in self.programs.values() for m in client_methods(p))
            raise PrivacyError(f"'{address}' is not offered to the server; this client offers {known}.")
        return getattr(program, method)
