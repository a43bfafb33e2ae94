"""A partition to be looked at: four pictures, the numbers, and a page with all of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.experiment.commands.partition_commands import find_label_trait, measure_against_random
from motet.partitions import Partition
from motet.partitions.measures import (
    MAX_CLIENTS,
    js_distances,
    label_counts,
    label_ratios,
    mean_pairwise_distance,
    order_by_distance,
    read_texts,
    row_entropies,
    sample_clients,
)
from motet.partitions.text_encoders import tfidf_matrix
from motet.partitions.traits import Trait
from motet.report import partition_plots as draw
from motet.report.html_page import PageFigure, PageTable, write_html_page

SEED = Seed(0, ("portrait",))
MOST_TEXTS, MOST_WORDS, SHOWN = 2_000, 3_000, 8
DISTANCE, SHARE = "Jensen–Shannon distance (nats)", "share of a client's examples"
MEANINGS = {
    "js_distance": "mean Jensen–Shannon distance",
    "label_entropy": "mean label entropy (nats)",
    "size_gini": "Gini coefficient of sizes",
    "vocabulary_overlap": "vocabulary in common",
}


def write_partition_report(partition: Partition, corpus: Corpus, folder: Path) -> tuple[Path, PageTable]:
    """Pictures and page into a folder; the page, and the table of numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    trait = find_label_trait(corpus)
    pictures = [] if trait is None else _labelled(partition, trait, folder)
    if partition.trait is not None and (trait is None or partition.trait.settings["by"] != trait.settings["by"]):
        pictures.append(_shifted(partition, partition.trait, folder))
    moving = partition.trait or trait
    if partition.train.phases > 1 and moving is not None:
        pictures.append(_in_time(partition, moving, folder))
    pictures.append(_sizes(partition, folder))
    if (seen := _texts(partition, corpus, folder)) is not None:
        pictures.append(seen)
    here, random = (m.plain() for m in measure_against_random(partition, corpus))
    rows = [[said, f"{here[key]:.3f}", f"{random[key]:.3f}"] for key, said in MEANINGS.items() if key in here]
    table = PageTable(("", "this partition", "same sizes at random"), rows)
    count, train, test = len(partition), len(partition.train.rows), len(partition.test.rows)
    lead = f"{corpus.name}: {train:,} rows to train and {test:,} to test, over {count:,} clients."
    facts = {k: v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for k, v in partition.recipe.items()}
    title = f"{corpus.name}, {partition.recipe.get('type', 'partition')}"
    write_html_page(folder / "index.html", title, lead, table, pictures, {**facts, "digest": partition.digest})
    return folder / "index.html", table


