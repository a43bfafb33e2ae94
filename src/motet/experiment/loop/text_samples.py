"""Samples of what a model writes before and after training: samples.json in the folder of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

import numpy as np

from motet.core.rebased import ModelParams
from motet.experiment.loop.round_engine import RoundEngine
from motet.transport.json_files import read_json, write_json

SAMPLES_FILE = "samples.json"
Moment = Literal["before", "after"]


class Sample(TypedDict):
    """An entry of samples.json."""

    prompt: str
    reference: str
    before: NotRequired[str]
    after: NotRequired[str]


def write_samples(folder: Path, engine: RoundEngine, params: ModelParams, count: int, moment: Moment) -> None:
    """Let a model answer a few test prompts, and add its answers to samples.json. Other tasks have no samples."""
    server = engine.plan.federation.server_context(engine.progress.rounds)
    task = server.participant.task
    if not (count and task.has_samples):
        return
    test = server.participant.split("global")
    examples = test.select(_spread(len(test), count))
    predictions = engine.run_evaluation(server.infer(params, examples))
    samples = [_rename(sample, moment) for sample in task.read_samples(predictions, examples)]
    earlier: Sequence[dict[str, Any]] = read_json(folder / SAMPLES_FILE, list[Sample]) or []
    if moment == "after" and len(earlier) == len(samples):
        samples = [{**before, **after} for before, after in zip(earlier, samples, strict=True)]
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / SAMPLES_FILE, samples)


def read_samples(folder: Path) -> list[dict[str, Any]]:
    """Return the samples of a run: prompt, reference, before, after. Empty if it has none."""
    samples: list[dict[str, Any]] | None = read_json(folder / SAMPLES_FILE, list[Sample])
    return samples or []


def _rename(sample: dict[str, Any], moment: Moment) -> dict[str, Any]:
    return {moment if name == "generated" else name: value for name, value in sample.items()}


def _spread(size: int, count: int) -> np.ndarray:
    """Return indices at equal distances: corpora are often sorted by topic."""
    return np.unique(np.linspace(0, size - 1, min(size, count)).round().astype(np.int64))
