"""Columns that the model computes before it is trained, such as the likelihoods of a reference model. Computed once."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from motet.core.work import Job
from motet.learning.data.features import Examples, Features
from motet.learning.jobs import Infer, Predictions
from motet.learning.modules.model import Model
from motet.learning.objectives.readouts import Readout

# By corpus; then by model, readout and rows.
_computed: WeakKeyDictionary[Features, dict[tuple[str, Readout, bytes], Predictions]] = WeakKeyDictionary()


def add_reference(model: Model, examples: Examples, readout: Readout | None) -> Generator[Job, Any, Examples]:
    """Return the examples with the columns that `readout` reads from the model before training."""
    if readout is None or not len(examples):
        return examples
    results = _computed.setdefault(examples.features, {})
    key = (model.key, readout, examples.rows.tobytes())
    if key not in results:
        results[key] = yield Infer(model, model.initial_params, examples, readout)
    return replace(examples, extra_columns={**examples.extra_columns, **results[key]})
