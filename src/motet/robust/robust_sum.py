"""Robust sums: a rule in place of the weighted mean, so that a few malicious clients cannot control the result."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import torch

from motet.core.errors import ConfigError
from motet.core.params import Params
from motet.core.rng import Seed
from motet.core.script import ClientId, Exchange, Note, Script
from motet.core.weighted import TermLimits, Weighted, mean_of
from motet.robust.aggregation_rules import RuleResult, fltrust

Rule = Callable[[torch.Tensor, int], RuleResult]  # (rows, number of attackers)
Reference = Callable[[Exchange], Script[Weighted]]  # what the server replies, from texts of its own


@dataclass(frozen=True)
class RobustSum:
    """Called with the exchange of a sum, it returns the script that replaces it (see `rewrite_sums`).

    `limits` bound every reply first. Without a `rule` the result is then the weighted mean. A rule counts each client
    once, because a client could claim any weight. It applies to updates; counts and statistics are averaged.
    `attackers` is the share of clients that may be malicious. A rule needs more than `clients_per_attacker` · f
    clients if f are malicious, and two more if it compares clients with their neighbors.

    With `groups` the clients are divided at random, and the rule sees only the sum of each group, so that secure sums
    can hide individual replies. With `uses_reference` replies are compared with the server's own (FLTrust).
    """

    name: str
    limits: TermLimits = TermLimits()
    rule: Rule | None = None
    attackers: float = 0.0
    clients_per_attacker: int = 2
    groups: int = 0
    uses_reference: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.attackers < 0.5:
            raise ConfigError(f"robust.attackers is {self.attackers}; expected a share of at least 0 and below 0.5.")
        if self.groups and self.groups < 3:
            raise ConfigError(f"robust.groups is {self.groups}; a rule needs at least 3 groups, or 0 for none.")
        for name, limit in (("max_norm", self.limits.max_norm), ("max_weight", self.limits.max_weight)):
            if not limit > 0:
                raise ConfigError(f"robust.{name} is {limit}; expected a number above 0.")

    def make_summation(self, seed: Seed, reference: Reference) -> Callable[[Exchange], Script[Weighted]]:
        """Return the script that replaces the sums of a round. All sums of a round have the same groups."""
        if self.groups:
            return partial(self._sum_groups, seed.derive("groups"))
        return partial(self._sum_with_reference, reference) if self.uses_reference else self

    def __call__(self, exchange: Exchange) -> Script[Weighted]:
        return self._collect(exchange)

    def _collect(self, exchange: Exchange, reference: Params | None = None) -> Script[Weighted]:
        collectors: list[RobustCollector] = []

        def make_collector() -> RobustCollector:
            collectors.append(RobustCollector(self, reference))
            return collectors[-1]

        result: Weighted = yield replace(exchange, collector=make_collector)
        if collectors:
            yield from self._report(collectors[-1])
        return result

    def _sum_with_reference(self, reference: Reference, exchange: Exchange) -> Script[Weighted]:
        own: Weighted = yield from reference(exchange)
        return (yield from self._collect(exchange, own.value))

    def _sum_groups(self, seed: Seed, exchange: Exchange) -> Script[Weighted]:
        """Sum each group by itself, and combine the means of the groups."""
        clients = list(exchange.payloads)
        order = seed.numpy().permutation(len(clients))
        collector = RobustCollector(self, clients=len(clients))
        for index in range(self.groups):
            members = [clients[k] for k in sorted(order[index :: self.groups])]
            payloads = {client: exchange.payloads[client] for client in members}
            mean: Weighted = yield replace(exchange, payloads=payloads)
            collector.add(f"the group of {members[0]}", mean)
        result = collector.value()
        yield from self._report(collector)
        return result

    def _report(self, collector: RobustCollector) -> Script[None]:
        if names := collector.left_out:
            text = f"{self.name} left out {', '.join(names[:5])}{', …' if len(names) > 5 else ''}"
            yield Note(text, source=self.name, kind="robust", values={"left_out": len(names)})

    def count_attackers(self, clients: int) -> int:
        """Return the number of clients that may lie, or raise an error if the rule cannot tolerate so many.

        With groups it is the number of groups, because each of them may lie in another one.
        """
        attackers = math.ceil(self.attackers * clients - 1e-9)
        needed = self.clients_per_attacker * attackers + (1 if self.name == "trimmed_mean" else 3)
        if attackers and (self.groups or clients) < needed:
            in_groups = f" in as many groups, and robust.groups is {self.groups}" if self.groups else ""
            raise ConfigError(
                f"robust.attackers={self.attackers:g} of {clients} clients is {attackers}{in_groups}. "
                f"robust.type={self.name} then needs {needed} {'groups' if self.groups else 'clients'}; use a larger "
                "cohort.size, or lower robust.attackers."
            )
        return attackers

    def check_groups(self, clients: int, minimum: int) -> None:
        """Raise an error if a group would have fewer clients than a secure sum needs."""
        if self.groups and clients // self.groups < minimum:
            raise ConfigError(
                f"robust.groups={self.groups} divides {clients} clients into groups of {clients // self.groups}, and a "
                f"secure sum hides a client only among {minimum} (secure.min_clients). Lower robust.groups, or use a larger "
                "cohort.size."
            )


@dataclass
class RobustCollector:
    """Keeps all replies of a sum, or the means of all groups, because a rule compares them."""

    robust: RobustSum
    reference: Params | None = None
    clients: int | None = None  # in all groups together; None: each term is one client
    terms: dict[ClientId, Weighted] = field(default_factory=dict)
    left_out: list[ClientId] = field(default_factory=list)

    def add(self, client: ClientId, reply: Weighted) -> None:
        self.terms[client] = self.robust.limits.apply(reply)

    def value(self) -> Weighted:
        terms = list(self.terms.values())
        is_update = bool(terms) and terms[0].value.flat.dtype == torch.float32
        if not is_update or (self.robust.rule is None and self.reference is None):
            return mean_of(terms)
        result = self._apply_rule(terms)
        if result.used is not None:
            self.left_out = [client for k, client in enumerate(self.terms) if k not in result.used]
        weight = sum(term.weight for term in terms)
        return Weighted(Params(terms[0].value.layout, result.row), weight)

    def _apply_rule(self, terms: list[Weighted]) -> RuleResult:
        first, rule = terms[0].value, self.robust.rule
        rows = torch.stack([term.value.to_device_of(first).flat for term in terms])
        if self.reference is not None:
            first.check_same_layout(self.reference)
            return fltrust(rows, self.reference.to_device_of(first).flat)
        if rule is None:
            raise RuntimeError("a robust sum without a rule is a mean")
        return rule(rows, self.robust.count_attackers(self.clients or len(terms)))
