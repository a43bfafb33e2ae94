"""Federated distillation in which the server reads only sums. Secure aggregation can then hide each client's logits."""

from __future__ import annotations

import math
from dataclasses import dataclass

from motet.algorithms.distillation import (
    DistillationState,
    Distiller,
    check_logits,
    no_usable_client_error,
    note_failures,
)
from motet.algorithms.distillation_weights import LocalWeightingRule
from motet.algorithms.logit_pooling import divide_by_seen_weight
from motet.algorithms.public_data import get_public_data
from motet.core.errors import PrivacyError, RunError
from motet.core.messages import message
from motet.core.params import Params
from motet.core.program import Algorithm, DummyExchange, InitialModels, Round
from motet.core.script import ClientId, Note, Script, to_all, total, work
from motet.core.weighted import Weighted
from motet.core.work import Work
from motet.learning.context import Context

MAX_WEIGHT = 2.0**23  # the largest weight that a client sends: half of the range of one number in a fixed-point sum
TOTAL_WEIGHT = 1000.0  # the weight of all clients together, once each client knows its share


@message
@dataclass(frozen=True, eq=False)
class PendingLogits:
    """A client's state after it has sent its weight and before it sends its logits."""

    params: Params
    logits: Params
    weight: float
    round: int


@dataclass(frozen=True)
class SecureDistillation(Algorithm):
    """Federated distillation in which each client weights its own logits and the server reads only sums.

    Weights that span many orders of magnitude (RNWC, ENWC) are summed in an exchange of their own. Each client then
    weights its logits by its share of that sum. Otherwise logits with a weight of e^−20 would be lost in a fixed-point
    sum.
    """

    distiller: Distiller
    weighting: LocalWeightingRule
    name: str = "adafd"
    personal: bool = False

    @property
    def sends_weights_first(self) -> bool:
        return self.weighting.max_log_weight is not None

    def init(self, start: InitialModels) -> DistillationState:
        return DistillationState(start.server_model)

    def round(self, state: DistillationState, rnd: Round) -> Script[DistillationState]:
        if self.distiller.is_over(rnd):
            return state
        get_public_data(rnd.server)  # raises before any client trains
        logits = yield from total(self.train_and_predict, to_all(rnd.cohort, None))
        if self.sends_weights_first:
            weight_sum = yield from _sum_weights(logits, rnd)
            logits = yield from total(self.send_logits, to_all(rnd.cohort, weight_sum))
        pooled = self._pool(check_logits("the sum", logits.value, rnd.server))
        params, teacher = yield from self.distiller.distill_server(rnd.server, state.params, pooled)
        if self.distiller.client_loss is not None:
            reports = yield from total(self.distill, to_all(rnd.cohort, teacher))
            yield from note_failures(reports, rnd)
        return DistillationState(params)

    @work(reveals="sum", name="opine")
    def train_and_predict(
        self, ctx: Context, _: None, client_state: Params | PendingLogits | None
    ) -> Work[tuple[Weighted, Params | PendingLogits]]:
        """Train, then send the logits or, if weights are sent first, their weight."""
        stats, logits, params = yield from self.distiller.train_and_predict(ctx, _model(client_state), ())
        max_log_weight = self.weighting.max_log_weight or 0.0
        weight = math.exp(self.weighting.log_weight(stats) - max_log_weight) if stats.is_usable else 0.0
        if not self.sends_weights_first:
            return self._weighted(logits, weight), params
        reply = Params.from_scalars(weight=MAX_WEIGHT * weight, usable=float(stats.is_usable))
        pending = PendingLogits(params=params, logits=logits, weight=MAX_WEIGHT * weight, round=ctx.round)
        return Weighted(reply, 1.0), pending

    @work(reveals="sum", name="vote", follows="opine")
    def send_logits(
        self, ctx: Context, weight_sum: float, client_state: Params | PendingLogits | None
    ) -> tuple[Weighted, Params]:
        """Send the logits, weighted by the client's share of all weights.

        `weight_sum` is a plain number, so clients in a secure sum can check that all of them received the same one.
        """
        if not (isinstance(weight_sum, float) and 0 < weight_sum < math.inf):
            raise RunError(f"the sum of all weights is {weight_sum}; expected a finite number above 0.")
        if not isinstance(client_state, PendingLogits) or client_state.round != ctx.round:
            # Not a reply with weight 0: if only one client had sent its weight, the sum would be its logits.
            raise PrivacyError(
                f"this client has not sent its weight in round {ctx.round + 1}, so it does not send logits; "
                "ask only the clients of the first exchange."
            )
        weight = TOTAL_WEIGHT * min(1.0, client_state.weight / weight_sum)
        return self._weighted(client_state.logits, weight), client_state.params

    def _weighted(self, logits: Params, weight: float) -> Weighted:
        tensors = {**logits.tensors(), "logits": self.distiller.pooling.transform(logits["logits"])}
        if "seen" in tensors:
            tensors["logits"] = tensors["logits"] * tensors["seen"].unsqueeze(1)
        return Weighted(Params.from_tensors(tensors), weight)

    def _pool(self, mean: Params) -> Params:
        if "seen" in mean.tensors():
            return divide_by_seen_weight(self.distiller.pooling, mean["logits"], mean["seen"])
        return Params.from_tensors({"logits": self.distiller.pooling.finalize(mean["logits"])})

    @work(reveals="sum", name="study")
    def distill(
        self, ctx: Context, teacher: Params, client_state: Params | PendingLogits | None
    ) -> Work[tuple[Weighted, Params]]:
        return (yield from self.distiller.distill_client(ctx, teacher, _model(client_state)))

    def dummy_exchanges(self, state: DistillationState, rnd: Round) -> list[DummyExchange]:
        logits = Weighted(get_public_data(rnd.server).blank_logits(), 1.0)
        exchanges = self.distiller.dummy_exchanges(rnd, logits)
        if not (exchanges and self.sends_weights_first):
            return exchanges
        weight = Weighted(Params.from_scalars(weight=0.0, usable=1.0), 1.0)
        return [DummyExchange(len(rnd.cohort), payload=None, reply=weight), *exchanges]

    def view(self, state: DistillationState, client: ClientId) -> Params | None:
        return None if client else state.params

    def assemble(self, ctx: Context, view: Params | None, client_state: Params | PendingLogits | None) -> Params:
        return view or _model(client_state) or ctx.initial_params


def _sum_weights(mean: Weighted, rnd: Round) -> Script[float]:
    """Return the sum of the clients' weights, and note how many clients have none."""
    num_clients = round(mean.weight)
    weight, usable = float(mean.value["weight"]) * mean.weight, round(float(mean.value["usable"]) * mean.weight)
    if usable < 1:
        raise no_usable_client_error(rnd, num_clients)
    if usable < num_clients:
        yield Note(
            f"round {rnd.index + 1}: {num_clients - usable} of {num_clients} clients are left out of the pool: "
            "no training data, or a loss that is not finite."
        )
    if not weight > 0:
        raise RunError(
            f"round {rnd.index + 1}: the weights of all {usable} clients are too small to be summed, because their "
            "losses are large for algorithm.beta; lower algorithm.beta, or use exchange=gather."
        )
    return weight


def _model(client_state: Params | PendingLogits | None) -> Params | None:
    """Return the client's model, also if it was lost between its two replies and still holds its logits."""
    return client_state.params if isinstance(client_state, PendingLogits) else client_state
