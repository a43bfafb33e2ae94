"""Confusion matrices, and the scores of each label that follow from them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from motet.core.messages import message

NO_ENTITY = "no entity"  # what an entity is confused with that only one side has


@message
@dataclass(frozen=True, eq=False)
class Confusion:
    """How often each true label (rows) is predicted as each label (columns)."""

    labels: tuple[str, ...]
    counts: np.ndarray

    @staticmethod
    def count(labels: tuple[str, ...], true: np.ndarray, predicted: np.ndarray) -> Confusion:
        """Count pairs of label ids."""
        counts = np.bincount(true * len(labels) + predicted, minlength=len(labels) ** 2)
        return Confusion(labels, counts.reshape(len(labels), len(labels)))

    def __add__(self, other: Confusion) -> Confusion:
        return replace(self, counts=self.counts + other.counts)

    def score_labels(self) -> dict[str, dict[str, float]]:
        """Return precision, recall, F1 and support (the number of true examples) of each label."""
        return {label: self._score(i) for i, label in enumerate(self.labels) if label != NO_ENTITY}

    def _score(self, i: int) -> dict[str, float]:
        correct, predicted, true = int(self.counts[i, i]), int(self.counts[:, i].sum()), int(self.counts[i].sum())
        return {
            "precision": correct / predicted if predicted else 0.0,
            "recall": correct / true if true else 0.0,
            "f1": 2 * correct / (predicted + true) if predicted + true else 0.0,
            "support": true,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for a file."""
        return {"labels": list(self.labels), "scores": self.score_labels(), "counts": self.counts.tolist()}
