"""`motet partition figure`: the figures in which papers show their partitions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.experiment.build.partition_builder import build_partition
from motet.experiment.commands.partition_report import (
    DISTANCE_LABEL,
    SHARE_LABEL,
    ClientLabels,
    sample_label_ratios,
)
from motet.experiment.commands.text_scatter import plot_texts
from motet.experiment.recipe.config_parsing import look_up
from motet.experiment.recipe.run_config import ComponentConfig
from motet.partitions import natural, quantity
from motet.partitions.measures import mean_pairwise_distance
from motet.partitions.traits import Trait
from motet.partitions.traits_by_name import get_trait
from motet.report import partition_plots as plots
from motet.report.number_text import format_range

ALPHAS = BETAS = (1.0, 5.0, 10.0, 100.0)

DrawFigure = Callable[[Corpus, Seed, int, Path], str]


def draw_paper_figure(name: str, corpus: Corpus, seed: Seed, clients: int, to: Path) -> str:
    """Draw a figure and return a sentence with its numbers."""
    draw = look_up(FIGURES, name, "figure")
    to.parent.mkdir(parents=True, exist_ok=True)
    return draw(corpus, seed, clients, to)


def draw_distances(corpus: Corpus, seed: Seed, clients: int, to: Path) -> str:
    """FedNLP: Jensen–Shannon distances between clients for α of 1, 5, 10 and 100; larger α is lighter."""
    samples = _sample_label_shifts(corpus, get_trait(corpus, "label", seed), seed, clients)
    panels = [
        partial(plots.plot_distances, matrix=sample.distances, title=f"α = {alpha:g}")
        for alpha, sample in samples.items()
    ]
    plots.draw_figure_grid(to, panels, DISTANCE_LABEL, 3.4, 3.1)
    means = {alpha: mean_pairwise_distance(sample.distances) for alpha, sample in samples.items()}
    return "mean distance " + ", ".join(f"{mean:.3f} at α={alpha:g}" for alpha, mean in means.items())


def draw_label_ratios(corpus: Corpus, seed: Seed, clients: int, to: Path) -> str:
    """FedNLP: the label shares of clients for α of 1, 5, 10 and 100; with larger α they are more similar."""
    trait = get_trait(corpus, "label", seed)
    samples = _sample_label_shifts(corpus, trait, seed, clients)
    largest = {alpha: float(np.mean(sample.ratios.max(1))) for alpha, sample in samples.items()}

    def plot(axes: plots.Axes, ratios: np.ndarray, title: str) -> object:
        image = plots.plot_labels(axes, ratios, [str(name) for name in trait.categories], title)
        image.set_clim(0, largest[ALPHAS[0]])
        return image

    panels = [partial(plot, ratios=sample.ratios, title=f"α = {alpha:g}") for alpha, sample in samples.items()]
    plots.draw_figure_grid(to, panels, SHARE_LABEL, max(3.6, plots.fit_names(len(trait.categories)) + 0.6), 3.8)
    return "largest share " + ", ".join(f"{share:.2f} at α={alpha:g}" for alpha, share in largest.items())


def draw_quantities(corpus: Corpus, seed: Seed, clients: int, to: Path) -> str:
    """FedNLP: the density of client sizes for β of 1, 5, 10 and 100; larger β is narrower."""
    groups = {f"β = {b:g}": quantity(corpus, seed.derive("partition"), clients, b).train.sizes for b in BETAS}
    plot = partial(plots.plot_sizes, groups=groups, title=f"{corpus.name}, {clients} clients")
    plots.draw_figure(to, plot, height=3.8)
    return "sizes " + ", ".join(f"{format_range(sizes)} at {name}" for name, sizes in groups.items())


def draw_domains(corpus: Corpus, seed: Seed, clients: int, to: Path) -> str:
    """AdaFD: texts by their words, one color for each domain, or without domains for each natural client."""
    column = next((name for name in ("domain", "client") if name in corpus.columns), None)
    if column is None:
        raise ConfigError(
            f"figure domains: {corpus.name} has the columns {', '.join(corpus.columns)}; expected 'domain' or 'client'."
        )
    partition = natural(corpus, seed, column)
    count = min(clients, plots.MAX_COLORED_CLIENTS)
    largest = np.sort(np.argsort(-partition.train.sizes, kind="stable")[:count])
    plot = plot_texts(partition, corpus, largest, f"{corpus.name}, by {column}")
    if plot is None:
        raise ConfigError(f"figure domains: the texts of {corpus.name} have too few words to plot; use another corpus.")
    plots.draw_figure(to, plot, width=6.4)
    return f"{len(largest)} of {len(partition)} {column}s"


def _sample_label_shifts(corpus: Corpus, trait: Trait, seed: Seed, clients: int) -> dict[float, ClientLabels]:
    """Divide the corpus by label with each α."""
    configs = {alpha: ComponentConfig("label", {"clients": clients, "alpha": alpha}) for alpha in ALPHAS}
    return {a: sample_label_ratios(build_partition(config, corpus, seed), trait) for a, config in configs.items()}


FIGURES: dict[str, DrawFigure] = {
    "distances": draw_distances,
    "labels": draw_label_ratios,
    "quantities": draw_quantities,
    "domains": draw_domains,
}
