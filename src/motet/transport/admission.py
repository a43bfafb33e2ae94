"""Who is let in: protocol, configuration, name and token are checked before anything else is listened to."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from motet.core.messages import message
from motet.core.script import ClientId

PROTOCOL_VERSION = 3  # raise it when the meaning of a message changes
_NAME = re.compile(r"[\w.@+-]{1,80}")


@message
@dataclass(frozen=True)
class JoinRequest:
    """A client's first words. `digest` is of its own recipe, or empty if it takes the server's; `group` is the one it
    belongs to, where clients are not all alike."""

    protocol: int
    clients: tuple[ClientId, ...]
    digest: str
    token: str
    group: str = ""


@message
@dataclass(frozen=True, eq=False)
class JoinAccepted:
    """What a client needs to take part: values only, from which it builds its own side.

    `run` stays the same when a server is started again on the run, `session` does not: in a session, a number is given to
    one request alone. `groups` has the fields of each group's task, and its words where a vocabulary was made from texts.
    """

    run: str
    session: str
    digest: str
    config: dict[str, Any]
    groups: dict[str, dict[str, Any]]


@message
@dataclass(frozen=True)
class ClientReady:
    """The client has built its side; `fingerprint` says what came of it."""

    fingerprint: str


@message
@dataclass(frozen=True)
class Rejection:
    why: str


@message
@dataclass(frozen=True)
class RunFinished:
    """The run is over, and the client may go."""

    why: str


def hash_token(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def generate_token() -> str:
    return secrets.token_urlsafe(24)


@dataclass
class Admission:
    """`expected` are the clients' names; with `room` anybody may come in until so many have. `tokens` are hashes by name.

    `fingerprint` is that of everybody's model, or where clients bring their own data and are not all alike, `groups` has one a
    group, and `members` who belongs to which. A group that is only claimed may still be corrected: who mistyped it finds out
    when it reads its data.
    """

    welcome: JoinAccepted
    fingerprint: str = ""
    expected: Collection[ClientId] = ()
    room: int = 0
    tokens: Mapping[ClientId, str] = field(default_factory=dict)
    known: Callable[[ClientId, str], None] = lambda client, group: (
        None
    )  # told of a newcomer before anything is asked of him
    groups: Mapping[str, str] = field(default_factory=dict)
    members: dict[ClientId, str] = field(default_factory=dict)
    claimed: dict[ClientId, str] = field(default_factory=dict)
    guard: threading.Lock = field(
        default_factory=threading.Lock, repr=False
    )  # networks have a thread for each who knocks

    def refusal(self, hello: JoinRequest, certified: str | None = None) -> str | None:
        """Why this client is not let in; None if it is. `certified` is the name in its certificate, if it showed one."""
        if hello.protocol != PROTOCOL_VERSION:
            return f"the server speaks protocol {PROTOCOL_VERSION}, you speak {hello.protocol}; use the same version of Motet."
        if hello.digest and hello.digest != self.welcome.digest:
            return (
                f"your recipe has digest {hello.digest}, the server's {self.welcome.digest}; "
                "join with the server's recipe and settings, or with your own data alone."
            )
        if not hello.clients or len(hello.clients) > max(1, len(self.expected), self.room):
            return f"you come with {len(hello.clients)} names; give at least one, and no more than there are clients."
        with self.guard:
            for client in hello.clients:
                if why := self._stranger(client, hello.token, certified) or self._misplaced(client, hello.group):
                    return why
            self.claimed |= dict.fromkeys(hello.clients, hello.group)
        return None

    def settle(self, clients: Collection[ClientId]) -> None:
        """These hold the model of the group they claimed: from now on they belong to it."""
        with self.guard:
            for client in clients:
                group = self.claimed.get(client, "")
                if client not in self.expected or (group and client not in self.members):
                    self.known(client, group)
                self.expected = (*self.expected, client) if client not in self.expected else self.expected
                self.members.setdefault(client, group)

    def print_of(self, client: ClientId) -> str:
        """The fingerprint that this client's model must have."""
        return self.groups.get(self.members.get(client, self.claimed.get(client, "")), self.fingerprint)

    def _misplaced(self, client: ClientId, group: str) -> str | None:
        if self.groups and group not in self.groups:
            return (
                f"the clients of this run are not alike; say which you are: --group {' or --group '.join(self.groups)}."
            )
        if not self.groups and group:
            return f"the clients of this run are all alike, there is no group '{group}'; leave --group out."
        if self.members.get(client, group) != group:
            return (
                f"'{client}' has been in group '{self.members[client]}' and cannot change to '{group}'; check --group."
            )
        return None

    def _stranger(self, client: ClientId, token: str, certified: str | None) -> str | None:
        if not _NAME.fullmatch(client):
            return "a name has 1 to 80 letters, digits or any of . _ @ + -"
        if self.tokens:  # one answer for both, so that names cannot be guessed
            wanted = self.tokens.get(client, hash_token(secrets.token_hex()))
            if not hmac.compare_digest(wanted, hash_token(token)):
                return f"'{client}' with this token is not on the server's list; check --name and the token."
        if certified is not None and certified != client:
            return f"your certificate is for '{certified}', not for '{client}'."
        # a place is kept for those who are still building their side
        if client in self.claimed or client in self.expected or len({*self.expected, *self.claimed}) < self.room:
            return None
        return f"'{client}' is none of the clients of this run; check --name."
