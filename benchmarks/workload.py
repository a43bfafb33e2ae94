"""The workload of the benchmarks: random texts over many clients, and BERTs of a few sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import transformers

from motet.core.rng import Seed, seeded_torch
from motet.datasets.corpus import Corpus
from motet.experiment.build.client_lists import ClientRange
from motet.experiment.build.federation import Federation
from motet.experiment.build.group_builder import build_group
from motet.learning.data.features import Features, Ragged
from motet.learning.modules.model import Model
from motet.learning.solver import Solver
from motet.models.parameter_roles import infer_parameter_roles
from motet.partitions.partition import ClientRows, Partition
from motet.tasks.classification import Classification

SIZES = {"2x128": (2, 128, 2), "6x384": (6, 384, 12), "6x768": (6, 768, 12), "12x768": (12, 768, 12)}


@dataclass(frozen=True)
class Workload:
    """Clients with the same number of random texts of one length, so that every system does the same arithmetic."""

    size: str = "2x128"
    clients: int = 100
    examples: int = 100
    tokens: int = 64
    classes: int = 20
    dropout: float = 0.0

    def texts(self) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(0)
        ids = rng.integers(1000, 30000, (self.clients * self.examples, self.tokens)).astype(np.int32)
        return ids, rng.integers(0, self.classes, len(ids)).astype(np.int64)

    def rows(self, solver: Solver, index: int, client: int) -> list[np.ndarray]:
        """The rows of each step of one client in one round: Motet's own order, so that every system does the same batches."""
        name = f"client-{client:0{len(str(self.clients - 1))}d}"
        seed = Seed(0).derive("client", name, index, "train", "fit").to_int()
        order = solver.draw_batches(self.examples, Seed(seed).derive("order").numpy())
        return [client * self.examples + places for places in order]

    def module(self, freeze: int = 0) -> Any:
        """`freeze` layers from the bottom do not train, nor do the embeddings."""
        layers, width, heads = SIZES[self.size]
        config = transformers.BertConfig(
            hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * width,
            num_labels=self.classes, hidden_dropout_prob=self.dropout, attention_probs_dropout_prob=self.dropout,
        )  # fmt: skip
        with seeded_torch(0, torch.device("cpu")):
            module: Any = transformers.BertForSequenceClassification(config)
        low = ("embeddings", *(f"encoder.layer.{i}." for i in range(freeze))) if freeze else ()
        for name, p in module.named_parameters():
            p.requires_grad_(not any(part in name for part in low))
        return module

    def federation(self, freeze: int = 0) -> Federation:
        ids, labels = self.texts()
        names = tuple(f"{k:02d}" for k in range(self.classes))
        values = {"text": [""] * len(ids), "label": [names[k] for k in labels]}
        corpus = Corpus("random", "classification", values, len(ids))
        offsets = np.arange(len(ids) + 1) * self.tokens
        features = Features("random", {"input_ids": Ragged(ids.reshape(-1), offsets), "labels": labels})
        module = self.module()
        anatomy = infer_parameter_roles(module)
        model = Model(f"bert-{self.size}", module, anatomy.roles, None, anatomy.embeddings_path, anatomy.layers_path)
        if freeze:
            from motet.core.layers import Layers

            model.freeze(Layers.parse("embeddings", f"layers 0-{freeze - 1}"))
        shares = ClientRows.from_sizes(np.arange(len(ids)), np.full(self.clients, self.examples))
        none = ClientRows.from_sizes(np.zeros(0, np.int64), np.zeros(self.clients, np.int64))
        partition = Partition(shares, none, {})
        everybody = ClientRange(partition.clients, 0, self.clients)
        group = build_group("random", Classification(names), model, corpus, features, partition, self.tokens, everybody)
        return Federation((group,), group, Seed(0))
