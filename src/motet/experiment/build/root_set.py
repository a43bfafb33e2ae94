"""The server's own clean texts, with which FLTrust compares the updates of clients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from motet.core.errors import ConfigError
from motet.core.program import Algorithm, Round
from motet.core.script import Exchange, Script, client_methods, iter_programs
from motet.core.weighted import Weighted
from motet.experiment.build.optimizer_keeping import find_rounds
from motet.learning.context import Participant
from motet.learning.data.features import Examples
from motet.learning.kept_optimizers import KeptOptimizers
from motet.transport.client_state import EphemeralStates

MIN_EXAMPLES = 8


def find_root_examples(server: Participant, clients_keep_data: bool) -> Examples:
    """Return labeled texts of the server that no client trains on and no model is tested on."""
    examples = _root_split(server) if clients_keep_data or "public" in server.splits else None
    is_tested = examples is not None and bool(np.isin(examples.rows, server.split("global").rows).any())
    if examples is None or is_tested or len(examples) < MIN_EXAMPLES:
        remedy = (
            "give data.test, so that the rows of data.path are not the test set"
            if clients_keep_data
            else "hold some back with data.public_share=0.02"
        )
        count = 0 if examples is None or is_tested else len(examples)
        raise ConfigError(
            f"robust.type=fltrust compares updates with one from the server's own texts, and it has {count} of them; at "
            f"least {MIN_EXAMPLES} are needed. In this run, {remedy}."
        )
    return examples


def reply_from_root(algorithm: Algorithm, rnd: Round, exchange: Exchange) -> Script[Weighted]:
    """Run the client method of an exchange on the server's own texts, and return its reply.

    The server has the learning rates of the round that clients have, because updates get the length of its own.
    """
    payloads = {id(payload): payload for payload in exchange.payloads.values()}
    if len(payloads) != 1:
        raise ConfigError(
            f"robust.type=fltrust needs clients that start from one model, and {algorithm.name} sends {len(payloads)} "
            "different payloads; use another robust.type."
        )
    methods = {m.address: m for program in iter_programs(algorithm) for m in client_methods(program).values()}
    server: Participant = rnd.server.participant
    examples = _root_split(server)
    participant = replace(server, splits={**server.splits, "train": examples}, size=len(examples))
    rounds = find_rounds(algorithm, exchange.address.partition(".")[0], rnd.rounds)
    kept = KeptOptimizers(EphemeralStates(), "server", exchange.address, rnd.index, rounds)
    context = replace(rnd.server, participant=participant, seed=rnd.seed.derive("root"), kept_optimizers=kept)
    reply: tuple[Weighted, Any] = yield from methods[exchange.address].call(context, *payloads.values(), None)
    return reply[0]


def _root_split(server: Participant) -> Examples:
    """Return the public texts of a simulation, or the texts of a server whose clients keep theirs."""
    return server.split("public" if "public" in server.splits else "train")
