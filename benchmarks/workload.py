"""The workload of the benchmarks: random texts for many clients, and BERT models of several sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import transformers

from motet.core.layers import Layers
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

# layers, hidden size, attention heads
SIZES = {"2x128": (2, 128, 2), "6x384": (6, 384, 12), "6x768": (6, 768, 12), "12x768": (12, 768, 12)}


@dataclass(frozen=True)
class Workload:
    """Clients with equally many random texts of equal length, so that every system does the same arithmetic."""

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

    def batches(self, solver: Solver, index: int, client: int) -> list[np.ndarray]:
        """Return the rows of each step of a client in a round. It is Motet's order, which all systems use."""
        name = f"client-{client:0{len(str(self.clients - 1))}d}"
        seed = Seed(0).derive("client", name, index, "train", "fit").to_int()
        batches = solver.draw_batches(self.examples, Seed(seed).derive("order").numpy())
        return [client * self.examples + indices for indices in batches]

    def module(self, freeze: int = 0) -> Any:
        """Build a BERT. With `freeze` > 0, its embeddings and that many layers at the bottom are frozen."""
        layers, width, heads = SIZES[self.size]
        config = transformers.BertConfig(
            hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * width,
            num_labels=self.classes, hidden_dropout_prob=self.dropout, attention_probs_dropout_prob=self.dropout,
        )  # fmt: skip
        with seeded_torch(0, torch.device("cpu")):
            module: Any = transformers.BertForSequenceClassification(config)
        frozen = ("embeddings", *(f"encoder.layer.{i}." for i in range(freeze))) if freeze else ()
        for name, p in module.named_parameters():
            p.requires_grad_(not any(part in name for part in frozen))
        return module

    def federation(self, freeze: int = 0) -> Federation:
        ids, labels = self.texts()
        names = tuple(f"{k:02d}" for k in range(self.classes))
        values = {"text": [""] * len(ids), "label": [names[k] for k in labels]}
        corpus = Corpus("random", "classification", values, len(ids))
        offsets = np.arange(len(ids) + 1) * self.tokens
        features = Features("random", {"input_ids": Ragged(ids.reshape(-1), offsets), "labels": labels})
        module = self.module()
        roles = infer_parameter_roles(module)
        model = Model(
            key=f"bert-{self.size}",
            module=module,
            roles=roles.roles,
            embeddings_path=roles.embeddings_path,
            layers_path=roles.layers_path,
        )
        if freeze:
            model.freeze(Layers.parse("embeddings", f"layers 0-{freeze - 1}"))
        train = ClientRows.from_sizes(np.arange(len(ids)), np.full(self.clients, self.examples))
        test = ClientRows.from_sizes(np.zeros(0, np.int64), np.zeros(self.clients, np.int64))
        partition = Partition(train, test, {})
        group = build_group(
            name="random",
            task=Classification(names),
            model=model,
            corpus=corpus,
            features=features,
            partition=partition,
            max_tokens=self.tokens,
            clients=ClientRange(partition.clients, 0, self.clients),
        )
        return Federation((group,), group, Seed(0))
