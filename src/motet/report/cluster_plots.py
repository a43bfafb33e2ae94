"""Plot which clients were clustered together and which were neighbors (figures 4 to 6 of ATC)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from motet.report.figure_files import new_figure, save_figure
from motet.transport.json_shapes import find_mismatch

Row = Mapping[str, Any]

MAX_NUMBERED_CLIENTS = 24  # for more clients, the cells are too small for numbers


@dataclass(frozen=True)
class ClientRelations:
    """Square matrices over the clients. The diagonal is NaN. A matrix is None if the run did not record it.

    `clusters`: share of the rounds in which two clients were in one cluster.
    `neighbors`: share of the rounds in which the column's client was among the nearest of the row's client.
    `ranks`: mean rank of the column's client among the neighbors of the row's client, counted from 1.
    """

    clients: tuple[str, ...]
    clusters: np.ndarray | None
    neighbors: np.ndarray | None
    ranks: np.ndarray | None


def read_relations(rows: Sequence[Row], nearest: int) -> ClientRelations | None:
    """Compute the relations from a run's notes. None if it recorded neither clusters nor neighbors.

    `nearest` is the number of neighbors a client learns from, including itself.
    """
    clusterings = _select_notes(rows, "clusters", dict[str, int])
    rankings = _select_notes(rows, "neighbors", dict[str, list[str]])
    clients = tuple(dict.fromkeys(client for value in (*clusterings, *rankings) for client in value))
    if not clients:
        return None
    clusters = np.mean([_same_cluster(value, clients) for value in clusterings], axis=0) if clusterings else None
    if not rankings:
        return ClientRelations(clients=clients, clusters=clusters, neighbors=None, ranks=None)
    ranks = np.stack([_rank_matrix(value, clients) for value in rankings])
    with np.errstate(invalid="ignore"):
        is_near = np.where(np.isnan(ranks), np.nan, ranks < nearest)
    return ClientRelations(
        clients=clients,
        clusters=clusters,
        neighbors=_blank_diagonal(_mean_over_rounds(is_near)),
        ranks=_blank_diagonal(_mean_over_rounds(ranks)),
    )


def _select_notes(rows: Sequence[Row], name: str, shape: Any) -> list[Any]:
    """Return the notes with this name. An algorithm of another package may use a name for something else."""
    values = (row["value"] for row in rows if row["split"] == "note" and row["name"] == name)
    return [value for value in values if find_mismatch(value, shape) is None]


def _same_cluster(cluster_of: Mapping[str, int], clients: Sequence[str]) -> np.ndarray:
    labels = np.array([cluster_of.get(client, -1 - i) for i, client in enumerate(clients)])
    return _blank_diagonal((labels[:, None] == labels[None]).astype(float))


def _rank_matrix(ranking: Mapping[str, Sequence[str]], clients: Sequence[str]) -> np.ndarray:
    """Return the rank of each client in each client's list. Rank 0 is the client itself."""
    matrix = np.full((len(clients), len(clients)), np.nan)
    index = {client: i for i, client in enumerate(clients)}
    for client, others in ranking.items():
        for rank, other in enumerate(others):
            if other in index:
                matrix[index[client], index[other]] = rank
    return matrix


def _mean_over_rounds(matrices: np.ndarray) -> np.ndarray:
    """Average over the rounds in which both clients took part."""
    is_known = ~np.isnan(matrices)
    mean: np.ndarray = np.where(is_known, matrices, 0).sum(0) / np.maximum(1, is_known.sum(0))
    return np.where(is_known.any(0), mean, np.nan)


def _blank_diagonal(matrix: np.ndarray) -> np.ndarray:
    matrix = np.array(matrix, float)
    np.fill_diagonal(matrix, np.nan)
    return matrix


def draw_relations(relations: ClientRelations, folder: Path) -> list[Path]:
    """Draw clusters.png, neighbors.png and ranks.png, as far as the run recorded them."""
    clients = relations.clients
    share, near = "share of rounds in the same cluster", "share of rounds among the nearest (column near row)"
    paths = []
    if relations.clusters is not None:
        paths.append(_draw_matrix(relations.clusters, clients, share, 1.0, folder / "clusters.png"))
    if relations.neighbors is not None:
        paths.append(_draw_matrix(relations.neighbors, clients, near, 1.0, folder / "neighbors.png"))
    if relations.ranks is not None:
        title = "mean rank among the neighbors of the row's client"
        last = float(len(clients) - 1)
        paths.append(_draw_matrix(relations.ranks, clients, title, last, folder / "ranks.png", low_is_near=True))
    return paths


def _draw_matrix(
    matrix: np.ndarray, clients: Sequence[str], title: str, highest: float, path: Path, low_is_near: bool = False
) -> Path:
    size = max(4.0, 0.34 * len(clients) + 2)
    figure, (axes,) = new_figure(width=size + 1.2, height=size)
    colors = "viridis_r" if low_is_near else "viridis"
    image = axes.imshow(matrix, cmap=colors, vmin=1.0 if low_is_near else 0.0, vmax=highest)
    names = [client.replace("/client-", " ") for client in clients]
    axes.set_xticks(range(len(names)), names, rotation=60, ha="right", rotation_mode="anchor", fontsize=9)
    axes.set_yticks(range(len(names)), names, fontsize=9)
    if len(names) <= MAX_NUMBERED_CLIENTS:
        for i, j in np.ndindex(matrix.shape):
            if not np.isnan(matrix[i, j]):
                is_dark = bool(matrix[i, j] / highest > 0.55) == low_is_near
                style: Any = {"ha": "center", "va": "center", "fontsize": 8, "color": "white" if is_dark else "black"}
                axes.text(j, i, f"{matrix[i, j]:.2g}", **style)
    for position in _group_borders(clients):
        axes.axhline(position, color="white", linewidth=1.6)
        axes.axvline(position, color="white", linewidth=1.6)
    axes.set_title(title, fontsize=10)
    figure.colorbar(image, ax=axes, shrink=0.8)
    save_figure(figure, path)
    return path


def _group_borders(clients: Sequence[str]) -> list[float]:
    """Return the positions between groups. The group is the part of a client's name before the slash."""
    groups = [client.partition("/")[0] for client in clients]
    if len(set(groups)) == len(groups):
        return []
    return [i - 0.5 for i in range(1, len(groups)) if groups[i] != groups[i - 1]]
