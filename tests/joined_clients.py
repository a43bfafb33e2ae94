"""A client with its own data, built from a server's acceptance as `motet join` does, and questions to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from motet.experiment.build.component_builders import resolve_defaults
from motet.experiment.deploy.client_listener import open_listener
from motet.experiment.deploy.join_policy import JoinPolicy
from motet.experiment.deploy.network_options import NetworkOptions
from motet.experiment.deploy.remote_client import ClientBuilder, JoinOptions, parse_client_data
from motet.experiment.recipe.config_parsing import instantiate
from motet.experiment.recipe.run_config import RunConfig
from motet.learning.evaluation import EvaluationRequest
from motet.transport.admission import JoinAccepted
from motet.transport.client_connection import ClientSetup
from motet.transport.requests import Reply, Request

SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 16}
PLAIN = JoinPolicy().allow_plain_updates()
RECIPE: dict[str, Any] = {
    "data": {"name": "toy-classification", "limit": 40, "test_limit": 16},
    "model": {"name": "tiny", "max_tokens": 16, "config": SMALL},
    "solver": {"lr": 0.01, "batch": 8},
    "device": "cpu",
}


def make_acceptance(folder: Path, **sections: Any) -> JoinAccepted:
    """Return what a server with this recipe sends to a client that joins with its own data."""
    folder.mkdir(parents=True, exist_ok=True)
    config = RunConfig.from_settings("server", {**RECIPE, "transport": {"type": "grpc", "clients": 3}, **sections})
    config = resolve_defaults(config)
    listener = open_listener(config, folder, instantiate(NetworkOptions, config.transport.options, "transport"))
    try:
        return listener.connections.admission.acceptance
    finally:
        listener.connections.close()


def write_texts(folder: Path, labels: tuple[str, ...], count: int = 24) -> Path:
    """Write the private texts of a client, and return the file."""
    rows = [f"secret{k} word{k % 5} text,{labels[k % len(labels)]}" for k in range(count)]
    path = folder / "own.csv"
    path.write_text("\n".join(["text,label", *rows]))
    return path


@dataclass
class JoinedClient:
    """A client after it was accepted, without a network: `ask` sends it a request and returns its reply."""

    builder: ClientBuilder
    setup: ClientSetup
    acceptance: JoinAccepted
    name: str
    log: list[str] = field(default_factory=list)
    next_id: int = 1

    def ask(self, address: str, payload: Any = None, round: int = 0, request_id: int | None = None) -> Reply:
        if request_id is None:
            request_id, self.next_id = self.next_id, self.next_id + 1
        request = Request(id=request_id, client=self.name, round=round, address=address, payload=payload)
        self.setup.journal.begin_request(request)
        (reply,) = self.setup.runtime.answer_requests(iter([request]))
        return reply

    def evaluation(self, split: str = "test", factor: float = 1.0) -> EvaluationRequest:
        """Return a request to evaluate the client's initial model, scaled by `factor`, on a split."""
        return EvaluationRequest(self.model * factor, split)

    @property
    def model(self) -> Any:
        context = self.setup.runtime.make_context(self.name, 0, "", lambda *_: None, lambda _: None)  # type: ignore[arg-type, return-value]
        return context.model.initial_params


def join(folder: Path, acceptance: JoinAccepted, name: str = "north", **options: Any) -> JoinedClient:
    """Build a client from an acceptance, with its state in `folder`. By default it allows plain updates."""
    group: Mapping[str, Any] = next(iter(acceptance.groups.values()))
    folder.mkdir(parents=True, exist_ok=True)
    data = parse_client_data(write_texts(folder, tuple(group["task"]["labels"])), [])
    settings: dict[str, Any] = {"names": (name,), "data": data, "config": None, "device": "cpu", "policy": PLAIN}
    log: list[str] = []
    builder = ClientBuilder(JoinOptions(**{**settings, "state_folder": folder / "state", **options}), log.append)
    return JoinedClient(builder, builder(acceptance), acceptance, name, log)
