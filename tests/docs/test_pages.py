"""The code blocks of the tutorial and of the guides run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from motet import cli

DOCS = Path(__file__).parents[2] / "docs"
PAGES = (
    "tutorials/first-run", "guides/own-data", "guides/own-algorithm", "guides/own-task", "guides/partitions",
    "guides/benchmarks", "guides/solver", "faq",
    *(f"{folder}/{page.stem}" for folder in ("tasks", "migrate") for page in sorted((DOCS / folder).glob("*.md"))
      if page.stem != "index"),
)  # fmt: skip
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


@pytest.mark.parametrize("page", PAGES)
def test_every_code_block_of_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall((DOCS / f"{page}.md").read_text("utf-8"))
    assert blocks
    names: dict[str, Any] = {"__name__": "page"}
    for kind, text in blocks:
        if kind == "python":
            exec(compile(text, f"{page}.md", "exec", dont_inherit=True), names)
        elif kind == "sh":
            for line in text.replace("\\\n", " ").splitlines():
                run_command(shlex.split(line, comments=True), monkeypatch)
        elif file := re.match(r"# file: (\S+)\n", text):  # in YAML, the line is a comment
            Path(file[1]).write_text(text if kind == "yaml" else text[file.end() :])


def run_command(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert words[0] == "motet"
    monkeypatch.setattr("sys.argv", words)
    try:
        cli.main()
    except SystemExit as end:
        assert not end.code, " ".join(words)


def test_folded_parts_of_pages_render_on_github_and_on_the_site() -> None:
    """The site renders Markdown only in `<details markdown="1">`, and GitHub only after an empty line."""
    for page in DOCS.rglob("*.md"):
        text = page.read_text("utf-8")
        opened = re.findall(r"^<details.*\n.*\n.*\n", text, re.M)
        assert all(re.fullmatch(r'<details markdown="1">\n<summary>[^<>]+</summary>\n\n', fold) for fold in opened), (
            page
        )
        assert len(opened) == len(re.findall(r"\n\n</details>\n\n", text)), page


def test_pages_show_only_fair_tables_unfolded_and_the_version_of_each() -> None:
    for page in (DOCS / "papers").glob("*.md"):
        for suite, body in re.findall(
            r"<!-- motet bench (\w+ \w+) -->\n(.*?)<!-- end -->", page.read_text("utf-8"), re.S
        ):
            shown = re.sub(r"<details.*?</details>", "", body, flags=re.S)
            assert "| minus the best" not in shown and "| row | columns" not in shown, suite
            if "| method |" in shown:
                assert re.search(r"^Motet \S+ \(\w{10}\) on ", shown, re.M), (
                    f"{suite}: no version, so it is an old table"
                )


def test_the_overview_of_papers_counts_the_verdicts_of_its_pages() -> None:
    index = (DOCS / "papers" / "index.md").read_text("utf-8")
    total = [0, 0, 0]
    for page, claims in re.findall(r"^\| \[.+?\]\((\w+\.md)\) .*\| (.+?) \|$", index, re.M):
        text = re.sub(r"<summary>Old table.*?</details>", "", (DOCS / "papers" / page).read_text("utf-8"), flags=re.S)
        verdicts = re.findall(r"^- (✓ shown|○ not shown|✗ contradicted): (?!.*these trained models only)", text, re.M)
        counts = [verdicts.count(verdict) for verdict in ("✓ shown", "○ not shown", "✗ contradicted")]
        assert claims == (" / ".join(map(str, counts)) if any(counts) else "–"), page
        total = [a + b for a, b in zip(total, counts, strict=True)]
    sentence = "Of {} claims that were tested with five seeds, {} are shown, {} are not shown, and {} are contradicted."
    assert sentence.format(sum(total), *total) in index
