"""The report of `motet partition show`: figures of a partition, its measures, and a page with all of them."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from motet.core.rng import Seed
from motet.core.script import ClientId
from motet.datasets.corpus import Corpus
from motet.experiment.commands.partition_commands import find_label_trait, measure_against_random
from motet.experiment.commands.text_scatter import plot_texts
from motet.partitions import Partition
from motet.partitions.measures import (
    MAX_CLIENTS,
    js_distances,
    label_counts,
    label_ratios,
    mean_pairwise_distance,
    order_by_distance,
    row_entropies,
    sample_clients,
)
from motet.partitions.traits import Trait
from motet.report import partition_plots as plots
from motet.report.html_page import PageFigure, PageTable, write_html_page
from motet.report.number_text import format_range

SAMPLE_SEED = Seed(0, ("portrait",))
MAX_LARGEST_CLIENTS = 8  # of many clients, how many are colored in the figure of texts
DISTANCE_LABEL, SHARE_LABEL = "Jensen–Shannon distance (nats)", "share of a client's examples"
MEASURE_NAMES = {
    "js_distance": "mean Jensen–Shannon distance",
    "label_entropy": "mean label entropy (nats)",
    "size_gini": "Gini coefficient of sizes",
    "vocabulary_overlap": "vocabulary in common",
}


class ClientLabels(NamedTuple):
    """A sample of clients, those most similar to the others first."""

    clients: np.ndarray  # indices in the partition
    ratios: np.ndarray  # the share of each label in a client's examples
    distances: np.ndarray  # between each two clients


def write_partition_report(partition: Partition, corpus: Corpus, folder: Path) -> tuple[Path, PageTable]:
    """Write figures and a page to a folder. Return the path of the page, and its table of measures."""
    folder.mkdir(parents=True, exist_ok=True)
    table = _measures_table(partition, corpus)
    train, test = len(partition.train.rows), len(partition.test.rows)
    settings = {k: v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for k, v in partition.recipe.items()}
    write_html_page(
        folder / "index.html",
        f"{corpus.name}, {partition.recipe.get('type', 'partition')}",
        f"{corpus.name}: {train:,} training rows and {test:,} test rows, divided over {len(partition):,} clients.",
        table,
        _draw_figures(partition, corpus, folder),
        {**settings, "digest": partition.digest},
    )
    return folder / "index.html", table


def _measures_table(partition: Partition, corpus: Corpus) -> PageTable:
    measures, random = (m.to_dict() for m in measure_against_random(partition, corpus))
    rows = [
        [name, f"{measures[key]:.3f}", f"{random[key]:.3f}"] for key, name in MEASURE_NAMES.items() if key in measures
    ]
    return PageTable(("", "this partition", "same sizes at random"), rows)


def _draw_figures(partition: Partition, corpus: Corpus, folder: Path) -> list[PageFigure]:
    labels, trait = find_label_trait(corpus), partition.trait
    figures = [] if labels is None else _draw_label_figures(partition, labels, folder)
    if trait is not None and (labels is None or trait.settings["by"] != labels.settings["by"]):
        figures.append(_draw_trait(partition, trait, folder))
    if partition.train.phases > 1 and (changing := trait or labels) is not None:
        figures.append(_draw_phases(partition, changing, folder))
    figures.append(_draw_sizes(partition, folder))
    texts = _draw_texts(partition, corpus, folder)
    return figures if texts is None else [*figures, texts]


def sample_label_ratios(partition: Partition, trait: Trait) -> ClientLabels:
    """Return the label shares of a sample of clients, and the distances between them."""
    clients = sample_clients(partition, MAX_CLIENTS, SAMPLE_SEED)
    counts = label_counts(partition, trait, clients)
    has_examples = counts.sum(1) > 0
    ratios, clients = label_ratios(counts[has_examples]), clients[has_examples]
    distances = js_distances(ratios)
    order = order_by_distance(distances)
    return ClientLabels(clients=clients[order], ratios=ratios[order], distances=distances[np.ix_(order, order)])


def _draw_shares(sample: ClientLabels, trait: Trait, clients: list[ClientId], path: Path) -> int:
    """Draw the shares of the labels that occur, the most frequent first. Return how many occur."""
    totals = sample.ratios.sum(0)
    used = np.argsort(-totals, kind="stable")[: int((totals > 0).sum())]
    names = [str(name) for name in trait.categories[used]]
    plot = partial(plots.plot_labels, ratios=sample.ratios[:, used], names=names, clients=clients)
    width, height = plots.fit_matrix(len(clients), len(names))
    plots.draw_figure(path, plot, SHARE_LABEL, width=width, height=height)
    return len(names)


def _draw_label_figures(partition: Partition, trait: Trait, folder: Path) -> list[PageFigure]:
    sample = sample_label_ratios(partition, trait)
    clients = [partition.clients[int(i)] for i in sample.clients]
    is_sample = len(clients) < len(partition)
    note = f" A sample of {len(clients)} of {len(partition):,} clients." if is_sample else ""
    distances = partial(plots.plot_distances, matrix=sample.distances, clients=clients)
    width, height = plots.fit_matrix(len(clients), len(clients))
    plots.draw_figure(folder / "distances.png", distances, DISTANCE_LABEL, width=max(width, height), height=height)
    num_labels = _draw_shares(sample, trait, clients, folder / "labels.png")
    kind = "" if trait.settings["by"] == "label" else f" (here: {trait.settings['by']})"
    effective_labels = float(np.exp(row_entropies(sample.ratios)).mean())
    about_distances = (
        "The distance between each two clients, sorted by the mean distance from all others; darker is farther. "
        f"The mean is {mean_pairwise_distance(sample.distances):.3f}, on a scale from 0 for the same labels to "
        f"{plots.MAX_DISTANCE:.3f} for no label in common.{note}"
    )
    about_labels = (
        f"One row for each client, in the same order, and one column for each label{kind}; darker is more. "
        f"On average, a client's labels are as varied as {effective_labels:.1f} of the {num_labels} in equal shares, "
        f"and its most frequent label has {sample.ratios.max(1).mean():.0%} of its examples.{note}"
    )
    return [
        PageFigure("Distances between clients", folder / "distances.png", about_distances),
        PageFigure("Labels of clients", folder / "labels.png", about_labels),
    ]


def _draw_trait(partition: Partition, trait: Trait, folder: Path) -> PageFigure:
    """Draw the trait by which the partition divides, if it is not the labels."""
    sample = sample_label_ratios(partition, trait)
    clients = [partition.clients[int(i)] for i in sample.clients]
    num_kinds = _draw_shares(sample, trait, clients, folder / "kinds.png")
    by = trait.settings["by"]
    about = (
        f"The partition divides by {by}: one row for each client, one column for each of the {num_kinds} kinds; "
        f"darker is more. On average, {sample.ratios.max(1).mean():.0%} of a client's examples are of one kind."
    )
    return PageFigure(f"Clients by {by}", folder / "kinds.png", about)


def _draw_phases(partition: Partition, trait: Trait, folder: Path) -> PageFigure:
    """Draw how a few clients change from phase to phase."""
    phases = partition.train.phases
    clients = range(min(len(partition), max(1, plots.MAX_NAMED_CLIENTS // phases)))
    pairs = [(client, phase) for client in clients for phase in range(phases)]
    rows = [trait.codes[partition.train.in_phase(client, phase)] for client, phase in pairs]
    counts = np.stack([np.bincount(codes, minlength=len(trait.categories)) for codes in rows])
    plot = partial(
        plots.plot_labels,
        ratios=label_ratios(counts),
        names=[str(name) for name in trait.categories],
        clients=[f"{partition.clients[client]}, phase {phase + 1}" for client, phase in pairs],
    )
    width, height = plots.fit_matrix(len(pairs), len(trait.categories))
    plots.draw_figure(folder / "phases.png", plot, SHARE_LABEL, width=width, height=height)
    about = (
        f"How {len(clients)} of {len(partition):,} clients change: one row for each phase of "
        f"{partition.rounds_per_phase} rounds, the earliest first, and one column for each label; darker is more."
    )
    return PageFigure("Clients over time", folder / "phases.png", about)


def _draw_sizes(partition: Partition, folder: Path) -> PageFigure:
    sizes = partition.train.sizes
    are_named = len(sizes) <= plots.MAX_NAMED_CLIENTS
    if are_named:
        plot = partial(plots.plot_bars, values=sizes, names=list(partition.clients))
    else:
        plot = partial(plots.plot_histogram, values=sizes)
    height = max(3.6, 1 + plots.NAME_INCHES * len(sizes)) if are_named else 3.6
    plots.draw_figure(folder / "sizes.png", plot, height=height)
    about = (
        f"The number of training examples of each client: {format_range(sizes)}, median "
        f"{np.median(sizes):,.0f}, mean {sizes.mean():,.1f}."
    )
    return PageFigure("Sizes of clients", folder / "sizes.png", about)


def _draw_texts(partition: Partition, corpus: Corpus, folder: Path) -> PageFigure | None:
    sizes = partition.train.sizes
    with_texts = np.flatnonzero(sizes > 0)
    largest = np.sort(np.argsort(-sizes, kind="stable")[:MAX_LARGEST_CLIENTS])
    colored = with_texts if len(with_texts) <= plots.MAX_COLORED_CLIENTS else largest
    plot = plot_texts(partition, corpus, colored)
    if plot is None:
        return None
    plots.draw_figure(folder / "texts.png", plot, width=6.4)
    is_subset = len(colored) < len(with_texts)
    note = (
        f" The {len(colored)} largest of {len(with_texts):,} clients are colored; the others are gray."
        if is_subset
        else ""
    )
    about = (
        "Texts by their words: the first two principal components of TF-IDF. Texts that are close use the same words; "
        f"separate colors are clients that write about different things.{note}"
    )
    return PageFigure("Texts of clients", folder / "texts.png", about)
