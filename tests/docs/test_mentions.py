"""The pages mention only commands, options, recipe keys and files that exist, in sentences that are not too long."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from motet.cli import app
from motet.experiment.recipe.renamed_keys import RENAMED_KEYS, RENAMED_VALUES
from motet.experiment.recipe.run_config import GroupConfig, RunConfig
from motet.learning.solver import Solver
from motet.transport.emulated_network import Network

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG", "SECURITY")),
    *sorted(DOCS.rglob("*.md")),
]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
COMMAND = re.compile(r"^(?:mpirun -n \d+ )?(motet(?: .*)?)$")
OVERRIDE = re.compile(r"[a-z_]+(?:\.[a-z_0-9]+)*=")
SOURCE_FILE = re.compile(r"[\w./-]+/[\w.-]*")
SUITE_KEYS = {"title", "base", "bounds", "tables", "tune"}
WORD_LIMIT = 45
FOREIGN_KEYS = {
    "num_hidden_layers",
    "assistant_only_loss",
    "enable_thinking",
    "date_string",
    "input",
    "output",
}  # of transformers, TRL, chat templates and columns of data
CODE_WIDTH = 92  # characters that fit beside the navigation of the site
page_ids = pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))


@cache
def option_names() -> dict[str, set[str]]:
    """The keys of each recipe section; for a section with a type, the options of all types."""
    spec = importlib.util.spec_from_file_location("reference_pages", DOCS / "_site" / "reference_pages.py")
    assert spec is not None
    assert spec.loader is not None
    pages = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pages)
    tables = {
        "algorithm": "algorithms", "server": "server optimizers", "task": "tasks", "partition": "partitions",
        "transport": "transports", "secure": "secure", "privacy": "privacy", "robust": "robust",
        "attack": "attacks",
    }  # fmt: skip
    names: dict[str, set[str]] = {}
    for section, table in tables.items():
        entries = pages.component_tables()[table].values()
        names[section] = {"type", *(name for entry in entries for name in pages.option_names(entry))}
    names["partition"] |= {"local_test", "merge"}  # they go with every strategy
    for field in dataclasses.fields(RunConfig):
        if dataclasses.is_dataclass(field.default) and field.name not in names:
            names[field.name] = {f.name for f in dataclasses.fields(field.default)}
    for section, kind in (("solver", Solver), ("network", Network), ("groups", GroupConfig)):
        names[section] = {f.name for f in dataclasses.fields(kind)}
    names["groups"] |= {"corpus"}
    return names


def is_key(path: str) -> bool:
    section, _, key = path.partition(".")
    if section not in {f.name for f in dataclasses.fields(RunConfig)}:
        return False
    nested = option_names().get(section)
    return not key or nested is None or key.partition(".")[0] in nested


def prose_and_code(page: Path) -> tuple[str, list[tuple[str, str]]]:
    text = page.read_text("utf-8")
    return BLOCK.sub("", text), BLOCK.findall(text)


def commands(page: Path) -> Iterator[list[str]]:
    prose, blocks = prose_and_code(page)
    lines = [line for kind, text in blocks if kind in ("", "sh") for line in text.replace("\\\n", " ").splitlines()]
    lines += re.findall(r"`([^`\n]+)`", prose)
    for line in lines:
        if match := COMMAND.match(line.strip()):
            yield shlex.split(match[1], comments=True)


@page_ids
def test_every_command_and_option_exists(page: Path) -> None:
    for words in commands(page):
        command: Any = typer.main.get_command(app)
        rest = words[1:]
        while rest and hasattr(command, "commands") and not rest[0].startswith("-"):
            assert rest[0] in command.commands or rest[0].isupper(), " ".join(words)
            command = command.commands.get(rest[0])
            rest = rest[1:]
            if command is None:
                break
        known = {option for p in getattr(command, "params", ()) for option in p.opts} | {"--help"}
        for word in rest:
            assert not word.startswith("--") or word in known, f"{word} in: {' '.join(words)}"
            if match := OVERRIDE.match(word):
                assert is_key(match[0][:-1]), f"{word} in: {' '.join(words)}"


@page_ids
def test_every_recipe_key_exists(page: Path) -> None:
    prose, blocks = prose_and_code(page)
    all_names = FOREIGN_KEYS.union({f.name for f in dataclasses.fields(RunConfig)}, *option_names().values())
    old_values = {value for values in RENAMED_VALUES.values() for value in values}
    for code in re.findall(r"`([^`\n]+)`", prose):
        assert not old_values & set(re.findall(r"[a-z_]+", code)), code
        for path in re.findall(r"(?<![\w./-])([a-z_]+\.[a-z_]+)(?![\w./(-])", code):
            section, _, key = path.partition(".")
            if section in option_names() and key not in ("py", "md", "json", "yaml", "csv", "h5", "png"):
                assert is_key(path), path
            assert path not in RENAMED_KEYS, path
        for key in re.findall(r"(?:^|[{,]\s*)([a-z_]+): ", code):
            assert key in all_names, f"{key} in: {code}"
    for kind, text in blocks:
        content = yaml.safe_load(text) if kind == "yaml" else None
        if isinstance(content, dict) and not SUITE_KEYS & set(content):
            for path in key_paths(content):
                assert is_key(path), path


def key_paths(content: dict[str, Any]) -> Iterator[str]:
    for section, value in content.items():
        yield section
        for entry in value if isinstance(value, list) else [value]:
            if isinstance(entry, dict) and section != "baselines":
                yield from (f"{section}.{key}" for key in entry)


@page_ids
def test_every_source_file_exists(page: Path) -> None:
    prose, _ = prose_and_code(page)
    places = (ROOT, ROOT / "src" / "motet", DOCS)
    folders = {p.name for place in places for p in place.iterdir() if p.is_dir()}
    for code in re.findall(r"`([^`\n]+)`", prose):
        # Commands in the guides write to runs/, which a checkout has as soon as someone used it.
        if SOURCE_FILE.fullmatch(code) and code.partition("/")[0] in folders - {"runs", "models"}:
            assert any((place / code).exists() for place in places), code
        if match := re.match(r"python -m (benchmarks\.\w+)", code):
            assert (ROOT / f"{match[1].replace('.', '/')}.py").exists(), code


@cache
def code_words() -> set[str]:
    files = [f for folder in ("src", "tests", "benchmarks", "docs") for f in (ROOT / folder).rglob("*.*")]
    texts = (f.read_text("utf-8") for f in files if f.suffix in (".py", ".yaml"))
    return {word for text in texts for word in re.findall(r"\w+", text)} | {f.stem for f in files}


@page_ids
def test_every_identifier_exists(page: Path) -> None:
    prose = prose_and_code(page)[0]
    if page.parent.name == "migrate":  # the first column of a table has the names of the other tool
        prose = re.sub(r"^\| [^|]+\|", "|", prose, flags=re.M)
    for code in re.findall(r"`([^`\n]+)`", prose):
        for word in re.findall(r"\b(?:[A-Z][a-z]+\w*[A-Z]\w*|[a-z]+_[a-z_]+)\b", code):
            assert word in code_words() | FOREIGN_KEYS, f"{word} in: {code}"


def test_the_index_of_papers_counts_their_claims() -> None:
    index = (DOCS / "papers" / "index.md").read_text("utf-8")
    totals = [0, 0, 0]
    for name, counts in re.findall(r"^\| \[[^]]+\]\((\w+\.md)\).* \| ([^|]+) \|$", index, re.M):
        lines = (DOCS / "papers" / name).read_text("utf-8").splitlines()
        verdicts = [
            re.match(r"- [✓○✗] (shown|not shown|contradicted): ", li) for li in lines if "5 seeds are needed" not in li
        ]
        numbers = [sum(m is not None and m[1] == v for m in verdicts) for v in ("shown", "not shown", "contradicted")]
        assert counts == (" / ".join(map(str, numbers)) if any(numbers) else "–"), name
        totals = [total + number for total, number in zip(totals, numbers, strict=True)]
    shown, not_shown, contradicted = totals
    sentence = (
        f"Of {sum(totals)} claims that were tested with five seeds, {shown} are shown, {not_shown} are not shown, and"
    )
    assert f"{sentence} {contradicted} are contradicted." in index


@page_ids
def test_sentences_are_short(page: Path) -> None:
    for sentence in sentences(page):
        assert len(sentence.split()) <= WORD_LIMIT, sentence


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda p: str(p.relative_to(ROOT)))
def test_commands_and_recipes_fit_on_the_site(page: Path) -> None:
    for kind, text in prose_and_code(page)[1]:
        if kind in ("", "sh", "bash", "yaml"):
            assert [line for line in text.splitlines() if len(line) > CODE_WIDTH] == []


def sentences(page: Path) -> Iterator[str]:
    """Yield the sentences of paragraphs and list items, without code, tables, headings and filled-in results."""
    text = re.sub(r"<!-- motet bench .*?<!-- end -->", "", prose_and_code(page)[0], flags=re.S)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    lines = ["" if re.match(r"\s*(\||#|!\[|<|:::)", line) else line for line in text.splitlines()]
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", "\n".join(lines)):
        yield from re.split(r"(?<=[.!?])[)*\"]*\s+(?=[A-Z*`\[(])", " ".join(paragraph.split()))
