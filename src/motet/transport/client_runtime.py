"""Runs client methods: finds the requested method, checks that the client offers it, and keeps its state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import GeneratorType
from typing import Any, Protocol

from motet.codecs.chain import Channel
from motet.core.errors import MotetError, PrivacyError, RunError
from motet.core.script import ClientId, ClientMethod, Program, client_methods, iter_programs
from motet.core.work import Executor, JobFailure, Work, drive
from motet.transport.client_state import EphemeralStates
from motet.transport.display_text import hide_numbers
from motet.transport.requests import Reply, Request, ValueWithUtility

# (client, round, address, invoke, read_state) -> the context of a client method. `invoke` runs another method inside
# this one, `read_state` reads the state of a program.
ContextFactory = Callable[[ClientId, int, str, Callable[[str, Any], Work[Any]], Callable[[str], Any]], Any]


# (client, round, program, reply) -> what a malicious client replies; only for simulated attacks
Tamper = Callable[[ClientId, int, str, Any], Any]


class StateStore(Protocol):
    """The states of each client's programs."""

    def get(self, program: str, client: ClientId) -> Any: ...
    def put(self, program: str, client: ClientId, value: Any) -> None: ...


class Guard(Protocol):
    """A client's checks of single requests, in addition to those of its programs."""

    def admit(self, request: Request, payload: Any) -> None:
        """Raise an error unless the request may be answered. `payload` is decoded."""

    def release(self, request: Request, reply: Reply) -> Reply:
        """Return the reply that may leave."""


class Recorder(Protocol):
    """Computes the utility of each training, for cohorts by utility."""

    def observe(self, make_context: ContextFactory) -> ContextFactory:
        """Return a function that makes the same contexts, whose trainings are recorded."""

    def take(self, request: Request) -> float | None:
        """Return the utility of the trainings for a request, and forget them; None if there were none."""


