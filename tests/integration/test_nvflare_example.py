"""The example for NVFlare, with a stand-in for `nvflare.client`: the average of its sites is the model of Motet's FedAvg."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

import motet
from motet.core.rng import Seed

EXAMPLE = Path(__file__).parents[2] / "examples" / "motet-in-nvflare"


class Site:
    """What `nvflare.client` offers to one site: the models of the server in turn, and a place for the replies."""

    def __init__(self, name: str, *models: dict[str, torch.Tensor]) -> None:
        self.name = name
        self.models = [SimpleNamespace(params=params, current_round=i) for i, params in enumerate(models)]
        self.replies: list[Any] = []

    def install(self, module: ModuleType) -> None:
        functions = {
            "init": lambda: None,
            "get_site_name": lambda: self.name,
            "is_running": lambda: True,
            "receive": lambda: self.models.pop(0) if self.models else None,
            "send": self.replies.append,
            "FLModel": SimpleNamespace,
        }
        vars(module).update(functions)


def test_sites_of_nvflare_train_like_clients_of_motet(monkeypatch: pytest.MonkeyPatch) -> None:
    client = ModuleType("nvflare.client")
    package = ModuleType("nvflare")
    package.client = client  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nvflare", package)
    monkeypatch.setitem(sys.modules, "nvflare.client", client)
    monkeypatch.syspath_prepend(str(EXAMPLE))
    for name in ("text_model", "site_training"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    text_model, training = (importlib.import_module(name) for name in ("text_model", "site_training"))
    monkeypatch.setattr(text_model, "SITES", 2)
    monkeypatch.setitem(text_model.SOLVER, "epochs", 1)
    first = {name: value.clone() for name, value in text_model.TextModel().state_dict().items()}
    sites = [Site(f"site-{k + 1}", first) for k in range(text_model.SITES)]
    for site in sites:
        site.install(client)
        training.main()
    replies = [site.replies[0] for site in sites]
    weights = [reply.meta["NUM_STEPS_CURRENT_ROUND"] for reply in replies]
    everyone = motet.federation("toy-classification", model="tiny", max_tokens=32, clients=text_model.SITES)
    everyone = replace(everyone, seed=Seed(0))
    result = motet.run(everyone, "fedavg", rounds=1, solver=text_model.SOLVER, device="cpu", workers=0)
    for name, value in result.params.tensors().items():
        terms = [w * reply.params[f"module.{name}"] for w, reply in zip(weights, replies, strict=True)]
        torch.testing.assert_close(sum(terms) / sum(weights), value, rtol=1e-4, atol=1e-5)
        assert not torch.equal(value, first[f"module.{name}"]) or not value.is_floating_point()
