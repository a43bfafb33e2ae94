"""One file a formulation: from columns of a corpus to features, a loss, predictions and metrics."""

from __future__ import annotations

from motet.tasks.classification import Classification

TASKS: dict[str, type[Classification]] = {"classification": Classification}

__all__ = ["TASKS", "Classification"]
