"""The small part of Flower's modules that Motet uses, for tests where Flower is not installed. Where it is, the real one is tested."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest


class Array:
    """A tensor as bytes. Built from an ndarray, or from its four parts, as in Flower."""

    def __init__(self, dtype: Any, shape: tuple[int, ...] = (), stype: str = "numpy", data: bytes = b"") -> None:
        if isinstance(dtype, np.ndarray):
            dtype, shape, data = str(dtype.dtype), dtype.shape, dtype.tobytes()
        self.dtype, self.shape, self.stype, self.data = dtype, shape, stype, data

    def numpy(self) -> np.ndarray:
        return np.frombuffer(self.data, self.dtype).reshape(self.shape)


class ArrayRecord(dict[str, Array]):
    pass


class ConfigRecord(dict[str, Any]):
    pass


class MetricRecord(dict[str, Any]):
    pass


class RecordDict(dict[str, Any]):
    def _records(self, kind: type) -> dict[str, Any]:
        return {name: record for name, record in self.items() if isinstance(record, kind)}

    @property
    def array_records(self) -> dict[str, ArrayRecord]:
        return self._records(ArrayRecord)

    @property
    def config_records(self) -> dict[str, ConfigRecord]:
        return self._records(ConfigRecord)

    @property
    def metric_records(self) -> dict[str, MetricRecord]:
        return self._records(MetricRecord)


@dataclass
class Context:
    run_id: int
    node_id: int
    node_config: Mapping[str, Any]
    state: RecordDict
    run_config: Mapping[str, Any]


class Metadata(SimpleNamespace):
    pass


class Message:
    def __init__(
        self,
        content: Any,
        dst_node_id: int = 0,
        message_type: str = "",
        *,
        reply_to: Message | None = None,
        metadata: Metadata | None = None,
    ) -> None:
        self.content = content
        kind = message_type if reply_to is None else reply_to.metadata.message_type
        own = Metadata(dst_node_id=dst_node_id, message_type=kind, reply_to_message_id="")
        self.metadata = metadata or own

    def has_error(self) -> bool:
        return False


@dataclass
class ClientApp:
    functions: dict[str, Callable[[Message, Context], Message]] = field(default_factory=dict)

    def _register(self, kind: str) -> Callable[[], Callable[[Any], Any]]:
        return lambda: lambda function: self.functions.setdefault(kind, function)

    def __getattr__(self, name: str) -> Any:
        if name not in ("train", "evaluate", "query"):
            raise AttributeError(name)
        return self._register(name)

    def __call__(self, message: Message, context: Context) -> Message:
        return self.functions[message.metadata.message_type](message, context)


class ServerApp:
    def main(self) -> Callable[[Any], Any]:
        return lambda function: function


def provide_flower(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return `flwr.app`: Flower's, or a stand-in that is installed for the duration of the test."""
    if importlib.util.find_spec("flwr") is None:
        names = (Array, ArrayRecord, ConfigRecord, Context, Message, Metadata, MetricRecord, RecordDict)
        kinds = SimpleNamespace(TRAIN="train", EVALUATE="evaluate", QUERY="query")
        contents: dict[str, dict[str, Any]] = {
            "flwr": {},
            "flwr.app": {**{kind.__name__: kind for kind in names}, "MessageType": kinds},
            "flwr.clientapp": {"ClientApp": ClientApp},
            "flwr.serverapp": {"ServerApp": ServerApp, "Grid": object},
        }
        for name, values in contents.items():
            module = ModuleType(name)
            vars(module).update(values)
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr("motet.transport.flower_version.require_flower", lambda: None)
        for name in ("motet.flower", "motet.transport.flower_relay", "motet.learning.flower_message_client"):
            monkeypatch.delitem(sys.modules, name, raising=False)
            monkeypatch.setitem(sys.modules, name, None)  # so that it is removed at the end
            del sys.modules[name]
    else:  # a message needs the numbers of a run
        for name in ("_task_id", "_run_id", "_node_id"):
            monkeypatch.setattr(f"flwr.supercore.task_identity.TaskIdentity.{name}", 1)
    return importlib.import_module("flwr.app")
