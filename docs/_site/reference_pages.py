"""MkDocs hook: generate the reference pages from the code, so that they cannot go stale.

MkDocs calls `on_files` and `on_page_markdown`. The other functions return Markdown and are tested on their own.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import io
import re
import sys
import textwrap
import tokenize
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "src"))

COMPONENT_LINKS = {
    name: f"see [{table}](components.md#{table.replace(' ', '-')})"
    for name, table in {
        "task": "tasks",
        "partition": "partitions",
        "algorithm": "algorithms",
        "server": "server optimizers",
        "secure": "secure",
        "privacy": "privacy",
        "robust": "robust",
        "attack": "attacks",
        "transport": "transports",
        "codec.up": "codecs",
        "codec.down": "codecs",
    }.items()
}
SVG = re.compile(r"!\[[^\]]*\]\(([\w./-]+\.svg)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages and the two pages that live in the root folder."""
    from mkdocs.structure.files import File

    pages = {
        "reference/commands.md": commands(),
        "reference/recipes.md": recipe_keys(),
        "reference/components.md": components(),
        **api_pages(),
        "contributing.md": root_page("CONTRIBUTING.md"),
        "changelog.md": root_page("CHANGELOG.md"),
    }
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Inline SVG pictures: only inline, they follow the color mode of the page."""
    folder = Path(config.docs_dir, page.file.src_uri).parent
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
        lines += ["", f"## motet {name}", "", (command.help or "").strip(), ""]
        parameters = [p for p in command.params if not getattr(p, "hidden", False) and p.name != "help"]
        rows = [(f"`{_usage(p)}`", getattr(p, "help", None) or "") for p in parameters]
        lines += _table(("argument", "meaning"), rows) if rows else []
    return "\n".join(lines) + "\n"


def _walk_commands(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _walk_commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def _usage(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name).upper()
    return ", ".join(parameter.opts) + ("" if parameter.is_flag else " …")


def recipe_keys() -> str:
    """Return the reference of all recipe keys with their defaults and the comments beside them in the code."""
    from motet.experiment.recipe.run_config import GroupConfig, RunConfig
    from motet.learning.solver import Solver

    lines = [
        "# Recipe keys",
        "",
        "A recipe is a YAML file with these keys. Every key has a default.",
        "On the command line, write `section.key=value`.",
        "A section with a `type` takes the options of that type: see [Components](components.md).",
        "",
        *_describe_fields(RunConfig, "", skip=("recipe",)),
    ]
    for name, kind in (("groups", GroupConfig), ("solver", Solver)):
        lines += ["", f"## {name}", "", _docstring(kind), "", *_describe_fields(kind, f"{name}.", flat=True)]
    return "\n".join(lines) + "\n"


def _describe_fields(kind: type, prefix: str, skip: tuple[str, ...] = (), flat: bool = False) -> list[str]:
    comments, hints = _field_comments(kind), get_type_hints(kind)
    rows, sections = [], []
    for field in dataclasses.fields(kind):
        default, key = _default(field), f"{prefix}{field.name}"
        if dataclasses.is_dataclass(default) and not hasattr(default, "type"):
            if flat:
                rows.append((f"`{key}`", "section", "", f"as in [{field.name}](#{field.name})"))
                continue
            nested = _describe_fields(type(default), f"{key}.")
            sections += ["", f"## {key}", "", _docstring(type(default)), "", *nested]
        elif field.name not in skip:
            value = _yaml_value(getattr(default, "type", default))
            meaning = comments.get(field.name, "").replace("None:", "null:") or COMPONENT_LINKS.get(key, "")
            rows.append((f"`{key}`", _type_name(hints[field.name]), f"`{value}`", meaning))
            optional = [a for a in get_args(hints[field.name]) if default is None and dataclasses.is_dataclass(a)]
            for section in optional:
                sections += ["", f"## {key}", "", _docstring(section), "", *_describe_fields(section, f"{key}.")]
    return (_table(("key", "type", "default", "meaning"), rows) if rows else []) + sections


def _type_name(hint: Any) -> str:
    """Return the words for a type in a recipe; for a choice, the values."""
    origin, inner = get_origin(hint), [a for a in get_args(hint) if a not in (types.NoneType, ...)]
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in inner)
    if origin in (Union, types.UnionType):
        return " or ".join(map(_type_name, inner))
    if origin is tuple:
        return f"list of {_type_name(inner[0]).removeprefix('name or ')}s"
    if dataclasses.is_dataclass(hint) and "type" in (f.name for f in dataclasses.fields(hint)):
        return "name or section"
    words = {int: "integer", float: "number", bool: "boolean", str: "text"}
    return words.get(hint, "section")


def _yaml_value(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case "":
            return '""'
        case tuple() | list():
            return f"[{', '.join(map(_yaml_value, value))}]"
        case Mapping():
            return "{" + ", ".join(f"{k}: {_yaml_value(v)}" for k, v in value.items()) + "}"
    return str(value)


def _field_comments(kind: type) -> dict[str, str]:
    """Return the comment beside or inside each field of a dataclass."""
    source = textwrap.dedent(inspect.getsource(kind))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {t.start[0]: t.string.lstrip("# ") for t in tokens if t.type == tokenize.COMMENT}
    fields = [node for node in ast.parse(source).body[0].body if isinstance(node, ast.AnnAssign)]  # type: ignore[attr-defined]
    return {
        ast.unparse(node.target): " ".join(comments[n] for n in range(node.lineno, _end(node) + 1) if n in comments)
        for node in fields
    }


def _end(node: ast.AnnAssign) -> int:
    return node.end_lineno or node.lineno


def _docstring(kind: Callable[..., Any]) -> str:
    """Return a docstring, but not the signature that dataclasses generate."""
    text = inspect.getdoc(kind) or ""
    return "" if text.startswith(f"{kind.__name__}(") else text


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else ""


def components() -> str:
    """Return the reference of all entries of all tables, with the options of each entry."""
    from motet.experiment.commands.listings import TABLES, list_entries

    lines = ["# Components", "", "`motet list algorithms`, and so on, prints the same tables."]
    makers = component_tables()
    for table in dict.fromkeys((*TABLES, *makers)):
        entries = makers.get(table, {})
        texts = (
            list_entries(table)
            if table in TABLES
            else {name: _docstring(entries[name]).split("\n\n")[0] for name in entries}
        )
        rows = [(f"`{name}`", text, _options(entries.get(name))) for name, text in texts.items()]
        columns = ("name", "description", "options") if entries else ("name", "description")
        lines += ["", f"## {table.capitalize()}", "", *_table(columns, [row[: len(columns)] for row in rows])]
    return "\n".join(lines) + "\n"


def component_tables() -> dict[str, Mapping[str, Callable[..., Any]]]:
    """Return the tables with entries that take options."""
    from motet.algorithms import ALGORITHMS
    from motet.codecs import CODECS
    from motet.experiment.build.executor_builder import InProcessOptions
    from motet.experiment.deploy.mpi_launch import MpiOptions
    from motet.experiment.deploy.network_options import NetworkOptions
    from motet.experiment.deploy.ray_executor import RayOptions
    from motet.optim import SERVER_OPTIMIZERS
    from motet.partitions import PARTITIONS
    from motet.privacy import PRIVACY
    from motet.robust import ROBUST
    from motet.robust.attacks import ATTACKS
    from motet.secure import SECURE
    from motet.tasks import TASKS

    network = dict.fromkeys(("grpc", "mqtt"), NetworkOptions)
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
    yield from (parameter.name for parameter in _parameters(entry))


def _options(entry: Callable[..., Any] | None) -> str:
    """Return the options with those defaults that can be written in a recipe."""
    simple = (bool, int, float, str, tuple, type(None))
    options = [
        f"`{p.name}={_yaml_value(p.default)}`" if isinstance(p.default, simple) else f"`{p.name}`"
        for p in _parameters(entry)
    ]
    return ", ".join(options)


def _parameters(entry: Callable[..., Any] | None) -> Iterator[inspect.Parameter]:
    if entry is not None:
        for parameter in inspect.signature(entry).parameters.values():
            if parameter.kind is not parameter.VAR_KEYWORD and parameter.name not in ("corpus", "seed"):
                yield parameter


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


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    escaped = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    return [
        f"| {' | '.join(columns)} |",
        f"| {' | '.join('---' for _ in columns)} |",
        *(f"| {' | '.join(row)} |" for row in escaped),
    ]
