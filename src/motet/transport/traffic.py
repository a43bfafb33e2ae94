"""How much a run has sent. The mailbox counts each message, with `measure_size` of `wire/format.py`."""

from __future__ import annotations

from dataclasses import dataclass

from motet.core.messages import message


@message
@dataclass
class Traffic:
    """The number of requests, and the bytes each way: of tensors (`payload`) and of whole messages (`wire`).

    `network_seconds` is the virtual time on an emulated network: messages, and the emulated work of the clients.
    """

    requests: int = 0
    payload_up: int = 0
    payload_down: int = 0
    wire_up: int = 0
    wire_down: int = 0
    network_seconds: float = 0.0
