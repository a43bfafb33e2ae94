"""Robust sums: a rule in place of the weighted mean, so that a few lying clients cannot decide the result."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch

from motet.core.errors import ConfigError
from motet.core.params import Params
from motet.core.script import ClientId, Exchange, Note, Script
from motet.core.weighted import RunningSum, TermLimits, Weighted
from motet.robust.aggregation_rules import RuleResult

Rule = Callable[[torch.Tensor, int], RuleResult]  # (rows, number of attackers)


@dataclass(frozen=True)
class RobustSum:
    """Called with the exchange of a sum, it returns the script that replaces it (see `rewrite_sums`).

    `limits` bound every reply first. Without a `rule` the result is then the weighted mean. A rule counts each client
    once, because a client could claim any weight. It applies to updates; counts and statistics are averaged.
    `attackers` is the share of clients that may lie. A rule needs more than `clients_per_attacker` · f clients for f
    that lie, and two more if it compares clients with their neighbors.
    """

    name: str
    limits: TermLimits = TermLimits()
    rule: Rule | None = None
    attackers: float = 0.0
    clients_per_attacker: int = 2

    def __post_init__(self) -> None:
        if not 0 <= self.attackers < 0.5:
            raise ConfigError(f"robust.attackers is {self.attackers}; expected a share of at least 0 and below 0.5.")
        for name, limit in (("max_norm", self.limits.max_norm), ("max_weight", self.limits.max_weight)):
            if not limit > 0:
                raise ConfigError(f"robust.{name} is {limit}; expected a number above 0.")

    def __call__(self, exchange: Exchange) -> Script[Weighted]:
        collectors: list[RobustCollector] = []

        def make_collector() -> RobustCollector:
            collectors.append(RobustCollector(self))
            return collectors[-1]

        result: Weighted = yield replace(exchange, collector=make_collector)
        if collectors and collectors[-1].left_out:
            names = collectors[-1].left_out
            text = f"{self.name} left out {', '.join(names[:5])}{', …' if len(names) > 5 else ''}"
            yield Note(text, source=self.name, kind="robust", values={"left_out": len(names)})
        return result

    def count_attackers(self, clients: int) -> int:
        """Return the number of clients that may lie, or raise an error if the rule cannot tolerate so many."""
        attackers = math.ceil(self.attackers * clients - 1e-9)
        needed = self.clients_per_attacker * attackers + (1 if self.name == "trimmed_mean" else 3)
        if attackers and clients < needed:
            raise ConfigError(
                f"robust.attackers={self.attackers:g} of {clients} clients is {attackers}, and robust.type={self.name} then "
                f"needs {needed} clients; use a larger cohort.size, or lower robust.attackers."
            )
        return attackers


@dataclass
class RobustCollector:
    """Keeps all replies of a sum, because a rule compares them."""

    robust: RobustSum
    terms: dict[ClientId, Weighted] = field(default_factory=dict)
    left_out: list[ClientId] = field(default_factory=list)

    def add(self, client: ClientId, reply: Weighted) -> None:
        self.terms[client] = self.robust.limits.apply(reply)

    def value(self) -> Weighted:
        running_sum, rule = RunningSum(), self.robust.rule
        terms = list(self.terms.values())
        is_update = bool(terms) and terms[0].value.flat.dtype == torch.float32
        if rule is None or not is_update:
            for client, term in self.terms.items():
                running_sum.add(client, term)
            return running_sum.value()
        attackers = self.robust.count_attackers(len(terms))
        rows = torch.stack([term.value.to_device_of(terms[0].value).flat for term in terms])
        result = rule(rows, attackers)
        if result.used is not None:
            self.left_out = [client for k, client in enumerate(self.terms) if k not in result.used]
        weight = sum(term.weight for term in terms)
        return Weighted(Params(terms[0].value.layout, result.row), weight)
