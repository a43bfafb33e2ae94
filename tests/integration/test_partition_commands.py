"""The commands `motet partition make`, `show` and `figure`."""

from __future__ import annotations

import json
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

Call = Callable[..., tuple[int, str, str]]


class PageParser(HTMLParser):
    """Collects the images of a page, and tags that would load other files."""

    def __init__(self) -> None:
        super().__init__()
        self.images: list[dict[str, str | None]] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "img":
            self.images.append(dict(attrs))
        if tag in ("link", "script"):
            self.links.append(tag)


def test_a_partition_file_is_written_shown_and_used_by_a_run(motet: Call, tmp_path: Path) -> None:
    status, out, _ = motet(
        "partition", "make", "toy-classification", "--clients", "5", "--alpha", "0.5", "--to", "p.h5"
    )
    assert status == 0
    assert "p.h5: 5 clients, each with 120 of 600 training rows of toy-classification; digest " in out
    status, table, _ = motet("partition", "show", "p.h5", "--to", "report")
    assert status == 0
    assert "mean Jensen–Shannon distance" in table
    assert {p.name for p in (tmp_path / "report").iterdir()} == {
        "distances.png", "labels.png", "sizes.png", "texts.png", "index.html",
    }  # fmt: skip
    page = PageParser()
    page.feed((tmp_path / "report" / "index.html").read_text("utf-8"))
    assert len(page.images) == 4
    assert not page.links, "the page must not load other files"
    for image in page.images:
        assert (image["src"] or "").startswith("data:image/png;base64,iVBOR")
        assert len(image["alt"] or "") > 40
    partition = ("partition.type=file", "partition.path=p.h5")
    assert motet("run", "toy-classification", "rounds=1", *partition, "transport.workers=0")[0] == 0
    summary = json.loads((tmp_path / "runs" / "toy-classification-1" / "summary.json").read_text())
    assert f"digest {summary['partition']['digest']}" in out
    assert summary["partition"]["measures"]["js_distance"] > 0.3
    settings = ("partition.type=label", "partition.clients=5", "partition.alpha=0.5")
    assert "js distance" in motet("check", "toy-classification", *settings)[1]


def test_a_drift_by_length_is_shown_over_time_and_by_length(motet: Call, tmp_path: Path) -> None:
    options = ("--strategy", "drift", "--clients", "4", "--to", "d.h5")
    assert motet("partition", "make", "toy-classification", "partition.by=length", "data.limit=200", *options)[0] == 0
    assert motet("partition", "show", "d.h5", "--to", "report")[0] == 0
    page = (tmp_path / "report" / "index.html").read_text("utf-8")
    captions = {"kinds.png": "The partition divides by length", "phases.png": "How 4 of 4 clients change"}
    for name, caption in captions.items():
        assert (tmp_path / "report" / name).exists()
        assert caption in page


def test_a_file_in_the_layout_of_fednlp_is_written_and_shown(motet: Call) -> None:
    options = ("--strategy", "natural", "--layout", "fednlp", "--to", "f.h5")
    status, out, _ = motet("partition", "make", "toy-lm", "data.limit=60", *options)
    assert status == 0
    assert "natural_clients=" in out
    status, _, err = motet("partition", "show", "f.h5")
    assert status == 2
    assert "add --corpus" in err
    assert motet("partition", "show", "f.h5", "data.limit=60", "--corpus", "toy-lm", "--to", "report")[0] == 0


def test_names_of_the_task_and_the_strategy_may_be_settings(motet: Call) -> None:
    settings = ("task=classification", "partition=uniform")
    status, out, _ = motet("partition", "make", "toy-classification", *settings, "--clients", "5")
    assert status == 0
    assert out.startswith("partitions/toy-classification-uniform.h5: 5 clients")


@pytest.mark.parametrize("name", ["distances", "labels", "quantities", "domains"])
def test_each_figure_of_the_papers_is_one_command(motet: Call, tmp_path: Path, name: str) -> None:
    status, out, _ = motet("partition", "figure", name, "toy-classification", "--clients", "12", "--to", "f.png")
    assert status == 0
    assert out.startswith("f.png: ")
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("make", "toy-classification", "--strategy", "labels"), "there is no 'labels'. Did you mean 'label'?"),
        (("make", "toy-classification", "--alpha", "0"), "partition.alpha is 0.0; it must be above 0"),
        (
            ("make", "toy-classification", "--strategy", "uniform", "--alpha", "1"),
            "unknown option 'alpha'; these types have it: label, ",
        ),
        (("make", "toy-classification", "solver.lr=1"), "'solver' has no effect on a partition"),
        (("make", "toy-classification", "data=other"), "data is 'other'; expected options, such as data.name=other."),
        (("make", "toy-classification", "--to", "x.csv"), "must end in .h5"),
        (("make", "toy-classification", "--layout", "json"), "--layout: there is no 'json'"),
        (("show", "none.h5"), "'none.h5' does not exist"),
        (("figure", "distance", "toy-classification"), "Did you mean 'distances'?"),
    ],
)
def test_mistakes_are_reported_without_a_traceback(motet: Call, arguments: tuple[str, ...], message: str) -> None:
    status, out, err = motet("partition", *arguments)
    assert (status, out) == (2, "")
    assert message in err
    assert "Traceback" not in err
