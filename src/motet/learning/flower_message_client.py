"""A Flower ClientApp with functions for messages (`@app.train()`) as a client with `fit` and `evaluate`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, Metadata, RecordDict

from motet.core.errors import RunError

EXAMPLES = "num-examples"  # the metric that Flower's strategies use as weight
TTL = 3600.0  # seconds until Flower drops a message
LOSSES = ("eval_loss", "loss")


class MessageClient:
    """One node of the app. Its messages have the form that Flower's own strategies use: arrays, config and metrics."""

    def __init__(self, app: Any, context: Context, first_weights: Mapping[str, Any]) -> None:
        self.app, self.context = app, context
        self.first = {name: _to_numpy(value) for name, value in first_weights.items()}

    def get_parameters(self, config: Mapping[str, Any]) -> list[np.ndarray]:
        return list(self.first.values())

    def fit(
        self, arrays: Sequence[np.ndarray], config: Mapping[str, Any]
    ) -> tuple[list[np.ndarray], int, dict[str, Any]]:
        reply = self._ask(MessageType.TRAIN, arrays, config)
        record = _only_record(reply.array_records, "array")
        if record.keys() != self.first.keys():
            different = sorted(record.keys() ^ self.first.keys())
            raise RunError(
                f"the reply to a training message has other arrays than the first weights: {', '.join(different[:3])}."
            )
        examples, metrics = _read_metrics(reply)
        return [record[name].numpy() for name in self.first], examples, metrics

    def evaluate(
        self, arrays: Sequence[np.ndarray], config: Mapping[str, Any]
    ) -> tuple[float | None, int, dict[str, Any]]:
        examples, metrics = _read_metrics(self._ask(MessageType.EVALUATE, arrays, config))
        loss = next((metrics[name] for name in LOSSES if name in metrics), None)
        return loss, examples, metrics

    def _ask(self, kind: str, arrays: Sequence[np.ndarray], config: Mapping[str, Any]) -> RecordDict:
        """Call the function that the app has registered for this kind of message."""
        named = {name: Array(np.ascontiguousarray(value)) for name, value in zip(self.first, arrays, strict=True)}
        content = RecordDict({"arrays": ArrayRecord(named), "config": ConfigRecord(dict(config))})
        reply = self.app(Message(content=content, metadata=self._describe(kind)), self.context)
        if reply.has_error():
            raise RunError(f"the ClientApp answered a {kind} message with an error: {reply.error.reason}")
        return reply.content

    def _describe(self, kind: str) -> Metadata:
        """Return what Flower writes on a message. It is set explicitly, because there is no SuperLink to fill it in."""
        return Metadata(
            run_id=0,
            message_id="",
            src_node_id=0,
            dst_node_id=self.context.node_id,
            reply_to_message_id="",
            group_id="",
            created_at=time.time(),
            ttl=TTL,
            message_type=kind,
        )


def _only_record(records: Mapping[str, Any], kind: str) -> Any:
    if len(records) != 1:
        raise RunError(f"the reply of the ClientApp has {len(records)} {kind} records; expected one.")
    return next(iter(records.values()))


def _read_metrics(reply: RecordDict) -> tuple[int, dict[str, Any]]:
    metrics = dict(_only_record(reply.metric_records, "metric"))
    if EXAMPLES not in metrics:
        raise RunError(f"the metrics of the ClientApp lack '{EXAMPLES}', the weight of its update.")
    return int(metrics.pop(EXAMPLES)), metrics


def _to_numpy(value: Any) -> np.ndarray:
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
