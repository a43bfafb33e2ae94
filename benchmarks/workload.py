"""The workload of the benchmarks: random texts for many clients, BERT models of several sizes, T5 and GPT-2."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
from torch import Tensor

from motet.core.layers import Layers
from motet.core.rng import Seed, seeded_torch
from motet.datasets.corpus import Corpus
from motet.experiment.build.client_lists import ClientRange
from motet.experiment.build.federation import Federation
from motet.experiment.build.group_builder import build_group
from motet.learning.data.features import IGNORE_INDEX, Features, Ragged
from motet.learning.modules.model import Model
from motet.learning.solver import Solver
from motet.learning.training.batch_order import bucket_batches
from motet.models.parameter_roles import infer_parameter_roles
from motet.partitions.partition import ClientRows, Partition
from motet.tasks.classification import Classification
from motet.tasks.language_modeling import LanguageModeling
from motet.tasks.seq2seq import Seq2Seq
from motet.tasks.task import Task

# BERT: layers, hidden size, attention heads
SIZES = {"2x128": (2, 128, 2), "6x384": (6, 384, 12), "6x768": (6, 768, 12), "12x768": (12, 768, 12)}
WRITERS = ("t5-60m", "gpt2-124m")  # models that write texts: their labels are tokens
TARGET_TOKENS = 16  # that T5 writes for each text


class Inputs(NamedTuple):
    """All texts on a device, for a plain loop. Batches are as wide as their longest text."""

    ids: Tensor  # [texts, longest]
    lengths: np.ndarray
    labels: Tensor

    def batch(self, indices: np.ndarray) -> dict[str, Tensor]:
        rows = torch.from_numpy(indices).to(self.ids.device)
        lengths = self.lengths[indices]
        texts = self.ids[rows, : lengths.max()]
        mask = torch.ones_like(texts)
        if lengths.min() < lengths.max():
            positions = torch.arange(texts.shape[1], device=texts.device)
            mask = (positions < torch.from_numpy(lengths).to(texts.device).unsqueeze(1)).long()
        return {"input_ids": texts, "attention_mask": mask, "labels": self.labels[rows]}


@dataclass(frozen=True)
class Workload:
    """Clients with equally many random texts, by default of equal length, so that all systems do the same arithmetic.

    With `uneven`, lengths are log-normal, with the same mean and at most twice as long. With `lengths_file`, they are those
    in a .npy file, and `tokens` is the longest.
    """

    size: str = "2x128"
    clients: int = 100
    examples: int = 100
    tokens: int = 64
    classes: int = 20
    dropout: float = 0.0
    uneven: bool = False
    lengths_file: Path | None = None

    def texts(self) -> tuple[np.ndarray, np.ndarray]:
        """Return token ids [texts, longest] and labels."""
        rng = np.random.default_rng(0)
        longest = self.tokens * 2 if self.uneven else self.tokens
        ids = rng.integers(1000, 30000, (self.clients * self.examples, longest)).astype(np.int32)
        if self.size == "gpt2-124m":
            return ids, ids.astype(np.int64)
        shape = (len(ids), TARGET_TOKENS) if self.size in WRITERS else (len(ids),)
        return ids, rng.integers(0, self.classes, shape).astype(np.int64)

    def lengths(self) -> np.ndarray:
        count = self.clients * self.examples
        if self.lengths_file is not None:
            return np.resize(np.load(self.lengths_file), count).astype(np.int64)
        if not self.uneven:
            return np.full(count, self.tokens)
        spread, scale = np.exp(0.6 * np.random.default_rng(1).standard_normal(count)), float(self.tokens)
        for _ in range(20):  # until the mean is right
            lengths = np.clip(np.rint(scale * spread), 8, 2 * self.tokens).astype(np.int64)
            scale *= self.tokens / lengths.mean()
        return lengths

    def inputs(self, device: torch.device) -> Inputs:
        ids, labels = self.texts()
        return Inputs(torch.from_numpy(ids).to(device).long(), self.lengths(), torch.from_numpy(labels).to(device))

    def batches(self, solver: Solver, index: int, client: int) -> list[np.ndarray]:
        """Return the rows of each step of a client in a round. It is Motet's order, which all systems use.

        With buckets it differs from Motet's in which client's long batches coincide, which the others do not need.
        """
        name = f"client-{client:0{len(str(self.clients - 1))}d}"
        seed = Seed(0).derive("client", name, index, "train", "fit").to_int()
        if solver.bucket:
            rng, pace = (Seed(seed).derive(part).numpy() for part in ("order", "pace"))
            lengths = self.lengths()[client * self.examples : (client + 1) * self.examples]
            batches = bucket_batches(solver, lengths, rng, pace)
        else:
            batches = solver.draw_batches(self.examples, Seed(seed).derive("order").numpy())
        return [client * self.examples + indices for indices in batches]

    def module(self, freeze: int = 0) -> Any:
        """Build the model. With `freeze` > 0, a BERT's embeddings and that many layers at the bottom are frozen."""
        with seeded_torch(0, torch.device("cpu")):
            module: Any = self._writer() if self.size in WRITERS else self._bert()
        frozen = ("embeddings", *(f"encoder.layer.{i}." for i in range(freeze))) if freeze else ()
        for name, p in module.named_parameters():
            p.requires_grad_(not any(part in name for part in frozen))
        return module

    def _bert(self) -> Any:
        layers, width, heads = SIZES[self.size]
        config = transformers.BertConfig(
            hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * width,
            num_labels=self.classes, hidden_dropout_prob=self.dropout, attention_probs_dropout_prob=self.dropout,
        )  # fmt: skip
        return transformers.BertForSequenceClassification(config)

    def _writer(self) -> Any:
        if self.size == "t5-60m":
            return transformers.T5ForConditionalGeneration(
                transformers.T5Config(dropout_rate=self.dropout, decoder_start_token_id=0)
            )
        drops = {"resid_pdrop": self.dropout, "embd_pdrop": self.dropout, "attn_pdrop": self.dropout}
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(**drops))

    def _task(self, names: tuple[str, ...]) -> Task:
        if self.size not in WRITERS:
            return Classification(names)
        return Seq2Seq() if self.size == "t5-60m" else LanguageModeling(group_texts=False)

    def _columns(self) -> dict[str, Any]:
        (ids, labels), lengths = self.texts(), self.lengths()
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        values = ids[np.arange(ids.shape[1]) < lengths[:, None]]
        columns: dict[str, Any] = {"input_ids": Ragged(values, offsets), "labels": labels}
        if self.size == "gpt2-124m":
            columns["labels"] = Ragged(values, offsets, IGNORE_INDEX)
        elif self.size == "t5-60m":
            targets = labels.astype(np.int32)
            shifted = np.concatenate([np.zeros_like(targets[:, :1]), targets[:, :-1]], 1)
            target_offsets = np.arange(len(ids) + 1) * TARGET_TOKENS
            columns["labels"] = Ragged(targets.reshape(-1), target_offsets, IGNORE_INDEX)
            columns["decoder_input_ids"] = Ragged(shifted.reshape(-1), target_offsets)
        return columns

    def federation(self, freeze: int = 0) -> Federation:
        ids, labels = self.texts()
        names = tuple(f"{k:02d}" for k in range(self.classes))
        values = {
            "text": [""] * len(ids),
            "label": [names[k % self.classes] for k in labels.reshape(len(ids), -1)[:, 0]],
        }
        corpus = Corpus("random", "classification", values, len(ids))
        features = Features("random", self._columns())
        module = self.module()
        roles = infer_parameter_roles(module)
        model = Model(
            key=self.size,
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
            task=self._task(names),
            model=model,
            corpus=corpus,
            features=features,
            partition=partition,
            max_tokens=ids.shape[1],
            clients=ClientRange(partition.clients, 0, self.clients),
        )
        return Federation((group,), group, Seed(0))
