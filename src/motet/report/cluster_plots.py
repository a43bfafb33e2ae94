"""Who was put together with whom: clusters and neighbours of a run as pictures (figures 4 to 6 of ATC)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Row = Mapping[str, Any]


@dataclass(frozen=True)
class ClientRelations:
    """For every two clients: how often in one cluster, how often among the K nearest, and at which place on average.

    Shares of the rounds, from 0 to 1; `places` counts from 1, the diagonal is empty. What was not recorded is None.
    """

    clients: tuple[str, ...]
    clusters: np.ndarray | None
    neighbours: np.ndarray | None
    places: np.ndarray | None


def read_relations(rows: Sequence[Row], nearest: int) -> ClientRelations | None:
    """Read off a run's notes; None if there are none."""
    clusters = [r["value"] for r in rows if r["split"] == "note" and r["name"] == "clusters"]
    rankings = [r["value"] for r in rows if r["split"] == "note" and r["name"] == "neighbours"]
    clients = tuple(dict.fromkeys(c for value in (*clusters, *rankings) for c in value))
    if not clients:
        return None
    together = np.mean([_together(value, clients) for value in clusters], axis=0) if clusters else None
    if not rankings:
        return ClientRelations(clients, together, None, None)
    order = np.stack([_order(value, clients) for value in rankings])
    with np.errstate(invalid="ignore"):
        near = np.where(np.isnan(order), np.nan, order < nearest)  # oneself is the first of the K
        return ClientRelations(clients, together, _blank(_mean(near)), _blank(_mean(order)))


def _together(group: Mapping[str, int], clients: Sequence[str]) -> np.ndarray:
    label = np.array([group.get(c, -1 - i) for i, c in enumerate(clients)])
    return _blank((label[:, None] == label[None]).astype(float))


def _order(ranking: Mapping[str, Sequence[str]], clients: Sequence[str]) -> np.ndarray:
    """The place of each client in each one's list; oneself is 0."""
    table = np.full((len(clients), len(clients)), np.nan)
    place = {c: i for i, c in enumerate(clients)}
    for client, others in ranking.items():
        for rank, other in enumerate(others):
            table[place[client], place[other]] = rank
    return table


def _mean(tables: np.ndarray) -> np.ndarray:
    """Over the rounds in which both took part."""
    seen = ~np.isnan(tables)
    found: np.ndarray = np.where(seen, tables, 0).sum(0) / np.maximum(1, seen.sum(0))
    return np.where(seen.any(0), found, np.nan)


def _blank(table: np.ndarray) -> np.ndarray:
    table = np.array(table, float)
    np.fill_diagonal(table, np.nan)
    return table


def draw_relations(found: ClientRelations, folder: Path) -> list[Path]:
    """clusters.png, neighbours.png and places.png, as far as there is something to show."""
    kinds = (
        ("clusters", found.clusters, "share of rounds in one cluster", 1.0, False),
        ("neighbours", found.neighbours, "share of rounds among the nearest (column near row)", 1.0, False),
        (
            "places",
            found.places,
            "mean place among a client's neighbours (row's list)",
            float(len(found.clients) - 1),
            True,
        ),
    )
    drawn = []
    for name, table, said, most, small_is_near in kinds:
        if table is not None:
            drawn.append(folder / f"{name}.png")
            _draw(table, found.clients, said, most, small_is_near, drawn[-1])
    return drawn


def _draw(table: np.ndarray, clients: Sequence[str], said: str, most: float, small_is_near: bool, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    side = max(4.0, 0.34 * len(clients) + 2)
    figure, axes = plt.subplots(figsize=(side + 1.2, side), dpi=130, layout="constrained")
    shades = "viridis_r" if small_is_near else "viridis"
    image = axes.imshow(table, cmap=shades, vmin=1.0 if small_is_near else 0.0, vmax=most)
    names = [c.replace("/client-", " ") for c in clients]
    axes.set_xticks(range(len(names)), names, rotation=60, ha="right", rotation_mode="anchor", fontsize=8)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    if len(names) <= 24:
        for i, j in np.ndindex(table.shape):
            if not np.isnan(table[i, j]):
                dark = bool(table[i, j] / most > 0.55) == small_is_near
                axes.text(
                    j,
                    i,
                    f"{table[i, j]:.2g}",
                    ha="center",
                    va="center",
                    fontsize=6.5,
                    color="white" if dark else "black",
                )
    for place in _borders(clients):
        axes.axhline(place, color="white", linewidth=1.6)
        axes.axvline(place, color="white", linewidth=1.6)
    axes.set_title(said, fontsize=10)
    figure.colorbar(image, ax=axes, shrink=0.8)
    figure.savefig(path)
    plt.close(figure)


def _borders(clients: Sequence[str]) -> list[float]:
    """Between groups, whose names stand before the slash."""
    groups = [c.partition("/")[0] for c in clients]
    if len(set(groups)) == len(groups):
        return []
    return [i - 0.5 for i in range(1, len(groups)) if groups[i] != groups[i - 1]]
