"""Client states that stay on the nodes of a Ray cluster. The driver only knows where they are.

Ray keeps the result of a method if its actor dies, but not if its node does. So every state has a copy on a second node, if
there is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import ray

from motet.core.script import ClientId
from motet.experiment.deploy.ray_actor_pool import ActorPool, Completion
from motet.transport.client_state import ClientStates, StateKey, StateSource


class NewStates(NamedTuple):
    """References to the states that a task left on its node. `done` fails if the actor died before."""

    keys: Sequence[StateKey]
    actor: Any
    done: Any
    references: Sequence[Any]


class ExchangeStates:
    """The client states of one exchange: those from before it, and new ones."""

    def __init__(self, pool: ActorPool, run: str, states: ClientStates) -> None:
        self.pool, self.run, self.states = pool, run, states
        self.before: dict[ClientId, dict[str, StateSource]] = {}
        self.new: dict[int, NewStates] = {}  # by the number of the task

    def sources(self, clients: Iterable[ClientId]) -> dict[StateKey, StateSource]:
        """Return where the states are from before the exchange. A task that is repeated begins with them again."""
        for client in clients:
            if client not in self.before:
                self.before[client] = self.states.sources(client)
        return {(program, c): source for c in clients for program, source in self.before[c].items()}

    def take(self, completion: Completion) -> None:
        """Leave the new states of a task on its node, in place of those of an earlier attempt."""
        keys = [(program, client) for program, client in completion.report.states]
        if keys:
            take_states = completion.actor.take_states.options(num_returns=1 + len(keys))
            done, *references = take_states.remote(self.run, keys)
            self.new[completion.task.key] = NewStates(keys, completion.actor, done, references)

    def check(self) -> None:
        """Raise an error of Ray if an actor died before its new states were stored."""
        ray.get([new.done for new in self.new.values()])

    def commit(self) -> None:
        """Copy the new states to a second node, and make them the states of their clients."""
        started = [(new, self._start_copy(number, new)) for number, new in self.new.items()]
        for new, copy in started:
            stored = [new, *([copy] if copy and _succeeds(copy.done) else [])]
            nodes = [self.pool.nodes[each.actor] for each in stored]
            for (program, client), *references in zip(new.keys, *(each.references for each in stored), strict=True):
                copies = [*zip(nodes, references, strict=True)]
                self.states.put(program, client, StateSource(partial(self.pool.load_state, copies), copies))
        self.new.clear()

    def _start_copy(self, number: int, new: NewStates) -> NewStates | None:
        """Store the new states of a task on another node. Tasks take turns with the actors there."""
        nodes = self.pool.nodes
        others = [actor for actor in self.pool.idle if nodes.get(actor, nodes[new.actor]) != nodes[new.actor]]
        if not others:
            return None
        actor = others[number % len(others)]
        done, *references = actor.copy_states.options(num_returns=1 + len(new.keys)).remote(*new.references)
        return NewStates(new.keys, actor, done, references)


def _succeeds(done: Any) -> bool:
    try:
        ray.get(done)
    except ray.exceptions.RayError:  # the other node is gone
        return False
    return True
