"""Between ATC's stages: states that are nobody's text, on which all clients can be compared (section 3.3).

Instance k of every client is one of its own inputs, as its encoder sees it. One client, drawn for each k, is primary and counts
half; the others share the rest (equal weights would blur it all). What comes out, and the words it is nearest to, go to all.

Plainly exchanged, the states of real inputs are read by the server, and texts can be recovered from such states. With
`weighting: client` each client applies its weights itself and only the sum is read; see docs/design/0009-atc.md.

Where we differ: the authors pad to 384 tokens and take as many instances as the smallest client has examples, up to 20,000;
here both are parameters, and a client with fewer examples goes round them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from motet.core.errors import ConfigError, PrivacyError
from motet.core.messages import message
from motet.core.params import Params
from motet.core.program import Round
from motet.core.rng import Seed
from motet.core.script import ClientId, Script, gather, to_all, total, work
from motet.core.weighted import Weighted
from motet.core.work import Work
from motet.learning.context import Context
from motet.learning.data.features import Examples
from motet.learning.objectives.atc_objectives import EncoderStates, PredictedTokens

Weighing = Literal["server", "client"]


@message
@dataclass(frozen=True, eq=False)
class Synthetic:
    """[instances, tokens, width], and [instances, tokens]."""

    states: Tensor
    tokens: Tensor


@dataclass(frozen=True)
class Between:
    instances: int = 512
    tokens: int = 128
    half: bool = True
    weighting: Weighing = "server"
    primary: float = 0.5
    name: str = "between"

    def __post_init__(self) -> None:
        for name in ("instances", "tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(f"atc.{name} is {getattr(self, name)}; it must be at least 1.")

    def share(self, naming: Params, clients: Sequence[ClientId], rnd: Round) -> Script[None]:
        """Leave every client the synthetic instances. `naming` is the mean of the heads that name masked words."""
        weights = dict(zip(clients, self.weights(len(clients), rnd.seed), strict=True))
        if self.weighting == "client":
            mixed = yield from total(self.weigh, weights)
            states = mixed.value["states"] * mixed.weight
        else:
            shown = yield from gather(self.show, to_all(clients, None))
            present = torch.stack([weights[c] for c in sorted(shown)])
            present = present / present.sum(0)  # whose states did not come leaves no gap
            states = torch.zeros(())
            for client, weight in zip(sorted(shown), present, strict=True):
                states = states + weight[:, None, None] * shown[client].float()
        server: Context = rnd.server
        words = yield from server.infer(
            server.model.initial_params.updated(naming), Examples.from_columns(states=states), PredictedTokens()
        )
        made = Synthetic(states.half() if self.half else states, words["tokens"])
        yield from total(self.keep, to_all(clients, made))

    def weights(self, clients: int, seed: Seed) -> list[Tensor]:
        """[instances] for each client: `primary` where it is the one drawn, else an equal share of the rest."""
        drawn = seed.derive("primary").numpy().integers(clients, size=self.instances)
        rest = (1 - self.primary) / max(1, clients - 1)
        table = np.where(drawn[None] == np.arange(clients)[:, None], self.primary if clients > 1 else 1.0, rest)
        return list(torch.from_numpy(table.astype(np.float32)))

    @work(reveals="each")
    def show(self, ctx: Context, _: None, own: Synthetic | None) -> Work[tuple[Tensor, None]]:
        if self.weighting == "client":
            raise PrivacyError(
                "between.show: this client gives its states only weighted, for a sum (atc.weighting=client)."
            )
        return (yield from self._states(ctx, self.half)), None

    @work(reveals="sum")
    def weigh(self, ctx: Context, weights: Tensor, own: Synthetic | None) -> Work[tuple[Weighted, None]]:
        states = yield from self._states(ctx, False)
        return Weighted(Params.from_tensors({"states": weights[:, None, None] * states}), 1.0), None

    @work(reveals="sum")
    def keep(self, ctx: Context, made: Synthetic, own: Synthetic | None) -> tuple[Weighted, Synthetic]:
        return Weighted(Params.from_scalars(kept=1), 1.0), made

    def _states(self, ctx: Context, half: bool) -> Work[Tensor]:
        """What the model this client begins with sees in its inputs, shuffled once; nothing of a client that has none."""
        texts = ctx.participant.split("train")
        if not len(texts):
            config: Any = ctx.model.module.config
            return torch.zeros(self.instances, self.tokens, config.encoder.hidden_size).to(
                torch.float16 if half else torch.float32
            )
        order = (
            Seed(ctx.seed.root, ("instances", ctx.client)).numpy().permutation(len(texts))
        )  # whoever does the weighing
        found = yield from ctx.infer(
            ctx.initial_params, texts.select(np.resize(order, self.instances)), EncoderStates(self.tokens, half)
        )
        return found["states"]
