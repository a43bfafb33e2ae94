"""The documentation site builds without a warning, makes no request to another host, and describes the code as it is."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).parents[2]
# What a browser loads by itself: scripts, styles, images, fonts. A link that a reader may click is no such request.
REQUEST = re.compile(r"""<(?:script|img|iframe|source)[^>]+src=["']?(?:https?:)?//[^"'> ]+"""
                     r"""|<link[^>]+rel="?(?:stylesheet|preconnect|preload)[^>]+href=["']?(?:https?:)?//[^"'> ]+"""
                     r"""|(?:@import\s+|url\()["']?(?:https?:)?//[^"')]+""")  # fmt: skip


@pytest.fixture(scope="module")
def pages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference_pages", ROOT / "docs" / "_site" / "reference_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_site_builds_without_warnings_and_without_requests_to_other_hosts(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    build = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert build.returncode == 0, build.stdout + build.stderr
    assert (tmp_path / "index.html").exists()
    assert not list(external_requests(tmp_path))


def external_requests(site: Path) -> Iterator[str]:
    for path in site.rglob("*"):
        if path.suffix in (".html", ".css"):
            yield from (f"{path.relative_to(site)}: {match}" for match in REQUEST.findall(path.read_text("utf-8")))


def test_the_command_reference_names_every_command_and_no_hidden_option(pages: ModuleType) -> None:
    text = pages.commands()
    assert all(f"## motet {name}" in text for name in ("run", "bench", "report", "compare", "replay", "data build"))
    assert "--beside" not in text


def test_the_recipe_reference_names_every_key_with_its_comment(pages: ModuleType) -> None:
    from motet.experiment.recipe.run_config import CohortConfig, RunConfig

    text = pages.recipe_keys()
    assert all(f.name in text for f in dataclasses.fields(RunConfig) if f.name != "recipe")
    assert all(f"`cohort.{f.name}" in text for f in dataclasses.fields(CohortConfig))
    assert (
        "`cohort.size`{ #cohort.size } | integer ≥ 1 | `null` | clients per round; null: all<br>Example: `cohort.size=10` |"
        in text
    )
    without_meaning = re.findall(r"{ #([a-z_.]+) } \|[^|]*\|[^|]*\| *(?:<br>.*)?\|$", text, re.MULTILINE)
    assert without_meaning == []


def test_every_recipe_key_has_a_range_and_an_example_that_is_valid(pages: ModuleType) -> None:
    rows = re.findall(r"^\| `[a-z_.]+`{ #([a-z_.]+) } \| ([^|]+) \| [^|]* \| (.*) \|$", pages.recipe_keys(), re.M)
    assert len(rows) > 90
    without_range = {"seed", "evaluation.target_scores"}  # every number is valid
    for key, values, meaning in rows:
        assert key in without_range or not re.fullmatch("(list of )?(integer|number)s?", values), key
        if "as in [" not in meaning:
            setting = re.search(r"Example: `(.+)`$", meaning)
            assert setting, f"{key} has no example in docs/_site/examples.yaml"
            name, _, value = setting[1].partition("=")
            read_recipe_setting(name, value)


def read_recipe_setting(key: str, value: str) -> None:
    from motet.experiment.recipe.recipe_files import load_recipe

    if key.startswith("groups."):
        load_recipe("toy-classification", [f"groups=[{{{key.removeprefix('groups.')}: {value}}}]"])
    elif key == "model.quantize":
        load_recipe("toy-classification", [f"{key}={value}", "model.adapter.rank=8"])
    else:
        load_recipe("toy-classification", [f"{key}={value}"])


def test_the_component_reference_names_every_entry(pages: ModuleType) -> None:
    text = pages.components()
    assert all(f"| `{name}` |" in text for table in pages.component_tables().values() for name in table)


def test_every_option_of_a_component_has_a_meaning_and_a_valid_example_and_no_other_has(pages: ModuleType) -> None:
    import option_reference

    from motet.experiment.recipe.config_parsing import convert_value

    for title, entries in pages.component_tables().items():
        options = {p.name for entry in entries.values() for p in option_reference.parameters(entry)}
        assert set(option_reference.option_texts()[title]) == options, f"correct docs/_site/examples.yaml: {title}"
        for option, (_, example) in option_reference.option_texts()[title].items():
            owners = {name: entry for name, entry in entries.items() if option in pages.option_names(entry)}
            assert option_reference.option_meaning(title, option, owners), f"{title}: {option}"
            hints = [option_reference.option_type(entry, option) for entry in owners.values()]
            if example is not None:
                convert_value(yaml.safe_load(str(example)), hints[0], option)


def test_the_install_page_names_every_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    page = (ROOT / "docs" / "install.md").read_text("utf-8")
    assert [extra for extra in extras if f"`{extra}`" not in page] == []


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_of_the_root_pages_lead_to_files(name: str) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / name).read_text("utf-8")):
        assert (ROOT / link).exists(), link


def test_the_picture_of_the_layers_shows_the_allowed_imports() -> None:
    from tests.architecture.test_architecture import MAY_IMPORT

    picture = (ROOT / "docs" / "assets" / "layers.svg").read_text("utf-8")
    boxes = {
        name: set(imports.split()) for name, imports in re.findall(r'package="(\w+)" data-imports="(.*?)"', picture)
    }
    modules = {name for name in MAY_IMPORT if (ROOT / "src" / "motet" / f"{name}.py").exists()}  # it shows packages
    for name, imports in MAY_IMPORT.items():
        if name not in {"recipes", "suites", *modules}:  # recipes and suites are YAML only
            assert boxes[name] | {"core"} == (imports - modules) | {"core"}, name


def test_the_architecture_page_lists_the_allowed_imports_within_learning() -> None:
    from tests.architecture.test_architecture import LEARNING_MAY_IMPORT

    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    table = page[page.index("| part of `learning/`") : page.index("| part of `experiment/`")]
    rows = re.findall(r"^\| `(\w+)(?:/|\.py)` \| .*? \| (.*?)\|$", table, re.M)
    assert len(rows) > 5
    for name, imports in rows:
        assert {part.strip() for part in imports.split(",") if part.strip()} == LEARNING_MAY_IMPORT[name], name
