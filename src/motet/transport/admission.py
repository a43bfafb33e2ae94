"""Decides who may join a run, by protocol version, configuration, name and token, before anything else is processed."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import motet
from motet.core.messages import message
from motet.core.script import ClientId

PROTOCOL_VERSION = 5  # increase it when the messages or their meaning change
_VALID_NAME = re.compile(r"[\w.@+-]{1,80}")


@message
@dataclass(frozen=True)
class JoinRequest:
    """The first message of a client.

    `digest` is the digest of its own recipe, or empty if it uses the server's. `group` is the client's group, in a run
    with several.
    """

    protocol: int
    clients: tuple[ClientId, ...]
    digest: str
    token: str
    group: str = ""


@message
@dataclass(frozen=True, eq=False)
class JoinAccepted:
    """The values from which a client builds its programs, data and model.

    `run` stays the same when a server resumes the run. `session` changes, and within a session a request ID is never
    used twice. `groups` holds the fields of each group's task, and its words if the vocabulary was built from texts.
    """

    run: str
    session: str
    digest: str
    config: dict[str, Any]
    groups: dict[str, dict[str, Any]]


@message
@dataclass(frozen=True)
class ClientReady:
    """The client has built its model, with this fingerprint."""

    fingerprint: str


@message
@dataclass(frozen=True)
class Rejection:
    reason: str


@message
@dataclass(frozen=True)
class RunFinished:
    """The run is over, and the client may exit: with an error if the run has failed."""

    reason: str
    has_failed: bool = False


LoadTokens = Callable[[], Mapping[ClientId, str]]


def is_valid_name(client: ClientId) -> bool:
    """Return True if a client may have this name."""
    return _VALID_NAME.fullmatch(client) is not None


def hash_token(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def generate_token() -> str:
    return secrets.token_urlsafe(24)


@dataclass
class Admission:
    """The rules by which clients are admitted.

    `expected` are the clients' names. With `capacity`, clients of any name may join until there are that many.
    `load_tokens` returns the hashes of the tokens by client. It may return others later: a client that is no longer in it,
    or has another token, is revoked. Without it, a name is bound to the token of the client that first takes part with it.

    All clients must have a model with the same `fingerprint`. In a run with several groups, where clients bring their
    own data, `group_fingerprints` has one for each group, and `client_groups` has each client's group. A group in
    `claimed_groups` is not confirmed yet. A client with a wrong --group notices this when it reads its data, and may
    then correct it.
    """

    acceptance: JoinAccepted
    fingerprint: str = ""
    expected: Collection[ClientId] = ()
    capacity: int = 0
    load_tokens: LoadTokens | None = None
    bound_tokens: dict[ClientId, str] = field(default_factory=dict)  # hashes of the tokens that clients joined with
    # Called before a client's first request.
    on_new_client: Callable[[ClientId, str, str], None] = lambda client, group, token_hash: None
    group_fingerprints: Mapping[str, str] = field(default_factory=dict)
    client_groups: dict[ClientId, str] = field(default_factory=dict)
    claimed_groups: dict[ClientId, str] = field(default_factory=dict)
    claimed_tokens: dict[ClientId, str] = field(default_factory=dict)  # hashes
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)  # one thread per connecting client

    def rejection_reason(self, request: JoinRequest, certified_name: str | None = None) -> str | None:
        """Return why this client is rejected, or None if it is admitted.

        `certified_name` is from its TLS certificate.
        """
        if request.protocol != PROTOCOL_VERSION:
            return (
                f"the server uses protocol {PROTOCOL_VERSION} (Motet {motet.__version__}), you use {request.protocol}; "
                "use the same version of Motet. What you have finished is kept."
            )
        if request.digest and request.digest != self.acceptance.digest:
            return (
                f"your recipe has digest {request.digest}, the server's {self.acceptance.digest}; "
                "join with the server's recipe and settings, or only with your own data."
            )
        if not request.clients or len(request.clients) > max(1, len(self.expected), self.capacity):
            return f"you gave {len(request.clients)} names; give at least one, and no more than there are clients."
        with self.lock:
            for client in request.clients:
                error = self._identity_error(client, request.token, certified_name)
                error = error or self._group_error(client, request.group)
                if error:
                    return error
            self.claimed_groups |= dict.fromkeys(request.clients, request.group)
            self.claimed_tokens |= dict.fromkeys(request.clients, hash_token(request.token))
        return None

    def confirm(self, clients: Collection[ClientId]) -> bool:
        """Make the claims of these clients final: their models have the right fingerprint. False if they were released."""
        with self.lock:
            if not all(client in self.claimed_groups for client in clients):
                return False
            for client in clients:
                group, token_hash = self.claimed_groups[client], self.claimed_tokens[client]
                is_new_group = bool(group) and client not in self.client_groups
                if client not in self.expected or is_new_group or client not in self.bound_tokens:
                    self.on_new_client(client, group, "" if self.load_tokens is not None else token_hash)
                self.expected = (*self.expected, client) if client not in self.expected else self.expected
                self.client_groups.setdefault(client, group)
                self.bound_tokens[client] = token_hash
        return True

    def release(self, clients: Collection[ClientId]) -> None:
        """Give up the claims of clients that are no longer connected. What is confirmed stays."""
        with self.lock:
            for client in clients:
                self.claimed_groups.pop(client, None)
                self.claimed_tokens.pop(client, None)

    def is_revoked(self, client: ClientId) -> bool:
        """Return True if this client, or the token that it joined with, is no longer allowed."""
        if self.load_tokens is None:
            return False
        token_hash = self.load_tokens().get(client)
        return token_hash is None or token_hash != self.bound_tokens.get(client, token_hash)

    def expected_fingerprint(self, client: ClientId) -> str:
        """Return the fingerprint that this client's model must have."""
        group = self.client_groups.get(client, self.claimed_groups.get(client, ""))
        return self.group_fingerprints.get(group, self.fingerprint)

    def _group_error(self, client: ClientId, group: str) -> str | None:
        if self.group_fingerprints and group not in self.group_fingerprints:
            return f"this run has several groups; choose one: --group {' or --group '.join(self.group_fingerprints)}."
        if not self.group_fingerprints and group:
            return f"this run has no groups, and you gave group '{group}'; leave --group out."
        if self.client_groups.get(client, group) != group:
            return (
                f"'{client}' is in group '{self.client_groups[client]}' and cannot change to '{group}'; check --group."
            )
        return None

    def _identity_error(self, client: ClientId, token: str, certified_name: str | None) -> str | None:
        if not is_valid_name(client):
            return "a name has 1 to 80 letters, digits or any of . _ @ + -"
        if certified_name is not None and certified_name != client:
            return f"your certificate is for '{certified_name}', not for '{client}'."
        error = self._token_error(client, hash_token(token), certified_name)
        if error is not None:
            return error
        # a client that is still building its model already counts towards the capacity
        has_capacity = len({*self.expected, *self.claimed_groups}) < self.capacity
        if client in self.claimed_groups or client in self.expected or has_capacity:
            return None
        if self.load_tokens is not None:  # its token is right
            return f"'{client}' was allowed after the server had started; join when the server is started again."
        return f"'{client}' is not a client of this run; check --name."

    def _token_error(self, client: ClientId, token_hash: str, certified_name: str | None) -> str | None:
        if (
            self.load_tokens is not None
        ):  # one answer for unknown names and wrong tokens, so that names cannot be guessed
            expected_hash = self.load_tokens().get(client, hash_token(secrets.token_hex()))
            is_right = hmac.compare_digest(expected_hash, token_hash)
            return (
                None
                if is_right
                else f"'{client}' with this token is not on the server's list; check --name and the token."
            )
        if certified_name is not None:  # a certificate says more than the token of an earlier connection
            return None
        bound_hash = self.bound_tokens.get(client) or self.claimed_tokens.get(client) or token_hash
        if hmac.compare_digest(bound_hash, token_hash):
            return None
        return (
            f"the name '{client}' is taken by a client with another token; choose another --name, or join with the "
            "--state-dir or token of that client."
        )
