"""motet partition, as a person uses it."""

from __future__ import annotations

import json
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

Call = Callable[..., tuple[int, str, str]]


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.images: list[dict[str, str | None]] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "img":
            self.images.append(found)
        if tag in ("link", "script"):
            self.links.append(tag)


def test_a_partition_is_made_looked_at_and_used(motet: Call, tmp_path: Path) -> None:
    status, out, _ = motet(
        "partition", "make", "toy-classification", "--clients", "5", "--alpha", "0.5", "--to", "p.h5"
    )
    assert status == 0
    assert "p.h5: 5 clients with 120 to 120 of 600 training rows of toy-classification; digest " in out
    status, shown, _ = motet("partition", "show", "p.h5", "--to", "seen")
    assert status == 0
    assert "mean Jensen–Shannon distance" in shown
    assert {p.name for p in (tmp_path / "seen").iterdir()} == {
        "distances.png", "labels.png", "sizes.png", "texts.png", "index.html",
    }  # fmt: skip
    page = Page()
    page.feed((tmp_path / "seen" / "index.html").read_text("utf-8"))
    assert len(page.images) == 4
    assert not page.links, "the page needs nothing beside it"
    for image in page.images:
        assert (image["src"] or "").startswith("data:image/png;base64,iVBOR")
        assert len(image["alt"] or "") > 40
    used = (
        "run",
        "toy-classification",
        "rounds=1",
        "partition.type=file",
        "partition.path=p.h5",
        "transport.workers=0",
    )
    assert motet(*used)[0] == 0
    summary = json.loads((tmp_path / "runs" / "toy-classification-1" / "summary.json").read_text())
    assert f"digest {summary['partition']['digest']}" in out
    assert summary["partition"]["measures"]["js_distance"] > 0.3
    as_recipe = ("check", "toy-classification", "partition.type=label", "partition.clients=5", "partition.alpha=0.5")
    assert "js distance" in motet(*as_recipe)[1]


def test_a_drift_by_length_is_shown_in_time_and_by_length(motet: Call, tmp_path: Path) -> None:
    words = ("partition", "make", "toy-classification", "partition.by=length", "--strategy", "drift", "--clients", "4")
    assert motet(*words, "--to", "d.h5", "data.limit=200")[0] == 0
    assert motet("partition", "show", "d.h5", "--to", "seen")[0] == 0
    page = (tmp_path / "seen" / "index.html").read_text("utf-8")
    for name, says in (
        ("kinds.png", "The partition divides by length"),
        ("phases.png", "How 4 of 4 clients change"),
    ):
        assert (tmp_path / "seen" / name).exists()
        assert says in page


def test_a_file_of_fednlps_is_written_and_shown(motet: Call) -> None:
    words = (
        "partition",
        "make",
        "toy-lm",
        "--strategy",
        "natural",
        "--layout",
        "fednlp",
        "--to",
        "f.h5",
        "data.limit=60",
    )
    status, out, _ = motet(*words)
    assert status == 0
    assert "natural_clients=" in out
    status, _, said = motet("partition", "show", "f.h5")
    assert status == 2
    assert "add --corpus" in said
    assert motet("partition", "show", "f.h5", "data.limit=60", "--corpus", "toy-lm", "--to", "seen")[0] == 0


@pytest.mark.parametrize("which", ["distances", "labels", "quantities", "domains"])
def test_the_papers_figures_are_one_command_each(motet: Call, tmp_path: Path, which: str) -> None:
    status, out, _ = motet("partition", "figure", which, "toy-classification", "--clients", "12", "--to", "f.png")
    assert status == 0
    assert out.startswith("f.png: ")
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("make", "toy-classification", "--strategy", "labels"), "there is no 'labels'; there is uniform, label"),
        (("make", "toy-classification", "--alpha", "0"), "partition.alpha is 0.0; it must be above 0"),
        (
            ("make", "toy-classification", "--strategy", "uniform", "--alpha", "1"),
            "unknown option 'alpha'; it takes clients",
        ),
        (("make", "toy-classification", "solver.lr=1"), "'solver' has no effect on a partition"),
        (("make", "toy-classification", "--to", "x.csv"), "must end in .h5"),
        (("make", "toy-classification", "--layout", "json"), "--layout: there is no 'json'"),
        (("show", "none.h5"), "there is no such file"),
        (("figure", "distance", "toy-classification"), "Did you mean 'distances'?"),
    ],
)
def test_mistakes_end_in_a_sentence(motet: Call, words: tuple[str, ...], says: str) -> None:
    status, out, said = motet("partition", *words)
    assert (status, out) == (2, "")
    assert says in said
    assert "Traceback" not in said
