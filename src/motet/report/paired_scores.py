"""Compare two methods by the runs of each: which variances apply depends on what the seeds share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from motet.core.errors import ConfigError
from motet.report.significance import (
    MIN_SEEDS,
    Comparison,
    Estimate,
    Statistic,
    compare_crossed,
    compare_examples,
    compare_models,
    compare_seeds,
    pseudo_values,
)


@dataclass(frozen=True)
class RunScores:
    """The number of one run, and one value per test example (see `pseudo_values`) with the client that owns it.

    `examples` is None if the number does not follow from the examples.
    """

    value: float
    examples: np.ndarray | None = None
    owners: np.ndarray | None = None

    @property
    def has_clients(self) -> bool:
        """True if the examples belong to several clients, and not to the global test set."""
        return self.owners is not None and len(np.unique(self.owners)) > 1


@dataclass(frozen=True)
class SharedUnits:
    """What the seeds of a method share: the same test examples, and the same clients with the same data."""

    examples: bool
    clients: bool = False


def score_run(
    value: float, rows: np.ndarray, owners: np.ndarray, statistic: Statistic | None, scale: float
) -> RunScores:
    """Return the scores of a run from the rows of its examples. Each client has its own number; they count equally."""
    values = np.empty(len(rows))
    for owner in np.unique(owners):
        values[owners == owner] = pseudo_values(rows[owners == owner], statistic)
    return RunScores(value=value, examples=scale * values, owners=owners)


def compare_methods(first: Sequence[RunScores], second: Sequence[RunScores], shared: SharedUnits) -> Comparison | None:
    """Compare two methods, seed by seed. None if there are too few seeds and no scores of examples."""
    pairs = PairedRuns.subtract(first, second, shared)
    if len(first) < MIN_SEEDS:
        return pairs.compare_models()
    units = () if pairs.examples is None else ("clients",) if shared.clients else ("examples",)
    return pairs.compare_over_seeds().compare("seeds", *units)


@dataclass(frozen=True)
class PairedRuns:
    """The differences between two methods: one per seed, and one per example of each seed."""

    values: np.ndarray
    examples: list[np.ndarray] | None
    owners: list[np.ndarray]
    shared: SharedUnits

    @staticmethod
    def subtract(first: Sequence[RunScores], second: Sequence[RunScores], shared: SharedUnits) -> PairedRuns:
        if len(first) != len(second) or not first:
            counts = f"{len(first)} and {len(second)}"
            raise ConfigError(f"a paired test needs the same seeds; the methods have {counts} runs.")
        pairs = list(zip(first, second, strict=True))
        examples = [difference for a, b in pairs if (difference := _subtract(a, b)) is not None]
        return PairedRuns(
            values=np.array([a.value - b.value for a, b in pairs]),
            examples=examples if len(examples) == len(pairs) else None,
            owners=[run.owners for run in first if run.owners is not None],
            shared=shared,
        )

    @property
    def is_global(self) -> bool:
        """True if all examples belong to the global test set."""
        return all(len(np.unique(owners)) == 1 for owners in self.owners)

    def compare_over_seeds(self) -> Estimate:
        """Compare the methods. Needs at least two seeds."""
        if self.examples is None:
            return compare_seeds(self.values)
        has_units = len({len(e) for e in self.examples}) == 1 and len(self.examples[0]) > 1
        if self.shared.examples and self.is_global and has_units:
            return compare_crossed(self.values, np.stack(self.examples))
        pairs = list(zip(self.examples, self.owners, strict=True))
        if self.shared.clients and not self.is_global:  # clients are a sample, too; they contain their examples
            return compare_crossed(self.values, np.stack([_client_means(*pair) for pair in pairs]))
        if self.shared.examples:
            # Each seed divides the same examples over other clients, and it is unknown which client has which. Their
            # effect counts as if it were the same under every seed, which can only widen the interval.
            variance = float(np.mean([_example_variance(*pair) for pair in pairs]))
            return compare_seeds(self.values, variance, max(1, len(self.examples[0]) - 1))
        return compare_seeds(self.values)

    def compare_models(self) -> Comparison | None:
        """Compare trained models: only the examples vary."""
        variance = self.model_variance()
        if self.examples is None or variance is None:
            return None
        return compare_models(self.values.mean(), variance, len(self.examples[0]) - 1).compare("examples")

    def model_variance(self) -> float | None:
        """Return the variance of the mean difference if only the examples vary; None if it is not known.

        One text that is evaluated three times is still one text.
        """
        if self.examples is None or len(self.examples[0]) < 2:
            return None
        is_crossed = self.shared.clients or (self.shared.examples and self.is_global)
        if is_crossed and len({len(e) for e in self.examples}) == 1:
            return _example_variance(np.mean(self.examples, axis=0), self.owners[0])
        parts = [_example_variance(*pair) for pair in zip(self.examples, self.owners, strict=True)]
        repeats = len(parts) if self.shared.examples else 1
        return float(np.mean(parts)) * repeats / len(parts)


def _subtract(first: RunScores, second: RunScores) -> np.ndarray | None:
    if first.examples is None or second.examples is None:
        return None
    if first.examples.shape != second.examples.shape:
        raise ConfigError(
            f"a paired test needs scores on the same examples; the runs have {len(first.examples)} and "
            f"{len(second.examples)}."
        )
    difference: np.ndarray = first.examples - second.examples
    return difference


def _client_means(values: np.ndarray, owners: np.ndarray) -> np.ndarray:
    return np.array([values[owners == owner].mean() for owner in np.unique(owners)])


def _example_variance(values: np.ndarray, owners: np.ndarray) -> float:
    """Return the variance of the mean over clients of their means, if only the examples of the clients vary.

    Clients with a single example form one group, in which their variance can be estimated.
    """
    names, sizes = np.unique(owners, return_counts=True)
    single = np.isin(owners, names[sizes == 1])
    groups = [values[owners == name] for name in names[sizes > 1]]
    variance = sum(float(compare_examples(group).variance) for group in groups)
    if single.sum() > 1:
        variance += float(values[single].var(ddof=1) * single.sum())
    return float(variance) / len(names) ** 2
