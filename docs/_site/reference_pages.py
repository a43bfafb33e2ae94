"""MkDocs hook: generate the reference pages from the code, so that they cannot go stale.

MkDocs calls `on_files` and `on_page_markdown`. The other functions return Markdown and are tested on their own.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "src"), str(Path(__file__).parent)]

from notebook_pages import notebook_pages  # noqa: E402
from option_reference import PLAIN, option_table, parameters  # noqa: E402
from recipe_reference import docstring, key_table, recipe_keys, solver_defaults, solver_keys, table, yaml_value  # noqa: E402

GENERATED: dict[str, Callable[[], str]] = {"solver keys": solver_keys, "solver defaults": solver_defaults}
SVG = re.compile(r"!\[[^\]]*\]\(([\w./-]+\.svg)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages and the two pages that live in the root folder."""
    from mkdocs.structure.files import File

    pages = {
        "reference/commands.md": commands(),
        "reference/recipes.md": recipe_keys(),
        "reference/components.md": components(),
        **api_pages(),
        **notebook_pages(),
        "contributing.md": root_page("CONTRIBUTING.md"),
        "changelog.md": root_page("CHANGELOG.md"),
    }
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Insert generated tables, and inline SVG pictures: only inline, they follow the color mode of the page."""
    folder = Path(config.docs_dir, page.file.src_uri).parent
    for name, generate in GENERATED.items():
        marker = f"<!-- generated: {name} -->"
        markdown = markdown.replace(marker, generate() if marker in markdown else "")
    markdown = markdown.replace("```error\n", "``` { .text .error }\n")  # site.css styles quoted errors
    return SVG.sub(lambda m: f'<div class="picture">\n{(folder / m[1]).read_text("utf-8")}</div>', markdown)


def root_page(name: str) -> str:
    """Return a page of the root folder with links that work inside docs/."""
    return (ROOT / name).read_text("utf-8").replace("](docs/", "](")


def commands() -> str:
    """Return the reference of all commands with their arguments and options."""
    import typer

    from motet.cli import app

    lines = ["# Commands", "", "`motet --help` and `motet COMMAND --help` print the same information."]
    for name, command in _walk_commands(typer.main.get_command(app)):
        shown = [p for p in command.params if not getattr(p, "hidden", False) and p.name != "help"]
        lines += ["", f"## motet {name}", "", (command.help or "").strip(), "", *_synopsis(name, shown), ""]
        rows = [(f"`{_usage(p)}`", getattr(p, "help", None) or "", _default_argument(p)) for p in shown]
        lines += key_table(("argument", "meaning", "default"), rows) if rows else []
    return "\n".join(lines) + "\n"


def _walk_commands(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _walk_commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def _synopsis(name: str, shown: list[Any]) -> list[str]:
    arguments = [f"[{_usage(p)}]" if not p.required else _usage(p) for p in shown if p.param_type_name == "argument"]
    options = ["[OPTIONS]"] if len(shown) > len(arguments) else []
    return ["```text", " ".join(["motet", name, *options, *arguments]), "```"]


def _default_argument(parameter: Any) -> str:
    if parameter.required:
        return "required"
    is_empty = parameter.default in (None, False, [], ()) or callable(parameter.default)
    return "" if is_empty else f"`{parameter.default}`"


def _usage(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name).upper()
    return ", ".join(parameter.opts) + ("" if parameter.is_flag else " …")


def components() -> str:
    """Return the reference of all entries of all tables, with the options of each entry."""
    from motet.experiment.commands.listings import TABLES, list_entries

    lines = ["# Components", "", "`motet list algorithms`, and so on, prints the same tables."]
    makers = component_tables()
    for title in dict.fromkeys((*TABLES, *makers)):
        entries = makers.get(title, {})
        texts = (
            list_entries(title)
            if title in TABLES
            else {name: docstring(entries[name]).split("\n\n")[0] for name in entries}
        )
        rows = [(f"`{name}`", text, _options(entries.get(name))) for name, text in texts.items()]
        columns = ("name", "description", "options") if entries else ("name", "description")
        lines += ["", f"## {title.capitalize()}", "", *_entry_table(columns, rows)]
        if entries:
            lines += ["", *option_table(title, entries)]
    return "\n".join(lines) + "\n"


def _entry_table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    return key_table(columns, rows) if len(columns) > 2 else table(columns, [row[:2] for row in rows])


def component_tables() -> dict[str, Mapping[str, Callable[..., Any]]]:
    """Return the tables with entries that take options."""
    from motet.algorithms import ALGORITHMS
    from motet.codecs import CODECS
    from motet.experiment.build.in_process_options import InProcessOptions
    from motet.experiment.deploy.network_options import MpiOptions, NetworkOptions
    from motet.experiment.deploy.ray_executor import RayOptions
    from motet.optim import SERVER_OPTIMIZERS
    from motet.partitions import PARTITIONS
    from motet.privacy import PRIVACY
    from motet.robust import ROBUST
    from motet.robust.attacks import ATTACKS
    from motet.secure import SECURE
    from motet.tasks import TASKS

    network = dict.fromkeys(("grpc", "mqtt", "flower"), NetworkOptions)
    return {
        "algorithms": ALGORITHMS,
        "server optimizers": SERVER_OPTIMIZERS,
        "tasks": TASKS,
        "partitions": PARTITIONS,
        "codecs": CODECS,
        "transports": {"in_process": InProcessOptions, **network, "mpi": MpiOptions, "ray": RayOptions},
        "secure": SECURE,
        "privacy": PRIVACY,
        "robust": ROBUST,
        "attacks": ATTACKS,
    }


def option_names(entry: Callable[..., Any] | None) -> Iterator[str]:
    """Yield the options that a recipe can give to an entry of a table."""
    yield from (parameter.name for parameter in parameters(entry))


def _options(entry: Callable[..., Any] | None) -> str:
    """Return the options with those defaults that can be written in a recipe."""
    options = [
        f"`{p.name}={yaml_value(p.default)}`" if isinstance(p.default, PLAIN) else f"`{p.name}`"
        for p in parameters(entry)
    ]
    return ", ".join(options)


def api_pages() -> dict[str, str]:
    """Return the pages that mkdocstrings fills in from docstrings."""
    import motet

    public = [getattr(motet, name) for name in motet.__all__ if not name.startswith("__")]
    tables = component_tables()
    algorithms = set(tables["algorithms"].values())
    return {
        "reference/api/motet.md": _api_page(
            "motet", "The functions you call from Python.", [o for o in public if o not in algorithms]
        ),
        "reference/api/algorithms.md": _api_page(
            "Algorithms",
            "Each function returns an algorithm for `motet.run`. A recipe names it as `algorithm.type`.",
            tables["algorithms"].values(),
        ),
        "reference/api/partitions.md": _api_page(
            "Partitions", "Each function divides a corpus among clients.", tables["partitions"].values()
        ),
        "reference/api/codecs.md": _api_page(
            "Codecs", "Each function returns a codec for one direction of a channel.", tables["codecs"].values()
        ),
    }


def _api_page(title: str, text: str, objects: Iterable[Any]) -> str:
    names = dict.fromkeys(f"{o.__module__}.{o.__qualname__}" for o in objects)
    return "\n\n".join([f"# {title}", text, *(f"::: {name}" for name in names)]) + "\n"