def ratios_and_distances(partition: Partition, trait: Trait) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Label shares and distances of some clients, the most ordinary first, and who they are."""
    chosen = sample_clients(partition, MAX_CLIENTS, SEED)
    counts = label_counts(partition, trait, chosen)
    kept = counts.sum(1) > 0
    ratios, chosen = label_ratios(counts[kept]), chosen[kept]
    matrix = js_distances(ratios)
    order = order_by_distance(matrix)
    return ratios[order], matrix[np.ix_(order, order)], chosen[order]


def _labelled(partition: Partition, trait: Trait, folder: Path) -> list[PageFigure]:
    ratios, matrix, chosen = ratios_and_distances(partition, trait)
    used = np.argsort(-ratios.sum(0), kind="stable")[: int((ratios.sum(0) > 0).sum())]
    names = [str(n) for n in trait.names[used]]
    sample = "" if len(chosen) == len(partition) else f" A sample of {len(chosen)} of {len(partition):,} clients."
    clients = [partition.clients[int(k)] for k in chosen]
    draw.draw_figure(folder / "distances.png", partial(draw.plot_distances, matrix=matrix, clients=clients), DISTANCE)
    painted = partial(draw.plot_labels, ratios=ratios[:, used], names=names, clients=clients)
    draw.draw_figure(folder / "labels.png", painted, SHARE, height=5.2)
    kind = "" if trait.settings["by"] == "label" else f" (here: {trait.settings['by']})"
    kinds = float(np.exp(row_entropies(ratios)).mean())
    far = (
        f"Every client against every other, sorted by how far each is from the rest; dark is far. The mean distance is "
        f"{mean_pairwise_distance(matrix):.3f}, from 0 for the same labels to {draw.MAX_DISTANCE:.3f} for none in common.{sample}"
    )
    much = (
        f"A row a client in the same order, a column a label{kind}; dark is much. A client has as "
        f"varied labels as {kinds:.1f} of the {len(names)} in equal shares would be; its most frequent one has "
        f"{ratios.max(1).mean():.0%} of its examples on average.{sample}"
    )
    return [
        PageFigure("Distances between clients", folder / "distances.png", far),
        PageFigure("Labels of clients", folder / "labels.png", much),
    ]


def _shifted(partition: Partition, kinds: Trait, folder: Path) -> PageFigure:
    """What was shifted, where that is not the labels."""
    ratios, _, chosen = ratios_and_distances(partition, kinds)
    used = np.argsort(-ratios.sum(0), kind="stable")[: int((ratios.sum(0) > 0).sum())]
    names, clients = [str(n) for n in kinds.names[used]], [partition.clients[int(k)] for k in chosen]
    painted = partial(draw.plot_labels, ratios=ratios[:, used], names=names, clients=clients)
    draw.draw_figure(folder / "kinds.png", painted, SHARE, height=5.2)
    by = kinds.settings["by"]
    says = (
        f"What this partition shifts, by {by}: a row a client, a column one of the {len(names)} kinds; dark is much. The most "
        f"frequent kind has {ratios.max(1).mean():.0%} of a client's examples on average."
    )
    return PageFigure(f"Clients by {by}", folder / "kinds.png", says)


def _in_time(partition: Partition, kinds: Trait, folder: Path) -> PageFigure:
    """A few clients phase by phase."""
    phases = partition.train.phases
    some = range(min(len(partition), max(1, draw.MAX_NAMED_CLIENTS // phases)))
    pieces = [(k, p) for k in some for p in range(phases)]
    counts = [np.bincount(kinds.codes[partition.train.in_phase(k, p)], minlength=len(kinds.names)) for k, p in pieces]
    rows = [f"{partition.clients[k]}, phase {p + 1}" for k, p in pieces]
    painted = partial(
        draw.plot_labels, ratios=label_ratios(np.stack(counts)), names=[str(n) for n in kinds.names], clients=rows
    )
    draw.draw_figure(folder / "phases.png", painted, SHARE, height=5.2)
    says = (
        f"How {len(some)} of {len(partition):,} clients change: a row a phase of {partition.rounds_per_phase} rounds, the earliest first, "
        "a column a label; dark is much."
    )
    return PageFigure("Clients in time", folder / "phases.png", says)


def _sizes(partition: Partition, folder: Path) -> PageFigure:
    sizes = partition.train.sizes
    few = len(sizes) <= draw.MAX_COLORED_CLIENTS
    painted = (
        partial(draw.plot_bars, values=sizes, names=list(partition.clients))
        if few
        else partial(draw.plot_sizes, groups={"": sizes})
    )
    draw.draw_figure(folder / "sizes.png", painted, height=3.6)
    says = (
        f"How many training examples clients have: {sizes.min():,} to {sizes.max():,}, half of them {np.median(sizes):,.0f} or "
        f"fewer, {sizes.mean():,.1f} on average."
    )
    return PageFigure("Sizes of clients", folder / "sizes.png", says)


def _texts(partition: Partition, corpus: Corpus, folder: Path) -> PageFigure | None:
    """Texts in the plane, coloured by client; of many clients, the largest."""
    able = np.flatnonzero(partition.train.sizes > 0)
    largest = np.sort(np.argsort(-partition.train.sizes, kind="stable")[:SHOWN])
    shown = able if len(able) <= draw.MAX_COLORED_CLIENTS else largest
    painted = plane(partition, corpus, shown)
    if painted is None:
        return None
    draw.draw_figure(folder / "texts.png", painted, width=6.4)
    few = (
        ""
        if len(shown) == len(able)
        else f" The {len(shown)} largest of {len(able):,} clients are coloured, the others grey."
    )
    says = (
        "Texts by their words: TF-IDF, laid out along its two principal components. Texts near each other use the same words; "
        f"where colours keep apart, clients write about different things.{few}"
    )
    return PageFigure("Texts of clients", folder / "texts.png", says)


def plane(
    partition: Partition, corpus: Corpus, shown: np.ndarray, title: str = ""
) -> Callable[[draw.Axes], None] | None:
    """A sample of texts, as many of each client shown, on two principal components of TF-IDF."""
    from sklearn.decomposition import PCA

    rng = SEED.derive("texts").numpy()
    each = MOST_TEXTS // (len(shown) + (len(shown) < len(partition)))
    picked = [rng.permutation(partition.train[int(k)])[:each] for k in shown]
    owner = np.concatenate([np.full(len(rows), k) for k, rows in enumerate(picked)]) if picked else np.zeros(0)
    rows = np.concatenate(picked) if picked else np.zeros(0, np.int64)
    others = np.setdiff1d(partition.train.rows, np.concatenate([partition.train[int(k)] for k in shown]))
    some = rng.permutation(others)[:each]
    rows, owner = np.concatenate([rows, some]), np.concatenate([owner, np.full(len(some), -1)]).astype(np.int64)
    texts = read_texts(corpus, np.unique(rows))
    try:
        counts = tfidf_matrix([texts[int(r)] for r in rows], MOST_WORDS, "english")
    except ValueError:  # no words at all
        return None
    if min(counts.shape) < 3:
        return None
    points = PCA(2, svd_solver="randomized", random_state=SEED.derive("pca").to_int() % 2**32).fit_transform(
        counts.toarray()
    )
    names = [partition.clients[int(k)] for k in shown]
    return partial(draw.plot_scatter, points=points, groups=owner, names=names, title=title)
