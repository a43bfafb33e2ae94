"""What the documentation shows is true: its code blocks run, its links lead somewhere, its reference is the code's."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from motet import cli

DOCS = Path(__file__).parents[2] / "docs"
RUN = ("tutorial", "guides/own-data", "guides/own-algorithm", "guides/own-task", "guides/benchmarks")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


@pytest.mark.parametrize("page", RUN)
def test_every_code_block_of_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall((DOCS / f"{page}.md").read_text("utf-8"))
    assert blocks
    names: dict[str, Any] = {"__name__": "page"}
    for kind, text in blocks:
        if kind == "python":
            exec(compile(text, f"{page}.md", "exec", dont_inherit=True), names)
        elif kind == "sh":
            for line in text.splitlines():
                called(shlex.split(line, comments=True), monkeypatch)
        else:
            assert kind == "yaml", f"a block is python, sh or yaml, not {kind}"
            Path(re.match(r"# file: (\S+)", text)[1]).write_text(text)  # type: ignore[index]


def called(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert words[0] == "motet"
    monkeypatch.setattr("sys.argv", words)
    try:
        cli.main()
    except SystemExit as end:
        assert not end.code, " ".join(words)


@pytest.fixture(scope="module")
def build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_build", DOCS / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(build: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    assert build.build(folder) == len(build.pages())
    return folder


def links(page: Path) -> Iterator[str]:
    for found in re.findall(r'href="([^"]+)"', page.read_text("utf-8")):
        if not found.startswith(("http", "data:", "#", "mailto:")):
            yield found.partition("#")[0]


def test_every_link_leads_to_a_page(site: Path) -> None:
    for page in site.rglob("*.html"):
        for link in links(page):
            assert (page.parent / link).resolve().exists(), f"{page.relative_to(site)}: {link}"


def test_the_reference_names_every_command_key_and_entry(site: Path) -> None:
    import dataclasses

    from motet.algorithms import ALGORITHMS
    from motet.experiment.recipe.run_config import RunConfig
    from motet.partitions import PARTITIONS

    commands = (site / "reference" / "commands.html").read_text("utf-8")
    assert all(f"motet {name}" in commands for name in ("run", "bench", "report", "compare", "replay", "data build"))
    assert "--beside" not in commands  # what a person does not give is not told
    recipes = (site / "reference" / "recipes.html").read_text("utf-8")
    assert all(field.name in recipes for field in dataclasses.fields(RunConfig) if field.name != "recipe")
    assert "not more often than this" in recipes  # the remark beside a key comes along
    tables = (site / "reference" / "tables.html").read_text("utf-8")
    assert all(f"<code>{name}</code>" in tables for name in (*ALGORITHMS, *PARTITIONS))
