"""Per-example scores of a run, in compressed files: for significance tests between runs.

Each file has `scores`, one per test example; `tallies`, the sufficient statistics of metrics that are not means of
scores; and for each owner the number of examples (`sizes`) and of statistics (`widths`). The owner "" is the global
test set.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from motet.core.errors import RunError, first_line
from motet.transport.private_files import write_atomically

EXAMPLE_SCORES = "items.npz"
GLOBAL_MODEL_SCORES = "items-common.npz"  # the global model on the clients' own test sets
BEST_DEV_SCORES = "items-dev.npz"  # after the best round on the development set


def write_example_scores(folder: Path, scores: Mapping[str, np.ndarray], name: str = EXAMPLE_SCORES) -> None:
    """Write the examples of each owner: one row each, with its score in the first column and then its statistics."""
    if not scores:
        return
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        scores=np.concatenate([rows[:, 0] for rows in scores.values()]),
        sizes=np.array([len(rows) for rows in scores.values()], np.int64),
        owners=np.array(list(scores)),
        tallies=np.concatenate([rows[:, 1:].ravel() for rows in scores.values()]),
        widths=np.array([rows.shape[1] - 1 for rows in scores.values()], np.int64),
    )
    write_atomically(folder / name, buffer.getvalue())


def read_example_scores(folder: Path, name: str = EXAMPLE_SCORES) -> dict[str, np.ndarray]:
    """Read what `write_example_scores` wrote."""
    path = folder / name
    if not path.exists():
        return {}
    try:
        with np.load(path) as file:
            return _split_by_owner(file)
    except (
        ValueError,
        KeyError,
        IndexError,
        TypeError,
        AttributeError,
        EOFError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise RunError(
            f"'{path}' is damaged: {first_line(error)}. Restore it, or run again in another folder."
        ) from None


def _split_by_owner(file: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    sizes, widths = file["sizes"], file["widths"]
    statistics = np.split(file["tallies"], np.cumsum(sizes * widths)[:-1])
    scores = np.split(file["scores"], np.cumsum(sizes)[:-1])
    rows = [
        np.concatenate([score[:, None], statistic.reshape(len(score), width)], axis=1)
        for score, statistic, width in zip(scores, statistics, widths, strict=True)
    ]
    return dict(zip(file["owners"].tolist(), rows, strict=True))