class ClientRuntime:
    """Runs the methods of one client, or in a simulation of many, together on one executor.

    `required_wrappers` lists, for each program, the programs that a request must go through to reach it. With
    `sums_only` a method that reveals sums cannot be called directly. With `hide_errors` an unexpected exception becomes
    an error reply without its message; in a simulation it propagates, so that bugs are visible. A client with a guard also
    hides the numbers in the errors of its work. With a recorder, replies have the utility of their training.
    """

    def __init__(
        self,
        programs: Sequence[Program],
        make_context: ContextFactory,
        executor: Executor,
        client_states: StateStore,
        channel: Channel = Channel(),
        sums_only: bool = False,
        required_wrappers: Mapping[str, frozenset[str]] = {},
        hide_errors: bool = False,
        guard: Guard | None = None,
        tamper: Tamper | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self.programs = {part.name: part for program in programs for part in iter_programs(program)}
        self.make_context = make_context if recorder is None else recorder.observe(make_context)
        self.executor, self.channel = executor, channel
        self.client_states, self.ephemeral_states = client_states, EphemeralStates()
        self.sums_only, self.required_wrappers, self.hide_errors = sums_only, required_wrappers, hide_errors
        self.guard, self.tamper, self.recorder = guard, tamper, recorder

    def answer_requests(self, requests: Iterator[Request]) -> Iterator[Reply]:
        """Run requests as they arrive and yield replies, possibly in another order."""
        running: dict[int, Request] = {}

        def start_all() -> Iterator[tuple[int, Callable[[], Any]]]:
            for request in requests:
                running[request.id] = request
                yield request.id, partial(self._run_request, request)

        for request_id, result in drive(start_all(), self.executor):
            request = running.pop(request_id)
            utility = None if self.recorder is None else self.recorder.take(request)
            if isinstance(result, JobFailure):
                reply = Reply(request_id, request.client, error=str(result.error))
            else:
                value = result if utility is None else ValueWithUtility(result, utility)
                reply = Reply(request_id, request.client, value)
            yield self.release(request, reply)

    def release(self, request: Request, reply: Reply) -> Reply:
        """Return what may leave, also if the same reply leaves again."""
        return reply if self.guard is None else self.guard.release(request, reply)

    def _run_request(self, request: Request) -> Work[Any]:
        try:
            if self.sums_only and self._find_method(request.address).reveals == "sum":
                raise PrivacyError(
                    f"{request.address} is only available inside a secure sum; set secure.type on the server."
                )
            payload = self.channel.down.decode(request.payload)
            if self.guard is not None:
                self._find_method(request.address)  # a method that does not exist is not a question
                self.guard.admit(request, payload)
            value = yield from self._invoke(request.client, request.round, request.address, payload)
            return self._encode_reply(request, value)
        except Exception as error:
            error.add_note(f"in {request.address}, client {request.client}, round {request.round + 1}")
            if self.hide_errors and not isinstance(error, MotetError):  # its message may contain private data
                raise RunError(f"{request.address} failed with a {type(error).__name__}") from error
            if self.guard is not None and not isinstance(error, PrivacyError):  # its numbers may be those of the texts
                raise RunError(hide_numbers(str(error))) from error
            raise

    def _encode_reply(self, request: Request, value: Any) -> Any:
        """Apply the codecs. With error feedback, the client's state keeps the residual for its next reply."""
        codecs = self.channel.up
        seed = self.channel.seed.derive("up", request.client, request.round, request.address)
        max_norm = self.programs[request.address.partition(".")[0]].max_sent_norm
        if not codecs.has_error_feedback:
            return codecs.encode(value, seed, max_norm)
        key = f"residual.{request.address}"
        residuals = self.client_states.get(key, request.client) or ()
        encoded, residuals = codecs.encode_with_feedback(value, residuals, seed, max_norm)
        if residuals:
            self.client_states.put(key, request.client, residuals)
        return encoded

    def _invoke(
        self, client: ClientId, round: int, address: str, payload: Any, callers: frozenset[str] = frozenset()
    ) -> Work[Any]:
        """Run a client method. `callers` are the programs that this call goes through."""
        method, program = self._find_method(address), address.partition(".")[0]
        if missing := self.required_wrappers.get(program, frozenset()) - callers:
            raise PrivacyError(
                f"{address} is only available inside {' and '.join(sorted(missing))}; the server must call that instead."
            )
        states = self.ephemeral_states if self.programs[program].ephemeral else self.client_states
        invoke_nested = partial(self._invoke_nested, client, round, callers | {program})
        context = self.make_context(
            client, round, address, invoke_nested, lambda name: self.client_states.get(name, client)
        )
        result = method.call(context, payload, states.get(program, client))
        if isinstance(result, GeneratorType):
            result = yield from result
        if not isinstance(result, tuple) or len(result) != 2:
            raise RunError(
                f"{address} returned a {type(result).__name__}; expected the reply and the new client state: "
                "return reply, None"
            )
        reply, state = result
        if state is not None:
            states.put(program, client, state)
        return reply if self.tamper is None else self.tamper(client, round, program, reply)

    def _invoke_nested(
        self, client: ClientId, round: int, callers: frozenset[str], address: str, payload: Any
    ) -> Work[Any]:
        """Run a method inside another one.

        It must reveal a sum; else a server could nest the stages of a secure sum. A program runs at most once in a request;
        else a server could nest a question in itself, and ask it again as another one.
        """
        if self._find_method(address).reveals != "sum":
            raise PrivacyError(f"{address} does not reveal a sum; only methods that do can run inside another method.")
        if address.partition(".")[0] in callers:
            raise PrivacyError(f"{address} cannot run inside itself; the server must call it once.")
        return (yield from self._invoke(client, round, address, payload, callers))

    def _find_method(self, address: str) -> ClientMethod:
        program, _, method = address.partition(".")
        methods = client_methods(self.programs[program]) if program in self.programs else {}
        if method not in methods:
            available = ", ".join(m.address for p in self.programs.values() for m in client_methods(p).values())
            raise PrivacyError(f"'{address}' is not offered to the server; this client offers {available}.")
        return methods[method]
