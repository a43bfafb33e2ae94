"""The papers' figures of their partitions, one command each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.experiment.build.partition_builder import build_partition
from motet.experiment.commands.partition_report import DISTANCE, SHARE, plane, ratios_and_distances
from motet.experiment.recipe.config_parsing import look_up
from motet.experiment.recipe.run_config import ComponentConfig
from motet.partitions import natural, quantity
from motet.partitions.measures import mean_pairwise_distance
from motet.partitions.traits import Trait
from motet.partitions.traits_by_name import get_trait
from motet.report import partition_plots as draw

ALPHAS = BETAS = (1.0, 5.0, 10.0, 100.0)

Figure = Callable[[Corpus, Seed, int, Path], str]


def paper_figure(name: str, corpus: Corpus, seed: Seed, clients: int, to: Path) -> str:
    """Draw it, and say in a sentence what there is to see."""
    figure = look_up(FIGURES, name, "figure")
    to.parent.mkdir(parents=True, exist_ok=True)
    return figure(corpus, seed, clients, to)


def distances(corpus: Corpus, seed: Seed, clients: int, to: Path) -> str:
    """FedNLP: Jensen–Shannon distances between clients at α of 1, 5, 10 and 100; the larger α, the lighter."""
    found = list(_shifts(corpus, seed, clients))
    paints = [partial(draw.plot_distances, matrix=matrix, title=f"α = {alpha:g}") for alpha, _, matrix, _ in found]
    draw.draw_figure_row(to, paints, DISTANCE, 3.4, 3.5)
    said = ", ".join(f"{mean_pairwise_distance(matrix):.3f} at α={alpha:g}" for alpha, _, matrix, _ in found)
    return f"mean distance {said}"


def label_ratios(corpus: Corpus, seed: Seed, clients: int, to: Path) -> str:
    """FedNLP: clients' shares of the labels at α of 1, 5, 10 and 100; the larger α, the more alike."""
    found = list(_shifts(corpus, seed, clients))
    largest = float(np.mean(found[0][1].max(1)))

    def painted(axes: draw.Axes, ratios: np.ndarray, names: list[str], title: str) -> object:
        shown = draw.plot_labels(axes, ratios, names, title)
        shown.set_clim(0, largest)
        return shown

    paints = [
        partial(painted, ratios=ratios, names=[str(n) for n in trait.names], title=f"α = {alpha:g}")
        for alpha, ratios, _, trait in found
    ]
    draw.draw_figure_row(to, paints, SHARE, 3.6, 4.8)
    return "largest share " + ", ".join(f"{np.mean(r.max(1)):.2f} at α={a:g}" for a, r, _, _ in found)


def quantities(corpus: Corpus, seed: Seed, clients: int, to: Path) -> str:
    """FedNLP: densities of clients' sizes at β of 1, 5, 10 and 100; the larger β, the narrower."""
    groups = {f"β = {b:g}": quantity(corpus, seed.derive("partition"), clients, b).train.sizes for b in BETAS}
    draw.draw_figure(to, partial(draw.plot_sizes, groups=groups, title=f"{corpus.name}, {clients} clients"), height=3.8)
    return "sizes " + ", ".join(f"{s.min()} to {s.max()} at {name}" for name, s in groups.items())


def domains(corpus: Corpus, seed: Seed, clients: int, to: Path) -> str:
    """AdaFD: texts in the plane, a colour a domain (the largest, of many); or a natural client, where there are no domains."""
    column = next((c for c in ("domain", "client") if c in corpus.columns), None)
    if column is None:
        raise ConfigError(f"figure domains: {corpus.name} has neither 'domain' nor 'client' among its columns.")
    made = natural(corpus, seed, column)
    shown = np.sort(np.argsort(-made.train.sizes, kind="stable")[: min(clients, draw.MAX_COLORED_CLIENTS)])
    painted = plane(made, corpus, shown, f"{corpus.name}, by {column}")
    if painted is None:
        raise ConfigError(f"figure domains: {corpus.name} has too few words to be laid out in the plane.")
    draw.draw_figure(to, painted, width=6.4)
    return f"{len(shown)} of {len(made)} {column}s"


def _shifts(corpus: Corpus, seed: Seed, clients: int) -> Iterator[tuple[float, np.ndarray, np.ndarray, Trait]]:
    trait = get_trait(corpus, "label", seed)
    for alpha in ALPHAS:
        made = build_partition(ComponentConfig("label", {"clients": clients, "alpha": alpha}), corpus, seed)
        ratios, matrix, _ = ratios_and_distances(made, trait)
        yield alpha, ratios, matrix, trait


FIGURES: dict[str, Figure] = {
    "distances": distances,
    "labels": label_ratios,
    "quantities": quantities,
    "domains": domains,
}
